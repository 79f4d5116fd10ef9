"""Integrals over densities whose constants, moments and quantiles are known, by every rule."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import betaln, digamma, gammaln, polygamma

from latlin.hyper import Evaluation, Hyperparameter, Space, integrate, maximise
from latlin.hyper.axes import Axes, axes_at
from latlin.hyper.marginals import share_beyond
from latlin.hyper.optimum import find_optimum, hessian_at
from latlin.hyper.rules import _choose_informative
from latlin.hyper.space import Objective
from latlin.numerics.alerts import ConvergenceWarning
from latlin.priors import Flat, Gamma, HalfCauchy, HalfNormal, LogNormal


class LogGammas:
    """Independent logarithms of gamma numbers in rotated coordinates: skewed, correlated, of integral one."""

    def __init__(self, m, seed=0, low=2.0):
        rng = np.random.default_rng(seed)
        self.turn = np.linalg.qr(rng.standard_normal((m, m)))[0]
        self.shape = rng.uniform(low, 3.0 * low, m)
        self.names = [f"x{j}" for j in range(m)]
        self.space = Space([Hyperparameter(name, 0.1, Flat(), (-np.inf, np.inf)) for name in self.names])
        self.calls = 0

    def __call__(self, values, before, slopes):
        self.calls += 1
        v = self.turn @ np.array([values[name] for name in self.names])
        value = float(np.sum(self.shape * v - np.exp(v) - gammaln(self.shape)))
        slope = self.turn.T @ (self.shape - np.exp(v))
        return Evaluation(value, dict(zip(self.names, slope, strict=True)) if slopes else None, None)

    @property
    def mean(self):
        return self.turn.T @ digamma(self.shape)

    @property
    def sd(self):
        return np.sqrt(self.turn.T**2 @ polygamma(1, self.shape))

    def quantiles(self, levels):
        draws = np.log(np.random.default_rng(1).gamma(self.shape, size=(200_000, len(self.shape)))) @ self.turn
        return np.quantile(draws, levels, axis=0)


def column(learnt, name):
    return np.array([row[name] for row in learnt.table.rows])


@pytest.mark.parametrize(("m", "accuracy"), [(1, 1e-3), (2, 2e-3), (3, 1e-2)])
def test_lattices(m, accuracy):
    density = LogGammas(m)
    learnt = integrate(density.space, density)
    assert abs(learnt.log_evidence) < accuracy / 4.0
    assert abs(learnt.log_evidence) < learnt.error < 0.02
    np.testing.assert_allclose(column(learnt, "mean"), density.mean, atol=accuracy)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=accuracy)
    for level, name in ((0.05, "5%"), (0.5, "50%"), (0.95, "95%")):
        np.testing.assert_allclose(column(learnt, name), density.quantiles(level), atol=0.04 * density.sd.max())
    assert sum(component.share for component in learnt.components) == pytest.approx(1.0)
    assert density.calls < 280
    assert learnt.caution is None


class SkewedGammas(LogGammas):
    """Independent logarithms of gamma numbers along directions that are not at right angles: no axes separate them."""

    def __init__(self, m, seed=0):
        super().__init__(m, seed)
        self.turn = np.eye(m) + 0.6 * np.random.default_rng(seed + 100).standard_normal((m, m)) / np.sqrt(m)

    def __call__(self, values, before, slopes):
        found = super().__call__(values, before, slopes)
        return found._replace(log_evidence=found.log_evidence + np.linalg.slogdet(self.turn)[1])

    @property
    def mean(self):
        return np.linalg.solve(self.turn, digamma(self.shape))

    @property
    def sd(self):
        return np.sqrt(np.linalg.inv(self.turn) ** 2 @ polygamma(1, self.shape))


@pytest.mark.parametrize("m", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("kind", [LogGammas, SkewedGammas])
def test_composite_designs(kind, m):
    density = kind(m)
    learnt = integrate(density.space, density, method="composite")
    assert abs(learnt.log_evidence) < learnt.error < 0.15
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.025 * density.sd)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.04)
    assert density.calls < 140
    assert "may be off" not in learnt.message
    # the mixture has the moments of the table
    points = np.array([[c.values[name] for name in density.names] for c in learnt.components])
    share = np.array([c.share for c in learnt.components])
    np.testing.assert_allclose(share @ points, column(learnt, "mean"), atol=1e-3 * density.sd.max())
    spread = np.sqrt(share @ (points - share @ points) ** 2)
    np.testing.assert_allclose(spread, column(learnt, "sd"), rtol=1e-3)
    for level, name in ((0.05, "5%"), (0.5, "50%"), (0.95, "95%")):
        if kind is LogGammas:
            np.testing.assert_allclose(column(learnt, name), density.quantiles(level), atol=0.05 * density.sd.max())


def test_composite_designs_without_gradients_say_what_they_do_not_know():
    density = SkewedGammas(8)
    learnt = integrate(
        density.space, lambda *arguments: density(*arguments)._replace(gradient=None), method="composite"
    )
    assert abs(learnt.log_evidence) < learnt.error
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.15 * density.sd)
    assert "their means may be off" in learnt.message


def test_wide_lattices_of_densities_near_a_normal():
    """Gamma densities of many degrees of freedom: fewer points, and moments as good."""
    density = LogGammas(2, low=60.0)
    learnt = integrate(density.space, density)
    assert abs(learnt.log_evidence) < 2e-3
    np.testing.assert_allclose(column(learnt, "mean"), density.mean, atol=2e-3 * density.sd.max())
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.01)
    assert density.calls < 60


def test_points_along_the_axes_are_enough_for_densities_near_a_normal():
    density = LogGammas(2, low=300.0)
    learnt = integrate(density.space, density, method="composite")
    assert "a design of 5 points" in learnt.message
    assert abs(learnt.log_evidence) < learnt.error < 0.05
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.002 * density.sd)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.005)


def test_importance_sampling():
    density = LogGammas(10)
    learnt = integrate(density.space, density)
    assert abs(learnt.log_evidence) < 3.0 * learnt.error < 0.4
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.15 * density.sd)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.12)
    assert "k̂" in learnt.message
    again = integrate(density.space, density)
    assert again.log_evidence == learnt.log_evidence


def test_all_rules_agree_with_the_lattice():
    density = LogGammas(3, seed=4)
    exact = integrate(density.space, density)
    sampled = integrate(density.space, density, method="importance")
    assert sampled.log_evidence == pytest.approx(exact.log_evidence, abs=0.1)


def test_weights_are_the_evidence():
    density = LogGammas(2)
    learnt = integrate(density.space, density)
    # Σ exp(log weight) × evidence of the part
    logs = [c.log_weight + density(c.values, None, False).log_evidence for c in learnt.components]
    assert np.log(np.sum(np.exp(logs))) == pytest.approx(learnt.log_evidence, abs=1e-9)


def test_a_prior_alone_comes_back():
    """Without data the posterior is the prior: its mean, sd, quantiles, density, and an evidence of one."""
    prior = Gamma(3.0, 2.0)
    learnt = integrate(Space([Hyperparameter("x", 1.0, prior)]), lambda *_: Evaluation(0.0, {"x": 0.0}, None))
    assert learnt.log_evidence == pytest.approx(0.0, abs=1e-3)
    (row,) = learnt.table.rows
    assert (row["mean"], row["sd"]) == pytest.approx((1.5, np.sqrt(3.0) / 2.0), rel=2e-3)
    marginal = learnt.table.marginals["x"]
    np.testing.assert_allclose(marginal.quantile([0.05, 0.5, 0.95]), prior.quantile([0.05, 0.5, 0.95]), rtol=0.01)
    x = prior.quantile([0.2, 0.5, 0.8])
    np.testing.assert_allclose(marginal.pdf(x), np.exp(prior.log_density(x)), rtol=0.03)
    np.testing.assert_allclose(marginal.cdf(x), [0.2, 0.5, 0.8], atol=0.01)


def test_differences_stand_in_for_a_gradient():
    density = LogGammas(2)
    exact = integrate(density.space, density)
    without = integrate(density.space, lambda *arguments: density(*arguments)._replace(gradient=None))
    assert without.log_evidence == pytest.approx(exact.log_evidence, abs=1e-4)


def test_the_penalised_optimum_has_no_volume():
    """Maximising is about the number itself: the mode of a gamma density, not that of its logarithm."""
    space = Space([Hyperparameter("x", 5.0, Gamma(3.0, 2.0))])
    learnt = maximise(space, lambda *_: Evaluation(0.0, {"x": 0.0}, None), gradient=1e-9, gain=1e-15)
    assert learnt.values["x"] == pytest.approx(1.0, rel=1e-6)
    # d² log p / d(log x)² = −rate x there
    assert learnt.hessian[0, 0] == pytest.approx(-2.0, rel=1e-3)
    # a log-normal with variance ½ of the logarithm
    assert learnt.table["x"]["sd"] == pytest.approx(np.sqrt((np.exp(0.5) - 1.0) * np.exp(0.5)), rel=1e-3)


def rising(values, before, slopes):
    return Evaluation(np.log(values["x"]), {"x": 1.0 / values["x"]}, "fit")


def test_an_optimum_at_an_end_is_said():
    space = Space([Hyperparameter("x", 1.0, Flat(), bounds=(0.1, 10.0))])
    learnt = maximise(space, rising)
    assert learnt.table.at_bound == ("x",)
    assert learnt.values["x"] == pytest.approx(10.0)
    assert learnt.caution[0] == "wrong"
    assert "x runs to the upper end of its search (it is 10)" in learnt.message
    assert "integrate over it" in learnt.message


def test_a_scale_that_runs_to_zero_is_said():
    """log evidence −x² has no curvature in log x near zero, where a search gives up."""
    space = Space([Hyperparameter("x", 1.0, HalfNormal(1.0))])
    learnt = maximise(space, lambda v, *_: Evaluation(-(v["x"] ** 2), {"x": -2.0 * v["x"]}, None))
    assert learnt.table["x"]["at_bound"] == "lower"
    # integrated, the same is a density like any other: half normal of precision 1 + 2
    averaged = integrate(space, lambda v, *_: Evaluation(-(v["x"] ** 2), {"x": -2.0 * v["x"]}, None))
    assert averaged.table.at_bound == ()
    assert averaged.values["x"] == pytest.approx(np.sqrt(2.0 / np.pi / 3.0), rel=3e-3)
    assert averaged.log_evidence == pytest.approx(-0.5 * np.log(3.0), abs=3e-3)


def test_a_density_that_the_ends_cut_off_is_said():
    space = Space([Hyperparameter("x", 1.0, HalfCauchy(1.0), bounds=(0.01, 2.0))])
    learnt = integrate(space, lambda v, *_: Evaluation(v["x"], {"x": 1.0}, None))
    assert learnt.table["x"]["at_bound"] == "upper"
    assert learnt.caution[0] == "wrong"


def test_what_lies_beyond_an_end_decides_whether_it_is_said():
    """Half Cauchy tails beyond 30 and 300: 2.1 and 0.21 per cent; beyond 3: 20 per cent."""
    found = {}
    for end in (3.0, 30.0, 300.0):
        space = Space([Hyperparameter("x", 1.0, HalfCauchy(1.0), bounds=(1e-9, end))])
        found[end] = integrate(space, lambda v, *_: Evaluation(0.0, {"x": 0.0}, None))
    assert found[3.0].table.at_bound == ("x",)
    percent = int(found[3.0].message.split("about ")[1].split(" %")[0])
    assert abs(percent - 20) <= 8
    assert found[3.0].caution[0] == "wrong"
    assert [found[end].caution for end in (30.0, 300.0)] == [None, None]


def test_marginals_of_a_bent_density_have_its_symmetry():
    """Two numbers of which only the sum of the squares is known: an arc that reaches to both ends."""

    def arc(values, before, slopes):
        total = values["a"] ** 2 + values["b"] ** 2
        pull = {name: -64.0 * np.log(total) * values[name] / total for name in ("a", "b")}
        return Evaluation(-16.0 * np.log(total) ** 2, pull, None)

    space = Space([Hyperparameter(name, start, HalfNormal(2.0)) for name, start in (("a", 0.6), ("b", 0.8))])
    marginals = integrate(space, arc, method="lattice").table.marginals
    x = np.linspace(0.0, 2.0, 801)[1:]
    size = np.log(x[:, None] ** 2 + x**2)
    mass = np.exp(-16.0 * size**2 - 0.125 * np.exp(size)).sum(axis=1)
    levels = np.array([0.05, 0.5, 0.95])
    right = np.interp(levels, np.cumsum(mass) / mass.sum(), x)
    for marginal in marginals.values():
        np.testing.assert_allclose(marginal.quantile(levels), right, atol=0.03)


def test_walls_are_turned_back_from():
    def walled(values, before, slopes):
        if values["x"] > 3.0:
            raise ValueError("no fit there")
        return Evaluation(0.0, {"x": 0.0}, None)

    learnt = integrate(Space([Hyperparameter("x", 1.0, LogNormal(0.0, 0.5))]), walled)
    # the mass of a normal below log 3 / 0.5
    assert learnt.log_evidence == pytest.approx(np.log(0.986), abs=0.02)
    with pytest.raises(ValueError, match="no fit there"):
        integrate(Space([Hyperparameter("x", 5.0, LogNormal(0.0, 0.5))]), walled)


def test_a_search_that_does_not_end_is_said(monkeypatch):
    monkeypatch.setattr("latlin.hyper.optimum.MOST", 2)
    density = LogGammas(6)
    with pytest.warns(ConvergenceWarning, match=r"stopped after \d+ fits with a gradient of"):
        maximise(density.space, density, curvature=False)


def test_fits_start_from_the_nearest():
    starts = []

    def evaluate(values, before, slopes):
        starts.append(before)
        return Evaluation(
            -((np.log(values["x"]) - 1.0) ** 2), {"x": -2 * (np.log(values["x"]) - 1) / values["x"]}, values
        )

    integrate(Space([Hyperparameter("x", 1.0, LogNormal(0.0, 2.0))]), evaluate)
    assert starts[0] is None
    assert all(before is not None for before in starts[1:])


@pytest.mark.parametrize(
    ("count", "method", "message"),
    [
        (1, "guess", "method must be one of 'auto', 'quick', 'lattice', 'composite', 'importance', got 'guess'"),
        (4, "lattice", "4 hyperparameters are too many to integrate over by 'lattice', which takes up to 3"),
        (1, "composite", "method 'composite' is for two or more"),
        (61, "auto", "too many to integrate over by 'importance', which takes up to 60"),
    ],
)
def test_what_is_refused(count, method, message):
    density = LogGammas(count)
    with pytest.raises(ValueError, match=message):
        integrate(density.space, density, method=method)


def test_the_table():
    density = LogGammas(2)
    table = integrate(density.space, density).table
    assert table.names == ("x0", "x1")
    assert len(table) == 2
    assert "hyperparameters, integrated" in repr(table)
    assert "<table>" in table._repr_html_()
    frame = table.to_frame()
    assert list(frame.columns) == ["mean", "sd", "5%", "50%", "95%", "at_bound", "prior"]
    assert frame.loc["x1", "mean"] == table["x1"]["mean"]
    with pytest.raises(KeyError, match="no hyperparameter 'y'; there are x0, x1"):
        table["y"]


def test_designs_grow_where_they_are_unsure():
    """Tails that fall by far more slowly than those of a normal on one side, as those of scales that may be zero."""
    density = LogGammas(4, seed=1, low=0.7)
    learnt = integrate(density.space, density, method="composite")
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.05 * density.sd)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.08)
    assert "may be off" not in learnt.message
    # the design alone has 30 points after a search of 12 fits
    assert 42 < density.calls < 100


class Cliff(LogGammas):
    """The same where it matters; from twelve nat below the top on, the value and slope of an overflow."""

    fell = False

    def __call__(self, values, before, slopes):
        found = super().__call__(values, before, slopes)
        if (
            found.log_evidence
            > float(np.sum(self.shape * np.log(self.shape) - self.shape - gammaln(self.shape))) - 12.0
        ):
            return found
        self.fell = True
        return Evaluation(-5e198, dict.fromkeys(self.names, 6e201) if slopes else None, None)


def test_points_of_a_design_whose_density_overflows_are_left_out():
    density = Cliff(4, seed=1, low=0.7)
    learnt = integrate(density.space, density, method="composite")
    assert density.fell
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.05 * density.sd)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.05)


class BetaPrimes:
    """Independent numbers with the density xᵃ⁻¹(1 + x)⁻ᵃ⁻ᵇ/B(a, b): long tails, as those of scales of few levels."""

    def __init__(self, a, b):
        self.a, self.b = np.array(a), np.array(b)
        self.names = [f"x{j}" for j in range(len(a))]
        self.space = Space([Hyperparameter(name, 0.5, Flat()) for name in self.names])
        self.calls = 0

    def __call__(self, values, before, slopes):
        self.calls += 1
        x = np.array([values[name] for name in self.names])
        value = np.sum((self.a - 1.0) * np.log(x) - (self.a + self.b) * np.log1p(x) - betaln(self.a, self.b))
        slope = (self.a - 1.0) / x - (self.a + self.b) / (1.0 + x)
        return Evaluation(float(value), dict(zip(self.names, slope, strict=True)) if slopes else None, None)

    @property
    def mean(self):
        return self.a / (self.b - 1.0)

    @property
    def sd(self):
        return np.sqrt(self.a * (self.a + self.b - 1.0) / (self.b - 2.0)) / (self.b - 1.0)


@pytest.mark.parametrize(("a", "b"), [((1.0, 1.0, 1.5, 2.0), (3.0, 3.5, 4.0, 8.0)), ((5.0,) * 5, (3.0,) * 5)])
def test_designs_follow_long_tails_of_scales(a, b):
    density = BetaPrimes(a, b)
    learnt = integrate(density.space, density, method="composite")
    assert abs(learnt.log_evidence) < learnt.error < 0.15
    assert np.all(np.abs(column(learnt, "mean") - density.mean) < 0.02 * density.sd)
    np.testing.assert_allclose(column(learnt, "sd"), density.sd, rtol=0.05)
    # the mixture has numbers and squares, on which variances of coefficients depend
    points = np.array([[c.values[name] for name in density.names] for c in learnt.components])
    share = np.array([c.share for c in learnt.components])
    np.testing.assert_allclose(share @ points, column(learnt, "mean"), rtol=0.02)
    spread = np.sqrt(share @ (points - share @ points) ** 2)
    np.testing.assert_allclose(spread, column(learnt, "sd"), rtol=0.08)
    assert density.calls < 140


def test_drawn_in_coordinates_of_an_axis():
    """They go both ways, the map rises, and the falls that gave it are ½z²; a light tail on both sides leaves t."""
    rng = np.random.default_rng(0)
    up, down = np.array([1.29, 1.0, 1.2, 0.8]), np.array([0.77, 1.21, 1.15, 0.9])
    axes = Axes(rng.standard_normal(4), np.eye(4), up, down, long_tails=True)
    u = axes.centre + np.linspace(-12.0, 12.0, 97)[:, None] * np.ones(4)
    z = axes.drawn_in(u)
    assert np.all(np.diff(z, axis=0) > 0.0)
    step = 1e-5
    across = (axes.drawn_in(u + step) - axes.drawn_in(u - step)) / (2.0 * step)
    np.testing.assert_allclose(across * axes.stretch(z), 1.0, atol=1e-6)
    at = axes.drawn_in(np.stack([axes.centre + np.sqrt(2.0), axes.centre - np.sqrt(2.0)]))
    # both tails of the third axis are long, and the falls there are 1/s²
    np.testing.assert_allclose(0.5 * at[:, 2] ** 2, [1.2**-2, 1.15**-2], rtol=1e-9)
    np.testing.assert_allclose(z[:, 3], axes.unscaled(u)[:, 3])


def test_points_that_tell_most_are_not_alike():
    near = np.array([[0.0], [0.01], [3.0]])
    covariance = np.exp(-0.5 * (near - near.T) ** 2)
    assert sorted(_choose_informative(covariance, 2)) in ([0, 2], [1, 2])


@pytest.mark.parametrize("share", [1.0, 6.0])
def test_the_curvature_of_a_search_serves_where_gradients_confirm_it(share):
    density = LogGammas(2, low=60.0)
    objective = Objective(density.space, density, volume=True)
    optimum = find_optimum(objective, gradient=1e-6)
    hessian = hessian_at(objective, optimum.u)[0]
    density.calls = 0
    axes = axes_at(objective, replace(optimum, curvature=-share * hessian), sloped=True)
    np.testing.assert_allclose(np.linalg.inv(axes.basis @ axes.basis.T), -hessian, rtol=1e-6)
    assert density.calls == (4 if share == 1.0 else 4 + 4 + 4)


def test_ends_of_searches_are_printed_where_one_is_reached():
    for end, shown in ((2.0, True), (1e9, False)):
        space = Space([Hyperparameter("x", 1.0, HalfNormal(1.0), bounds=(0.01, end))])
        table = integrate(space, lambda v, *_: Evaluation(v["x"], {"x": 1.0}, None)).table
        assert bool(table.at_bound) is shown
        assert ("at_bound" in repr(table)) is shown
        assert ("at_bound" in table._repr_html_()) is shown
        assert ("upper" in repr(table)) is shown
        assert table.to_frame()["at_bound"].tolist() == ["upper" if shown else ""]


@pytest.mark.parametrize(("mass", "beyond"), [(0.004, 0.0), (0.05, np.inf)])
def test_a_slight_bump_at_an_end_is_no_density_that_stays_high(mass, beyond):
    """Less than a hundredth in the last slice does not tell how the density goes on, though it rises there."""
    member = Hyperparameter("sd", 1.0, bounds=(1e-4, 1e2))
    low, middle = member.coordinate(1e-4), member.coordinate(0.1)
    at = np.concatenate([np.linspace(low, low + 0.4, 9), np.linspace(middle - 1.0, middle + 1.0, 41)])
    share = np.concatenate([np.full(9, mass / 9.0), np.full(41, (1.0 - mass) / 41.0)])
    x = np.exp(at)
    np.testing.assert_allclose([member.coordinate(float(v)) for v in x], at)
    marginal = SimpleNamespace(x=x, levels=np.cumsum(share))
    assert share_beyond(member, marginal, -1) == beyond

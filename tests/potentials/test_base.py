"""What all potentials share: shapes, immutability, selection, checks of input, predictives."""

from __future__ import annotations

import copy
import pickle

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import simpson
from scipy.special import gammainc, polygamma

from latlin.numerics.quadrature import three_derivatives, trapezoid
from latlin.numerics.special import log_sigmoid
from latlin.potentials import (
    AsymmetricLaplace,
    Beta,
    BetaBinomial,
    Binomial,
    Cauchy,
    Custom,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    GeneralisedNormal,
    GeneralisedPoisson,
    Horseshoe,
    Huber,
    Hurdle,
    Interval,
    InverseGaussian,
    Laplace,
    Logistic,
    Logit,
    LogLogistic,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Potential,
    Probit,
    SpikeAndSlab,
    Step,
    StudentT,
    Truncated,
    Tweedie,
    Weibull,
    ZeroInflated,
)
from latlin.potentials.averaged import AveragedPredictive

BLOCKS = {
    "logit": Logit([1, 0, 1, 1]),
    "probit": Probit([-1, 1, 1, -1]),
    "logistic": Logistic([0.0, 1.0, -2.0, 3.0], [1.0, 0.5, 2.0, 1.0]),
    "poisson": Poisson([0, 4, 1, 2]),
    "ordinal": Ordinal([0, 2, 1, 2], cuts=[-0.5, 1.0]),
    "ordinal_logit": Ordinal([0, 2, 1, 2], cuts=[-0.5, 1.0], link="logit"),
    "gaussian": Gaussian([0.0, 1.0, -2.0, 3.0], 0.5),
    "laplace": Laplace(0.5, [1.0, 0.5, 2.0, 1.0]),
    "step": Step([1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4]),
    "student_t": StudentT([2.0, 3.0, 4.0, 50.0], 0.5),
    "cauchy": Cauchy([0.0, 1.0, -2.0, 3.0], 0.5),
    "generalised_normal": GeneralisedNormal([0.5, 1.0, 1.5, 3.0], 0.5),
    "gaussian_mixture": GaussianMixture([[0.9, 0.1]] * 3 + [[0.5, 0.5]], [0.0, 0.5], [0.1, 1.0]),
    "binomial": Binomial([0, 4, 1, 2], [3, 4, 9, 2]),
    "binomial_probit": Binomial([0, 4, 1, 2], [3, 4, 9, 2], "probit"),
    "binomial_cloglog": Binomial([0, 4, 1, 2], [3, 4, 9, 2], "cloglog"),
    "negative_binomial": NegativeBinomial([0, 4, 1, 2], [0.5, 1.0, 2.0, 0.01]),
    "negative_binomial_linear": NegativeBinomial([0, 4, 1, 2], 0.5, "linear"),
    "gamma": Gamma([0.1, 1.0, 2.0, 7.0], 2.0),
    "inverse_gaussian": InverseGaussian([0.1, 1.0, 2.0, 7.0], [0.5, 1.0, 2.0, 4.0]),
    "log_normal": LogNormal([0.1, 1.0, 2.0, 7.0], [0.5, 1.0, 2.0, 4.0]),
    "weibull": Weibull([0.1, 1.0, 2.0, 7.0], [1, 0, 1, 1], 1.5),
    "weibull_censored": Weibull([0.1, 1.0, 2.0, 7.0], [1, 0, 2, 3], [0.5, 1.0, 2.0, 1.5], 9.0),
    "exponential": Exponential([0.1, 1.0, 2.0, 7.0], [1, 0, 1, 2]),
    "log_logistic": LogLogistic([0.1, 1.0, 2.0, 7.0], [1, 0, 2, 1], 1.5),
    "log_logistic_censored": LogLogistic([0.1, 1.0, 2.0, 7.0], [1, 0, 2, 3], 1.5, 9.0),
    "tweedie": Tweedie([0.0, 1.0, 2.0, 7.0], [1.2, 1.5, 1.8, 1.5], 1.5),
    "beta": Beta([0.1, 0.5, 0.6, 0.999], [1.0, 3.0, 10.0, 4.0]),
    "beta_binomial": BetaBinomial([0, 4, 1, 2], [3, 4, 9, 2], [1.0, 3.0, 10.0, 4.0]),
    "asymmetric_laplace": AsymmetricLaplace([0.1, 0.5, 0.75, 0.9], [0.0, 1.0, -2.0, 3.0], 0.5),
    "huber": Huber([0.0, 1.0, -2.0, 3.0], 0.5, [0.5, 1.0, 2.0, 0.1]),
    "zero_inflated": ZeroInflated(Poisson([0, 4, 0, 2]), [0.1, 0.2, 0.3, 0.4]),
    "zero_inflated_negative_binomial": ZeroInflated(NegativeBinomial([0, 4, 0, 2], 0.5), 0.25),
    "zero_inflated_binomial": ZeroInflated(Binomial([0, 4, 0, 2], [3, 4, 9, 2]), 0.25),
    "hurdle": Hurdle(Poisson([0, 4, 1, 2]), [0.1, 0.2, 0.3, 0.4]),
    "hurdle_negative_binomial": Hurdle(NegativeBinomial([0, 4, 1, 2], [0.5, 1.0, 2.0, 0.1]), 0.25),
    "truncated": Truncated(Gaussian([0.1, 4.0, 1.0, 2.0], [0.5, 1.0, 2.0, 0.1]), 0.0, 5.0),
    "generalised_poisson": GeneralisedPoisson([0, 4, 1, 2], [0.1, 0.2, 0.3, 0.4]),
    "spike_and_slab": SpikeAndSlab([0.1, 0.2, 0.3, 0.4], 1.5, 0.1),
    "horseshoe": Horseshoe([0.0, 1.0, -2.0, 3.0], 0.5),
    "custom": Custom(lambda x, y: log_sigmoid(x * y), args=[[1.0, -1.0, 1.0, -1.0]], log_concave=True),
}
MEAN, VAR = np.array([0.3, -1.0, 2.0, 0.5]), np.array([0.2, 1.0, 0.5, 3.0])
EACH = pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())


@EACH
def test_sites_are_independent_of_their_neighbours(block: Potential):
    index = np.array([2, 0, 0])
    part = block.select(index)
    assert (block.size, part.size) == (4, 3)
    for whole, some in zip(block.expected_log(MEAN, VAR), part.expected_log(MEAN[index], VAR[index]), strict=True):
        np.testing.assert_allclose(some, whole[index], rtol=1e-12, atol=1e-13)
    for whole, some in zip(
        block.tilted_moments(MEAN, VAR, 0.7), part.tilted_moments(MEAN[index], VAR[index], 0.7), strict=True
    ):
        np.testing.assert_allclose(some, whole[index], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(part.log_density(MEAN[index]), block.log_density(MEAN)[index])


@EACH
def test_leading_axes_broadcast(block: Potential):
    mean = np.stack([MEAN, MEAN + 1, MEAN - 2])
    for method in (block.expected_log, block.tilted_moments):
        together = method(mean, VAR)
        for got, want in zip(together, zip(*(method(line, VAR) for line in mean), strict=True), strict=True):
            np.testing.assert_allclose(got, np.stack(want), rtol=1e-10, atol=1e-12)
    assert block.log_density(mean).shape == block.derivatives(mean).first.shape == (3, 4)


@EACH
def test_immutable_and_copied_whole(block: Potential):
    with pytest.raises(AttributeError, match="immutable"):
        block.scale = 3.0
    assert type(block).__name__ in repr(block)
    np.testing.assert_array_equal(copy.deepcopy(block).log_density(MEAN), block.log_density(MEAN))


def test_pickles_and_does_not_see_later_changes_of_its_data():
    y = np.array([0.0, 1.0])
    block = Logistic(y, 2.0)
    y[:] = 9.0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(block)).loc, [0.0, 1.0])
    assert repr(Logit(np.ones(9))) == "Logit(y=<9 values, 1 … 1>)"
    with pytest.raises(ValueError, match="read-only"):
        block.loc[0] = 1.0


def test_no_sites_give_empty_answers():
    for block in (Logistic(), Probit(1), Poisson(2), Logit(1), Ordinal(0, [0.0])):
        assert block.expected_log(np.zeros(0), 1.0).value.shape == (0,)
        assert block.tilted_moments(np.zeros(0), 1.0, 0.5).mean.shape == (0,)
        assert block.predictive(np.zeros(0), 1.0).mean.shape == (0,)


def test_labels_of_any_kind_are_the_same():
    for y in ([True, False], [1, 0], [1, -1], np.array([1.0, -1.0])):
        np.testing.assert_array_equal(Logit(y).y, [1.0, -1.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Logit([0, 1, 2]), "y .* got 2 at site 2"),
        (lambda: Logit([-1, 0, 1]), "y .* got 0 at site 1"),
        (lambda: Probit([1, np.nan]), "y must hold finite numbers, got nan at site 1"),
        (lambda: Logit([]), "y is empty"),
        (lambda: Logit(["a", "b"]), "y must hold real numbers"),
        (lambda: Logit([[1, 0]]), "y must have at most 1 dimension"),
        (lambda: Logistic(0.0, 0.0), "scale must hold positive numbers, got 0"),
        (lambda: Logistic([0.0, np.inf]), "loc must hold finite"),
        (lambda: Logistic([0.0, 1.0], [1.0, 2.0, 3.0]), "loc has 2, scale has 3"),
        (lambda: Poisson([1, -1]), "y must hold whole numbers .* got -1 at site 1"),
        (lambda: Poisson([1.5]), "y must hold whole numbers .* got 1.5"),
        (lambda: Ordinal([0, 3], [0.0, 1.0]), "y must hold whole numbers from 0 to 2, got 3 at site 1"),
        (lambda: Ordinal([0], [1.0, 1.0]), "cuts must be strictly increasing"),
        (lambda: Ordinal([0], [0.0], link="cloglog"), "link must be one of 'probit', 'logit', got 'cloglog'"),
        (lambda: Custom(3), "log_density must be callable"),
        (lambda: Binomial([1, 5, 4], [3, 4, 3]), r"successes .* at most trials, got 5 at site 1 \(2 of 3 sites\)"),
        (lambda: Binomial([0, 1], [3, 0]), r"trials must hold whole numbers from 1, got 0 at site 1 \(1 of 2 sites\)"),
        (lambda: Binomial([0], [3], "log"), "link must be one of 'logit', 'probit', 'cloglog', got 'log'"),
        (lambda: Binomial([0, 1], [3, 3, 3]), "successes has 2, trials has 3"),
        (lambda: NegativeBinomial([1, -2, -1], 1.0), r"y must hold whole .* got -2 at site 1 \(2 of 3 sites\)"),
        (lambda: NegativeBinomial([1], 0.0), "dispersion must hold positive numbers, got 0"),
        (lambda: NegativeBinomial([1], 1.0, "cubic"), "variance must be one of 'quadratic', 'linear', got 'cubic'"),
        (lambda: Gamma([1.0, 0.0], 1.0), r"y must hold positive numbers, got 0 at site 1 \(1 of 2 sites\)"),
        (lambda: Beta([0.5, 1.0, 0.0], 2.0), r"y must .* strictly between 0 and 1, got 1 at site 1 \(2 of 3 sites\)"),
        (lambda: Tweedie([1.0, -1.0], 1.5, 1.0), "y must hold numbers of at least zero, got -1 at site 1"),
        (lambda: Tweedie([1.0], 2.0, 1.0), "power must hold numbers strictly between 1 and 2, got 2"),
        (lambda: Weibull([1.0, 0.0], 1), r"time must hold positive numbers, got 0 at site 1 \(1 of 2 sites\)"),
        (lambda: Weibull([1.0, 2.0], [1, 4]), r"event must hold 1 \(observed\), .* got 4 at site 1"),
        (lambda: Weibull([1.0, 2.0], [1, 3]), r"event must hold no 3 .* unless upper is given, got 3 at site 1"),
        (lambda: LogLogistic([1.0, 2.0], [1, 3], 1.0, 2.0), "upper must hold numbers above time .* got 2 at site 1"),
        (lambda: AsymmetricLaplace(1.0), "quantile must hold numbers strictly between 0 and 1, got 1"),
        (lambda: Interval(1.0, 1.0), "high must hold numbers above low, got 1"),
        (lambda: Interval(-np.inf, np.inf), "low must hold a finite number where high is infinite"),
        (lambda: Interval(0.0, 1.0).expected_log(0.0, 1.0), "a box has no expected log .* use the engine 'ep'"),
        (lambda: Interval(0.0, 1.0).predictive(0.0, 1.0), "Interval does not describe observations"),
        (lambda: ZeroInflated(Gaussian(0.0), 0.5), "base must be a family of counts"),
        (lambda: Hurdle(Poisson([1, 0]), 1.0), "probability must hold numbers strictly between 0 and 1, got 1"),
        (lambda: Truncated(Gaussian([-1.0, 1.0]), low=0.0), "base must hold observations between low and high, got -1"),
        (lambda: Truncated(Laplace(0.0), low=-1.0), "base must be Gaussian"),
        (lambda: SpikeAndSlab(0.5, 1.0, 2.0), "spike must hold numbers below slab, got 2"),
        (lambda: Horseshoe().predictive(0.0, 1.0), "Horseshoe is a prior"),
        (lambda: Custom(np.sum).log_density([1.0, 2.0]), "elementwise"),
        (lambda: Custom(lambda x: x * np.nan).log_density([1.0]), "NaN"),
        (lambda: Custom(np.negative).predictive(0.0, 1.0), "observation"),
        (lambda: Logit([1, 0]).expected_log([0.0, np.nan], 1.0), "mean must be finite, got nan"),
        (lambda: Logit([1, 0]).expected_log(0.0, -1.0), "var must not be negative, got -1"),
        (lambda: Logit([1, 0]).expected_log(np.zeros(3), 1.0), r"mean \(3,\).* 2 sites"),
        (lambda: Logit([1]).expected_log(np.zeros(3), 1.0), "must have 1 sites"),
        (lambda: Logit([1, 0]).tilted_moments(0.0, 1.0, -0.5), "power must not be negative"),
        (lambda: Logit([1]).quadratic_bound(-1.0), "xi must hold finite numbers of at least zero"),
        (lambda: Poisson([1]).expected_log(0.0, 1e4), "rate .* overflows at mean 0, var 10000"),
        (lambda: Logit([1]).predictive(0.0, 1.0).quantile(1.0), "q must hold probabilities"),
    ],
)
def test_bad_input_is_named(make, words: str):
    with pytest.raises(ValueError, match=words):
        make()


def test_no_power_leaves_the_gaussian_as_it_was():
    log_z, mean, variance = Logit([1, 0, 1, 1]).tilted_moments(MEAN, VAR, 0.0)
    np.testing.assert_allclose(log_z, 0.0, atol=1e-12)
    np.testing.assert_allclose(mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(variance, VAR, rtol=1e-11)


def test_powers_count_repeated_observations():
    once = Logit(1).tilted_moments(0.4, 2.0, 3.0)
    cubed = Custom(lambda x: 3 * log_sigmoid(x), log_concave=True).tilted_moments(0.4, 2.0)
    np.testing.assert_allclose(once, cubed, rtol=1e-12)


def test_observe_replaces_the_observation_only():
    new = Logistic(0.0, [1.0, 2.0]).observe([3.0, 4.0])
    np.testing.assert_array_equal(new.loc, [3.0, 4.0])
    np.testing.assert_array_equal(new.scale, [1.0, 2.0])
    assert Ordinal([0, 1], [0.0], link="logit").observe(1).link == "logit"


# --- predictives --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logit", "probit", "ordinal", "ordinal_logit"])
def test_class_probabilities(name: str):
    block = BLOCKS[name]
    predictive = block.predictive(MEAN[:3], VAR[:3])
    n_classes = predictive.probabilities.shape[-1]
    classes = np.arange(n_classes)
    np.testing.assert_allclose(predictive.probabilities.sum(axis=-1), 1.0, rtol=1e-14)
    # the trapezoid rule converges exponentially for these integrands
    x = np.linspace(-30, 30, 3001)[:, None]
    weights = 0.02 * stats.norm.pdf(x, MEAN[:3], np.sqrt(VAR[:3]))
    for k in classes:
        direct = (weights * np.exp(block.observe(k).log_density(x))).sum(axis=0)
        np.testing.assert_allclose(predictive.probabilities[:, k], direct, rtol=1e-10)
        np.testing.assert_allclose(np.exp(predictive.log_density(k)), predictive.probabilities[:, k], rtol=1e-9)
    np.testing.assert_allclose(predictive.mean, predictive.probabilities @ classes)
    np.testing.assert_allclose(predictive.cdf(n_classes - 1), 1.0)
    np.testing.assert_allclose(predictive.cdf(-1), 0.0)
    draws = predictive.sample(20000, random_state=1)
    assert draws.shape == (20000, 3)
    spread = 5 * np.sqrt(predictive.variance / 20000)
    assert np.all(np.abs(draws.mean(axis=0) - predictive.mean) < spread)
    middle = predictive.quantile(0.5)
    assert np.all(predictive.cdf(middle) >= 0.5)
    assert np.all(predictive.cdf(middle - 1) < 0.5)


def test_predictive_forgets_the_stored_labels():
    for y in ([1, 1, 1], [0, 0, 0]):
        np.testing.assert_allclose(Logit(y).predictive(0.0, 1.0).probabilities, [0.5, 0.5], rtol=1e-12)
    assert Logit([1, 0]).predictive(np.zeros((5, 3)), 1.0).probabilities.shape == (5, 3, 2)


def test_probit_predictive_is_closed():
    got = Probit([1]).predictive(MEAN, VAR).probabilities[:, 1]
    np.testing.assert_allclose(got, stats.norm.cdf(MEAN / np.sqrt(1 + VAR)), rtol=1e-13)


def test_counts():
    predictive = Poisson([7]).predictive([0.3, 2.0], [0.2, 0.3])
    k = np.arange(400.0)[:, None]
    p = np.exp(predictive.log_density(k))
    np.testing.assert_allclose(p.sum(axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose((p * k).sum(axis=0), predictive.mean, rtol=1e-7)
    np.testing.assert_allclose((p * (k - predictive.mean) ** 2).sum(axis=0), predictive.variance, rtol=1e-5)
    np.testing.assert_allclose(predictive.cdf(k), np.cumsum(p, axis=0), atol=1e-10)
    q = np.array([[0.05], [0.5], [0.99]])
    want = [[np.searchsorted(np.cumsum(p[:, j]), level) for j in range(2)] for level in q[:, 0]]
    np.testing.assert_array_equal(predictive.quantile(q), want)
    draws = predictive.sample(20000, random_state=np.random.default_rng(2))
    assert np.all(np.abs(draws.mean(axis=0) - predictive.mean) < 5 * np.sqrt(predictive.variance / 20000))


def test_continuous_observations():
    block = Logistic(99.0, [0.5, 2.0])
    predictive = block.predictive([1.0, -3.0], [0.3, 4.0])
    np.testing.assert_array_equal(predictive.mean, [1.0, -3.0])
    np.testing.assert_allclose(predictive.variance, [0.3 + (np.pi * 0.5) ** 2 / 3, 4 + (np.pi * 2) ** 2 / 3])
    y = np.linspace(-120, 120, 2401)[:, None]
    density = np.exp(predictive.log_density(y))
    np.testing.assert_allclose(np.trapezoid(density, y, axis=0), 1.0, rtol=1e-10)
    np.testing.assert_allclose(
        np.trapezoid(density * (y - predictive.mean) ** 2, y, axis=0), predictive.variance, rtol=1e-8
    )
    below = predictive.cdf([0.0, 1.0])
    for j, end in enumerate([0.0, 1.0]):
        nodes = np.linspace(-80.0, end, 4001)
        direct = simpson(np.exp(predictive.log_density(nodes[:, None])[:, j]), x=nodes)
        assert below[j] == pytest.approx(direct, abs=1e-9)
    q = np.array([[1e-4], [0.3], [0.5], [0.999]])
    np.testing.assert_allclose(predictive.cdf(predictive.quantile(q)), np.broadcast_to(q, (4, 2)), rtol=1e-9)
    np.testing.assert_allclose(predictive.quantile(0.5), predictive.mean, atol=1e-9)
    draws = predictive.sample(20000, random_state=3)
    assert np.all(np.abs(draws.var(axis=0) / predictive.variance - 1) < 0.06)


# --- draws and free parameters ------------------------------------------------------------------

UNOBSERVED = ("gaussian_mixture", "spike_and_slab", "horseshoe", "custom", "step", "cauchy")
OBSERVED = pytest.mark.parametrize("name", [name for name in BLOCKS if name not in UNOBSERVED])


@OBSERVED
def test_draws_given_x_have_the_distribution_of_a_point_mass(name: str):
    block, x = BLOCKS[name], np.array([0.3, -1.0, 1.2, 0.5])
    exact = block.predictive(x, 1e-12)
    draws = block.sample(np.tile(x, (20000, 1)), 4)
    assert draws.shape == (20000, 4)
    for level in (0.2, 0.6):
        point = exact.quantile(level)
        chance = exact.cdf(point)
        got = np.mean(draws <= point, axis=0)
        assert np.all(np.abs(got - chance) < 5 * np.sqrt(0.25 / 20000))


def test_a_family_without_observations_draws_none():
    with pytest.raises(ValueError, match="does not describe observations"):
        BLOCKS["custom"].sample([0.0, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        BLOCKS["logit"].sample(np.nan)


FREE = [(name, parameter) for name, block in BLOCKS.items() for parameter in block.free]


@pytest.mark.parametrize(("name", "parameter"), FREE)
def test_parameter_derivatives_by_differences(name: str, parameter: str):
    block, span = BLOCKS[name], BLOCKS[name].free[parameter]
    value = np.asarray(block.value_of(parameter))
    t, h = span.to_free(value), 1e-3
    vector = span.slope(value).ndim > value.ndim
    units = np.eye(t.size) if vector else [np.ones(value.shape)]
    # the point x, then averages over a Gaussian
    for ask, moved in (
        (lambda b: b.log_density(MEAN), block.parameter_derivative(parameter, MEAN)),
        (lambda b: b.expected_log(MEAN, VAR).value, block.expected_parameter_derivative(parameter, MEAN, VAR)),
    ):
        got = np.tensordot(span.slope(value).T, moved, axes=1) if vector else (span.slope(value) * moved)[None]
        for unit, line in zip(units, got, strict=True):
            one, two = (
                ask(block.replace(**{parameter: span.from_free(t + k * h * unit)}))
                - ask(block.replace(**{parameter: span.from_free(t - k * h * unit)}))
                for k in (1, 2)
            )
            np.testing.assert_allclose(line, (8 * one - two) / (12 * h), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "parameter"), FREE)
def test_parameter_slopes_are_derivatives_of_the_parameter_derivative(name: str, parameter: str):
    block = BLOCKS[name]
    found = block._parameter_slopes(parameter, MEAN)
    if found is None:
        assert name not in ("beta", "beta_binomial", "negative_binomial")
        return
    first, second, _ = three_derivatives(lambda x: block.parameter_derivative(parameter, x), MEAN, 1.0)
    for got, wanted in zip(found, (block.parameter_derivative(parameter, MEAN), first, second), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8)


def test_gamma_slopes_are_polygamma_functions():
    from latlin.potentials.kernels.gamma_sites import gamma_slopes

    z = np.geomspace(1e-3, 1e9, 300).reshape(100, 3)
    for order, got in enumerate(gamma_slopes(z)):
        np.testing.assert_allclose(got, polygamma(order, z), rtol=2e-14, atol=2e-15)


def test_only_declared_parameters_have_derivatives():
    with pytest.raises(ValueError, match="'loc' is not a parameter of Laplace that can be learnt; these are: scale"):
        BLOCKS["laplace"].parameter_derivative("loc", MEAN)


# --- predictives of the other families ----------------------------------------------------------

COUNTED = ("binomial", "negative_binomial", "negative_binomial_linear", "zero_inflated", "hurdle", "beta_binomial")


@pytest.mark.parametrize("name", [*COUNTED, "generalised_poisson", "hurdle_negative_binomial"])
def test_masses_of_new_counts_sum_to_their_moments(name: str):
    predictive = BLOCKS[name].predictive([0.3, -1.0, 0.2, 0.5], [0.2, 0.5, 0.1, 0.3])
    k = np.arange(400.0)[:, None]
    p = np.exp(predictive.log_density(k))
    np.testing.assert_allclose(p.sum(axis=0), 1.0, rtol=1e-6)
    np.testing.assert_allclose((p * k).sum(axis=0), predictive.mean, rtol=1e-5)
    np.testing.assert_allclose((p * k * k).sum(axis=0), predictive.variance + predictive.mean**2, rtol=2e-3)
    few = k[:12]
    np.testing.assert_allclose(predictive.cdf(few), np.cumsum(p[:12], axis=0), atol=1e-8)


@pytest.mark.parametrize(
    "name", ["gamma", "inverse_gaussian", "log_normal", "weibull", "log_logistic", "beta", "tweedie"]
)
def test_densities_of_new_amounts_have_their_distribution_function(name: str):
    block = BLOCKS[name].select([1, 2])
    predictive = block.predictive([0.3, 0.1], [0.2, 0.1])
    low, high = (0.2, 0.7) if name == "beta" else (0.5, 2.0)
    y = np.linspace(low, high, 401)
    density = np.exp(predictive.log_density(y[:, None]))
    rise = predictive.cdf(high) - predictive.cdf(low)
    np.testing.assert_allclose(simpson(density, x=y, axis=0), rise, rtol=1e-7)
    q = np.array([[0.3], [0.6], [0.97]])
    point = predictive.quantile(q)
    assert np.all(predictive.cdf(point) >= q - 1e-9)
    np.testing.assert_allclose(np.where(point > 0, predictive.cdf(point), q), np.broadcast_to(q, (3, 2)), rtol=1e-8)
    draws = predictive.sample(40000, random_state=5)
    if name != "log_logistic" and name != "log_normal":
        assert np.all(np.abs(draws.mean(axis=0) - predictive.mean) < 5 * np.sqrt(predictive.variance / 40000))
    assert np.all(np.abs(np.mean(draws <= point[1], axis=0) - predictive.cdf(point[1])) < 0.02)


def test_an_amount_of_nothing_has_a_mass():
    predictive = Tweedie(0.0, 1.5, 1.0).predictive([0.0], [1e-12])
    np.testing.assert_allclose(predictive.log_density(0.0), -2.0, rtol=1e-6)
    np.testing.assert_allclose(predictive.cdf(0.0), np.exp(-2.0), rtol=1e-6)
    assert predictive.quantile(0.1)[0] == 0.0
    assert predictive.quantile(0.2)[0] > 0.0


@pytest.mark.parametrize("precision", [0.02, 5.0, 40.0, 1e6])
@pytest.mark.parametrize("y", [1e-9, 0.03, 0.5, 0.9])
def test_beta_densities_keep_their_digits(y: float, precision: float):
    odds = float(np.log(y) - np.log1p(-y))
    x = odds + np.array([-30.0, -1.0, -1e-3, 1e-3, 2.0, 25.0])
    block = Beta(np.full(x.size, y), precision)
    with mpmath.workdps(40):
        want = np.array([float(_log_beta(mpmath.mpf(at), mpmath.mpf(y), mpmath.mpf(precision))) for at in x])
    value, first, second = block._expansion(x)
    for found in (block.log_density(x), value, block.expected_log(x, np.full(x.size, 1e-20)).value):
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-11)
    slope, bend, _ = block.derivatives(x)
    np.testing.assert_allclose(first, slope, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(second, bend, rtol=1e-9, atol=1e-8)


def _log_beta(x: mpmath.mpf, y: mpmath.mpf, s: mpmath.mpf) -> mpmath.mpf:
    a, b = s / (1 + mpmath.exp(-x)), s / (1 + mpmath.exp(x))
    gammas = mpmath.loggamma(s) - mpmath.loggamma(a) - mpmath.loggamma(b)
    return gammas + (a - 1) * mpmath.log(y) + (b - 1) * mpmath.log(1 - y)


@pytest.mark.parametrize(("power", "dispersion"), [(1.05, 0.3), (1.5, 0.02), (1.5, 1.0), (1.8, 0.3), (1.97, 0.05)])
def test_distribution_functions_of_sums_of_gammas_are_right(power: float, dispersion: float):
    m, sd = np.array([-0.5, 0.4, 1.5]), np.array([1e-6, 0.1, 0.6])
    y = np.exp(m) * [0.5, 0.9, 1.6]
    found = Tweedie(y, power, dispersion).predictive(m, sd**2).cdf(y)
    # every number of parts, on a fine grid of x
    z, w = trapezoid(160, 9.0)
    x = m + sd * z[:, None]
    rate = np.exp((2 - power) * x) / (dispersion * (2 - power))
    shape, scale = (2 - power) / (power - 1), dispersion * (power - 1) * np.exp((power - 1) * x)
    total = np.exp(-rate)
    for j in range(1, int(rate.max() + 12 * np.sqrt(rate.max()) + 30)):
        total = total + stats.poisson.pmf(j, rate) * gammainc(j * shape, y / scale)
    np.testing.assert_allclose(found, w @ total, atol=1e-9)


def test_an_average_of_amounts_keeps_its_mass_at_zero():
    parts = [Tweedie(0.0, 1.5, size).predictive([0.0], [1e-4]) for size in (1.0, 2.0)]
    average = AveragedPredictive(np.array([0.5, 0.5]), parts)
    none = average.cdf([0.0])[0]
    level = 0.5 * (none + parts[0].cdf([0.0])[0])
    assert parts[0].quantile([level])[0] > 0.0
    assert average.quantile([level])[0] == 0.0
    above = average.quantile([none + 0.1])
    np.testing.assert_allclose(average.cdf(above), none + 0.1, rtol=1e-9)


def test_a_coefficient_is_the_spikes_or_the_slabs():
    prior = SpikeAndSlab(0.25, 2.0, 0.1)
    x = np.linspace(-20.0, 20.0, 200001)
    slab = 0.25 * stats.norm.pdf(x, 0.0, 2.0) * stats.norm.pdf(x, 0.4, 0.5)
    spike = 0.75 * stats.norm.pdf(x, 0.0, 0.1) * stats.norm.pdf(x, 0.4, 0.5)
    want = np.trapezoid(slab, x) / np.trapezoid(slab + spike, x)
    assert prior.inclusion(0.4, 0.25) == pytest.approx(want, rel=1e-9)

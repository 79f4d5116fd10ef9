"""Affine-independent KL: exact special cases, bounds in order, gradients, and a posterior like any other."""

import warnings

import numpy as np
import pytest

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, compare, infer, load
from latlin import potentials as P
from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import (
    FAMILIES,
    GaussianMixture,
    GeneralisedNormal,
    Logistic,
    Normal,
    SkewNormal,
    Stacked,
    StudentT,
)
from latlin.engines import AffineKL
from latlin.inference.affine.bound import AffineBound
from latlin.inference.affine.engine import AUTO
from latlin.inference.affine.start import best_starts, cumulants
from latlin.inference.engine import site_form
from reference import brute_force, log_joint

rng = np.random.default_rng(11)
ROWS = {d: rng.standard_normal((5, d)) for d in (1, 2, 3)}
LABELS = np.array([1, 0, 1, 1, 0])
REALS = np.array([0.3, -1.2, 2.5, 0.1, -0.4])
COUNTS = np.array([0, 3, 1, 2, 0])
SITES = {
    "logit": P.Logit(LABELS),
    "probit": P.Probit(LABELS),
    "step": P.Step(LABELS, 0.05),
    "laplace": P.Laplace(REALS, 0.5),
    "gaussian": P.Gaussian(REALS, 0.7),
    "student": P.StudentT(4.0, REALS, 0.7),
    "cauchy": P.Cauchy(REALS, 0.8),
    "logistic": P.Logistic(REALS, 0.6),
    "poisson": P.Poisson(COUNTS),
    "ordinal": P.Ordinal(np.array([0, 2, 1, 2, 0]), [-0.5, 0.7]),
    "custom": P.Custom(lambda x: -np.log(np.cosh(x))),
}
BASES = {
    "normal": Normal(),
    "skew-normal": SkewNormal([1.0, -3.0, 0.4]),
    "generalised-normal": GeneralisedNormal([1.4, 2.0, 3.0]),
    "student-t": StudentT([12.0, 20.0, 15.0]),
    "logistic": Logistic(),
    "gaussian-mixture": GaussianMixture(
        np.tile([0.3, 0.7], (3, 1)), [[0.0, 1.0], [0.0, 2.0], [0.0, -0.5]], np.tile([1.0, 1.5], (3, 1))
    ),
    "stacked": Stacked([(GaussianMixture([[0.3, 0.7]], [[0.0, 1.0]], [[1.0, 1.5]]), 1), (GeneralisedNormal(1.6), 2)]),
}


def problem(dim, sites, cov=1.0, **more):
    return LatentLinearModel([GaussianFactor(cov=cov, dim=dim), SiteFactor(ROWS[dim], sites, **more)])


def sparse_toy():
    """Two measurements and a Laplace prior, as in Figure 6.1 of the source."""
    rows = np.array([[1.0, 0.3], [0.2, -0.6]])
    factor = GaussianFactor(rows @ np.array([0.0, 0.02]), 0.05, H=rows)
    return LatentLinearModel([factor, SiteFactor(None, P.Laplace(scale=0.16))])


def logistic_toy():
    """Four labels and a wide prior, as in Figure 6.2."""
    rows = np.array([[0.9, 0.4], [0.2, 1.1], [-0.8, 0.5], [0.4, -0.7]])
    return LatentLinearModel([GaussianFactor(cov=10.0, dim=2), SiteFactor(5.0 * rows, P.Logit([1, 1, 0, 1]))])


def robust_toy():
    """Two observations with Laplace noise, as in Figure 6.3."""
    rows = np.array([[1.0, 0.2], [-0.3, 0.8]])
    return LatentLinearModel([GaussianFactor(dim=2), SiteFactor(rows, P.Laplace([0.3, -0.4], 0.1581))])


BRUTE = {
    "logit-1": problem(1, SITES["logit"], 4.0),
    "logit-2": logistic_toy(),
    "probit-3": problem(3, SITES["probit"], 3.0),
    "laplace-prior": sparse_toy(),
    "laplace-noise": robust_toy(),
    "poisson-2": problem(2, SITES["poisson"], 0.5, offset=0.3),
    "student-1": problem(1, SITES["student"]),
    "no-gaussian": LatentLinearModel(
        [
            SiteFactor(None, P.Laplace(0.0, [0.8, 1.5])),
            SiteFactor([[1.0, -0.5], [0.3, 1.0]], P.Laplace([0.7, 1.0], 0.6), weight=[2.0, 0.5]),
        ]
    ),
}


def setting(model, base, optimise=True, width=None):
    """The bound about the Gaussian KL optimum, in a rotated basis."""
    gaussian = infer(model, "gkl")
    form = site_form(model)
    solution = form.solve(gaussian.sites)
    rotation = np.linalg.qr(np.random.default_rng(5).standard_normal((form.rank, form.rank)))[0]
    return AffineBound(form, solution, rotation, base, optimise and base.n_free > 0, width), gaussian


@pytest.mark.parametrize("name", BRUTE)
def test_a_normal_base_is_gaussian_kl(name):
    model = BRUTE[name]
    post, gaussian = infer(model, AffineKL(base="normal")), infer(model, "gkl")
    assert post.log_evidence == pytest.approx(gaussian.log_evidence, abs=1e-7)
    assert np.allclose(post.mean, gaussian.mean, atol=1e-4)
    assert np.allclose(post.covariance(), gaussian.covariance(), atol=1e-4)


@pytest.mark.parametrize("base", ["skew-normal", "generalised-normal", "gaussian-mixture", "auto"])
@pytest.mark.parametrize("name", BRUTE)
def test_bounds_stand_in_order(name, base):
    model = BRUTE[name]
    post, gaussian = infer(model, AffineKL(base=base)), infer(model, "gkl")
    log_z = brute_force(model, gaussian, half_width=14.0)[0]
    # the grid of the reference is coarse at kinks
    grid = 1e-9 if name not in ("laplace-prior", "laplace-noise", "no-gaussian") else 2e-4
    assert post.converged
    assert post.evidence_kind == "lower bound"
    assert 0.0 <= post.bound_error < 1e-5
    assert gaussian.log_evidence - 1e-9 <= post.log_evidence <= log_z + 3.0 * post.bound_error + grid


@pytest.mark.parametrize(
    ("model", "base", "share"),
    [
        (sparse_toy(), "generalised-normal", 0.8),
        (logistic_toy(), "skew-normal", 0.6),
        (robust_toy(), "auto", 0.6),
    ],
)
def test_the_gap_to_log_z_closes(model, base, share):
    post, gaussian = infer(model, AffineKL(base=base)), infer(model, "gkl")
    log_z = brute_force(model, gaussian, half_width=14.0, count=1601)[0]
    assert post.log_evidence - gaussian.log_evidence > share * (log_z - gaussian.log_evidence)


def test_a_product_of_laplace_and_gaussian_sites_on_one_axis_each():
    """Independent coordinates: the bound is a sum of one-dimensional ones."""
    both = LatentLinearModel([GaussianFactor(cov=1.0, dim=2), SiteFactor(None, P.Logit([1, 0]))])
    alone = LatentLinearModel([GaussianFactor(cov=1.0, dim=1), SiteFactor(None, P.Logit([1]))])
    engine = AffineKL(base="skew-normal", tol=1e-9)
    assert infer(both, engine).log_evidence == pytest.approx(2.0 * infer(alone, engine).log_evidence, abs=1e-6)


def skew_and_heavy():
    """A skew posterior on one axis, one with heavy tails on the other, and log Z by two integrals."""
    kinds = {"skew": P.Exponential([0.7], [1]), "heavy": P.StudentT(loc=0.5, scale=0.3, df=3.0)}
    alone = {
        k: LatentLinearModel([GaussianFactor(cov=4.0, dim=1), SiteFactor(None, site)]) for k, site in kinds.items()
    }
    rows = np.eye(2)
    sites = [SiteFactor(rows[:1], kinds["heavy"]), SiteFactor(rows[1:], kinds["skew"])]
    log_z = sum(brute_force(model, infer(model, "gkl"), half_width=14.0)[0] for model in alone.values())
    return LatentLinearModel([GaussianFactor(cov=4.0, dim=2), *sites]), log_z, alone


def test_stacked_families_each_serve_the_coordinate_that_they_suit():
    """Independent coordinates: the best of both families is the sum of two bounds in one dimension."""
    model, log_z, alone = skew_and_heavy()
    found = infer(model, AffineKL(base=Stacked([(SkewNormal(0.1), 1), (GeneralisedNormal(1.9), 1)])))
    skew, heavy = (
        infer(alone[k], AffineKL(base=b)) for k, b in (("skew", "skew-normal"), ("heavy", "generalised-normal"))
    )
    assert found.log_evidence == pytest.approx(skew.log_evidence + heavy.log_evidence, abs=1e-5)
    assert found.log_evidence <= log_z
    singles = [infer(model, AffineKL(base=name)).log_evidence for name in ("skew-normal", "generalised-normal")]
    assert found.log_evidence > max(singles) + 1e-3


def test_a_stack_of_one_family_is_that_family(tmp_path):
    model = logistic_toy()
    alone = infer(model, AffineKL(base=SkewNormal([0.5, 0.5])))
    stacked = infer(model, AffineKL(base=Stacked([(SkewNormal(0.5), 1), (SkewNormal(0.5), 1)])))
    assert stacked.log_evidence == pytest.approx(alone.log_evidence, abs=1e-6)
    stacked.save(tmp_path / "stacked.latlin")
    assert np.array_equal(load(tmp_path / "stacked.latlin").logpdf(np.ones(2)), stacked.logpdf(np.ones(2)))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("sites", SITES)
def test_gradients_pass_finite_differences(base, sites):
    if (base, sites) == ("student-t", "poisson"):
        pytest.skip("has no finite bound; refused below")
    bound, _ = setting(problem(3, SITES[sites], 2.0, weight=1.5, offset=0.2), BASES[base])
    point = bound.start() + 0.1 * np.random.default_rng(3).standard_normal(bound.start().size)
    level = 2 if base == "student-t" else 1
    _, gradient = bound.evaluate(point, level)
    for direction in np.random.default_rng(4).standard_normal((3, point.size)):
        h = 1e-3 / np.linalg.norm(direction)
        ahead = [bound.evaluate(point + k * h * direction, level)[0] for k in (-2, -1, 1, 2)]
        slope = (ahead[0] - 8.0 * ahead[1] + 8.0 * ahead[2] - ahead[3]) / (12.0 * h)
        assert slope == pytest.approx(gradient @ direction, abs=1e-6 * (1.0 + np.linalg.norm(gradient)))


@pytest.mark.parametrize("base", [SkewNormal([1.0, -3.0]), SkewNormal(2.0), GeneralisedNormal(1.4), Normal()])
def test_gradients_of_a_few_directions_pass_finite_differences(base):
    bound, _ = setting(problem(3, SITES["logit"], 2.0, weight=1.5, offset=0.2), base, width=2)
    point = bound.start() + 0.1 * np.random.default_rng(3).standard_normal(bound.start().size)
    _, gradient = bound.evaluate(point, 1)
    for direction in np.random.default_rng(4).standard_normal((3, point.size)) / np.sqrt(point.size):
        ahead = [bound.evaluate(point + k * 1e-3 * direction, 1)[0] for k in (-2, -1, 1, 2)]
        slope = (ahead[0] - 8.0 * ahead[1] + 8.0 * ahead[2] - ahead[3]) / 12e-3
        assert slope == pytest.approx(gradient @ direction, abs=1e-6 * (1.0 + np.linalg.norm(gradient)))


@pytest.mark.parametrize("base", ["skew-normal", "gaussian-mixture"])
def test_more_directions_hold_more_of_the_gain(base, tmp_path):
    model = problem(3, SITES["poisson"], 2.0)
    gaussian, whole = infer(model, "gkl").log_evidence, infer(model, AffineKL(base=base)).log_evidence
    posts = [infer(model, AffineKL(base=base, rank=rank)) for rank in (1, 2, 3)]
    bounds = [gaussian, *(post.log_evidence for post in posts)]
    assert np.all(np.diff(bounds) > 1e-5)
    assert bounds[-1] == pytest.approx(whole, abs=2e-6)
    # the density is the one that the bound was computed for
    w = posts[0].sample(200_000, random_state=0)
    terms = log_joint(model, w) - posts[0].logpdf(w)
    assert abs(terms.mean() - posts[0].log_evidence) < 4.0 * terms.std() / np.sqrt(200_000)
    posts[0].save(tmp_path / "few.latlin")
    assert np.array_equal(load(tmp_path / "few.latlin").mean, posts[0].mean)


def test_the_first_direction_is_that_of_the_skew_site():
    """One site of many dimensions is not Gaussian: one direction gains all there is."""
    rng = np.random.default_rng(2)
    skew = SiteFactor(rng.standard_normal((1, 40)) / 4.0, P.Exponential([3.0], [1]))
    model = LatentLinearModel(
        [GaussianFactor(dim=40), skew, SiteFactor(None, P.Gaussian(rng.standard_normal(40), 2.0))]
    )
    few = infer(model, AffineKL(base="skew-normal", rank=1))
    gaussian = infer(model, "gkl").log_evidence
    # log Z: everything but the one projection is Gaussian, so that it is an integral over that alone
    rest = infer(LatentLinearModel([model.gaussians[0], model.sites[1]]), "exact")
    x = np.linspace(-12.0, 12.0, 4001)
    mean, sd = float(rest.project(skew.H).mean[0]), float(np.sqrt(rest.project(skew.H).variance[0]))
    density = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    log_z = rest.log_evidence + np.log(np.trapezoid(density * np.exp(skew.potential.log_density(mean + sd * x)), x))
    assert log_z >= few.log_evidence
    assert few.log_evidence - gaussian > 0.8 * (log_z - gaussian)


@pytest.mark.parametrize("base", BASES)
def test_the_bound_agrees_with_a_million_draws(base):
    model = problem(3, SITES["logit"], 2.0)
    post = infer(model, AffineKL(base=BASES[base], optimise_shape=False))
    w = post.sample(1_000_000, random_state=0)
    terms = log_joint(model, w) - post.logpdf(w)
    assert abs(terms.mean() - post.log_evidence) < 4.0 * terms.std() / 1000.0


@pytest.mark.parametrize("base", ["skew-normal", "gaussian-mixture", "logistic"])
def test_the_bound_agrees_with_dense_quadrature_in_two_dimensions(base):
    model = logistic_toy()
    post = infer(model, AffineKL(base=base))
    # trapezoid in v, where the integrand is smooth: ⟨log p − log q⟩
    line = np.linspace(-25.0, 25.0, 1201)
    v = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    log_q = post.density.base.logpdf(v).sum(axis=1)
    kept = log_q > -60.0
    w = post.density.b + v[kept] @ post.density.A.T
    cell = (line[1] - line[0]) ** 2
    integrand = np.exp(log_q[kept]) * (log_joint(model, w) - log_q[kept] + post.density.log_det)
    assert cell * integrand.sum() == pytest.approx(post.log_evidence, abs=1e-8)


@pytest.mark.parametrize("sites", ["logit", "laplace"])
def test_the_bound_agrees_with_dense_quadrature_in_one_dimension(sites):
    model = problem(1, SITES[sites], 3.0)
    post = infer(model, AffineKL(base="skew-normal"))
    nodes, weights = np.polynomial.legendre.leggauss(60)
    kinks = (REALS / ROWS[1][:, 0] - post.density.b[0]) / post.density.A[0, 0]
    edges = np.unique(np.concatenate([np.arange(-14.0, 14.5, 0.5), kinks[np.abs(kinks) < 14.0]]))
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    v = (middle + half * nodes).ravel()[:, None]
    log_q = post.density.base.logpdf(v).sum(axis=1)
    terms = log_joint(model, post.density.b + v @ post.density.A.T) - log_q + post.density.log_det
    assert ((half * weights).ravel() * np.exp(log_q)) @ terms == pytest.approx(post.log_evidence, abs=1e-8)


def test_few_sites_leave_the_prior_elsewhere():
    generator = np.random.default_rng(8)
    rows = generator.standard_normal((2, 6))
    model = LatentLinearModel([GaussianFactor(0.5, 2.0, dim=6), SiteFactor(2.0 * rows, P.Logit([1, 0]))])
    post = infer(model, AffineKL(base="skew-normal"))
    outside = np.linalg.svd(rows)[2][2:]
    marginals = post.project(outside)
    assert np.allclose(marginals.mean, outside @ np.full(6, 0.5), atol=1e-8)
    assert np.allclose(marginals.variance, 2.0)
    assert np.abs(marginals.skewness).max() < 1e-6
    w = post.sample(200_000, random_state=0)
    terms = log_joint(model, w) - post.logpdf(w)
    assert abs(terms.mean() - post.log_evidence) < 5.0 * terms.std() / np.sqrt(200_000)


def test_families_without_the_gaussian_say_when_they_are_below_it():
    flat = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(0.1 * ROWS[2][:2], P.Logit([1, 0]))])
    post = infer(flat, AffineKL(base="logistic"))
    assert post.log_evidence < infer(flat, "gkl").log_evidence
    assert "below Gaussian KL" in post.message
    assert infer(flat, AffineKL(base="auto")).log_evidence >= infer(flat, "gkl").log_evidence - 1e-9


def test_gaussian_sites_are_exact():
    model = problem(2, SITES["gaussian"])
    post = infer(model, "ai-kl")
    assert post.evidence_kind == "exact"
    assert post.log_evidence == infer(model, "gkl").log_evidence


def test_the_posterior_is_like_any_other():
    model = logistic_toy()
    table = compare(model, ["laplace", "gkl", "ai-kl"])
    values = [table[name].log_evidence for name in ("gkl", "ai-kl")]
    assert values[0] < values[1]
    post = table["ai-kl"]
    assert isinstance(post.density, AffineIndependent)
    assert np.abs(post.project(np.eye(2)).mean - post.mean).max() < 1e-12
    assert np.abs(post.project(np.eye(2)).variance - post.variance).max() < 1e-12
    again = infer(model, "gkl", start=post)
    assert again.log_evidence == pytest.approx(values[0], abs=1e-6)
    # the skewed posterior is closer to the mean by integration
    mean = brute_force(model, table["gkl"], half_width=14.0)[1]
    assert np.linalg.norm(post.mean - mean) < np.linalg.norm(table["laplace"].mean - mean)


def test_a_checkpoint_resumes_to_the_same_bound(tmp_path):
    model, path = logistic_toy(), tmp_path / "fit.npz"
    engine = AffineKL(base="skew-normal")
    whole = infer(model, engine, checkpoint=path)
    assert path.exists()
    again = infer(model, engine, checkpoint=path)
    assert again.log_evidence == pytest.approx(whole.log_evidence, abs=1e-12)
    assert again.n_iter == whole.n_iter


def test_too_few_steps_warn():
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 steps"):
        post = infer(logistic_toy(), AffineKL(base="skew-normal", max_iter=2))
    assert not post.converged


def test_the_start_is_a_rotation_that_gains():
    model = logistic_toy()
    form = site_form(model)
    solution = form.solve(infer(model, "gkl").sites)
    found = cumulants(form, solution)
    start = best_starts(found, {(3, 4)})[3, 4]
    assert np.allclose(start.rotation @ start.rotation.T, np.eye(2))
    assert np.abs(start.third).max() > 0.1
    # no rotation of two columns has more
    angles = np.linspace(0.0, 0.5 * np.pi, 400)
    turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
    squares = [
        np.sum(found.along(turn, 3) ** 2) / 12.0 + np.sum(found.along(turn, 4) ** 2) / 48.0
        for turn in (*turns, start.rotation)
    ]
    assert squares[-1] >= max(squares[:-1]) * (1.0 - 1e-9)


def test_families_that_promise_nothing_are_left_out(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 6))
    labels = rng.random(400) < 1.0 / (1.0 + np.exp(-rows @ rng.standard_normal(6)))
    model = LatentLinearModel([GaussianFactor(dim=6), SiteFactor(rows, P.Logit(labels))])
    found = infer(model, "ai-kl")
    singles = {base: infer(model, AffineKL(base=base)).log_evidence for base in AUTO}
    # the generalised normal has a hundredth of the gain of the skew normal
    climbed = []
    fit = AffineKL._fit

    def counted(self, bound, verbose, saved):
        climbed.append(bound.base.name)
        return fit(self, bound, verbose, saved)

    monkeypatch.setattr(AffineKL, "_fit", counted)
    infer(model, "ai-kl")
    assert climbed[0] == "skew-normal"
    assert "generalised-normal" not in climbed
    assert found.log_evidence >= max(singles.values()) - 1e-5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base": "levy"}, "base must be one of 'auto', 'normal'"),
        ({"base": "skew-normal", "optimise_shape": False}, "needs a base object"),
        ({"tol": 0.0}, "tol must be a number above 0"),
        ({"rank": 0}, "rank must be"),
        ({"rank": "a"}, "rank must be"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        AffineKL(**options)


def test_a_base_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="3 shapes"):
        infer(logistic_toy(), AffineKL(base=SkewNormal([1.0, 2.0, 3.0])))


def test_sites_without_an_expectation_are_refused():
    with pytest.raises(ValueError, match="Poisson sites have no expectation"):
        infer(problem(3, SITES["poisson"]), AffineKL(base="student-t"))


def test_every_family_has_a_name():
    assert set(BASES) - {"stacked"} == set(FAMILIES)


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_a_steep_site_cannot_push_the_bound_above_the_evidence():
    """A count of zero is flat on one side and e^x on the other: a far component once made the 'bound' 1e24."""
    sites = SiteFactor([[0.70322086, -1.06581568]], P.Poisson([0]))
    model = LatentLinearModel([GaussianFactor(cov=5.435964193116707, dim=2), sites])
    post = infer(model, AffineKL(base="gaussian-mixture"))
    log_z, _, _ = brute_force(model, infer(model, "gkl"))
    assert infer(model, "gkl").log_evidence <= post.log_evidence <= log_z + 1e-6


@pytest.mark.parametrize(("learnt", "kind"), [(True, "lower bound"), (False, "approximation")])
def test_values_on_two_grids_that_are_apart_are_no_bound(learnt, kind, monkeypatch):
    """The Gaussian is kept where the base holds it; else the evidence is called what it is."""
    plain = AffineKL._fit

    def astray(self, *arguments):
        fit = plain(self, *arguments)
        return fit._replace(log_evidence=fit.log_evidence + 10.0, error=1.0)

    model = LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[1.0]], P.Logit([1]))])
    monkeypatch.setattr(AffineKL, "_fit", astray)
    post = infer(model, AffineKL(base=SkewNormal([0.5]), optimise_shape=learnt))
    assert post.evidence_kind == kind
    assert "nat apart, so that neither is a bound" in post.message
    assert not learnt or post.log_evidence == infer(model, "gkl").log_evidence


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["skew-normal", "gaussian-mixture"])
def test_the_trace_never_falls_and_ends_at_its_best(seed, kind):
    rng = np.random.default_rng(seed)
    rows = 10.0 ** rng.uniform(-1, 1) * rng.standard_normal((4, 2))
    sites = [P.Laplace(rng.standard_normal(4), 0.05), P.Logit(rng.integers(0, 2, 4))][seed % 2]
    model = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(rows, sites)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        post = infer(model, AffineKL(base=kind, tol=1e-5))
    assert np.all(np.diff(post.trace) >= -1e-9 * (1.0 + np.abs(post.trace[1:])))
    if "not improved upon" not in post.message:
        assert post.log_evidence >= post.trace.max() - post.bound_error

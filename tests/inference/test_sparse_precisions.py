"""Sparse precisions, intrinsic priors and constraints: the same numbers as dense twins, whatever the engine.

A twin has the same density in coordinates z without constraints, w = w₀ + Vz, V orthonormal in the null space of
A: its precision Q = CᵀC is a factor N(Cw | Cμ, I), which lacks ½ log |Q|₊.
"""

import dataclasses

import numpy as np
import pytest
from scipy import sparse
from scipy.integrate import nquad
from scipy.linalg import null_space

import latlin
from latlin import Constraint, GaussianFactor, LatentLinearModel, SiteFactor, compare, engines, infer, potentials
from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.inference.engine import site_form
from latlin.inference.evidence.gradient import PrecisionSlopes, evidence_gradient, precision_slope
from latlin.inference.forms.dense import inherit_parameters
from latlin.inference.gaussian_kl.full import BySites

ENGINES = {
    "laplace": engines.Laplace(tol=1e-11),
    "gkl": engines.GaussianKL(tol=1e-11),
    "lvb": engines.LocalBound(tol=1e-11),
    "ep": engines.ExpectationPropagation(tol=1e-11, schedule="parallel"),
}
SITES = {
    "logit": lambda rng, n: potentials.Logit(rng.random(n) < 0.5),
    "poisson": lambda rng, n: potentials.Poisson(rng.poisson(1.5, n)),
    "gaussian": lambda rng, n: potentials.Gaussian(rng.standard_normal(n), 0.7),
    "logistic": lambda rng, n: potentials.Logistic(rng.standard_normal(n), 0.5),
}


def differences(n, order):
    return np.diff(np.eye(n), n=order, axis=0)


@dataclasses.dataclass
class Case:
    """A model with a walk and some other coordinates, its twin, and the way between them."""

    model: LatentLinearModel
    twin: LatentLinearModel
    origin: np.ndarray
    basis: np.ndarray
    log_det: float

    def moments(self, post):
        return self.origin + self.basis @ post.mean, self.basis @ post.covariance() @ self.basis.T


def random_case(seed):
    """A random walk, other coordinates with a sparse or a diagonal prior, constraints in two cases of three."""
    rng = np.random.default_rng(seed)
    n, order, p, count = int(rng.integers(4, 9)), int(rng.integers(1, 3)), int(rng.integers(1, 4)), 25
    dim = n + p
    walk = differences(n, order) * rng.uniform(0.5, 2.0)
    mean, other = (
        rng.standard_normal(n),
        np.tril(rng.standard_normal((p, p)) * (rng.random((p, p)) < 0.5), -1) + np.eye(p),
    )
    rows = np.zeros((count, dim))
    rows[np.arange(count), rng.integers(n, size=count)] = 1.0
    rows[:, n:] = rng.standard_normal((count, p)) * (rng.random((count, p)) < 0.6)
    offset = 0.3 * rng.standard_normal(count)
    family = list(SITES)[seed % len(SITES)]
    sites = SITES[family](rng, count)
    kind = seed % 3
    A = np.zeros((order if kind else 0, dim))
    if kind:
        A[:, :n] = [np.ones(n), np.arange(n)][:order]
    if kind == 2:
        A[:, n] = rng.standard_normal(order)
    e = rng.standard_normal(len(A))
    factors = [
        GaussianFactor(mean, precision=sparse.csr_array(walk.T @ walk), rank=n - order, H=slice(0, n), dim=dim),
        GaussianFactor(0.2, precision=other.T @ other, H=slice(n, dim), dim=dim),
        SiteFactor(sparse.csr_array(rows), sites, offset=offset),
    ]
    model = LatentLinearModel(factors, constraints=[Constraint(A, e)] if kind else [])
    basis = null_space(A) if kind else np.eye(dim)
    origin = np.linalg.lstsq(A, e)[0] if kind else np.zeros(dim)
    twin = LatentLinearModel(
        [
            GaussianFactor(walk @ (mean - origin[:n]), 1.0, H=walk @ basis[:n]),
            GaussianFactor(other @ (0.2 - origin[n:]), 1.0, H=other @ basis[n:]),
            SiteFactor(rows @ basis, sites, offset=offset + rows @ origin),
        ]
    )
    log_det = np.log(np.linalg.eigvalsh(walk.T @ walk)[order:]).sum()
    return Case(model, twin, origin, basis, log_det)


@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_models_agree_with_their_dense_twins(seed):
    case = random_case(seed)
    lacks_bound = isinstance(case.model.sites[0].potential, potentials.Poisson)
    names = [name for name in ENGINES if not (lacks_bound and name == "lvb")]
    name = names[seed % len(names)]
    ours, theirs = infer(case.model, ENGINES[name]), infer(case.twin, ENGINES[name])
    mean, covariance = case.moments(theirs)
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence + 0.5 * case.log_det, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.mean, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.variance, np.diagonal(covariance), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.covariance(), covariance, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.kl_bound(), theirs.kl_bound() + 0.5 * case.log_det, rtol=1e-9, atol=1e-9)
    point = theirs.mean + np.random.default_rng(seed).standard_normal((3, len(theirs.mean)))
    found = ours.logpdf(case.origin + point @ case.basis.T)
    np.testing.assert_allclose(found, theirs.logpdf(point), rtol=1e-7, atol=1e-7)
    # of the walk's τ: its precision is τQ, the twin's covariance I/τ
    slope = precision_slope(ours, case.model.gaussians[0].precision)
    np.testing.assert_allclose(slope, -np.sum(evidence_gradient(theirs).gaussians[0].d_cov), rtol=1e-9, atol=1e-8)
    for constraint in case.model.constraints:
        np.testing.assert_allclose(constraint.A @ ours.mean, constraint.e, atol=1e-9)
        draws = ours.sample(4, random_state=0)
        np.testing.assert_allclose(constraint.A @ draws.T, np.tile(constraint.e[:, None], 4), atol=1e-8)


def flat_case(seed):
    """A flat intercept and an intrinsic walk: without the constraint their sum alone is determined."""
    rng = np.random.default_rng(seed)
    n, order, count = 7, 1 + seed % 2, 40
    walk = differences(n, order)
    rows = np.zeros((count, n + order))
    where = rng.integers(n, size=count)
    rows[np.arange(count), where] = 1.0
    rows[:, n:] = np.stack([np.ones(count), where], axis=1)[:, :order]
    A = np.zeros((order, n + order))
    A[:, :n] = [np.ones(n), np.arange(n)][:order]
    sites = potentials.Logit(rng.random(count) < 0.4)
    prior = GaussianFactor(precision=2.0 * walk.T @ walk, rank=n - order, H=slice(0, n), dim=n + order)
    model = LatentLinearModel([prior, SiteFactor(sparse.csr_array(rows), sites)], [Constraint(A)])
    basis = null_space(A)
    twin = LatentLinearModel([GaussianFactor(0.0, 0.5, H=walk @ basis[:n]), SiteFactor(rows @ basis, sites)])
    # N(Cw | 0, ½I) has (n − order) log 2 / 2 of ½ log |2CᵀC|₊ already
    log_det = np.log(np.linalg.eigvalsh(walk.T @ walk)[order:]).sum()
    return Case(model, twin, np.zeros(n + order), basis, log_det)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", [0, 1])
def test_priors_that_only_constraints_tell_apart_from_flat_effects(name, seed):
    case = flat_case(seed)
    assert len(site_form(case.model).held) == 1 + seed
    ours, theirs = infer(case.model, ENGINES[name]), infer(case.twin, ENGINES[name])
    mean, covariance = case.moments(theirs)
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence + 0.5 * case.log_det, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.mean, mean, atol=1e-7)
    np.testing.assert_allclose(ours.covariance(), covariance, atol=1e-7)
    np.testing.assert_allclose(ours.variance, np.diagonal(covariance), atol=1e-7)
    point = theirs.mean + 0.3
    np.testing.assert_allclose(ours.logpdf(case.basis @ point), theirs.logpdf(point), atol=1e-6)
    draws, scale = ours.sample(60_000, random_state=0), np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose((np.cov(draws.T) - covariance) / np.outer(scale, scale), 0.0, atol=0.04)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", [4, 6, 7, 8])
def test_slopes_of_the_evidence_are_its_differences(name, seed):
    case = random_case(seed)
    walk, others = case.model.gaussians[0], (*case.model.gaussians[1:], *case.model.sites)

    def evidence(tau, normalise):
        precision = sparse.csr_array(tau * walk.precision)
        scaled = GaussianFactor(walk.mean, precision=precision, rank=walk.rank, H=walk.H)
        model = LatentLinearModel([scaled, *others], case.model.constraints, normalise_prior=normalise)
        return infer(model, ENGINES[name])

    for normalise in (False, True)[: 2 if case.model.constraints else 1]:
        post = evidence(1.0, normalise)
        difference = (evidence(1.001, normalise).log_evidence - evidence(0.999, normalise).log_evidence) / 0.002
        np.testing.assert_allclose(precision_slope(post, walk.precision), difference, rtol=1e-4, atol=1e-5)
        known = PrecisionSlopes(post)(walk.precision, 0, log_det_slope=float(walk.rank))
        np.testing.assert_allclose(known, precision_slope(post, walk.precision), rtol=1e-9)


def test_slopes_of_a_second_factor_and_of_means():
    case = random_case(7)
    post = infer(case.model, ENGINES["gkl"])
    factor = case.model.gaussians[1]
    change = sparse.csr_array(np.diag(np.arange(1.0, factor.size + 1.0)))

    def evidence(step, shift=0.0):
        precision = sparse.csr_array(factor.precision + step * change)
        moved = GaussianFactor(factor.mean + shift, precision=precision, H=factor.H)
        parts = (case.model.gaussians[0], moved, *case.model.sites)
        return infer(LatentLinearModel(parts, case.model.constraints), ENGINES["gkl"]).log_evidence

    difference = (evidence(1e-3) - evidence(-1e-3)) / 2e-3
    np.testing.assert_allclose(precision_slope(post, change, factor=1), difference, rtol=1e-4)
    by_mean = (evidence(0.0, 1e-3) - evidence(0.0, -1e-3)) / 2e-3
    np.testing.assert_allclose(evidence_gradient(post).gaussians[1].d_mean.sum(), by_mean, rtol=1e-5)


def test_scales_of_sites_have_gradients_too():
    case = random_case(3)  # logistic sites
    sites = case.model.sites[0]

    def fit(scale):
        moved = potentials.Logistic(sites.potential.loc, scale)
        parts = (*case.model.gaussians, SiteFactor(sites.H, moved, offset=sites.offset))
        return infer(LatentLinearModel(parts, case.model.constraints), ENGINES["laplace"])

    found = evidence_gradient(fit(0.5)).sites[0]["scale"].sum()
    np.testing.assert_allclose(found, (fit(0.501).log_evidence - fit(0.499).log_evidence) / 0.002, rtol=1e-4)


def test_the_evidence_by_brute_force():
    """An intrinsic walk of three steps that sums to one, Poisson counts: two dimensions to integrate over."""
    walk, y = differences(3, 1), np.array([2, 0, 3])
    prior = GaussianFactor(precision=1.3 * walk.T @ walk, rank=2)
    model = LatentLinearModel([prior, SiteFactor(None, potentials.Poisson(y))], [Constraint(np.ones(3), 1.0)])
    basis = null_space(np.ones((1, 3)))

    def joint(a, b):
        w = 1.0 / 3.0 + basis @ [a, b]
        log_prior = -np.log(2.0 * np.pi) + 0.5 * np.log(3.0) + np.log(1.3) - 0.65 * np.sum((walk @ w) ** 2)
        return np.exp(log_prior + potentials.Poisson(y).log_density(w).sum())

    exact = np.log(nquad(joint, [(-8.0, 8.0)] * 2, opts={"epsabs": 1e-10})[0])
    assert infer(model, "gkl").log_evidence <= exact + 1e-9
    np.testing.assert_allclose(infer(model, "gkl").log_evidence, exact, atol=0.02)
    np.testing.assert_allclose(infer(model, "ep").log_evidence, exact, atol=2e-3)


def test_gaussian_models_are_exact_and_a_constrained_prior_integrates_to_one():
    walk = differences(6, 1)
    prior = GaussianFactor(precision=sparse.csr_array(walk.T @ walk), rank=5)
    row = Constraint(np.ones(6), 2.0)
    rng, w = np.random.default_rng(0), np.linspace(-1.0, 1.0, 6)
    y = w + 0.1 * rng.standard_normal(6)
    sites = SiteFactor(None, potentials.Gaussian(y, 0.5))
    post = infer(LatentLinearModel([prior, sites], [row]), "gkl")
    assert post.evidence_kind == "exact"
    # the prior integrates to one by itself on the constraint: normalising it changes nothing
    again = infer(LatentLinearModel([prior, sites], [row], normalise_prior=True), "gkl")
    np.testing.assert_allclose(again.log_evidence, post.log_evidence, rtol=1e-12)
    # w = 1/3 + Vz: y is Gaussian with covariance V(VᵀQV)⁻¹Vᵀ + σ²I
    basis = null_space(np.ones((1, 6)))
    cov = basis @ np.linalg.inv(basis.T @ walk.T @ walk @ basis) @ basis.T + 0.25 * np.eye(6)
    r = y - 1.0 / 3.0
    expected = -0.5 * (r @ np.linalg.solve(cov, r) + np.linalg.slogdet(2.0 * np.pi * cov)[1])
    np.testing.assert_allclose(post.log_evidence, expected, rtol=1e-10)


def test_a_proper_prior_cut_by_a_constraint_can_be_normalised():
    rng = np.random.default_rng(0)
    y, sigma = rng.standard_normal(4), 0.8
    factors = [GaussianFactor(0.5, 2.0, dim=4), SiteFactor(None, potentials.Gaussian(y, sigma))]
    post = infer(LatentLinearModel(factors, [Constraint([1.0, 2.0, 0.0, -1.0], 0.3)], normalise_prior=True), "gkl")
    a, mean = np.array([1.0, 2.0, 0.0, -1.0]), np.full(4, 0.5)
    # conditional prior N(w | Aw = e)
    gain = 2.0 * a / (2.0 * a @ a)
    m, cov = mean + gain * (0.3 - a @ mean), 2.0 * np.eye(4) - 2.0 * np.outer(gain, a)
    total = cov + sigma**2 * np.eye(4)
    expected = -0.5 * ((y - m) @ np.linalg.solve(total, y - m) + np.linalg.slogdet(2.0 * np.pi * total)[1])
    np.testing.assert_allclose(post.log_evidence, expected, rtol=1e-10)


def test_several_factors_are_one_prior_when_normalised():
    rng = np.random.default_rng(1)
    first, second = np.diag([1.0, 2.0, 3.0]), np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]])
    sites = SiteFactor(None, potentials.Gaussian(rng.standard_normal(3), 1.0))
    parts = [GaussianFactor(1.0, precision=first), GaussianFactor(-1.0, precision=second), sites]
    total = first + second
    mean = np.linalg.solve(total, first @ np.ones(3) - second @ np.ones(3))
    one = LatentLinearModel([GaussianFactor(mean, np.linalg.inv(total)), sites])
    both = LatentLinearModel(parts, normalise_prior=True)
    np.testing.assert_allclose(infer(both, "gkl").log_evidence, infer(one, "gkl").log_evidence, rtol=1e-10)


def test_draws_have_the_right_moments():
    case = random_case(5)
    post = infer(case.model, "gkl")
    draws = post.sample(100_000, random_state=0)
    scale = np.sqrt(np.maximum(np.diagonal(post.covariance()), 1e-3))
    np.testing.assert_allclose((draws.mean(axis=0) - post.mean) / scale, 0.0, atol=0.02)
    np.testing.assert_allclose((np.cov(draws.T) - post.covariance()) / np.outer(scale, scale), 0.0, atol=0.03)


def test_marginals_of_any_rows_dense_or_sparse():
    case = random_case(2)
    post = infer(case.model, "laplace")
    rows = np.random.default_rng(0).standard_normal((7, case.model.dim))
    expected = np.einsum("nd,de,ne->n", rows, post.covariance(), rows)
    np.testing.assert_allclose(post.project(rows).variance, expected, rtol=1e-9)
    np.testing.assert_allclose(post.project(sparse.csr_array(rows)).variance, expected, rtol=1e-9)
    assert np.all(np.isneginf(post.logpdf(post.mean + 1.0)))  # off the constraints


@pytest.mark.parametrize("seed", [1, 3])
def test_diagnosis_and_comparison(seed):
    model = random_case(seed).model
    table = compare(model, ["map", "laplace", "ep", "gkl", "mean-field", "ai-kl"])
    assert "gkl" in repr(table)
    post = infer(model, "gkl")
    found = post.diagnose(random_state=0)
    low, high = found.evidence_interval
    assert low <= infer(model, "ep").log_evidence <= high + 0.02
    np.testing.assert_allclose(found.mean, post.mean, atol=0.3)


def test_files_keep_everything(tmp_path):
    post = infer(random_case(1).model, "gkl")
    post.save(tmp_path / "posterior.npz")
    same = latlin.load(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(same.variance, post.variance)
    np.testing.assert_array_equal(same.sample(3, random_state=1), post.sample(3, random_state=1))
    np.testing.assert_array_equal(same.logpdf(post.mean), post.logpdf(post.mean))


def test_a_fit_goes_on_from_another_and_from_a_checkpoint(tmp_path):
    case = random_case(1)
    post = infer(case.model, "gkl")
    again = infer(case.model, "gkl", start=post)
    assert again.n_iter <= 2
    np.testing.assert_allclose(again.mean, post.mean, atol=1e-6)
    path = tmp_path / "state.npz"
    with pytest.warns(latlin.ConvergenceWarning):
        infer(case.model, engines.GaussianKL(max_iter=1), checkpoint=path)
    resumed = infer(case.model, engines.GaussianKL(), checkpoint=path)
    np.testing.assert_allclose(resumed.log_evidence, post.log_evidence, rtol=1e-10)


def groups(count, levels, seed=0):
    """Rows with an intercept and one level each, and labels."""
    rng = np.random.default_rng(seed)
    n = np.arange(count)
    columns = np.stack([np.zeros(count, int), 1 + rng.integers(levels, size=count)], axis=1).ravel()
    rows = sparse.csr_array((np.ones(2 * count), (np.repeat(n, 2), columns)), shape=(count, levels + 1))
    return rows, rng.random(count) < 0.4


def test_large_models_with_sparse_rows_choose_the_sparse_form_by_themselves():
    rows, y = groups(1500, 400)
    model = LatentLinearModel([GaussianFactor(0.1, 1.5), SiteFactor(rows, potentials.Logit(y))])
    post = infer(model, engines.GaussianKL(tol=1e-9))
    assert isinstance(post.density.structure, SparsePrecisionCovariance)
    assert "the precision is sparse" in post.message
    dense = infer(
        LatentLinearModel([GaussianFactor(0.1, 1.5), SiteFactor(rows.toarray(), potentials.Logit(y))]),
        engines.GaussianKL(tol=1e-9),
    )
    np.testing.assert_allclose(post.log_evidence, dense.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(post.mean, dense.mean, atol=1e-7)
    np.testing.assert_allclose(post.variance, dense.variance, atol=1e-8)


def test_fits_with_other_values_share_the_analysis_of_the_pattern():
    rows, y = groups(900, 350)
    fits = [
        infer(LatentLinearModel([GaussianFactor(cov=cov), SiteFactor(rows, potentials.Logit(y))]), "laplace")
        for cov in (1.0, 2.0)
    ]
    first, second = (post.density.structure.precision.factor.analysis for post in fits)
    assert first is second
    alone = infer(
        LatentLinearModel([GaussianFactor(cov=2.0), SiteFactor(rows.toarray(), potentials.Logit(y))]), "laplace"
    )
    np.testing.assert_allclose(fits[1].log_evidence, alone.log_evidence, rtol=1e-10)


def test_rows_that_fill_stay_dense():
    rng = np.random.default_rng(0)
    rows = sparse.random_array((400, 320), density=0.1, random_state=rng, format="csr")
    model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(rows, potentials.Logit(rng.random(400) < 0.5))])
    assert not isinstance(infer(model, "laplace").density.structure, SparsePrecisionCovariance)


def test_sites_that_are_not_log_concave():
    rng = np.random.default_rng(0)
    walk = differences(12, 1)
    y = np.cumsum(rng.standard_normal(12))
    y[4] += 15.0
    sites = SiteFactor(None, potentials.StudentT(2.0, y, 0.4))
    ours = infer(LatentLinearModel([GaussianFactor(precision=walk.T @ walk + 0.1 * np.eye(12)), sites]), "gkl")
    dense = GaussianFactor(cov=np.linalg.inv(walk.T @ walk + 0.1 * np.eye(12)))
    theirs = infer(LatentLinearModel([dense, sites]), "gkl")
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, rtol=1e-8)


Q = np.array([[2.0, -1.0], [-1.0, 2.0]])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: GaussianFactor(precision=[[1.0, 2.0], [0.0, 1.0]]), "precision must be symmetric"),
        (lambda: GaussianFactor(precision=[[1.0, 2.0], [2.0, 1.0]]), "precision must be positive definite"),
        (lambda: GaussianFactor(precision=np.ones((2, 3))), "precision must be square"),
        (lambda: GaussianFactor(precision=Q, dim=3), "differ in length"),
        (lambda: GaussianFactor(np.zeros(3), precision=Q), "differ in length"),
        (lambda: GaussianFactor(precision=Q, cov=1.0), "cov or precision, got both"),
        (lambda: GaussianFactor(precision=[1.0, 0.0]), "needs its rank="),
        (lambda: GaussianFactor(precision=-1.0), "precision must be positive"),
        (lambda: GaussianFactor(precision=[[np.nan, 0.0], [0.0, 1.0]]), "must be finite"),
        (lambda: GaussianFactor(precision=Q, rank=3), "rank must be at most 2"),
        (lambda: GaussianFactor(precision=Q, rank=1), "fewer than 1 directions"),
        (lambda: GaussianFactor(cov=1.0, rank=1), "are for a precision"),
        (lambda: GaussianFactor(precision=Q, H=slice(0, 2)), "needs dim"),
        (lambda: GaussianFactor(precision=Q, H=slice(5, 9), dim=4), "select some coordinates"),
        (lambda: GaussianFactor(precision=1.0, H=slice(2, 9), dim=4), "slice of the 4 coordinates that dim names"),
        (lambda: Constraint([[1.0, 1.0]], [1.0, 2.0]), "one number per row of A"),
        (lambda: Constraint([[1.0, np.inf]]), "must be finite"),
        (lambda: LatentLinearModel([GaussianFactor(precision=Q)], Constraint([1.0, 1.0])), "list of Constraint"),
        (lambda: LatentLinearModel([GaussianFactor(precision=Q)], [3.0]), "list of Constraint"),
        (lambda: LatentLinearModel([GaussianFactor(precision=Q)], [Constraint(np.ones(3))]), "differ in the dimension"),
        (
            lambda: LatentLinearModel([GaussianFactor(precision=Q)], [Constraint([1, 1], 0), Constraint([2, 2], 1)]),
            "contradict each other",
        ),
        (lambda: LatentLinearModel([GaussianFactor(precision=Q)], [Constraint([0, 0])]), "row of zeros"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_models_that_leave_a_direction_open_are_refused():
    walk = differences(4, 1)
    prior = GaussianFactor(precision=walk.T @ walk, rank=3)
    sites = SiteFactor(sparse.csr_array(walk), potentials.Logit([0, 1, 1]))
    with pytest.raises(ValueError, match="posterior is improper"):
        infer(LatentLinearModel([prior, sites]), "gkl")
    with pytest.raises(ValueError, match="normalise_prior=True needs"):
        infer(LatentLinearModel([prior, SiteFactor(None, potentials.Logit([0, 1, 1, 0]))], normalise_prior=True), "gkl")


@pytest.mark.parametrize("engine", ["mean-field", "ai-kl", engines.GaussianKL(covariance="diagonal")])
def test_engines_without_full_covariances_say_which_have_them(engine):
    sites = SiteFactor(None, potentials.Logit([0, 1]))
    with pytest.raises(ValueError, match="'gkl', 'laplace'"):
        infer(LatentLinearModel([GaussianFactor(precision=Q), sites]), engine)
    with pytest.raises(ValueError, match="'gkl', 'laplace'"):
        infer(LatentLinearModel([GaussianFactor(dim=2), sites], [Constraint([1.0, 1.0])]), engine)


def test_slopes_need_an_evidence_and_a_precision():
    model = LatentLinearModel([GaussianFactor(precision=Q), SiteFactor(None, potentials.Logit([0, 1]))])
    with pytest.raises(ValueError, match="Gaussian posterior with an evidence"):
        precision_slope(infer(model, "map"), Q)
    with pytest.raises(ValueError, match="shape"):
        precision_slope(infer(model, "gkl"), np.eye(3))
    plain = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(None, potentials.Logit([0, 1]))])
    with pytest.raises(ValueError, match="given by its covariance"):
        precision_slope(infer(plain, "gkl"), Q)


def refuse_sites(*_):
    raise AssertionError("the fit by entries was given up")


def test_many_sites_per_entry_are_fitted_by_entries_with_the_same_optimum(monkeypatch):
    rows, y = groups(4000, 310)
    model = LatentLinearModel([GaussianFactor(0.1, 1.5), SiteFactor(rows, potentials.Logit(y))])
    theirs = infer(model, engines.GaussianKL(tol=1e-8, algorithm="sites"))
    monkeypatch.setattr(BySites, "_by_sites", refuse_sites)
    ours = infer(model, engines.GaussianKL(tol=1e-8))
    assert len(ours.density.structure.precision.factor.analysis.indices) + model.dim < 4000
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-7)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-7)
    np.testing.assert_allclose(ours.sites.gamma, theirs.sites.gamma, rtol=1e-6)
    again = infer(model, engines.GaussianKL(tol=1e-6), start=ours)
    assert again.n_iter <= 2


@pytest.mark.parametrize("normalise", [False, True])
def test_entries_with_constraints(normalise, monkeypatch):
    rng = np.random.default_rng(0)
    levels, count = 8, 300
    rows = np.zeros((count, levels + 1))
    rows[:, 0] = 1.0
    rows[np.arange(count), 1 + rng.integers(levels, size=count)] = 1.0
    walk = differences(levels, 1)
    parts = [
        GaussianFactor(precision=0.1, H=slice(0, 1), dim=levels + 1),
        GaussianFactor(precision=walk.T @ walk, rank=levels - 1, H=slice(1, levels + 1), dim=levels + 1),
        SiteFactor(sparse.csr_array(rows), potentials.Poisson(rng.poisson(2.0, count))),
    ]
    model = LatentLinearModel(parts, [Constraint(np.r_[0.0, np.ones(levels)], 0.5)], normalise_prior=normalise)
    theirs = infer(model, engines.GaussianKL(tol=1e-9, algorithm="sites"))
    monkeypatch.setattr(BySites, "_by_sites", refuse_sites)
    ours = infer(model, engines.GaussianKL(tol=1e-9))
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-8)
    np.testing.assert_allclose(ours.covariance(), theirs.covariance(), atol=1e-8)


def test_a_log_joint_beyond_the_largest_number_is_minus_infinity_without_a_warning():
    model = LatentLinearModel([GaussianFactor(precision=np.eye(3)), SiteFactor(None, potentials.Poisson([1, 2, 3]))])
    form = site_form(model)
    # exp(709.7) is a number, and three of them are not
    assert form.expand(form.coordinates(np.full(3, 709.7))).objective == -np.inf


def test_a_diagonal_precision_with_zeros():
    rng = np.random.default_rng(0)
    rows, sites = rng.standard_normal((50, 3)), potentials.Logit(rng.random(50) < 0.5)
    prior = GaussianFactor(precision=[1.0, 0.0, 2.0], rank=2)
    np.testing.assert_allclose(prior.log_det, np.log(2.0))
    dense = GaussianFactor(0.0, [1.0, 0.5], H=np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    ours = infer(LatentLinearModel([prior, SiteFactor(rows, sites)]), "gkl")
    theirs = infer(LatentLinearModel([dense, SiteFactor(rows, sites)]), "gkl")
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, rtol=1e-10)


def test_modes_at_kinks():
    sites = SiteFactor(None, potentials.Laplace([0.0, 3.0], 0.5))
    # −½w² − 2|w − 3| is highest at 2, −½w² − 2|w| at its kink
    np.testing.assert_allclose(
        infer(LatentLinearModel([GaussianFactor(precision=np.eye(2)), sites]), "map").mean, [0, 2], atol=1e-5
    )


def test_newton_steps_near_a_factor_are_those_by_factors(monkeypatch):
    rng = np.random.default_rng(5)
    Q = sparse.diags_array([-np.ones(59), 2.5 * np.ones(60), -np.ones(59)], offsets=[-1, 0, 1])
    model = LatentLinearModel([GaussianFactor(precision=Q), SiteFactor(None, potentials.Poisson(rng.poisson(3.0, 60)))])
    plain = infer(model, "laplace")
    monkeypatch.setattr("latlin.inference.forms.sparse.DEAR", 0)
    near = infer(model, "laplace")
    assert near.converged
    np.testing.assert_allclose(near.mean, plain.mean, atol=1e-9)
    assert near.log_evidence == pytest.approx(plain.log_evidence, abs=1e-10)


def test_a_laplace_fit_goes_on_where_the_held_curvature_leads():
    rng = np.random.default_rng(6)
    Q = sparse.csr_array(sparse.diags_array([-np.ones(59), 2.5 * np.ones(60), -np.ones(59)], offsets=[-1, 0, 1]))
    sites = SiteFactor(None, potentials.Poisson(rng.poisson(3.0, 60)))
    before = infer(LatentLinearModel([GaussianFactor(precision=Q), sites]), "laplace")
    model = LatentLinearModel([GaussianFactor(0.1, precision=1.02 * Q), sites])
    cold, warm = infer(model, engines.Laplace(tol=1e-9)), infer(model, engines.Laplace(tol=1e-9), start=before)
    np.testing.assert_allclose(warm.mean, cold.mean, atol=1e-9)
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-9)
    # the first step is done: what is left is of second order in the change of the prior
    form = site_form(model)
    first = form.weights(form.continued(inherit_parameters(form, model, before)))
    assert np.abs(first - cold.mean).max() < 0.1 * np.abs(before.mean - cold.mean).max()

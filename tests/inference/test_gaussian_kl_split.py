import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, logsumexp

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, load
from latlin.densities.bases import GeneralisedNormal
from latlin.densities.density import Mixture
from latlin.engines import AffineKL, GaussianKL
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.gaussian_kl.split import Partition, _bound, _Space
from latlin.potentials import Cauchy, Gaussian, Logit, Poisson, SpikeAndSlab, Step
from reference import best_mixture_bound, grid, log_joint

PROBLEMS = {
    "disagreeing": LatentLinearModel(
        [GaussianFactor(cov=9.0), SiteFactor([[1.0], [1.0]], Cauchy(np.array([-3.0, 3.0]), 0.3))]
    ),
    "spike": LatentLinearModel(
        [SiteFactor(None, SpikeAndSlab(0.5, spike=0.1, slab=2.0)), GaussianFactor(np.array([0.6]), 0.25, H=[[1.0]])]
    ),
    "skewed": LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor([[1.0]], Poisson(0))]),
}


def evidence(model):
    """log Z in one dimension, on a fine grid."""
    w = np.linspace(-15, 15, 200_001)
    return logsumexp(log_joint(model, w[:, None])) + np.log(w[1] - w[0])


@pytest.mark.parametrize(
    ("name", "components", "share"), [("disagreeing", 2, 0.75), ("spike", 2, 0.88), ("skewed", 4, 0.96)]
)
def test_closes_most_of_the_gap_from_below(name, components, share):
    model = PROBLEMS[name]
    post, exact = infer(model, GaussianKL(components=components)), evidence(model)
    assert post.evidence_kind == "lower bound"
    assert post.trace[0] == pytest.approx(infer(model, "gkl").log_evidence, abs=1e-9)
    assert np.all(np.diff(post.trace) > 0.0)
    closed = (post.trace - post.trace[0]) / (exact - post.trace[0])
    assert share < closed[-1] < 1.0
    assert post.log_evidence == post.trace[-1]
    assert len(post.trace) == components
    # the mixture's own KL bound lies between: its entropy is bounded, not exact
    w = np.linspace(-15, 15, 100_001)
    log_q = post.logpdf(w[:, None])
    q = np.exp(log_q) * (w[1] - w[0])
    own = q @ (log_joint(model, w[:, None]) - log_q)
    assert q.sum() == pytest.approx(1.0, abs=1e-9)
    assert post.log_evidence <= own <= exact
    # and its variance is closer to the truth
    p = np.exp(log_joint(model, w[:, None]) - exact) * (w[1] - w[0])
    variance = p @ w**2 - (p @ w) ** 2
    assert abs(np.log(post.variance[0] / variance)) < 0.5 * abs(np.log(infer(model, "gkl").variance[0] / variance))


def test_a_wall_is_hard_for_any_mixture_of_two():
    """Gates close most of what the best mixture of two Gaussians closes, by brute force, and no more."""
    model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor([[1.0]], Step(np.array([1]), 0.001))])
    w = np.linspace(-6.0, 6.0, 3001)
    log_p, width = log_joint(model, w[:, None]), w[1] - w[0]

    def loss(t):
        log_q = np.logaddexp(
            -np.logaddexp(0.0, -t[0]) - 0.5 * ((w - t[1]) / np.exp(t[2])) ** 2 - t[2],
            -np.logaddexp(0.0, t[0]) - 0.5 * ((w - t[3]) / np.exp(t[4])) ** 2 - t[4],
        ) - 0.5 * np.log(2.0 * np.pi)
        return -float(np.exp(log_q) @ (log_p - log_q)) * width

    best = -minimize(loss, [0.0, 0.4, -1.0, 1.2, -0.7], method="L-BFGS-B").fun
    single, double = infer(model, GaussianKL(components=2)).trace
    exact = evidence(model)
    assert best - single < 0.65 * (exact - single)
    assert 0.8 * (best - single) < double - single < best - single


@pytest.mark.parametrize("seed", [0, 1])
def test_no_mixture_of_four_gaussians_follows_walls(seed):
    """A search with exact entropies closes two thirds of the gap at most; gates are near, a skewed density is above."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, 2))
    model = LatentLinearModel(
        [GaussianFactor(cov=1.0, dim=2), SiteFactor(rows, Step(np.where(rows @ [1.0, 0.5] > 0.0, 1, -1), 0.001))]
    )
    post = infer(model, GaussianKL(components=4))
    single = infer(model, "gkl")
    # in coordinates in which one Gaussian is standard
    root = np.linalg.cholesky(single.covariance())
    t, cell = grid(np.zeros(2), np.eye(2), 6.0, 121)
    log_p = log_joint(model, single.mean + t @ root.T) + np.log(np.diagonal(root)).sum()
    best = best_mixture_bound(log_p, t, cell, components=4, starts=4)
    gap = logsumexp(log_p) + np.log(cell) - single.log_evidence
    closed, found = (best - single.log_evidence) / gap, (post.log_evidence - single.log_evidence) / gap
    assert closed < 2 / 3
    assert 0.8 * closed < found < closed
    skewed = infer(model, AffineKL("skew-normal", tol=1e-3)).log_evidence
    assert 0.85 < (skewed - single.log_evidence) / gap < 1.0


def test_slope_in_the_gates():
    rng = np.random.default_rng(2)
    model = LatentLinearModel(
        [GaussianFactor(cov=9.0), SiteFactor(rng.standard_normal((5, 2)), Logit(rng.integers(0, 2, 5)))]
    )
    first, engine = infer(model, "gkl"), GaussianKL(tol=1e-9)
    space = _Space(model, first, lambda part, start: engine.run(part, start=start))
    leaves = (((0, 1),), ((0, -1), (1, 1)), ((0, -1), (1, -1)))
    gates = rng.standard_normal((2, 3))

    def partition(point):
        parts = tuple(space._part(point.reshape(2, 3), leaf, None) for leaf in leaves)
        return Partition(point.reshape(2, 3), leaves, parts, _bound(parts))

    numeric = approx_fprime(gates.ravel(), lambda point: partition(point).bound, 1e-5)
    np.testing.assert_allclose(space._slope(partition(gates.ravel())).ravel(), numeric, atol=1e-5)
    # gates of slope zero change nothing
    assert partition(np.zeros(6)).bound == pytest.approx(first.log_evidence, abs=1e-8)


def test_gaussian_posteriors_need_one_component(tmp_path):
    model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor([[1.0], [2.0]], Gaussian([0.3, 1.0], 0.5))])
    post = infer(model, GaussianKL(components=3))
    assert post.evidence_kind == "exact"
    assert "one component is exact" in post.message


def test_a_mixture_is_kept_in_a_file_and_has_no_gradient(tmp_path):
    post = infer(PROBLEMS["skewed"], GaussianKL(components=2))
    assert isinstance(post.density, Mixture)
    post.save(tmp_path / "mixture.npz")
    assert np.array_equal(load(tmp_path / "mixture.npz").variance, post.variance)
    with pytest.raises(ValueError, match="use components=1"):
        evidence_gradient(post)
    with pytest.raises(ValueError, match="components must be an integer of at least 1"):
        GaussianKL(components=0)


def test_affine_parts_are_above_gaussian_ones(tmp_path):
    model = PROBLEMS["disagreeing"]
    affine = infer(model, AffineKL("skew-normal", components=2, tol=1e-4))
    gaussian = infer(model, GaussianKL(components=2))
    assert np.all(affine.trace >= gaussian.trace - 1e-4)
    assert np.all(np.diff(affine.trace) > 0.0)
    assert gaussian.log_evidence + 0.01 < affine.log_evidence < evidence(model)
    assert affine.evidence_kind == "lower bound"
    w = np.linspace(-15.0, 15.0, 20_001)
    assert np.exp(affine.logpdf(w[:, None])).sum() * (w[1] - w[0]) == pytest.approx(1.0, abs=1e-6)
    affine.save(tmp_path / "mixture.latlin")
    assert load(tmp_path / "mixture.latlin").mean == pytest.approx(affine.mean)
    with pytest.raises(ValueError, match="no gradient"):
        evidence_gradient(affine)
    with pytest.raises(ValueError, match="components must be"):
        AffineKL(components=0)


@pytest.mark.parametrize("locs", [(0.0, 1.0), (-3.0, 3.0)])
def test_a_generalised_normal_of_two_cauchy_observations_is_the_best(locs):
    """Against a search over location, scale and shape, with integrals on a grid."""
    model = LatentLinearModel([GaussianFactor(cov=100.0, dim=1), SiteFactor([[1.0], [1.0]], Cauchy(locs, 0.2))])
    z = np.linspace(-12.0, 12.0, 2001)

    def loss(t):
        base = GeneralisedNormal(1.0 + 5.0 * expit(t[2]))
        log_q = base.logpdf(z[:, None])[:, 0]
        return -np.exp(log_q) @ (log_joint(model, (t[0] + np.exp(t[1]) * z)[:, None]) - log_q + t[1]) * (z[1] - z[0])

    start = [np.mean(locs), np.log(0.5 * np.ptp(locs)), 1.0]
    best = -minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-9}).fun
    assert infer(model, AffineKL("generalised-normal")).log_evidence > best - 2e-6

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import ExpectationPropagation, GaussianKL
from latlin.inference.diagnosis import correction
from latlin.inference.diagnosis.correction import correct_marginals
from latlin.potentials import Gaussian, Logit, Poisson, StudentT
from reference import grid, log_joint


def problem(family, n, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 2)) + 0.5
    if family == "logit":
        sites = Logit(rng.random(n) < 1 / (1 + np.exp(-rows @ [1.0, -1.0])))
    else:
        sites = Poisson(rng.poisson(np.exp(rows @ [0.5, -0.5])))
    return LatentLinearModel([GaussianFactor(cov=9.0), SiteFactor(rows, sites)])


def cumulants(model, posterior, rows):
    """Mean, variance and skewness of projections, by a grid."""
    points, _ = grid(posterior.mean, np.linalg.cholesky(posterior.covariance()), 12.0, 401)
    logs = log_joint(model, points)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    x = points @ rows.T
    mean = p @ x
    variance = p @ (x - mean) ** 2
    return mean, variance, p @ (x - mean) ** 3 / variance**1.5


@pytest.mark.parametrize("family", ["logit", "poisson"])
@pytest.mark.parametrize(("n", "sd_error", "mean_error"), [(20, 4e-3, 5e-3), (200, 1e-4, 1e-4)])
def test_moments_against_a_grid(family, n, sd_error, mean_error):
    model = problem(family, n)
    post = infer(model, GaussianKL(tol=1e-9))
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 2.0]])
    mean, variance, skewness = cumulants(model, post, rows)
    found, plain = correct_marginals(model, post.density, rows), post.project(rows)
    sd = np.sqrt(variance)
    wrong, before = np.abs(found.std / sd - 1).max(), np.abs(plain.std / sd - 1).max()
    assert wrong < sd_error
    assert wrong < (0.4 if n == 20 else 0.05) * before
    assert np.abs((found.mean - mean) / sd).max() < mean_error
    np.testing.assert_allclose(found.skewness, skewness, atol=(0.3 if n == 20 else 0.05) * np.abs(skewness).max())


def test_error_falls_by_the_order_of_the_data():
    errors = []
    for n in (50, 400):
        model = problem("logit", n)
        post = infer(model, GaussianKL(tol=1e-10))
        mean, variance, _ = cumulants(model, post, np.eye(2))
        found = correct_marginals(model, post.density, np.eye(2))
        moved = np.abs(post.mean - mean).max() / np.abs(found.mean - mean).max()
        errors.append((np.abs(found.variance / variance - 1).max(), moved))
    # eight times the data: an error of the order n⁻² where the Gaussian's is n⁻¹
    assert errors[1][0] < errors[0][0] / 20
    assert errors[1][1] > 10


def test_coordinates_are_the_default_and_quantiles_follow_the_skew():
    model = problem("logit", 12)
    post = infer(model, "gkl")
    one, other = post.corrected_marginals(), post.corrected_marginals(np.eye(2))
    np.testing.assert_array_equal(one.variance, other.variance)
    low, middle, high = (one.quantile(q) for q in (0.05, 0.5, 0.95))
    longer = (high - middle) > (middle - low)
    np.testing.assert_array_equal(longer, one.skewness > 0)


def test_gaussian_sites_need_no_correction():
    rows = np.array([[1.0, 2.0], [0.5, -1.0]])
    model = LatentLinearModel([GaussianFactor(cov=9.0), SiteFactor(rows, Gaussian([0.3, 1.0], 0.5))])
    post = infer(model, "gkl")
    found = post.corrected_marginals()
    np.testing.assert_allclose(found.variance, post.variance, rtol=1e-9)
    np.testing.assert_allclose(found.skewness, 0.0, atol=1e-8)


@pytest.mark.parametrize("family", ["logit", "poisson"])
def test_propagated_moments_against_a_grid(family):
    model = problem(family, 20)
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 2.0]])
    post = infer(model, ExpectationPropagation(tol=1e-10))
    mean, variance, skewness = cumulants(model, post, rows)
    found, plain, sd = post.corrected_marginals(rows), post.project(rows), np.sqrt(variance)
    wrong, before = np.abs(found.std / sd - 1).max(), np.abs(np.sqrt(plain.variance) / sd - 1).max()
    assert wrong < 0.45 * before
    assert wrong < 3e-3
    moved, first = np.abs(found.mean - mean) / sd, np.abs(plain.mean - mean) / sd
    assert moved.max() < 0.5 * first.max()
    np.testing.assert_allclose(found.skewness, skewness, atol=0.3 * np.abs(skewness).max())
    optimum = infer(model, GaussianKL(tol=1e-9))
    in_place = correct_marginals(model, optimum.density, rows)
    assert wrong < np.abs(in_place.std / sd - 1).max()
    # Gaussian KL goes on to the same fixed point
    other = optimum.corrected_marginals(rows)
    np.testing.assert_allclose([other.mean, other.std], [found.mean, found.std], rtol=1e-4)


def test_sites_that_are_not_log_concave_are_corrected_in_their_place():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((80, 2))
    sites = StudentT(4.0, rows @ [1.0, -0.5] + 0.5 * rng.standard_t(4.0, 80), 0.5)
    model = LatentLinearModel([GaussianFactor(cov=9.0), SiteFactor(rows, sites)])
    post = infer(model, GaussianKL(tol=1e-9))
    found, in_place = post.corrected_marginals(), correct_marginals(model, post.density, np.eye(2))
    np.testing.assert_array_equal(found.variance, in_place.variance)
    _, variance, _ = cumulants(model, post, np.eye(2))
    wrong, before = (np.abs(np.log(v / variance)).max() for v in (found.variance, post.variance))
    assert wrong < 0.5 * before


def test_a_sum_over_triples_of_coordinates_is_that_over_pairs_of_sites(monkeypatch):
    rng = np.random.default_rng(2)
    H, A, d = rng.standard_normal((12, 3)), rng.standard_normal((3, 12)), rng.standard_normal(12)
    squares = (H @ A) ** 2
    monkeypatch.setattr(correction, "PAIRS", 30)
    # 9 < 12: by triples; of the first seven by pairs
    for n in (12, 7):
        change, cubes = correction._pair_sums(H[:n], A[:, :n], d[:n])
        C = (H @ A)[:n, :n]
        np.testing.assert_allclose(change, 0.5 * d[:n, None] * (squares[:n, :n] @ (d[:n, None] * A.T[:n])), rtol=1e-12)
        np.testing.assert_allclose(cubes, C**3 @ d[:n], rtol=1e-12, atol=1e-13)


def test_one_site_is_exact_by_propagation():
    model = LatentLinearModel([GaussianFactor(np.array([0.7]), 9.0), SiteFactor([[1.5]], Logit([1]), offset=0.3)])
    post = infer(model, "ep")
    w = np.linspace(-30.0, 40.0, 200_001)
    p = np.exp(log_joint(model, w[:, None]))
    p /= p.sum()
    mean = p @ w
    variance = p @ (w - mean) ** 2
    found = post.corrected_marginals()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-6)
    np.testing.assert_allclose(found.skewness, p @ (w - mean) ** 3 / variance**1.5, rtol=1e-5)


@pytest.mark.parametrize("engine", ["laplace", ExpectationPropagation(power=0.9), GaussianKL(components=2)], ids=str)
def test_other_posteriors_are_refused(engine):
    post = infer(problem("poisson", 5), engine)
    with pytest.raises(ValueError, match="corrects one Gaussian of engine 'gkl'"):
        post.corrected_marginals()

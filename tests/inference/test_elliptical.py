"""Elliptical KL: its bound against integrals on a grid, its place in the order of bounds, tails, what it refuses."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import digamma, logsumexp
from scipy.stats import multivariate_t

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.densities.gaussian import Gaussian, MultivariateT, entropy_loss
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.inference.elliptical import ScaleAveraged, scale_nodes
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.numerics.linalg import cholesky
from latlin.potentials import Cauchy, GeneralisedNormal, Logit, Poisson, Probit, StudentT


def normal(mean, cov):
    root = cholesky(np.linalg.inv(cov), name="P")
    return Gaussian(np.asarray(mean, float), PrecisionCovariance(DiagonalWhitening(np.ones(len(mean))), root))


def two_cauchy():
    return LatentLinearModel([GaussianFactor(cov=1e4, dim=1), SiteFactor([[1.0], [1.0]], Cauchy([0.0, 0.5], 0.3))])


def plane():
    H = np.random.default_rng(0).standard_normal((5, 2))
    return LatentLinearModel([GaussianFactor(cov=25.0, dim=2), SiteFactor(H, StudentT(2.0, H @ [1.0, 2.0] + 0.1, 0.3))])


def log_joint(model, w):
    sites = model.sites[0]
    variance = float(model.gaussians[0].cov)
    prior = -0.5 * np.sum(w * w, axis=-1) / variance - 0.5 * model.dim * np.log(2.0 * np.pi * variance)
    return prior + sites.potential.log_density(w @ np.asarray(sites.H).T).sum(axis=-1)


def grid(post, count, reach):
    """Points about the mean, in units of the covariance's root, and the log of their cell."""
    axis = np.sinh(np.linspace(-reach, reach, count))
    weight = np.log(np.cosh(np.arcsinh(axis)) * (2.0 * reach / (count - 1)))
    root = cholesky(post.covariance(), name="S").factor.T
    points = np.array(np.meshgrid(*[axis] * post.model.dim, indexing="ij")).reshape(post.model.dim, -1).T
    cells = np.array(np.meshgrid(*[weight] * post.model.dim, indexing="ij")).reshape(post.model.dim, -1).sum(axis=0)
    return post.mean + points @ root.T, cells + np.log(np.diagonal(root)).sum()


@pytest.mark.parametrize(("make", "count"), [(two_cauchy, 4001), (plane, 601)])
def test_the_bound_is_the_integral_and_lies_between_gaussian_and_truth(make, count):
    model = make()
    post = infer(model, "t-kl")
    points, cells = grid(post, count, 9.0)
    joint, own = log_joint(model, points), post.logpdf(points)
    assert np.exp(logsumexp(own + cells)) == pytest.approx(1.0, abs=1e-5)
    bound = np.sum(np.exp(own + cells) * (joint - own))
    assert post.log_evidence == pytest.approx(bound, abs=2e-4)
    truth = logsumexp(joint + cells)
    assert infer(model, "gkl").log_evidence + 1e-3 < post.log_evidence < truth
    assert post.evidence_kind == "lower bound"


def test_the_search_finds_the_best_degrees_of_freedom():
    model = two_cauchy()
    best = infer(model, "t-kl")
    for df in (3.0, 4.0, 6.0, 10.0, 100.0):
        assert infer(model, engines.EllipticalKL(df=df)).log_evidence <= best.log_evidence + 1e-6


def test_tails_are_nearer_to_those_of_the_posterior():
    model = two_cauchy()
    points, cells = grid(infer(model, "gkl"), 20_001, 9.0)
    mass = np.exp(log_joint(model, points) + cells - logsumexp(log_joint(model, points) + cells))

    def covered(post):
        low, high = (post.project([[1.0]]).quantile(q)[0] for q in (0.025, 0.975))
        return mass[(points[:, 0] >= low) & (points[:, 0] <= high)].sum()

    gaussian, student = infer(model, "gkl"), infer(model, "t-kl")
    assert abs(covered(student) - 0.95) < 0.7 * abs(covered(gaussian) - 0.95)
    assert student.diagnose(random_state=0).k_hat < gaussian.diagnose(random_state=0).k_hat - 0.5


def test_where_a_gaussian_is_best_it_is_returned():
    model = LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[1.0]], GeneralisedNormal(2.0, 0.3, 1.0))])
    post = infer(model, "t-kl")
    assert isinstance(post.density, Gaussian)
    assert "no Student t has a better bound" in post.message
    assert post.log_evidence == pytest.approx(infer(model, "gkl").log_evidence)


@pytest.mark.parametrize("df", [3.0, 4.5, 20.0, 300.0])
def test_nodes_integrate_over_the_scale(df):
    scales, weights = scale_nodes(df)
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ scales == pytest.approx(1.0)
    # ⟨log α⟩ = log((df − 2)/2) − ψ(df/2)
    assert weights @ np.log(scales) == pytest.approx(np.log(0.5 * (df - 2.0)) - digamma(0.5 * df), abs=1e-7)


@pytest.mark.parametrize("sites", [Logit([1]), Cauchy([0.5], 0.3), Probit([-1])])
def test_energies_are_those_of_a_student(sites):
    scales, weights = scale_nodes(4.0)
    found = ScaleAveraged(sites, scales, weights).expected_log([0.4], [2.0])
    marginal = MultivariateT(normal([0.4], [[2.0]]), 4.0)
    nodes = np.sinh(np.linspace(-14.0, 14.0, 20_001))
    weight = np.cosh(np.arcsinh(nodes)) * 28.0 / 20_000
    truth = np.sum(weight * np.exp(marginal.logpdf(nodes[:, None])) * sites.log_density(nodes[:, None])[:, 0])
    assert found.value[0] == pytest.approx(truth, abs=1e-5)
    step = 1e-4
    block = ScaleAveraged(sites, scales, weights)
    moved = [block.expected_log([0.4 + s * step], [2.0]).value[0] for s in (1, -1)]
    assert found.d_mean[0] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-5)
    spread = [block.expected_log([0.4], [2.0 + s * step]).value[0] for s in (1, -1)]
    assert found.d_var[0] == pytest.approx((spread[0] - spread[1]) / (2 * step), rel=1e-5)


def test_the_density_is_the_multivariate_t():
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 1.0]])
    q = MultivariateT(normal(mean, cov), 5.0)
    peer = multivariate_t(mean, cov * 3.0 / 5.0, 5.0)
    w = np.random.default_rng(0).standard_normal((7, 2)) * 3.0
    np.testing.assert_allclose(q.logpdf(w), peer.logpdf(w))
    np.testing.assert_allclose(q.covariance(), cov)
    draws = q.sample(400_000, 0)
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.05)
    one = q.project(np.ones((1, 2)))
    assert np.mean(draws.sum(axis=1) < one.quantile(0.9)) == pytest.approx(0.9, abs=0.003)
    assert one.cdf(one.quantile(0.3))[0] == pytest.approx(0.3)
    assert np.exp(one.logcdf(0.5))[0] == pytest.approx(one.cdf(0.5)[0])
    with pytest.raises(ValueError, match="df must be a number above 2"):
        MultivariateT(q.gaussian, 2.0)


def test_entropies():
    one = MultivariateT(normal([0.0], [[4.0]]), 5.0)
    entropy = quad(lambda x: -np.exp(one.logpdf([x])) * one.logpdf([x]), -400.0, 400.0, limit=400)[0]
    assert one.gaussian.entropy - entropy_loss(1, 5.0) == pytest.approx(entropy, abs=1e-5)


def test_what_is_refused_is_said():
    steep = LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[1.0]], Poisson([2]))])
    with pytest.raises(ValueError, match="Poisson sites fall faster than a parabola"):
        infer(steep, "t-kl")
    with pytest.raises(ValueError, match="df must be a number of at least 3"):
        engines.EllipticalKL(df=2.0)
    with pytest.raises(ValueError, match="no gradient"):
        evidence_gradient(infer(two_cauchy(), "t-kl"))


def test_it_is_saved(tmp_path):
    post = infer(two_cauchy(), "t-kl")
    post.save(tmp_path / "q.npz")
    again = latlin.load(tmp_path / "q.npz")
    assert again.density.df == post.density.df
    assert again.logpdf([0.3]) == pytest.approx(post.logpdf([0.3]))


@pytest.mark.parametrize(
    "site", [potentials.Gaussian([1e3], 1.0), potentials.GaussianMixture([0.5, 0.5], [0.0, 1e3], [1.0, 1.0])]
)
def test_parabolas_far_from_zero_are_no_steeper(site):
    """N(w | 999, 1) times a site at 1,000 has its mean between the two."""
    model = LatentLinearModel([GaussianFactor(999.0, 1.0, dim=1), SiteFactor(None, site)])
    found, gkl = infer(model, "t-kl"), infer(model, "gkl")
    assert found.log_evidence == pytest.approx(gkl.log_evidence, abs=1e-6)
    np.testing.assert_allclose(found.mean, 999.5, rtol=1e-9)

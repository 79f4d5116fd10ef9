"""Posteriors on which accelerated natural gradients crawl: separable data under wide priors, huge offsets."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import GaussianKL
from latlin.potentials import Gamma, Gaussian, GeneralisedNormal, Laplace, Logit, Poisson, Probit
from reference import PlainBound

rng = np.random.default_rng(1)
X = rng.standard_normal((12, 3))
COUNTS = rng.standard_normal((3, 4))
HARD = {
    "probit, variance 1e4": [GaussianFactor(cov=1e4, dim=3), SiteFactor(X, Probit(X[:, 0] > 0))],
    "logit, variance 1e8": [GaussianFactor(cov=1e8, dim=3), SiteFactor(X, Logit(X[:, 0] > 0))],
    "no counts": [GaussianFactor(cov=1e2, dim=4), SiteFactor(COUNTS, Poisson([0, 0, 0]))],
}


@pytest.mark.parametrize("name", HARD)
def test_what_crawls_gets_there(name):
    post = infer(LatentLinearModel(HARD[name]), "gkl")
    assert post.converged
    assert np.all(np.diff(post.trace) >= -1e-9)


def test_it_says_that_second_order_steps_were_taken():
    assert "second-order" in infer(LatentLinearModel(HARD["logit, variance 1e8"]), "gkl").message


def test_a_flat_mode_is_no_obstacle():
    model = LatentLinearModel([SiteFactor(None, GeneralisedNormal(4.0, [0.0, 1.0], 1.0))])
    post = infer(model, "gkl")
    plain = PlainBound(model)
    assert post.converged
    assert plain.optimum(plain.at(post) + 0.05) == pytest.approx(post.log_evidence, abs=1e-6)


def test_a_poisson_rate_beyond_numbers_on_the_way_is_stepped_around():
    rows = np.ones((3, 1))
    model = LatentLinearModel([GaussianFactor(cov=1e4, dim=1), SiteFactor(rows, Poisson([3, 4, 5]), offset=100.0)])
    post = infer(model, "gkl")
    assert post.converged
    assert post.mean[0] == pytest.approx(np.log(4.0) - 100.0, abs=0.1)


def test_noise_far_below_the_scale_of_a_sparse_prior_costs_no_digits():
    rng = np.random.default_rng(3)
    rows, y = rng.random((9, 31)), rng.standard_normal(9)
    noise = SiteFactor(rows, Gaussian(y, 3e-5))
    model, other = (LatentLinearModel([SiteFactor(None, Laplace(np.zeros(31), b)), noise]) for b in (0.15, 0.2))
    posts = [infer(model, GaussianKL(tol=1e-9), start=start) for start in (None, infer(other, "gkl"))]
    assert all(post.converged for post in posts)
    assert posts[1].log_evidence == pytest.approx(posts[0].log_evidence, rel=1e-12)
    np.testing.assert_allclose(posts[1].mean, posts[0].mean, atol=1e-8)


def test_sharp_sites_on_repeated_rows_are_those_with_weights():
    rng = np.random.default_rng(3)
    rows, y, weight = rng.random((9, 31)), np.exp(rng.standard_normal(9)), rng.integers(1, 5, 9)
    prior = GaussianFactor(cov=0.01, dim=31)
    whole = LatentLinearModel([prior, SiteFactor(rows, Gamma(y, 1e6), weight=weight.astype(float))])
    again = LatentLinearModel([prior, SiteFactor(rows.repeat(weight, 0), Gamma(y.repeat(weight), 1e6))])
    first, second = (infer(model, GaussianKL(tol=1e-9)) for model in (whole, again))
    assert first.converged
    assert second.converged
    assert second.log_evidence == pytest.approx(first.log_evidence, rel=1e-12)
    np.testing.assert_allclose(second.mean, first.mean, atol=1e-9)
    np.testing.assert_allclose(second.variance, first.variance, rtol=1e-8)

"""Posteriors on which accelerated natural gradients crawl: separable data under wide priors, huge offsets."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import GeneralisedNormal, Logit, Poisson, Probit
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

"""Targets near 10⁹ with a width of seven: the same posterior as near zero, in as many steps."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials

FAR = 1e9
RNG = np.random.default_rng(0)
ROWS = np.column_stack([RNG.standard_normal((24, 2)), np.ones(24)])
Y = np.arange(24.0)
SCALES = np.array([5.0, 5.0, 70.0])
NOISE = {
    "student t": lambda y: potentials.StudentT(4.0, y, 2.0),
    "laplace": lambda y: potentials.Laplace(y, 2.0),
    "quantile": lambda y: potentials.AsymmetricLaplace(0.3, y, 2.0),
    "cauchy": lambda y: potentials.Cauchy(y, 2.0),
    "logistic": lambda y: potentials.Logistic(y, 2.0),
    "huber": lambda y: potentials.Huber(y, 2.0),
}


def fitted(noise, at, sparse_prior, engine="gkl"):
    middle = np.array([0.0, 0.0, at + 11.5])
    own = SiteFactor(None, potentials.Laplace(middle, SCALES)) if sparse_prior else GaussianFactor(middle, SCALES**2)
    return infer(LatentLinearModel([own, SiteFactor(ROWS, NOISE[noise](at + Y))]), engine)


@pytest.mark.parametrize("sparse_prior", [False, True])
@pytest.mark.parametrize("noise", NOISE)
def test_a_shift_of_everything_shifts_the_posterior(noise, sparse_prior):
    near, far = (fitted(noise, at, sparse_prior) for at in (0.0, FAR))
    assert near.converged
    assert far.converged
    assert far.n_iter <= near.n_iter + 3
    np.testing.assert_allclose(far.mean - [0.0, 0.0, FAR], near.mean, atol=1e-4)
    np.testing.assert_allclose(far.variance, near.variance, rtol=1e-4)
    assert far.log_evidence == pytest.approx(near.log_evidence, abs=1e-5)


def test_offsets_are_as_exact_as_locations():
    """An offset of 10⁹ for every row is the same as targets that are smaller by it."""
    sites = SiteFactor(ROWS, potentials.StudentT(4.0, FAR + Y, 2.0), offset=np.full(24, FAR - 11.5))
    prior = GaussianFactor([0.0, 0.0, 1.0], SCALES**2)
    plain = infer(LatentLinearModel([prior, SiteFactor(ROWS, potentials.StudentT(4.0, Y + 11.5, 2.0))]), "gkl")
    post = infer(LatentLinearModel([prior, sites]), "gkl")
    assert post.converged
    np.testing.assert_allclose(post.mean, plain.mean, atol=1e-6)

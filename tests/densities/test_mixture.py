"""Mixtures of densities over w: moments, projections and draws against sums done by hand."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import SkewNormal
from latlin.densities.density import Mixture, PointMass
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.numerics.linalg import cholesky
from latlin.numerics.stored import Decoder, Encoder

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[0.0, 1.0], [2.0, -1.0], [0.5, 4.0]])
COVS = np.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0.0], [0.0, 2.0]], [[3.0, -1.0], [-1.0, 1.0]]])
ROWS = np.array([[1.0, 0.0], [0.5, -2.0], [0.0, 1.0]])


def gaussian(mean, cov):
    return Gaussian(mean, PrecisionCovariance(DiagonalWhitening(np.ones(2)), cholesky(np.linalg.inv(cov))))


MIXTURE = Mixture(10.0 * WEIGHTS, tuple(map(gaussian, MEANS, COVS)))


def test_moments():
    mean = WEIGHTS @ MEANS
    covariance = sum(p * (s + np.outer(m, m)) for p, m, s in zip(WEIGHTS, MEANS, COVS, strict=True)) - np.outer(
        mean, mean
    )
    np.testing.assert_allclose(MIXTURE.mean, mean)
    np.testing.assert_allclose(MIXTURE.covariance(), covariance, rtol=1e-12)
    np.testing.assert_allclose(MIXTURE.variance, np.diag(covariance), rtol=1e-12)


def test_density_at_points():
    points = np.random.default_rng(0).standard_normal((5, 2))
    each = [p * multivariate_normal(m, s).pdf(points) for p, m, s in zip(WEIGHTS, MEANS, COVS, strict=True)]
    np.testing.assert_allclose(MIXTURE.logpdf(points), np.log(np.sum(each, axis=0)), rtol=1e-10)
    assert MIXTURE.logpdf(points[0]) == pytest.approx(float(np.log(np.sum(each, axis=0))[0]))


def test_projections_integrate_to_their_own_moments():
    marginals = MIXTURE.project(ROWS)
    np.testing.assert_allclose(marginals.mean, ROWS @ MIXTURE.mean)
    np.testing.assert_allclose(marginals.variance, np.diag(ROWS @ MIXTURE.covariance() @ ROWS.T))
    for n in range(len(ROWS)):
        mass = quad(lambda x, n=n: float(marginals.pdf(x)[n]), -40, marginals.mean[n] + 0.3, limit=300)[0]
        assert mass == pytest.approx(float(marginals.cdf(marginals.mean + 0.3)[n]), abs=1e-8)
    np.testing.assert_allclose(np.exp(marginals.logpdf(0.7)), marginals.pdf(0.7))
    np.testing.assert_allclose(np.exp(marginals.logcdf(0.7)), marginals.cdf(0.7))


def test_quantiles_invert_the_distribution():
    marginals = MIXTURE.project(ROWS)
    levels = np.array([0.001, 0.05, 0.5, 0.9, 0.9999])[:, None]
    np.testing.assert_allclose(marginals.cdf(marginals.quantile(levels)), np.broadcast_to(levels, (5, 3)), rtol=1e-9)
    alone = Mixture(np.ones(1), MIXTURE.components[:1]).project(ROWS)
    np.testing.assert_allclose(alone.quantile(0.3), MIXTURE.components[0].project(ROWS).quantile(0.3))
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        marginals.quantile(1.0)


def test_draws_have_the_moments_and_their_components():
    draws, label = MIXTURE.sample_labelled(40_000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=0), MIXTURE.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), MIXTURE.covariance(), atol=0.15)
    np.testing.assert_allclose(np.bincount(label) / len(label), WEIGHTS, atol=0.01)
    np.testing.assert_allclose(draws[label == 1].mean(axis=0), MEANS[1], atol=0.05)
    np.testing.assert_array_equal(draws, MIXTURE.sample(40_000, random_state=1))


def test_parts_of_other_shapes():
    skewed = AffineIndependent(np.array([[1.0, 0.0], [0.5, 1.0]]), np.zeros(2), SkewNormal(3.0))
    both = Mixture(np.array([0.4, 0.6]), (skewed, MIXTURE.components[0]))
    marginals = both.project(ROWS)
    x = marginals.quantile(0.2)
    expected = 0.4 * skewed.project(ROWS).cdf(x) + 0.6 * MIXTURE.components[0].project(ROWS).cdf(x)
    np.testing.assert_allclose(expected, 0.2, rtol=1e-8)


def test_stored_and_read():
    encoder = Encoder()
    header = encoder.encode(MIXTURE, "density")
    again = Decoder(encoder.arrays).decode(header)
    points = np.random.default_rng(4).standard_normal((3, 2))
    np.testing.assert_array_equal(again.logpdf(points), MIXTURE.logpdf(points))
    np.testing.assert_array_equal(again.sample(5, 1), MIXTURE.sample(5, 1))


@pytest.mark.parametrize(
    ("weights", "parts", "message"),
    [
        ([1.0], (), "one number per component"),
        ([1.0, -0.5], (PointMass(np.zeros(1)), PointMass(np.zeros(1))), "not negative"),
        ([0.5, 0.5], (PointMass(np.zeros(1)), PointMass(np.zeros(2))), "same w"),
    ],
)
def test_bad_arguments(weights, parts, message):
    with pytest.raises(ValueError, match=message):
        Mixture(np.array(weights), parts)

"""Predictive distributions averaged over likelihoods: sums, inverses and draws."""

import numpy as np
import pytest
from scipy.integrate import quad

from latlin import potentials
from latlin.potentials.averaged import AveragedPredictive

MEAN, VARIANCE = np.array([0.0, 1.0, 2.5]), np.array([0.5, 0.1, 0.3])
WEIGHTS = np.array([0.3, 0.7])


def averaged(first, second):
    return AveragedPredictive(WEIGHTS, [first.predictive(MEAN, VARIANCE), second.predictive(MEAN + 0.2, VARIANCE)])


NOISE = averaged(potentials.StudentT(5.0, 0.0, 0.4), potentials.StudentT(9.0, 0.0, 1.5))
NORMAL = averaged(potentials.Gaussian(0.0, 0.4), potentials.Gaussian(0.0, 1.5))
COUNTS = averaged(potentials.Poisson(0), potentials.Poisson(0))
CLASSES = averaged(potentials.Ordinal(0, [-1.0, 1.0]), potentials.Ordinal(0, [-0.5, 2.0]))


def test_moments_of_a_density():
    for n in range(3):
        density = lambda y, n=n: float(np.exp(NOISE.log_density(np.full(3, y))[n]))  # noqa: E731
        assert quad(density, -80, 80, points=[MEAN[n]], limit=400)[0] == pytest.approx(1.0, abs=1e-6)
        assert quad(lambda y, f=density: y * f(y), -80, 80, points=[MEAN[n]], limit=400)[0] == pytest.approx(
            NOISE.mean[n], abs=1e-5
        )
    each = [part.variance + part.mean**2 for part in NOISE._parts]
    np.testing.assert_allclose(NOISE.variance, WEIGHTS @ np.array(each) - NOISE.mean**2)


def test_normal_parts_are_averaged_in_closed_form():
    y = np.array([[0.3, -1.0, 2.0], [1.0, 0.0, 5.0]])
    each = np.stack([part.log_density(y) for part in NORMAL._parts])
    np.testing.assert_allclose(NORMAL.log_density(y), np.log(np.tensordot(WEIGHTS, np.exp(each), 1)), rtol=1e-9)
    below = np.stack([part.cdf(y) for part in NORMAL._parts])
    np.testing.assert_allclose(NORMAL.cdf(y), np.tensordot(WEIGHTS, below, 1), atol=1e-8)


@pytest.mark.parametrize("predictive", [NOISE, NORMAL], ids=["noise", "normal"])
def test_quantiles_of_a_density(predictive):
    q = np.array([0.05, 0.5, 0.99])[:, None]
    np.testing.assert_allclose(predictive.cdf(predictive.quantile(q)), np.broadcast_to(q, (3, 3)), atol=1e-9)


@pytest.mark.parametrize("predictive", [COUNTS, CLASSES], ids=["counts", "classes"])
def test_quantiles_of_whole_numbers(predictive):
    q = np.broadcast_to(np.array([0.05, 0.5, 0.95])[:, None], (3, 3))
    k = predictive.quantile(q)
    assert np.all(predictive.cdf(k) >= q)
    assert np.all(predictive.cdf(k - 1.0) < q)


def test_probabilities_of_classes():
    expected = WEIGHTS @ np.array([part.probabilities.reshape(3, -1) for part in CLASSES._parts]).reshape(2, -1)
    np.testing.assert_allclose(CLASSES.probabilities.ravel(), expected)


@pytest.mark.parametrize("predictive", [NOISE, COUNTS, CLASSES], ids=["noise", "counts", "classes"])
def test_draws(predictive):
    draws = predictive.sample(30_000, random_state=0)
    error = 4.0 * np.sqrt(predictive.variance / 30_000)
    assert np.all(np.abs(draws.mean(axis=0) - predictive.mean) < error)
    y = predictive.quantile(np.full(3, 0.7))
    np.testing.assert_allclose(np.mean(draws <= y, axis=0), predictive.cdf(y), atol=0.015)


@pytest.mark.parametrize("away", [0.0, 5.0, 300.0])
def test_quantiles_of_parts_that_are_far_apart(away):
    """Between two far parts the density all but vanishes, so that a step by its slope alone would lead nowhere."""
    near, far = (
        potentials.Laplace(0.0, scale).predictive(MEAN + shift, VARIANCE) for scale, shift in [(1.0, 0.0), (0.3, away)]
    )
    both = AveragedPredictive(np.array([0.6, 0.4]), [near, far])
    q = np.array([1e-6, 0.3, 0.599, 0.601, 0.9, 1.0 - 1e-6])[:, None]
    np.testing.assert_allclose(both.cdf(both.quantile(q)), np.broadcast_to(q, (6, 3)), atol=1e-11)

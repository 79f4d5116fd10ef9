"""Gaussian sites: everything is a textbook formula."""

from __future__ import annotations

import numpy as np
from scipy import stats

from latlin.potentials import Gaussian

MEAN, VAR = np.array([0.3, -1.0, 2.0]), np.array([0.2, 1.0, 5.0])


def test_density_is_that_of_scipy():
    x = np.linspace(-4, 4, 9)
    np.testing.assert_allclose(Gaussian(0.5, 2.0).log_density(x), stats.norm.logpdf(x, 0.5, 2.0), rtol=1e-14)


def test_a_power_counts_the_observation_that_often():
    twice = Gaussian(1.0, 0.5).tilted_moments(MEAN, VAR, 2.0)
    first = Gaussian(1.0, 0.5).tilted_moments(MEAN, VAR)
    second = Gaussian(1.0, 0.5).tilted_moments(first.mean, first.variance)
    np.testing.assert_allclose(twice.log_z, first.log_z + second.log_z, rtol=1e-13)
    np.testing.assert_allclose(twice.mean, second.mean, rtol=1e-13)
    np.testing.assert_allclose(twice.variance, second.variance, rtol=1e-13)


def test_the_quadratic_bound_is_the_function():
    site, x = Gaussian([1.0, -2.0], [0.5, 3.0]), np.linspace(-5, 5, 11)[:, None]
    a, b, c = site.quadratic_bound(0.7)
    np.testing.assert_allclose(-0.5 * a * x * x + b * x + c, site.log_density(x), rtol=1e-12)


def test_predictive_is_gaussian():
    predictive = Gaussian(7.0, [0.5, 1.0, 2.0]).predictive(MEAN, VAR)
    exact = stats.norm(MEAN, np.sqrt(VAR + np.array([0.25, 1.0, 4.0])))
    y = np.array([[-3.0], [0.1], [4.0]])
    np.testing.assert_allclose(predictive.variance, exact.var(), rtol=1e-14)
    np.testing.assert_allclose(predictive.log_density(y), exact.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(predictive.cdf(y), exact.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(predictive.quantile(0.9), exact.ppf(0.9), rtol=1e-9)
    draws = predictive.sample(20000, random_state=0)
    assert np.all(np.abs(draws.var(axis=0) / exact.var() - 1) < 0.06)

"""Student's t sites: their limits, their two peaks, and what their tails leave undefined."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from latlin.potentials import Cauchy, Gaussian, StudentT

MEAN, VAR = np.array([0.3, -1.0, 20.0]), np.array([0.2, 1.0, 5.0])


def test_density_is_that_of_scipy():
    x = np.linspace(-40, 40, 9)
    for df in (0.3, 4.0, 1e3):
        np.testing.assert_allclose(StudentT(df, 0.5, 2.0).log_density(x), stats.t.logpdf(x, df, 0.5, 2.0), rtol=1e-12)


def test_one_degree_of_freedom_is_cauchy():
    one, other = StudentT(1.0, 0.5, 2.0), Cauchy(0.5, 2.0)
    for got, want in zip(one.expected_log(MEAN, VAR), other.expected_log(MEAN, VAR), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)
    for got, want in zip(one.tilted_moments(MEAN, VAR, 0.7), other.tilted_moments(MEAN, VAR, 0.7), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_many_degrees_of_freedom_are_gaussian():
    light, limit = StudentT(1e7, 0.5, 2.0), Gaussian(0.5, 2.0)
    # the next term of the expansion is of order r⁴/df
    for got, want in zip(light.expected_log(MEAN, VAR), limit.expected_log(MEAN, VAR), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)
    for got, want in zip(light.tilted_moments(MEAN, VAR), limit.tilted_moments(MEAN, VAR), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


def test_derivatives_are_those_of_the_value():
    site, h = StudentT([2.0, 4.0, 30.0], 0.2, [0.1, 1.0, 5.0]), 1e-4
    got = site.expected_log(MEAN, VAR)
    by_mean = (site.expected_log(MEAN + h, VAR).value - site.expected_log(MEAN - h, VAR).value) / (2 * h)
    by_var = (site.expected_log(MEAN, VAR + h).value - site.expected_log(MEAN, VAR - h).value) / (2 * h)
    np.testing.assert_allclose(got.d_mean, by_mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got.d_var, by_var, rtol=1e-5, atol=1e-7)


def test_two_peaks_of_equal_height():
    # the observation says 0, the prior 10: both peaks carry mass
    site, m, s = StudentT(3.0, 0.0, 0.05), 10.0, 1.9
    # the trapezoid rule, exponentially accurate once its step is well below the site's width
    x = np.arange(-20.0, 40.0, 2e-3)
    w = 2e-3 * stats.norm.pdf(x, m, s) * stats.t.pdf(x, 3.0, scale=0.05)
    moments = [np.sum(w * x**k) for k in range(3)]
    log_z, mean, variance = site.tilted_moments(m, s**2)
    assert log_z == pytest.approx(np.log(moments[0]), abs=1e-10)
    assert mean == pytest.approx(moments[1] / moments[0], rel=1e-9)
    assert variance == pytest.approx(moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, rel=1e-8)


def test_weights_near_zero_and_far_above_one():
    site = StudentT(4.0)
    none, little = site.tilted_moments(1.0, 2.0, 0.0), site.tilted_moments(1.0, 2.0, 1e-9)
    np.testing.assert_allclose(none, [0.0, 1.0, 2.0], atol=1e-15)
    np.testing.assert_allclose(little, none, atol=1e-8)
    # a large weight makes the site a Gaussian at its mode: precision 1e6 · (df+1)/df, to relative order 1/weight
    assert site.tilted_moments(1.0, 2.0, 1e6).variance == pytest.approx(0.8e-6, rel=1e-5)


def test_bound_is_the_tangent_of_a_convex_function():
    site = StudentT(3.0, 1.0, 0.5)
    a, b, c = site.quadratic_bound([0.0, 2.0])
    np.testing.assert_allclose(a, [16.0 / 3.0, 16.0 / 3.0 / (1 + 16.0 / 3.0)])
    np.testing.assert_allclose(-0.5 * a * 9 + b * 3 + c <= site.log_density(3.0) + 1e-14, True)
    assert -0.5 * a[1] * 9 + b[1] * 3 + c[1] == pytest.approx(float(site.log_density(3.0)))


def test_predictive_moments_exist_where_the_family_has_them():
    predictive = StudentT([0.7, 1.5, 5.0]).predictive(2.0, 1.0)
    np.testing.assert_array_equal(np.isnan(predictive.mean), [True, False, False])
    np.testing.assert_allclose(predictive.variance, [np.inf, np.inf, 1 + 5 / 3])
    point = StudentT(4.0, scale=0.5).predictive(1.0, 0.0)
    y = np.array([-3.0, 0.9, 7.0])
    np.testing.assert_allclose(point.log_density(y), stats.t.logpdf(y, 4.0, 1.0, 0.5), rtol=1e-12)
    np.testing.assert_allclose(point.cdf(y), stats.t.cdf(y, 4.0, 1.0, 0.5), rtol=1e-9)
    assert point.quantile(0.975) == pytest.approx(stats.t.ppf(0.975, 4.0, 1.0, 0.5), rel=1e-9)
    draws = predictive.sample(20000, random_state=0)[:, 2]
    assert draws.mean() == pytest.approx(2.0, abs=5 * np.sqrt(2.67 / 20000))


@pytest.mark.parametrize("df", [0.0, -2.0, np.inf])
def test_bad_degrees_of_freedom(df: float):
    with pytest.raises(ValueError, match="df must hold"):
        StudentT(df)

"""Laplace sites: the kink, the corrected derivative in the variance, and widths from one extreme to the other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from latlin.potentials import Laplace


def test_derivatives_are_those_of_the_value():
    site = Laplace([0.2, -1.0, 3.0], 0.7)
    m, v, h = np.array([0.3, 1.0, -2.0]), np.array([0.5, 0.04, 9.0]), 1e-5
    got = site.expected_log(m, v)
    by_mean = (site.expected_log(m + h, v).value - site.expected_log(m - h, v).value) / (2 * h)
    by_var = (site.expected_log(m, v + h * v).value - site.expected_log(m, v - h * v).value) / (2 * h * v)
    # differences of second order with rounding: h²/6 of the third derivative + 1e-16/h
    np.testing.assert_allclose(got.d_mean, by_mean, atol=1e-8)
    np.testing.assert_allclose(got.d_var, by_var, rtol=1e-8, atol=1e-9)


def test_a_wide_gaussian_leaves_the_laplace_itself():
    log_z, mean, variance = Laplace(0.5, 1e-6).tilted_moments(0.5, 1e4)
    # corrections are of relative size (scale/sd)² = 1e-16
    assert log_z == pytest.approx(-0.5 * np.log(2 * np.pi * 1e4), rel=1e-14)
    assert mean == pytest.approx(0.5, rel=1e-15)
    assert variance == pytest.approx(2e-12, rel=1e-13)


def test_a_narrow_gaussian_is_only_shifted():
    log_z, mean, variance = Laplace(0.0, 2.0).tilted_moments(-50.0, 1e-12)
    assert mean == pytest.approx(-50 + 0.5e-12, abs=1e-14)
    assert variance == pytest.approx(1e-12, rel=1e-12)
    assert log_z == pytest.approx(-25 - np.log(4.0), rel=1e-14)


def test_bound_closes_on_the_kink():
    a, b, c = Laplace(1.0, 0.5).quadratic_bound([0.0, 1e-9])
    assert np.all(np.isfinite([a, b, c]))
    assert a[0] > a[1] == pytest.approx(2e9)


def test_derivatives_at_the_kink_are_finite():
    np.testing.assert_array_equal(Laplace(1.0, 0.5).expected_log([1.0, 2.0], 0.0).d_mean, [0.0, -2.0])
    assert np.all(np.isfinite(Laplace().expected_log(0.0, 0.0)))


def test_predictive():
    predictive = Laplace(9.0, 0.7).predictive(1.0, 0.3)
    assert predictive.variance == pytest.approx(0.3 + 2 * 0.49)

    def density(y: float) -> float:
        nodes = [y, 1.0]
        f = lambda x: stats.norm.pdf(x, 1.0, np.sqrt(0.3)) * stats.laplace.pdf(y - x, scale=0.7)  # noqa: E731
        return integrate.quad(f, -6, 8, points=nodes, epsabs=1e-13)[0]

    for y in (-2.0, 1.3):
        assert np.exp(predictive.log_density(y)) == pytest.approx(density(y), rel=1e-10)
    assert predictive.cdf(1.0) == pytest.approx(0.5, abs=1e-12)
    assert predictive.cdf(predictive.quantile(0.05)) == pytest.approx(0.05, rel=1e-9)
    draws = predictive.sample(20000, random_state=0)
    assert draws.var() == pytest.approx(float(predictive.variance), rel=0.07)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, -1.0), "scale must hold positive"),
        ((np.nan, 1.0), "loc must hold finite"),
        (([0, 1], [1, 2, 3]), "loc has 2"),
    ],
)
def test_bad_input(arguments: tuple, words: str):
    with pytest.raises(ValueError, match=words):
        Laplace(*arguments)

"""The compiled expectations of log(1 + x²) and the mixture integral of its powers."""

from __future__ import annotations

import numpy as np

from latlin.potentials.student_t import expected_log1p_square, tilted_by_power


def test_the_series_and_the_asymptotic_series_meet():
    mu = np.array([0.0, 0.3, 2.0, 40.0, 300.0])
    sd = np.sqrt((1 + mu**2) / 128)
    inside, outside = expected_log1p_square(mu, sd * (1 + 1e-12)), expected_log1p_square(mu, sd * (1 - 1e-12))
    for near, far in zip(inside, outside, strict=True):
        np.testing.assert_allclose(near, far, rtol=1e-10, atol=1e-13)


def test_wide_gaussians_by_the_trapezoid_rule():
    mu, sd = np.array([0.0, 0.7, -5.0]), np.array([1.0, 3.0, 6.0])
    z = np.linspace(-9, 9, 6001)[:, None]
    w = 0.003 * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    x = mu + sd * z
    want = np.log1p(x * x), 2 * x / (1 + x * x), (1 - x * x) / (1 + x * x) ** 2
    for got, f in zip(expected_log1p_square(mu, sd), want, strict=True):
        np.testing.assert_allclose(got, (w * f).sum(axis=0), rtol=1e-11, atol=1e-12)


def test_values_of_any_size_are_finite():
    mu, sd = np.array([1e150, 0.0, 1e-150, 1e8]), np.array([1.0, 1e-150, 1e150, 0.0])
    assert np.all(np.isfinite(expected_log1p_square(mu, sd)))


def test_a_point_mass_is_the_function():
    mu, beta = np.array([0.0, 0.5, -30.0]), np.array([0.01, 2.0, 70.0])
    log_z, shift, variance = tilted_by_power(mu, np.zeros(3), beta)
    np.testing.assert_allclose(log_z, -beta * np.log1p(mu**2), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal([shift, variance], 0.0)

"""Absolute moments of Gaussians, and Gaussians times exp(−β|x|^q)."""

from __future__ import annotations

import numpy as np

from latlin.potentials.generalised_normal import absolute_moment, tilted_by_exponential

MU, SD = (part.ravel() for part in np.meshgrid([-40.0, -1.0, 0.0, 0.3, 11.9, 12.1, 50.0], [1e-6, 0.1, 1.0, 30.0]))


def test_even_moments_are_polynomials():
    v = SD**2
    exact = MU**4 + 6 * MU**2 * v + 3 * v**2, 4 * MU**3 + 12 * MU * v, 6 * MU**2 + 6 * v
    for got, want in zip(absolute_moment(MU, SD, np.full(MU.shape, 4.0)), exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_both_forms_meet():
    q = np.array([0.3, 1.5, 2.5, 7.0])
    mu = np.ones(4)
    inside, outside = (absolute_moment(mu, (1 + shift) / (10 + q), q) for shift in (1e-13, -1e-13))
    for near, far in zip(inside, outside, strict=True):
        np.testing.assert_allclose(near, far, rtol=1e-11)


def test_a_gaussian_factor_gives_a_gaussian():
    beta, q = np.full(MU.shape, 0.5), np.full(MU.shape, 2.0)
    log_z, shift, variance = tilted_by_exponential(MU, SD, beta, q)
    t = 1 + SD**2
    np.testing.assert_allclose(log_z, -0.5 * np.log(t) - 0.5 * MU**2 / t, rtol=1e-12, atol=1e-12)
    assert np.max(np.abs(shift + MU * SD**2 / t)) < 1e-12
    assert np.max(np.abs(variance - SD**2 / t) / SD**2) < 1e-12


def test_no_factor_at_all():
    for q in (0.5, 3.0):
        log_z, shift, variance = tilted_by_exponential(MU, SD, np.zeros(MU.shape), np.full(MU.shape, q))
        np.testing.assert_allclose(log_z, 0.0, atol=1e-12)
        assert np.max(np.abs(shift) / SD) < 1e-7
        np.testing.assert_allclose(variance, SD**2, rtol=1e-12)

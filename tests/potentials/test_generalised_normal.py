"""Generalised normal sites: the families they contain, the spike of small shapes, flags."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from latlin.potentials import Gaussian, GeneralisedNormal, Laplace

M, S = (part.ravel() for part in np.meshgrid([-50.0, -1.0, 0.0, 3.0, 50.0], [1e-6, 1e-3, 0.3, 4.0, 100.0]))


@pytest.mark.parametrize(
    ("general", "special"),
    [
        (GeneralisedNormal(1.0, 0.3, 0.5), Laplace(0.3, 0.5)),
        (GeneralisedNormal(1.0, 0.0, 0.01), Laplace(0.0, 0.01)),
        (GeneralisedNormal(2.0, 0.5, np.sqrt(8.0)), Gaussian(0.5, 2.0)),
    ],
)
def test_laplace_and_gaussian_are_members(general: GeneralisedNormal, special: Laplace | Gaussian):
    x = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(general.log_density(x), special.log_density(x), rtol=1e-14)
    for got, want in zip(general.expected_log(M, S**2), special.expected_log(M, S**2), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    for power in (1.0, 0.5):
        got, want = general.tilted_moments(M, S**2, power), special.tilted_moments(M, S**2, power)
        np.testing.assert_allclose(got.log_z, want.log_z, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(got.mean, want.mean, rtol=1e-12, atol=1e-12)
        assert np.max(np.abs(got.variance - want.variance) / S**2) < 1e-11


@pytest.mark.parametrize(("shape", "m", "s"), [(0.3, 4.0, 1.0), (0.5, 6.0, 1.2), (0.5, -2.0, 0.3), (3.3, 5.0, 2.0)])
def test_spike_and_peak_side_by_side(shape: float, m: float, s: float):
    site = GeneralisedNormal(shape, 0.0, 0.1)
    # the trapezoid rule in u, x = ±e^u, on a grid much finer than any width here
    u = np.arange(-80.0, 4.0, 1e-3)
    x = np.concatenate([-np.exp(u), np.exp(u)])
    w = 1e-3 * np.abs(x) * stats.norm.pdf(x, m, s) * np.exp(site.log_density(x))
    moments = [np.sum(w * x**k) for k in range(3)]
    log_z, mean, variance = site.tilted_moments(m, s**2)
    assert log_z == pytest.approx(np.log(moments[0]), abs=1e-10)
    assert mean == pytest.approx(moments[1] / moments[0], rel=1e-9)
    assert variance == pytest.approx(moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, rel=1e-8)


def test_derivatives_are_those_of_the_value():
    site = GeneralisedNormal([0.5, 1.5, 4.0], 0.2, [0.3, 1.0, 5.0])
    m, v, h = np.array([0.3, -1.0, 20.0]), np.array([0.2, 1.0, 5.0]), 1e-5
    got = site.expected_log(m, v)
    by_mean = (site.expected_log(m + h, v).value - site.expected_log(m - h, v).value) / (2 * h)
    by_var = (site.expected_log(m, v + h).value - site.expected_log(m, v - h).value) / (2 * h)
    np.testing.assert_allclose(got.d_mean, by_mean, rtol=1e-7)
    np.testing.assert_allclose(got.d_var, by_var, rtol=1e-7)


def test_flags_follow_the_shape():
    flags = [
        (block.log_concave, block.super_gaussian, block.smooth) for block in map(GeneralisedNormal, (0.5, 1, 1.5, 2, 3))
    ]
    want = [(False, True, False), (True, True, False), (True, True, False), (True, True, True), (True, False, True)]
    assert flags == want
    assert not GeneralisedNormal([0.5, 3.0]).log_concave
    assert not GeneralisedNormal([0.5, 3.0]).super_gaussian


def test_bound_closes_on_the_spike():
    for shape in (0.5, 1.0, 1.9):
        assert np.all(np.isfinite(GeneralisedNormal(shape, 2.0).quadratic_bound(0.0)))


def test_at_the_kink_itself():
    for shape in (0.5, 1.0, 1.5, 2.0, 3.0):
        assert np.all(np.isfinite(GeneralisedNormal(shape).expected_log(0.0, 0.0)))
        np.testing.assert_allclose(GeneralisedNormal(shape).tilted_moments(0.0, 0.0).mean, 0.0)
    assert GeneralisedNormal(2.0).expected_log(0.0, 0.0).d_var == -1.0


def test_predictive():
    predictive = GeneralisedNormal(1.5, 9.0, 0.7).predictive(1.0, 0.3)
    noise = stats.gennorm(1.5, scale=0.7)
    assert predictive.variance == pytest.approx(0.3 + noise.var())
    y = np.linspace(-14, 16, 6001)
    density = np.exp(predictive.log_density(y))
    assert np.trapezoid(density, y) == pytest.approx(1.0, abs=1e-10)
    assert np.trapezoid(density * (y - 1) ** 2, y) == pytest.approx(float(predictive.variance), rel=1e-9)
    point = GeneralisedNormal(1.5, scale=0.7).predictive(0.0, 0.0)
    np.testing.assert_allclose(point.cdf([-1.0, 0.3, 2.0]), noise.cdf([-1.0, 0.3, 2.0]), rtol=1e-9)
    assert predictive.cdf(predictive.quantile(0.1)) == pytest.approx(0.1, rel=1e-8)
    assert predictive.sample(20000, random_state=0).var() == pytest.approx(float(predictive.variance), rel=0.06)


def test_bad_input():
    with pytest.raises(ValueError, match="shape must hold positive numbers, got -1"):
        GeneralisedNormal([1.0, -1.0])
    with pytest.raises(ValueError, match="overflows"):
        GeneralisedNormal(400.0).expected_log(50.0, 1.0)


@pytest.mark.parametrize("shape", [0.5, 1.5, 4.0])
def test_the_parabola_of_a_narrow_gaussian_meets_the_rule(shape: float):
    site, m = GeneralisedNormal(shape, 0.0, 0.5), np.array([0.3, -40.0])
    inside, outside = (site.tilted_moments(m, (factor * 1e-9 * m) ** 2) for factor in (0.999999, 1.000001))
    np.testing.assert_allclose(inside.log_z, outside.log_z, rtol=1e-11)
    np.testing.assert_allclose(inside.mean, outside.mean, rtol=1e-14)
    np.testing.assert_allclose(inside.variance, outside.variance, rtol=1e-5)

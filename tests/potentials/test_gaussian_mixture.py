"""Mixtures of Gaussians: products, powers and peaks far apart."""

from __future__ import annotations

import numpy as np
import pytest

from latlin.potentials import Gaussian, GaussianMixture

MEAN, VAR = np.array([0.3, -1.0, 2.0]), np.array([0.2, 1.0, 25.0])


def square(site: GaussianMixture) -> tuple[float, GaussianMixture]:
    """The square of a mixture, as a constant times a mixture: N(a, s²) N(b, t²) = N(a | b, s²+t²) N(c, u²)."""
    a, s = site.locs[:, None], site.scales[:, None]
    b, t = site.locs, site.scales
    overlap = np.exp(-0.5 * (a - b) ** 2 / (s * s + t * t)) / np.sqrt(2 * np.pi * (s * s + t * t))
    weights = site.weights[:, None] * site.weights * overlap
    u = 1 / np.sqrt(s**-2.0 + t**-2.0)
    c = u * u * (a / s**2 + b / t**2)
    keep = weights > 0
    return weights.sum(), GaussianMixture(weights[keep] / weights.sum(), c[keep], u[keep])


@pytest.mark.parametrize(
    "site",
    [
        GaussianMixture([0.9, 0.1], 0.0, [0.01, 1.0]),
        GaussianMixture([0.5, 0.5], [-2.0, 2.0], 0.01),
        GaussianMixture([0.5, 0.5], [-50.0, 50.0], 1.0),
        GaussianMixture([0.2, 0.3, 0.5], [-20.0, 0.0, 20.0], [1.0, 0.01, 3.0]),
    ],
)
def test_a_power_of_two_is_the_mixture_of_products(site: GaussianMixture):
    m = np.array([0.0, 0.5, -3.0])
    constant, product = square(site)
    want, got = product.tilted_moments(m, VAR), site.tilted_moments(m, VAR, 2.0)
    np.testing.assert_allclose(got.log_z, want.log_z + np.log(constant), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.variance, want.variance, rtol=1e-9)


def test_one_component_is_gaussian():
    one, other = GaussianMixture([1.0], 0.5, 2.0), Gaussian(0.5, 2.0)
    for got, want in zip(one.expected_log(MEAN, VAR), other.expected_log(MEAN, VAR), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    for power in (1.0, 0.3):
        got, want = one.tilted_moments(MEAN, VAR, power), other.tilted_moments(MEAN, VAR, power)
        np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-11)


def test_equal_components_are_one():
    twice = GaussianMixture([0.25, 0.75], [0.5, 0.5], [2.0, 2.0])
    for got, want in zip(twice.expected_log(MEAN, VAR), Gaussian(0.5, 2.0).expected_log(MEAN, VAR), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_derivatives_are_those_of_the_value():
    site, h = GaussianMixture([0.9, 0.1], [0.0, 0.5], [0.1, 1.0]), 1e-4
    got = site.expected_log(MEAN, VAR)
    by_mean = (site.expected_log(MEAN + h, VAR).value - site.expected_log(MEAN - h, VAR).value) / (2 * h)
    by_var = (site.expected_log(MEAN, VAR + h).value - site.expected_log(MEAN, VAR - h).value) / (2 * h)
    np.testing.assert_allclose(got.d_mean, by_mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got.d_var, by_var, rtol=1e-5, atol=1e-6)


def test_one_mixture_a_site():
    weights = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    block = GaussianMixture(weights, [[0.0, 0.0], [-1.0, 1.0], [0.0, 3.0]], [0.1, 1.0])
    assert block.size == 3
    assert block.select([2, 0]).size == 2
    assert GaussianMixture(weights[0], 0.0, [0.1, 1.0]).size is None
    for power in (1.0, 0.5):
        whole = block.tilted_moments(MEAN, VAR, power)
        for n in range(3):
            alone = GaussianMixture(block.weights[n], block.locs[n], block.scales[n])
            np.testing.assert_allclose(
                [part[n] for part in whole], alone.tilted_moments(MEAN[n], VAR[n], power), rtol=1e-9
            )
            np.testing.assert_allclose(
                [part[n] for part in block.expected_log(MEAN, VAR)], alone.expected_log(MEAN[n], VAR[n]), rtol=1e-10
            )


def test_a_common_centre_makes_it_super_gaussian():
    site = GaussianMixture([0.5, 0.5], 2.0, [0.1, 3.0])
    assert site.super_gaussian
    assert not GaussianMixture([0.5, 0.5], [0.0, 1.0], [0.1, 3.0]).super_gaussian
    a, b, c = site.quadratic_bound(0.5)
    x = np.linspace(-10, 14, 2401)
    slack = site.log_density(x) - (-0.5 * a * x * x + b * x + c)
    assert slack.min() > -1e-12
    np.testing.assert_allclose(slack[np.isclose(np.abs(x - 2), 0.5)], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.5, 0.6], 0.0, 1.0), "weights must sum to one"),
        (([1.2, -0.2], 0.0, 1.0), "weights must hold positive"),
        (([0.5, 0.5], 0.0, [1.0, 0.0]), "scales must hold positive"),
        (([0.5, 0.5], [0.0, np.nan], 1.0), "locs must hold finite"),
        (([0.5, 0.5], [0.0, 1.0, 2.0], 1.0), "broadcast"),
    ],
)
def test_bad_input(arguments: tuple, words: str):
    with pytest.raises(ValueError, match=words):
        GaussianMixture(*arguments)


def test_it_knows_no_observation():
    with pytest.raises(ValueError, match="observation"):
        GaussianMixture([0.5, 0.5], 0.0, [1.0, 2.0]).predictive(0.0, 1.0)


def test_the_parabola_of_a_narrow_gaussian_meets_the_quadrature():
    site, m = GaussianMixture([0.5, 0.5], [-1.0, 1.0], [0.5, 2.0]), np.array([0.3, 40.0])
    inside, outside = (site.tilted_moments(m, (factor * 0.5e-9) ** 2, 0.5) for factor in (0.999999, 1.000001))
    np.testing.assert_allclose(inside.log_z, outside.log_z, rtol=1e-12)
    np.testing.assert_allclose(inside.mean, outside.mean, rtol=1e-15)
    np.testing.assert_allclose(inside.variance, outside.variance, rtol=1e-5)
    point = site.tilted_moments(m, 0.0, 0.5)
    np.testing.assert_allclose(point.log_z, 0.5 * site.log_density(m), rtol=1e-14)
    np.testing.assert_array_equal(point.mean, m)


def test_far_beyond_all_components():
    site = GaussianMixture([0.5, 0.5], [-1.0, 1.0], [0.5, 2.0])
    assert np.all(np.isfinite(site.tilted_moments(1e30, 1e12, 0.5)))
    assert site.expected_log(1e200, 1.0)[0] == -np.inf

"""Rules integrate what they promise: polynomials exactly, bends and kinks at any ratio of scales."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

from latlin.numerics import quadrature, threads
from latlin.numerics.special import log_ndtr, log_sigmoid
from latlin.potentials.kernels.sites import CHUNK, log_sigmoid_expectations, rule_table


@pytest.mark.parametrize("n", [4, 16])
def test_gauss_hermite_is_exact_for_polynomials(n: int):
    z, w = quadrature.gauss_hermite(n)
    for k in range(2 * n):
        moment = 0.0 if k % 2 else float(math.prod(range(1, k, 2)))
        assert (w * z**k).sum() == pytest.approx(moment, rel=1e-12, abs=1e-12 * (w * np.abs(z) ** k).sum())


@pytest.mark.parametrize("n", [4, 12, 20])
def test_gauss_softplus_is_exact_for_polynomials(n: int):
    x, w = quadrature.gauss_softplus(n)
    assert np.all(w > 0)
    # ∫ x^k log(1 + e^{−x}) dx = k! η(k + 2)
    for k in range(2 * n):
        assert (w * x**k).sum() == pytest.approx(math.factorial(k) * float(mp.altzeta(k + 2)), rel=1e-11)


def test_trapezoid_is_normalised_and_even():
    z, w = quadrature.trapezoid(24, 6.8)
    assert w.sum() == pytest.approx(1.0, rel=1e-15)
    assert (w * z**2).sum() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(z, -z[::-1], atol=1e-15)


@pytest.mark.parametrize("s", [0.0, 1e-6, 0.3, 5.0, 1e4])
def test_panels_integrate_a_kink_at_any_scale(s: float):
    m = np.array([-4.0, 0.2, 1.0, 30.0])
    centre = 0.7
    got = quadrature.gaussian_expectation(lambda x: np.abs(x - centre), m, np.full(4, s), [(centre, 1.0)])
    a = (m - centre) / max(s, 1e-300)
    want = (m - centre) * (2 * ndtr(a) - 1) + 2 * s * np.exp(-0.5 * np.minimum(np.abs(a), 40) ** 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_tilted_nodes_find_a_narrow_top_far_away():
    # N(z|0,1) · N(1000 + 10 z | 0, 0.01²): the mass is 100 standard deviations off and a thousandth wide
    m, s, t = np.array([1000.0]), np.array([10.0]), 0.01
    for log_concave in (True, False):
        z, log_w = quadrature.tilted_nodes(lambda x: -0.5 * (x / t) ** 2, m, s, [(0.0, 1.0)], log_concave)
        w = np.exp(log_w - log_w.max())
        mean = (w * z).sum() / w.sum()
        precision = 1 + (10 / t) ** 2
        assert mean == pytest.approx(-(10 / t**2) * 1000 / precision, rel=1e-14)
        assert (w * (z - mean) ** 2).sum() / w.sum() == pytest.approx(1 / precision, rel=1e-8)


def test_tilted_nodes_of_half_a_gaussian():
    m, s = np.array([-50.0, -5.0, 0.0, 8.0]), np.array([1e-3, 2.0, 1.0, 100.0])
    _, log_w = quadrature.tilted_nodes(log_ndtr, m, s, [(0.0, 1.0)], log_concave=True)
    top = log_w.max(axis=0)
    log_z = top + np.log(np.exp(log_w - top).sum(axis=0))
    np.testing.assert_allclose(log_z, log_ndtr(m / np.sqrt(1 + s * s)), rtol=1e-13)


def _by_panels(m: np.ndarray, s: np.ndarray) -> list[np.ndarray]:
    x, _, w = quadrature.gaussian_nodes(m, s, [(0.0, 1.0)], order=24)
    e = np.exp(-np.abs(x))
    sigma = np.where(x > 0, e, 1.0) / (1 + e)
    parts = (log_sigmoid(x), sigma, -0.5 * e / (1 + e) ** 2)
    return [(w * part).sum(axis=0) for part in parts]


def test_compiled_log_sigmoid_meets_its_promise_at_every_rule():
    limits = rule_table().limit[:-1]
    sds = np.concatenate([[0.0, 1e-6], limits, limits * (1 + 1e-9), np.geomspace(0.02, 100, 20)])
    m, s = (part.ravel() for part in np.meshgrid(np.linspace(-50, 50, 61), sds))
    for got, want in zip(log_sigmoid_expectations(m, s * s), _by_panels(m, s), strict=True):
        assert np.max(np.abs(got - want) / np.maximum(1, np.abs(want))) < 3e-11


def test_compiled_log_sigmoid_keeps_the_order_of_sites():
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=2 * CHUNK + 7) * 4, rng.gamma(0.5, 4.0, size=2 * CHUNK + 7)
    whole = log_sigmoid_expectations(m, v)
    single = [log_sigmoid_expectations(m[i : i + 1], v[i : i + 1]) for i in (0, 5, CHUNK, 2 * CHUNK + 6)]
    for j, i in enumerate((0, 5, CHUNK, 2 * CHUNK + 6)):
        np.testing.assert_allclose([part[0] for part in single[j]], [part[i] for part in whole], rtol=1e-13)


def test_threads_give_what_one_gives(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    monkeypatch.setattr(threads, "WORTH", 1.0)
    rng = np.random.default_rng(1)
    m, v = rng.normal(size=5011), rng.uniform(0, 0.2, size=5011)
    many, few = log_sigmoid_expectations(m, v), log_sigmoid_expectations(m[-300:], v[-300:])
    for a, b in zip(many, few, strict=True):
        np.testing.assert_allclose(a[-300:], b, rtol=1e-13)


def test_compiled_value_and_derivatives_are_consistent():
    m, s = (part.ravel() for part in np.meshgrid(np.linspace(-6, 6, 13), [0.05, 0.3, 0.6, 1.2, 2.0, 2.6, 6.0]))
    v, h = s * s, 1e-4
    value = {k: log_sigmoid_expectations(m + k * h, v)[0] for k in (-2, -1, 1, 2)}
    _, d_mean, d_var = log_sigmoid_expectations(m, v)
    slope = (8 * (value[1] - value[-1]) - (value[2] - value[-2])) / (12 * h)
    np.testing.assert_allclose(d_mean, slope, atol=2e-10)
    # the heat equation, ∂/∂v = ½ ∂²/∂m²
    up, down = (log_sigmoid_expectations(m + k * h, v)[1] for k in (1, -1))
    np.testing.assert_allclose(d_var, 0.25 * (up - down) / h, atol=2e-9)

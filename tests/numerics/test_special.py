"""Special functions against mpmath, far into the tails."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from latlin.numerics import quadrature, special
from latlin.potentials.kernels.truncated import normal_interval

X = np.array([-3000.0, -300.0, -50.0, -7.3, -1.1, -1e-9, 0.0, 1e-9, 0.4, 3.3, 9.1, 36.0, 300.0])


def _mp(f, points: np.ndarray) -> np.ndarray:
    with mp.workdps(50):
        return np.array([float(f(mp.mpf(x))) for x in points.tolist()])


def test_log_sigmoid():
    np.testing.assert_allclose(special.log_sigmoid(X), _mp(lambda x: -mp.log1p(mp.exp(-x)), X), rtol=1e-14)


def test_log_normal():
    np.testing.assert_allclose(special.log_normal(X), _mp(lambda x: mp.log(mp.npdf(x)), X), rtol=1e-14)


def test_log_ndtr():
    inside = X[X < 37]  # beyond, log Φ is zero
    want = _mp(lambda x: mp.log(mp.ncdf(x)) if x < 5 else mp.log1p(-mp.ncdf(-x)), inside)
    np.testing.assert_allclose(special.log_ndtr(inside), want, rtol=1e-12)
    assert special.log_ndtr(300.0) == 0.0


def test_normal_ratio():
    want = _mp(lambda x: mp.npdf(x) / mp.ncdf(x), X)
    np.testing.assert_allclose(special.normal_ratio(X), want, rtol=1e-12, atol=1e-300)


def test_log1mexp():
    x = np.array([1e-300, 1e-12, 0.3, 0.7, 5.0, 40.0, 800.0])
    np.testing.assert_allclose(special.log1mexp(x), _mp(lambda t: mp.log(-mp.expm1(-t)), x), rtol=1e-14)


@pytest.mark.parametrize("length", [1e-3, 0.5, 0.999, 1.001, 6.0, np.inf])
def test_interval_mass_and_its_derivatives(length: float):
    ends = np.array([-60.0, -9.0, -2.0, -0.1, 0.0, 1.3, 8.0, 60.0])

    def log_mass(a: mp.mpf) -> mp.mpf:
        # reflected to the side where Φ is small
        b = a + length
        return mp.log(mp.ncdf(-a) - mp.ncdf(-b)) if a + b > 0 else mp.log(mp.ncdf(b) - mp.ncdf(a))

    mass = normal_interval(ends, ends + length)
    np.testing.assert_allclose(mass.log_mass, _mp(log_mass, ends), rtol=1e-12, atol=1e-14)
    for order, got in enumerate(mass[1:4], start=1):
        with mp.workdps(60):
            want = [float(mp.diff(log_mass, mp.mpf(a), order)) for a in ends.tolist()]
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(mass.rest, 1 + mass.second, atol=1e-15)


def test_interval_reflects():
    a, b = np.array([-2.0, 0.3]), np.array([0.5, 4.0])
    left, right = normal_interval(a, b), normal_interval(-b, -a)
    np.testing.assert_allclose(left.log_mass, right.log_mass, rtol=1e-14)
    np.testing.assert_allclose(left.first, -right.first, rtol=1e-14)


def test_three_derivatives_of_an_analytic_function():
    x = np.linspace(-3, 3, 7)
    first, second, third = quadrature.three_derivatives(lambda t: np.sin(2 * t), x, 0.7)
    np.testing.assert_allclose(first, 2 * np.cos(2 * x), atol=1e-11)
    np.testing.assert_allclose(second, -4 * np.sin(2 * x), atol=1e-10)
    np.testing.assert_allclose(third, -8 * np.cos(2 * x), atol=1e-8)


def test_a_long_log_sigmoid_is_the_short_one():
    x = np.concatenate([np.linspace(-740.0, 740.0, 70_001), np.linspace(-4.0, 4.0, 70_001)])
    long, short = special.log_sigmoid(x), np.concatenate([special.log_sigmoid(part) for part in np.array_split(x, 10)])
    # one rounding of log 2 for each factor of two in e^{−|x|}
    assert np.all(np.abs(long - short) <= 4.0 * np.finfo(float).eps * (1.0 + np.abs(x)) * np.abs(short) + 1e-300)
    np.testing.assert_array_equal(special.log_sigmoid(np.full(70_000, np.inf)), 0.0)


def test_the_logarithm_that_loops_vectorise_is_the_logarithm() -> None:
    x = np.concatenate([10.0 ** np.linspace(-300, 300, 601), 1.0 + np.linspace(-0.5, 1.0, 301)])
    found = np.array([special.log_positive(float(each)) for each in x])
    np.testing.assert_allclose(found, np.log(x), rtol=5e-16, atol=5e-16)

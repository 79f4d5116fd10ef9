"""Special functions that stay finite and accurate in the tails.

Everything is in log space or uses the scaled complementary error function, erfcx(x) = exp(x²) erfc(x), so
that no ratio of two underflowing numbers is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import ArrayLike
from scipy import special

from latlin.numerics.arrays import LOG_SQRT_2PI, Array
from latlin.numerics.threads import INNER, njit

# --- exp, log(1 + ·) and log σ as polynomials that the compiler vectorises; calls of the library's it does not.
#
# Relative errors are those of a few roundings, and of one rounding of log 2 for each factor of two in e^{−a}.


def _polynomial(f: Callable[[Array], Array], low: float, high: float, degree: int) -> tuple[float, ...]:
    """Coefficients of the polynomial through f at the Chebyshev points of [low, high]."""
    angle = (np.arange(degree + 1) + 0.5) * np.pi / (degree + 1)
    t = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angle)
    powers = np.arange(degree + 1)
    c = np.linalg.solve((t / high)[:, None] ** powers, f(t)) / high**powers
    return tuple(float(each) for each in c)


_LOG_2 = math.log(2.0)
_EXP = _polynomial(np.exp, -0.5 * _LOG_2, 0.5 * _LOG_2, 11)
# log(1 + e) = 2 artanh t, t = e/(2 + e) ≤ 1/3, as t times a polynomial in t²
LOG1P = _polynomial(lambda q: 2 * np.arctanh(np.sqrt(q)) / np.sqrt(q), 0.0, 1 / 9, 9)
# the same for t ≤ (√2 − 1)/(√2 + 1)
_LOG = _polynomial(lambda q: 2 * np.arctanh(np.sqrt(q)) / np.sqrt(q), 0.0, 0.0295, 6)
_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5·2⁵²: adding it leaves the nearest integer in the low bits
_SMALLEST = -708.0
#: what may be fused or reordered without losing digits
FUSED = {"contract", "nsz", "arcp"}


@intrinsic
def _two_to(typing_context: Any, n: Any) -> Any:
    """2^n from its bits, for an int64 n within the exponents of a double."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        exponent = builder.add(arguments[0], ir.Constant(word, 1023))
        return builder.bitcast(builder.shl(exponent, ir.Constant(word, 52)), ir.DoubleType())

    return types.float64(types.int64), build


@intrinsic
def _halves(typing_context: Any, x: Any) -> Any:
    """The exponent, as its bits have it, and the mantissa in [1, 2) of a positive double."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        bits = builder.bitcast(arguments[0], word)
        exponent = builder.lshr(bits, ir.Constant(word, 52))
        inside = builder.or_(builder.and_(bits, ir.Constant(word, 2**52 - 1)), ir.Constant(word, 1023 << 52))
        return context.make_tuple(builder, signature.return_type, [exponent, builder.bitcast(inside, ir.DoubleType())])

    return types.Tuple((types.int64, types.float64))(types.float64), build


@njit(cache=True, error_model="numpy", fastmath=FUSED)
def log_positive(x: float) -> float:
    """log x for a positive x that is neither infinite nor below the least normal number."""
    parts: Any = _halves(x)  # type: ignore[call-arg]
    exponent, m = parts
    # x = 2^j m with m between √½ and √2, log m = 2 artanh t
    high = m > 1.4142135623730951
    m = 0.5 * m if high else m
    j = np.float64(np.int32(exponent) - 1023 + np.int32(high))
    c, t = _LOG, (m - 1.0) / (m + 1.0)
    q = t * t
    p = c[0] + q * (c[1] + q * (c[2] + q * (c[3] + q * (c[4] + q * (c[5] + q * c[6])))))
    return j * _LN2_HIGH + (j * _LN2_LOW + t * p)


@njit(**INNER, error_model="numpy", fastmath=FUSED)
def exp_minus(a: float) -> float:
    """e^{−a} for a ≥ 0, e^{−700} beyond 700."""
    a = a if a < 700.0 else 700.0
    # e^{−a} = 2^{−j} e^r, |r| ≤ ½ log 2
    j = np.int32(a * (1.0 / _LOG_2) + 0.5)
    r = np.float64(j) * _LOG_2 - a
    c = _EXP
    p = c[6] + r * (c[7] + r * (c[8] + r * (c[9] + r * (c[10] + r * c[11]))))
    p = c[0] + r * (c[1] + r * (c[2] + r * (c[3] + r * (c[4] + r * (c[5] + r * p)))))
    return p * _two_to(-np.int64(j))  # type: ignore[call-arg]


@njit(**INNER, error_model="numpy", fastmath=FUSED)
def log_one_plus(e: float) -> float:
    """log(1 + e) for 0 ≤ e ≤ 1."""
    c, t = LOG1P, e / (2.0 + e)
    q = t * t
    p = c[5] + q * (c[6] + q * (c[7] + q * (c[8] + q * c[9])))
    return t * (c[0] + q * (c[1] + q * (c[2] + q * (c[3] + q * (c[4] + q * p)))))


@njit(cache=True, error_model="numpy", fastmath=FUSED, nogil=True)
def log_sigmoid_values(x: Array) -> Array:
    """log σ(x) = min(x, 0) − log(1 + e^{−|x|}) of a vector."""
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = (x[i] if x[i] < 0.0 else 0.0) - log_one_plus(exp_minus(math.fabs(x[i])))
    return out


@njit(cache=True, nogil=True)
def exponentiate(x: Array, size: int, shifted: Array) -> None:
    """x ← exp(x) for x ≤ 0 by x = n ln 2 + f and a polynomial in f; below −708 it gives 0."""
    bits = shifted.view(np.int64)
    for b in range(size):
        shifted[b] = max(x[b], _SMALLEST) * _LOG2E + _ROUNDER
    for b in range(size):
        n = shifted[b] - _ROUNDER
        f = (max(x[b], _SMALLEST) - n * _LN2_HIGH) - n * _LN2_LOW
        p = 1.0 / 479001600.0
        p = p * f + 1.0 / 39916800.0
        p = p * f + 1.0 / 3628800.0
        p = p * f + 1.0 / 362880.0
        p = p * f + 1.0 / 40320.0
        p = p * f + 1.0 / 5040.0
        p = p * f + 1.0 / 720.0
        p = p * f + 1.0 / 120.0
        p = p * f + 1.0 / 24.0
        p = p * f + 1.0 / 6.0
        p = p * f + 0.5
        p = p * f + 1.0
        p = p * f + 1.0
        x[b] = p if x[b] >= _SMALLEST else 0.0
    for b in range(size):
        bits[b] = (bits[b] + 1023) << 52
    for b in range(size):
        x[b] *= shifted[b]


#: numbers from which a compiled loop is worth its start
LONG = 2**15
SQRT_2 = float(np.sqrt(2.0))
SQRT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))


def log_sigmoid(x: ArrayLike) -> Array:
    """log σ(x) = min(x, 0) − log(1 + e^{−|x|}).

    >>> log_sigmoid([-800.0, 0.0, 800.0]).round(4).tolist()
    [-800.0, -0.6931, 0.0]
    """
    x = np.asarray(x, dtype=float)
    if x.size >= LONG and np.all(np.isfinite(x)):
        return log_sigmoid_values(np.ascontiguousarray(x).ravel()).reshape(x.shape)
    return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))


def map_counts(f: Callable[[Array], Array], y: Array) -> Array:
    """f at counts y, evaluated once for each number up to the largest one where these are fewer than the counts.

    >>> map_counts(np.sqrt, np.array([4.0, 1.0, 4.0, 0.0, 1.0, 1.0])).tolist()
    [2.0, 1.0, 2.0, 0.0, 1.0, 1.0]
    """
    if y.ndim and (most := y.max(initial=0.0)) < y.size:
        whole = y.astype(np.intp)
        if np.array_equal(whole, y):
            return f(np.arange(most + 1.0))[whole]
    return f(y)


def log_normal(z: ArrayLike) -> Array:
    """log N(z | 0, 1)."""
    z = np.asarray(z, dtype=float)
    return np.asarray(-0.5 * z * z - LOG_SQRT_2PI)


def log_ndtr(x: ArrayLike) -> Array:
    """log Φ(x) with full relative accuracy in both tails.

    >>> float(log_ndtr(-50.0).round(6))
    -1254.831361
    """
    x = np.asarray(x, dtype=float)
    # Φ(x) = ½ erfcx(−x/√2) e^{−x²/2} on the left, 1 − Φ(−x) on the right
    left = np.minimum(x, 0.0)
    with np.errstate(under="ignore", over="ignore"):
        return np.asarray(
            np.where(
                x < 0,
                np.log(0.5 * special.erfcx(-left / SQRT_2)) - 0.5 * left * left,
                np.log1p(-special.ndtr(-np.maximum(x, 0.0))),
            )
        )


def normal_ratio(x: ArrayLike) -> Array:
    """N(x)/Φ(x), the derivative of log Φ; grows like −x on the left and falls to 0 on the right.

    >>> float(normal_ratio(-50.0).round(6))
    50.019984
    """
    x = np.asarray(x, dtype=float)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(SQRT_2_OVER_PI / special.erfcx(-x / SQRT_2))


def log1mexp(x: ArrayLike) -> Array:
    """log(1 − e^{−x}) for x > 0.

    >>> log1mexp([1e-20, 50.0]).round(3).tolist()
    [-46.052, -0.0]
    """
    x = np.asarray(x, dtype=float)
    small = x < np.log(2.0)
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.where(
                small,
                np.log(-np.expm1(-np.where(small, x, 0.5))),
                np.log1p(-np.exp(-np.where(small, 1.0, x))),
            )
        )


def stirling_rest(z: Array, log_z: Array) -> Array:
    """R(z) = log Γ(z) − (z − ½) log z + z − ½ log 2π, z > 0; its series where the terms of that are large.

    >>> round(float(stirling_rest(np.array(1e6), np.log(1e6)) * 12e6), 9)
    1.0
    """
    large, small = np.maximum(z, 10.0), np.minimum(z, 10.0)
    q = 1.0 / (large * large)
    series = (1 / 12.0 - q * (1 / 360.0 - q * (1 / 1260.0 - q * (1 / 1680.0 - q / 1188.0)))) / large
    near = special.gammaln(1.0 + small) - (small + 0.5) * np.minimum(log_z, np.log(10.0)) + small - LOG_SQRT_2PI
    return np.where(z > 10.0, series, near)


#: sizes from which Stirling's series has converged to rounding
LARGE = 60.0


def log_rising(r: Array, y: Array, log_r: Array | None = None) -> Array:
    """log Γ(y + r)/Γ(r), without cancellation where r is large or small; zero for y = 0.

    Stirling: log Γ(z) = (z − ½) log z − z + ½ log 2π + S(z).

    >>> float(log_rising(np.array(1e9), np.array(3.0)) - 3 * np.log(1e9)) < 1e-8
    True
    """
    log_r = np.log(np.maximum(r, 1e-300)) if log_r is None else log_r
    big = np.maximum(r, LARGE)
    large = (big + y - 0.5) * np.log1p(y / big) - y + y * np.log(big) + _stirling(big + y) - _stirling(big)
    # Γ(y + r)/Γ(r) = r Γ(y + r)/Γ(1 + r)
    small = log_r + special.gammaln(np.minimum(r, LARGE) + y) - special.gammaln(np.minimum(r, LARGE) + 1)
    return np.where(y == 0, 0.0, np.where(r > LARGE, large, small))


def _stirling(z: Array) -> Array:
    q = 1.0 / (z * z)
    return (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q / 1680.0))) / z

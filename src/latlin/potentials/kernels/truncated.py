"""Moments of a Gaussian cut at zero, and of two such halves put together.

Everything is in units of the Gaussian's standard deviation and keeps its relative accuracy far in the tail,
where the textbook form 1 − h(h + a) of the variance is a difference of nearly equal numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx

from latlin.numerics.arrays import Array
from latlin.numerics.special import SQRT_2, log1mexp, log_ndtr, log_normal

# below this the continued fraction has converged to rounding with the terms it is given
_TAIL = -4.0
_TERMS = 32


class HalfMoments(NamedTuple):
    """Mean and variance of N(a, 1) restricted to the positive half line."""

    mean: Array
    variance: Array


class TruncatedMoments(NamedTuple):
    """Log mass, mean and variance."""

    log_z: Array
    mean: Array
    variance: Array


def half_normal(a: Array) -> HalfMoments:
    """Mean and variance of z ~ N(a, 1) given z > 0, for a of any sign and size.

    With h = N(a)/Φ(a) they are M = a + h and V = 1 − hM. For a ≪ 0 Laplace's continued fraction of the Mills
    ratio, M = 1/(u + 2K), K = 1/(u + 3/(u + 4/(u + …))), u = −a, gives V = M(2K − M) without cancellation.

    Examples
    --------
    >>> half_normal(np.array([0.0, -50.0])).mean.round(6).tolist()
    [0.797885, 0.019984]
    """
    # h = N(a)/Φ(a) = √(2/π) / erfcx(−a/√2), which is zero for a ≫ 0
    with np.errstate(over="ignore"):
        h = np.sqrt(2 / np.pi) / erfcx(-a / np.sqrt(2))
    mean = a + h
    variance = 1 - h * mean
    tail = a < _TAIL
    if np.any(tail):
        u = -a[tail]
        k = 1 / u
        for n in range(_TERMS, 2, -1):
            k = 1 / (u + n * k)
        mean[tail] = 1 / (u + 2 * k)
        variance[tail] = mean[tail] * (2 * k - mean[tail])
    return HalfMoments(mean, variance)


def join_halves(log_right: Array, right: Array, log_left: Array, left: Array) -> TruncatedMoments:
    """Moments of e^{log_right}·[N(right, 1) given z > 0] + e^{log_left}·[−N(left, 1) given it is negative].

    `right` and `left` are the means of the two halves before the cut, each counted positive away from zero.
    The variance is a sum of positive terms: Σ w V + w₊w₋(M₊ + M₋)².
    """
    log_z = np.logaddexp(log_right, log_left)
    w_right, w_left = np.exp(log_right - log_z), np.exp(log_left - log_z)
    m_right, v_right = half_normal(right)
    m_left, v_left = half_normal(left)
    mean = w_right * m_right - w_left * m_left
    variance = w_right * v_right + w_left * v_left + w_right * w_left * (m_right + m_left) ** 2
    return TruncatedMoments(log_z, mean, variance)


# --- The mass of the standard normal on an interval, and how it changes when the interval is shifted.
#
# With the interval reflected to the left half, h its end nearer to zero, δ its length and q = Φ(h−δ)/Φ(h):
# log mass = log Φ(h) + log(1 − q), where q is known through the scaled complementary error function. With
# g(t) = t + N(t)/Φ(t), which `half_normal` gives without cancellation,
#
#     F′ = −h + G,  G = [g(h) − q(g(h−δ) + δ)]/(1 − q),  k = N(h−δ)/mass,
#     F″ = −F′G − δk,  F‴ = −F″G − F′(1 + F″) + δk(G − δ).
#
# These are minus the mean, the variance less one, and minus the third central moment of the normal cut to the
# interval; where that is short, they are small differences of large numbers and are integrated directly.


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


class IntervalMass(NamedTuple):
    """log(Φ(b + t) − Φ(a + t)) at t = 0 with three derivatives in t, and `rest` = 1 + its second derivative."""

    log_mass: Array
    first: Array
    second: Array
    third: Array
    rest: Array


def normal_interval(a: Array, b: Array, length: Array | None = None) -> IntervalMass:
    """Log mass of [a, b] under N(0, 1), a < b, either may be infinite; `length` is b − a, if it is known better.

    >>> float(normal_interval(np.array([40.0]), np.array([41.0])).log_mass[0].round(6))
    -804.608442
    """
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.asarray(b - a if length is None else length, dtype=float)
        a, b, delta = np.broadcast_arrays(np.atleast_1d(a), np.atleast_1d(b), np.atleast_1d(delta))
        parts = _by_ends(a, b, delta)
        short = (delta < 1) & (np.abs(a + b) * delta < 20)
    if np.any(short):
        for part, exact in zip(parts, _by_nodes(a[short], b[short], delta[short]), strict=True):
            part[short] = exact
    return parts


def _by_nodes(a: Array, b: Array, delta: Array) -> IntervalMass:
    """The mass and the moments of a short interval by 20 Gauss–Legendre nodes."""
    middle, half = 0.5 * (a + b), 0.5 * delta
    # N(t) = N(middle) e^{−middle·u − u²/2}, t = middle + u
    u = half * _NODES[:, None]
    w = half * _WEIGHTS[:, None] * np.exp(-u * (middle + 0.5 * u))
    mass = w.sum(axis=0)
    mean = (w * u).sum(axis=0) / mass
    variance, skew = ((w * (u - mean) ** k).sum(axis=0) / mass for k in (2, 3))
    return IntervalMass(log_normal(middle) + np.log(mass), -(middle + mean), variance - 1, -skew, variance)


def _by_ends(a: Array, b: Array, delta: Array) -> IntervalMass:
    flip = a + b > 0
    high, low = np.where(flip, -a, b), np.where(flip, -b, a)
    open_end = np.isinf(low)
    low, delta = np.where(open_end, high - 1.0, low), np.where(open_end, 1.0, delta)
    log_high = log_ndtr(high)
    log_q = np.where(open_end, -np.inf, _log_ratio(high, low, delta, log_high))
    q, one_minus_q = np.exp(log_q), -np.expm1(log_q)
    (g_high, v_high), (g_low, _) = half_normal(high), half_normal(low)
    big_g = (g_high - q * (g_low + delta)) / one_minus_q
    edge = delta * q * (g_low - low) / one_minus_q
    first = big_g - high
    rest = np.where(open_end, v_high, 1 - first * big_g - edge)
    third = (1 - rest) * big_g - first * rest + edge * (big_g - delta)
    sign = np.where(flip, -1.0, 1.0)
    log_mass = log_high + log1mexp(-log_q)
    return IntervalMass(log_mass, sign * first, rest - 1, sign * third, rest)


def _log_ratio(high: Array, low: Array, delta: Array, log_high: Array) -> Array:
    """log Φ(low)/Φ(high) for low < high, low + high ≤ 0, the squares cancelled by hand where both are negative."""
    h = np.minimum(high, 0.0)
    scaled = 0.5 * delta * (h + low) + np.log(erfcx(-low / SQRT_2) / erfcx(-h / SQRT_2))
    right = high > 0
    scaled[right] = log_ndtr(low[right]) - log_high[right]
    return scaled

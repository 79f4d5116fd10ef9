"""Moments of a Gaussian cut at zero, and of two such halves put together.

Everything is in units of the Gaussian's standard deviation and keeps its relative accuracy far in the tail,
where the textbook form 1 − h(h + a) of the variance is a difference of nearly equal numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx

from latlin.numerics.arrays import Array

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


def two_halves(log_right: Array, right: Array, log_left: Array, left: Array) -> TruncatedMoments:
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

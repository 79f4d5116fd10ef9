"""Compiled passes over pairs of points: what every kernel matrix and its slopes in the length scales are made of.

Coordinates come divided by their length scales (and times the rate λ of a Matérn kernel), so that a pair is
known by t_d = |x_d − x′_d|. A product Matérn kernel is ∏(1 + c₁t_d + c₂t_d²) · exp(−Σt_d): one exponential a pair.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from latlin.numerics.arrays import Array


@njit(cache=True)
def square_distances(a: Array, b: Array) -> Array:
    """Σ_d t_d² between the rows of a and of b."""
    out = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = 0.0
            for d in range(a.shape[1]):
                total += (a[i, d] - b[j, d]) ** 2
            out[i, j] = total
    return out


@njit(cache=True)
def matern_parts(a: Array, b: Array, linear: float, square: float) -> tuple[Array, Array]:
    """Σ_d t_d and ∏_d (1 + c₁t_d + c₂t_d²) between the rows of a and of b."""
    exponents = np.empty((a.shape[0], b.shape[0]))
    polynomials = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total, product = 0.0, 1.0
            for d in range(a.shape[1]):
                t = abs(a[i, d] - b[j, d])
                total += t
                product *= 1.0 + linear * t + square * t * t
            exponents[i, j] = total
            polynomials[i, j] = product
    return exponents, polynomials


@njit(cache=True)
def square_slopes(weighted: Array, a: Array) -> Array:
    """Σ_ij W_ij t_d² for every d, W symmetric."""
    out = np.zeros(a.shape[1])
    for i in range(a.shape[0]):
        for j in range(i):
            for d in range(a.shape[1]):
                out[d] += 2.0 * weighted[i, j] * (a[i, d] - a[j, d]) ** 2
    return out


@njit(cache=True)
def matern_slopes(weighted: Array, a: Array, linear: float, square: float) -> Array:
    """Σ_ij W_ij t_d (1 − (c₁ + 2c₂t_d) / (1 + c₁t_d + c₂t_d²)) for every d, W symmetric."""
    out = np.zeros(a.shape[1])
    for i in range(a.shape[0]):
        for j in range(i):
            for d in range(a.shape[1]):
                t = abs(a[i, d] - a[j, d])
                slope = t * (1.0 - (linear + 2.0 * square * t) / (1.0 + linear * t + square * t * t))
                out[d] += 2.0 * weighted[i, j] * slope
    return out

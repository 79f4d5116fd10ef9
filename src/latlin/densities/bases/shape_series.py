"""Characteristic functions without a closed form: a Chebyshev series in the shape at every frequency.

A family gives φ and dφ/ds of one shape on a grid of frequencies, by quadrature. That is done once, at the Chebyshev
points of the shape's range; any number of other shapes, and the derivative with respect to the shape, are then small
matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from latlin.numerics.arrays import Array

Sampler = Callable[[float, Array], tuple[Array, Array]]


def chebyshev_sum(coefficients: Array, x: Array) -> Array:
    """Σ_k c_k T_k(x) for x of shape (rows,) and c of shape (degree + 1, …): T_k(cos θ) = cos kθ, one product."""
    angle = np.arccos(np.clip(x, -1.0, 1.0))
    return np.cos(angle[:, None] * np.arange(len(coefficients))) @ coefficients


class ShapeSeries(NamedTuple):
    """Coefficients over a shape in [low, high]; each of shape (degree + 1, frequencies)."""

    low: float
    high: float
    value: Array
    slope: Array

    def at(self, shape: Array) -> tuple[Array, Array]:
        """φ and dφ/ds, each of shape (rows, frequencies)."""
        unit = self._unit(shape)
        return chebyshev_sum(self.value, unit), chebyshev_sum(self.slope, unit)

    def derivative(self, shape: Array) -> Array:
        """∂φ/∂shape, of shape (rows, frequencies)."""
        reduced = np.asarray(chebyshev.chebder(self.value, scl=2.0 / (self.high - self.low)), float)
        return chebyshev_sum(reduced, self._unit(shape))

    def _unit(self, shape: Array) -> Array:
        return np.clip((2.0 * shape - self.low - self.high) / (self.high - self.low), -1.0, 1.0)


@lru_cache(maxsize=8)
def _fitted(sampler: Sampler, low: float, high: float, points: int, key: bytes) -> ShapeSeries:
    s = np.frombuffer(key)
    nodes = chebyshev.chebpts1(points)
    pairs = [sampler(0.5 * (low + high) + 0.5 * (high - low) * x, s) for x in nodes]
    # discrete orthogonality of T_k at its own points
    weights = chebyshev.chebvander(nodes, points - 1).T * (2.0 / points)
    weights[0] *= 0.5
    value, slope = (weights @ np.array([pair[i] for pair in pairs]) for i in range(2))
    return ShapeSeries(low, high, value, slope)


def shape_series(sampler: Sampler, low: float, high: float, points: int, s: Array) -> ShapeSeries:
    """The series of `sampler(shape, s)` over shapes in [low, high]; kept for the next call with the same grid."""
    return _fitted(sampler, low, high, points, np.ascontiguousarray(s, float).tobytes())

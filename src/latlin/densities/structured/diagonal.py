"""S = diag(d²): independent coordinates (Challis (2013), §4.3.1.3, bandwidth 0)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from latlin.densities.structured.base import Triangular
from latlin.densities.structured.rows import ProjectionRows, Terms
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


@storable
class DiagonalStructure(Triangular):
    """S = diag(θ²).

    >>> DiagonalStructure(3).factor(np.array([1.0, 2.0, 3.0])).diagonal().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, dim: int) -> None:
        self.dim = self.size = dim
        self.pivots = np.arange(dim)

    def factor(self, theta: Array) -> sparse.dia_array:
        return sparse.diags_array(theta)

    def flat(self, factor: Any) -> Array:
        return np.asarray(factor.diagonal(), float)

    def prepare(self, rows: ProjectionRows) -> ProjectionRows:
        return rows

    def image(self, theta: Array, rows: ProjectionRows) -> Any:
        return rows.scaled_image(theta)

    def inner(self, a: Any, b: Any, rows: ProjectionRows) -> Array:
        return rows.scaled_inner(a, b)

    def pull(self, terms: Terms, rows: ProjectionRows) -> Array:
        return rows.scaled_pull(terms)

    def energy(self, weights: Array, rows: ProjectionRows) -> Array:
        return rows.energy(weights)

    def variances(self, theta: Array) -> Array:
        return theta**2

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        return theta[:, None] * rng.standard_normal((self.dim, count))

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        return np.sum((deviations / theta[:, None]) ** 2, axis=0)

"""S = CᵀC with C upper triangular and zero off a pattern: banded, sparse or full.

Challis (2013), §4.3.1.3 ("Banded Cholesky", "Sparse Cholesky"); the bandwidth counts super-diagonals (corrected:
one convention).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import spsolve_triangular

from latlin.densities.structured.base import Triangular
from latlin.densities.structured.patterns import Pattern, banded, sparse_pattern
from latlin.densities.structured.rows import ProjectionRows, Terms
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


@storable
class PatternedTriangle(Triangular):
    """S = CᵀC; θ holds the entries of C on a pattern, column by column.

    Parameters
    ----------
    pattern : Pattern
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.dim, self.size = pattern.dim, pattern.size
        self.pivots = pattern.diagonal

    def factor(self, theta: Array) -> Any:
        return self.pattern.matrix(theta)

    def flat(self, factor: Any) -> Array:
        return self.pattern.values(factor)

    def prepare(self, rows: ProjectionRows) -> ProjectionRows:
        return rows

    def image(self, theta: Array, rows: ProjectionRows) -> Any:
        return rows.factor_image(self.pattern, theta)

    def inner(self, a: Any, b: Any, rows: ProjectionRows) -> Array:
        return rows.factor_inner(self.pattern, a, b)

    def pull(self, terms: Terms, rows: ProjectionRows) -> Array:
        return rows.factor_pull(self.pattern, terms)

    def energy(self, weights: Array, rows: ProjectionRows) -> Array:
        return rows.energy(weights)[self.pattern.column_of]

    def variances(self, theta: Array) -> Array:
        return np.add.reduceat(theta**2, self.pattern.columns[:-1])

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        return self.factor(theta).T @ rng.standard_normal((self.dim, count))

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        # ‖C⁻ᵀδ‖²
        solved = spsolve_triangular(self.factor(theta).T.tocsr(), np.ascontiguousarray(deviations), lower=True)
        return np.sum(solved**2, axis=0)


def banded_triangle(dim: int, bandwidth: int) -> PatternedTriangle:
    """C with `bandwidth` super-diagonals (dim − 1 of them: the full triangle)."""
    return PatternedTriangle(banded(dim, min(bandwidth, dim - 1)))


def sparse_triangle(dim: int, places: Any) -> PatternedTriangle:
    """C on the upper triangle of the non-zeros of a matrix, with the diagonal."""
    return PatternedTriangle(sparse_pattern(places, dim))

"""S = CᵀC with C upper triangular and zero off a pattern: banded, sparse or full.

Challis (2013), §4.3.1.3 ("Banded Cholesky", "Sparse Cholesky"); the bandwidth counts super-diagonals (corrected:
one convention).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve_triangular

from latlin.densities.structured.base import Triangular
from latlin.densities.structured.rows import Pattern, ProjectionRows, Terms, banded, sparse_pattern
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


# --- S = diag(d²): independent coordinates (Challis (2013), §4.3.1.3, bandwidth 0).


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

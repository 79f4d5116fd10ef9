"""S = E CᵀC Eᵀ + c²(I − EEᵀ): a small factor inside a subspace, one scale outside it.

Challis (2013), §4.3.1.3 and B.2. θ holds the entries of the inner factor C (any structure of dimension K) and,
unless the subspace is everything, c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.densities.structured.base import Structure
from latlin.densities.structured.rows import DenseRows, ProjectionRows, Terms
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


class ReducedRows(NamedTuple):
    """Eᵀh_n as dense rows, and ‖h_n‖² − ‖Eᵀh_n‖²."""

    inside: DenseRows
    outside: Array


class SubspaceImage(NamedTuple):
    """Image of Eᵀh_n under C, and c."""

    inside: Any
    outside: float


@storable
class SubspaceStructure:
    """S = E CᵀC Eᵀ + c²(I − EEᵀ).

    Parameters
    ----------
    basis : ndarray of shape (dim, rank)
        E, orthonormal columns.
    inner : Structure of dimension rank
        Of C.
    """

    concave = True

    def __init__(self, basis: Array, inner: Structure) -> None:
        self.basis, self.inner_structure = basis, inner
        self.dim, self.rank = basis.shape
        self.codim = self.dim - self.rank
        self.size = inner.size + (self.codim > 0)

    def split(self, theta: Array) -> tuple[Array, float]:
        """Parameters of C, and c."""
        return (theta[:-1], float(theta[-1])) if self.codim else (theta, 1.0)

    def joined(self, inside: Array, outside: float) -> Array:
        return np.append(inside, outside) if self.codim else inside

    @property
    def trace_weights(self) -> Array:
        return self.joined(np.broadcast_to(self.inner_structure.trace_weights, self.inner_structure.size), self.codim)

    def trace(self, theta: Array) -> float:
        return float(self.trace_weights @ theta**2)

    def spread(self, scale: Array) -> Array:
        # precisions add up: those of the basis, and the mean of what remains
        precision = (self.basis**2).T @ scale**-2.0
        inside = self.inner_structure.spread(precision**-0.5)
        if not self.codim:
            return inside
        rest = float(np.sum(scale**-2.0) - precision.sum()) / self.codim
        return self.joined(inside, max(rest, float(scale.max()) ** -2) ** -0.5)

    def factor(self, theta: Array) -> Array:
        """[CEᵀ; c(I − EEᵀ)], dense."""
        inside, outside = self.split(theta)
        c = self.inner_structure.factor(inside)
        dense = c.toarray() if sparse.issparse(c) else c
        return np.vstack([dense @ self.basis.T, outside * (np.eye(self.dim) - self.basis @ self.basis.T)])

    def flat(self, factor: Any) -> Array:
        inside = self.inner_structure.flat(sparse.csr_array(factor[: self.rank] @ self.basis))
        return self.joined(inside, np.trace(factor[self.rank :]) / max(self.codim, 1))

    def prepare(self, rows: ProjectionRows) -> ReducedRows:
        inside = np.ascontiguousarray(rows.block_times(self.basis))
        return ReducedRows(DenseRows(inside), rows.squares_outside(self.basis, inside))

    def image(self, theta: Array, rows: ReducedRows) -> SubspaceImage:
        inside, outside = self.split(theta)
        return SubspaceImage(self.inner_structure.image(inside, rows.inside), outside)

    def inner(self, a: SubspaceImage, b: SubspaceImage, rows: ReducedRows) -> Array:
        inside = self.inner_structure.inner(a.inside, b.inside, rows.inside)
        return inside + a.outside * b.outside * rows.outside if self.codim else inside

    def pull(self, terms: Terms, rows: ReducedRows) -> Array:
        inside = self.inner_structure.pull([(weights, image.inside) for weights, image in terms], rows.inside)
        outside = sum(float(weights @ rows.outside) * image.outside for weights, image in terms)
        return self.joined(inside, outside)

    def energy(self, weights: Array, rows: ReducedRows) -> Array:
        return self.joined(self.inner_structure.energy(weights, rows.inside), float(weights @ rows.outside))

    def log_det(self, theta: Array) -> float:
        inside, outside = self.split(theta)
        if outside <= 0.0:
            return -np.inf
        return self.inner_structure.log_det(inside) + 2.0 * self.codim * float(np.log(outside))

    def log_det_gradient(self, theta: Array) -> Array:
        inside, outside = self.split(theta)
        return self.joined(self.inner_structure.log_det_gradient(inside), 2.0 * self.codim / outside)

    def log_det_curvature(self, theta: Array) -> Array:
        inside, outside = self.split(theta)
        return self.joined(self.inner_structure.log_det_curvature(inside), 2.0 * self.codim / outside**2)

    def variances(self, theta: Array) -> Array:
        inside, outside = self.split(theta)
        prepared = DenseRows(self.basis)
        image = self.inner_structure.image(inside, prepared)
        rest = np.maximum(1.0 - np.sum(self.basis**2, axis=1), 0.0)
        return self.inner_structure.inner(image, image, prepared) + (outside**2 * rest if self.codim else 0.0)

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        inside, outside = self.split(theta)
        draws = self.basis @ self.inner_structure.draw(inside, count, rng)
        if not self.codim:
            return draws
        noise = rng.standard_normal((self.dim, count))
        return draws + outside * (noise - self.basis @ (self.basis.T @ noise))

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        inside, outside = self.split(theta)
        reduced = self.basis.T @ deviations
        square = self.inner_structure.quadratic(inside, reduced)
        if not self.codim:
            return square
        return square + np.sum((deviations - self.basis @ reduced) ** 2, axis=0) / outside**2

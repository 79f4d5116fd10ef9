"""Structures of few directions: the chevron and the low-rank one, F = [Θᵀ; diag(d)], and a subspace.

The first two have projected variances ‖Θᵀh‖² + Σ_j d_j²h_j² and differ in which entries are free and in log det S. θ
holds Θ (D×K, row by row) and then d. Entries that a structure keeps at zero stay in θ as zeros: every gradient is
zero there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from latlin.densities.structured.base import Structure, Triangular
from latlin.densities.structured.rows import DenseRows, ProjectionRows, Terms, product, row_dots
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import solve_upper
from latlin.numerics.stored import are_places, check_made_again, storable


class Image(NamedTuple):
    """The images of every row under Θᵀ and under diag(d), and ∂d/∂θ."""

    long: Any
    scaled: Any
    slope: Array | float = 1.0


class Loadings:
    """Parameters, images and pulls of [Θᵀ; diag(d)]."""

    dim: int
    rank: int
    size: int
    trace_weights: Array | float = 1.0

    def trace(self, theta: Array) -> float:
        return float(theta @ theta)

    def split(self, theta: Array) -> tuple[Array, Array]:
        """Θ and d, views of θ."""
        return theta[: -self.dim].reshape(self.dim, self.rank), theta[-self.dim :]

    def joined(self, loadings: Array, scale: Array) -> Array:
        """θ of Θ and d, what is not free at zero."""
        theta = np.concatenate([np.ravel(loadings), scale])
        self.restrict(theta)
        return theta

    def restrict(self, theta: Array) -> None:
        """Set what is not free to zero, in place."""

    def prepare(self, rows: ProjectionRows) -> ProjectionRows:
        return rows

    def image(self, theta: Array, rows: ProjectionRows) -> Image:
        loadings, scale = self.split(theta)
        return Image(rows.loadings_image(loadings), rows.scaled_image(scale))

    def inner(self, a: Image, b: Image, rows: ProjectionRows) -> Array:
        return rows.loadings_inner(a.long, b.long) + rows.scaled_inner(a.scaled, b.scaled)

    def pull(self, terms: Terms, rows: ProjectionRows) -> Array:
        scale = rows.scaled_pull([(weights, image.scaled) for weights, image in terms])
        loadings = rows.loadings_pull([(weights, image.long) for weights, image in terms])
        return self.joined(loadings, terms[0][1].slope * scale)

    def energy(self, weights: Array, rows: ProjectionRows) -> Array:
        energy = rows.energy(weights)
        return np.concatenate([np.repeat(energy, self.rank), energy])

    def variances(self, theta: Array) -> Array:
        loadings, scale = self.split(theta)
        return row_dots(loadings, loadings) + scale**2

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        loadings, scale = self.split(theta)
        inside, outside = rng.standard_normal((self.rank, count)), rng.standard_normal((self.dim, count))
        return loadings @ inside + scale[:, None] * outside


# --- The chevron: K coordinates have full rows in C, the others only a diagonal entry.
#
# C_ij is free for i ≤ K, j ≥ i, and C_ii for i > K (Challis (2013), §4.3.1.3). Which K coordinates come first is free
# too: with P the precision that the optimum would have, the loss against a full factor is ½(Σ_B log P_bb − log det
# P_BB) over the other coordinates B, so the first should be those most entangled with the rest.


Index = NDArray[np.integer]


@storable
class ChevronStructure(Loadings, Triangular):
    """S = CᵀC, C with K full rows.

    Parameters
    ----------
    dim : int
    first : ndarray of shape (rank,)
        The coordinates with full rows, in order.
    """

    def __init__(self, dim: int, first: Index) -> None:
        self.dim, self.rank, self.size = dim, len(first), dim * (len(first) + 1)
        self.first = np.asarray(first, dtype=np.int64)
        order = np.full(dim, self.rank)
        order[self.first] = np.arange(self.rank)
        self.others = np.flatnonzero(order == self.rank)
        # row i of C reaches the coordinates that come i-th or later
        self.pivots = np.where(order == self.rank, dim * self.rank + np.arange(dim), np.arange(dim) * self.rank + order)

    def check_stored(self) -> None:
        if self.first.ndim != 1 or not are_places(self.first, len(self.pivots)):
            raise ValueError("first must hold coordinates with full rows")
        check_made_again(self, ChevronStructure(len(self.pivots), self.first))

    def restrict(self, theta: Array) -> None:
        loadings, scale = self.split(theta)
        loadings[self.first] = np.tril(loadings[self.first])
        scale[self.first] = 0.0

    def factor(self, theta: Array) -> sparse.csr_array:
        """C, full rows on top, columns in the model's own order (triangular only after a permutation)."""
        loadings, scale = self.split(self.joined(*self.split(theta)))
        rest = sparse.diags_array(scale, format="csr")[self.others]
        return sparse.csr_array(sparse.vstack([sparse.csr_array(loadings.T), rest]))

    def columns(self, theta: Array, chosen: Index) -> Array:
        """Columns of S at some of the coordinates with full rows."""
        loadings, _ = self.split(theta)
        return np.ascontiguousarray(loadings @ loadings[chosen].T)

    def flat(self, factor: Any) -> Array:
        dense = factor.toarray() if sparse.issparse(factor) else np.asarray(factor, float)
        scale = np.zeros(self.dim)
        scale[self.others] = dense[self.rank + np.arange(len(self.others)), self.others]
        return self.joined(dense[: self.rank].T, scale)

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        # Cᵀy = δ: the first K coordinates by a small triangular solve, the others follow
        loadings, scale = self.split(theta)
        y = solve_upper(np.ascontiguousarray(loadings[self.first].T), deviations[self.first], transposed=True)
        rest = (deviations[self.others] - loadings[self.others] @ y) / scale[self.others, None]
        return np.sum(y**2, axis=0) + np.sum(rest**2, axis=0)


# --- S = ΘΘᵀ + diag(d²), as in factor analysis; log det S is not concave in (Θ, d), so optima may be local.
#
# Challis (2013), §4.3.1.2 and B.1.1, corrected: the gradients of ½ log det S are d ∘ diag(S⁻¹) and S⁻¹Θ.


#: ε: an entry of d can be driven to zero (a Heywood case), where S would be singular but for this
SMALLEST = 1e-4


class Decomposed(NamedTuple):
    """[D⁻¹Θ; I] = [Q₁; Q₂]R, so that S⁻¹ = D⁻¹(I − Q₁Q₁ᵀ)D⁻¹ and det S = (det D det R)²; no inverse is formed."""

    scale: Array
    upper: Array
    lower: Array
    triangle: Array

    @property
    def inverse_diagonal(self) -> Array:
        return np.maximum(1.0 - row_dots(self.upper, self.upper), 0.0) / self.scale**2


@storable
class LowRankStructure(Loadings):
    """S = ΘΘᵀ + diag(d²), d_j = √(t_j² + ε²); θ holds Θ and t.

    Parameters
    ----------
    dim, rank : int
        Θ is dim×rank.
    """

    concave = False

    def __init__(self, dim: int, rank: int) -> None:
        self.dim, self.rank, self.size = dim, rank, dim * (rank + 1)

    def check_stored(self) -> None:
        check_made_again(self, LowRankStructure(self.dim, self.rank))

    def spread(self, scale: Array) -> Array:
        return self.joined(np.zeros((self.dim, self.rank)), np.sqrt(np.maximum(scale**2 - SMALLEST**2, 0.0)))

    def split(self, theta: Array) -> tuple[Array, Array]:
        loadings, t = super().split(theta)
        return loadings, np.sqrt(t**2 + SMALLEST**2)

    def trace(self, theta: Array) -> float:
        return super().trace(theta) + self.dim * SMALLEST**2

    def image(self, theta: Array, rows: ProjectionRows) -> Image:
        # ∂d/∂t = t/d
        return super().image(theta, rows)._replace(slope=theta[-self.dim :] / self.split(theta)[1])

    def factor(self, theta: Array) -> sparse.csr_array:
        loadings, scale = self.split(theta)
        return sparse.csr_array(sparse.vstack([sparse.csr_array(loadings.T), sparse.diags_array(scale)]))

    def flat(self, factor: Any) -> Array:
        dense = factor.toarray() if sparse.issparse(factor) else np.asarray(factor, float)
        d = np.diagonal(dense[self.rank :])
        return self.joined(dense[: self.rank].T, np.sqrt(np.maximum(d**2 - SMALLEST**2, 0.0)))

    def _decomposed(self, theta: Array) -> Decomposed:
        loadings, scale = self.split(theta)
        q, r = qr(np.vstack([loadings / scale[:, None], np.eye(self.rank)]), mode="economic", check_finite=False)
        return Decomposed(scale, np.ascontiguousarray(q[: self.dim]), q[self.dim :], r)

    def log_det(self, theta: Array) -> float:
        if not np.all(np.isfinite(theta)):
            return -np.inf
        parts = self._decomposed(theta)
        return 2.0 * float(np.log(parts.scale).sum() + np.log(np.abs(np.diagonal(parts.triangle))).sum())

    def log_det_gradient(self, theta: Array) -> Array:
        parts = self._decomposed(theta)
        # S⁻¹Θ = D⁻¹Q₁Q₂ᵀ; by t: (∂d/∂t) d (S⁻¹)_jj = t (S⁻¹)_jj
        toward = product(parts.upper, np.ascontiguousarray(parts.lower.T)) / parts.scale[:, None]
        return 2.0 * self.joined(toward, theta[-self.dim :] * parts.inverse_diagonal)

    def log_det_curvature(self, theta: Array) -> Array:
        """Not the Hessian, which is not diagonal, but its scale for d: 2 diag(S⁻¹)."""
        inverse = self._decomposed(theta).inverse_diagonal
        return np.concatenate([np.zeros(self.dim * self.rank), 2.0 * inverse])

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        parts = self._decomposed(theta)
        z = deviations / parts.scale[:, None]
        outside = z - parts.upper @ (parts.upper.T @ z)
        return np.sum(z * outside, axis=0)


# --- S = E CᵀC Eᵀ + c²(I − EEᵀ): a small factor inside a subspace, one scale outside it.
#
# Challis (2013), §4.3.1.3 and B.2. θ holds the entries of the inner factor C (any structure of dimension K) and,
# unless the subspace is everything, c.


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

    def check_stored(self) -> None:
        if self.basis.ndim != 2 or self.inner_structure.dim != self.basis.shape[1]:
            raise ValueError(f"basis must have {self.inner_structure.dim} columns, got shape {self.basis.shape}")
        check_made_again(self, SubspaceStructure(self.basis, self.inner_structure))

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
        inside = np.ascontiguousarray(rows.times_columns(self.basis))
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

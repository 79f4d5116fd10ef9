"""Factors F = [Θᵀ; diag(d)] of K long rows and a diagonal: the chevron and the low-rank structure.

Both have projected variances ‖Θᵀh‖² + Σ_j d_j²h_j² and differ in which entries are free and in log det S. θ holds Θ
(D×K, row by row) and then d. Entries that a structure keeps at zero stay in θ as zeros: every gradient is zero there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from latlin.densities.structured.base import Triangular
from latlin.densities.structured.rows import ProjectionRows, Terms, product, row_dots
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import solve_upper
from latlin.numerics.stored import storable


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

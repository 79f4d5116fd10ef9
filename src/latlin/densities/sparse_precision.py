"""A Gaussian covariance through the sparse Cholesky factor of its precision, with linear constraints by conditioning.

Without constraints S = P⁻¹, P = LLᵀ. Under A δ = 0 (k rows) draws and solves are conditioned exactly. With the
orthonormal F of L⁻¹Aᵀ = FR the conditional covariance is

    S = L⁻ᵀ(I − FFᵀ)L⁻¹ = P⁻¹ − CCᵀ,   C = L⁻ᵀF,

and its determinant on the space of the constraints is det AAᵀ / (det P · det RᵀR) (Rue and Held 2005, §2.3.3). A
precision that only the constraints make proper is first held at some coordinates U, P′ = P + cUUᵀ; what was added is
taken back, S = S′ + S′U(I/c − UᵀS′U)⁻¹UᵀS′, S′ being the conditional covariance of P′.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import cholesky
from latlin.numerics.sparse_cholesky import SparseCholesky
from latlin.numerics.stored import storable
from latlin.numerics.weighted_gram import WeightedGram

Index = NDArray[np.int64]
#: misfit of a constraint, relative to the size of its terms, from which on a point is off it
OFF = 1e-6


@storable
@dataclass(frozen=True)
class SparsePrecision:
    """P, held and conditioned; made by `condition`.

    Parameters
    ----------
    factor : SparseCholesky
        Of P′.
    rows : ndarray of shape (k, dim)
        A.
    held : ndarray of int
        U.
    weight : float
        c.
    turned, removed, added : ndarray of shape (dim, k), (dim, k) and (dim, held)
        F, in the order of elimination, C, and the root of what is taken back.
    log_det : float
        log det P on the space of the constraints, plus k log 2π: the integral of exp(−½δᵀPδ) over that space is
        ½(dim · log 2π − log_det) in logarithms.
    """

    factor: SparseCholesky
    rows: Array
    held: Index
    weight: float
    turned: Array
    removed: Array
    added: Array
    log_det: float

    @property
    def dim(self) -> int:
        return self.factor.analysis.dim

    def solve(self, b: Array) -> Array:
        """S b, for one vector or the columns of a matrix."""
        if not len(self.rows):
            return self.factor.solve(b)
        return self.factor.solve(b) - self.removed @ (self.removed.T @ b) + self.added @ (self.added.T @ b)

    @cached_property
    def inverse_values(self) -> Array:
        """S on the entries of the analysis."""
        values = self.factor.inverse_values
        if not len(self.rows):
            return values
        a, values = self.factor.analysis, values.copy()
        i, j = a.order[a.indices], a.order[np.repeat(np.arange(a.dim), np.diff(a.indptr))]
        for column in self.removed.T:
            values -= column[i] * column[j]
        for column in self.added.T:
            values += column[i] * column[j]
        return values


def condition(factor: SparseCholesky, rows: Array, held: Index, weight: float) -> SparsePrecision | None:
    """The precision P = LLᵀ − weight·UUᵀ under A δ = 0, or None where it is not positive definite there."""
    dim = factor.analysis.dim
    if not len(rows):
        none = np.zeros((dim, 0))
        return SparsePrecision(factor, rows, held, weight, none, none, none, factor.log_det)
    turned, triangle = qr(factor.whiten(rows.T), mode="economic")
    removed = factor.unwhiten(turned)
    scale = np.linalg.qr(rows.T, mode="r")
    sizes = np.log(np.abs(np.diagonal(triangle))) - np.log(np.abs(np.diagonal(scale)))
    log_det = factor.log_det + 2.0 * float(sizes.sum()) + len(rows) * LOG_2PI
    added = np.zeros((dim, 0))
    if len(held):
        units = np.zeros((dim, len(held)))
        units[held, np.arange(len(held))] = 1.0
        moved = factor.solve(units) - removed @ (removed.T @ units)
        try:
            # I − cUᵀS′U
            core = cholesky(np.asfortranarray(np.eye(len(held)) - weight * moved[held])).factor
        except ValueError:
            return None
        added = np.sqrt(weight) * solve_triangular(core, moved.T, trans="T").T
        log_det += 2.0 * float(np.log(np.diagonal(core)).sum())
    return SparsePrecision(factor, rows, held, weight, turned, removed, added, log_det)


@storable
@dataclass(frozen=True)
class SparsePrecisionCovariance:
    """S of a `SparsePrecision`.

    Parameters
    ----------
    precision : SparsePrecision
    """

    precision: SparsePrecision

    @property
    def dim(self) -> int:
        return self.precision.dim

    @property
    def degrees(self) -> int:
        """Dimension of the space of the constraints."""
        return self.dim - len(self.precision.rows)

    @property
    def log_det(self) -> float:
        """log det S on the space of the constraints."""
        return len(self.precision.rows) * LOG_2PI - self.precision.log_det

    def diagonal(self) -> Array:
        p = self.precision
        return self._corrected(p.factor.inverse_diagonal, p.removed, p.added)

    def dense(self) -> Array:
        return self.precision.solve(np.eye(self.dim))

    def project(self, rows: Any) -> Array:
        p = self.precision
        if sparse.issparse(rows):
            gram = WeightedGram(p.factor.analysis, sparse.csr_array(rows))
            if gram.looked_up:
                return np.maximum(gram.squares(p.inverse_values), 0.0)
            plain = p.factor.inverse_squares(sparse.csr_array(rows))
        else:
            plain = p.factor.whitened_squares(np.asarray(rows, float))
        return self._corrected(plain, np.asarray(rows @ p.removed), np.asarray(rows @ p.added))

    @staticmethod
    def _corrected(plain: Array, removed: Array, added: Array) -> Array:
        if not removed.shape[1]:
            return plain
        less, more = np.einsum("nk,nk->n", removed, removed), np.einsum("nk,nk->n", added, added)
        return np.maximum(plain - less + more, 0.0)

    def times(self, v: Array) -> Array:
        """S v, along the constraints."""
        return self.precision.solve(v)

    def quadratic(self, deviations: Array) -> Array:
        p = self.precision
        squares = p.factor.squares(deviations) - p.weight * np.sum(deviations[:, p.held] ** 2, axis=1)
        if not len(p.rows):
            return squares
        misfit, size = np.abs(deviations @ p.rows.T), np.abs(deviations) @ np.abs(p.rows.T)
        return np.where(np.any(misfit > OFF * (1.0 + size), axis=1), np.inf, squares)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        p = self.precision
        noise = rng.standard_normal((self.dim, count))
        noise -= p.turned @ (p.turned.T @ noise)
        draws = p.factor.unwhiten(noise)
        if p.added.shape[1]:
            draws += p.added @ rng.standard_normal((p.added.shape[1], count))
        return draws.T

    def entries(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Array:
        """S_ij for given pairs, from the selected inverse where they are in it."""
        p = self.precision
        plain = p.factor.inverse_entries(i, j)
        if not len(p.rows):
            return plain
        less = np.einsum("nk,nk->n", p.removed[i], p.removed[j])
        more = np.einsum("nk,nk->n", p.added[i], p.added[j])
        return plain - less + more

    def trace_with(self, matrix: sparse.csr_array) -> float:
        """tr(M S) for a symmetric sparse M, from the selected inverse where M's entries are in it."""
        coo = sparse.coo_array(matrix)
        return float(np.sum(coo.data * self.entries(coo.row, coo.col)))

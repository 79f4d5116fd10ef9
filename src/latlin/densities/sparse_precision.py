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
from latlin.numerics.probes import Probes, SparseSum, inverse_roots, probe
from latlin.numerics.sparse_cholesky import SparseCholesky
from latlin.numerics.special import FUSED
from latlin.numerics.stored import storable
from latlin.numerics.threads import INNER, njit, share_out
from latlin.numerics.weighted_gram import WeightedGram

# --- A covariance S = P⁻¹ of a sparse precision whose Cholesky factor would fill: nothing is factorised.
#
# Draws δ of covariance S and their images ε = Pδ estimate the variance of any projection. For any vector a,
#
#     hᵀSh = aᵀh + ⟨(hᵀδ)(hᵀδ − aᵀε)⟩,   because ⟨δεᵀ⟩ = I,
#
# and where P a = h on the non-zeros I of h, that is a = P_II⁻¹h, the mean is one of squares: what the coordinates
# outside I add to the conditional variance (Papandreou and Yuille 2010; Sidén and others 2018). The closer a is to Sh,
# the smaller the part that is left to the draws.

#: most non-zeros of a row that P_II is inverted for, and the share of all coordinates that each of them may meet
NONZEROS, MEETS = 16, 0.05
#: nanoseconds per non-zero and draw
PER_PROBE = 0.5
#: rows whose projections of all draws are held at once
ROWS = 20_000


@storable
@dataclass(frozen=True)
class ProbedPrecisionCovariance:
    """S = P⁻¹ by products with P and by draws; variances and the log determinant are estimates with known errors.

    Parameters
    ----------
    precision : SparseSum
        P.
    draws, images : ndarray of shape (dim, probes)
        δ and Pδ.
    log_det_precision, error : float
        log det P and its standard error.
    """

    precision: SparseSum
    draws: Array
    images: Array
    log_det_precision: float
    error: float

    @classmethod
    def of(cls, precision: SparseSum, probes: int) -> ProbedPrecisionCovariance:
        """The covariance with as many draws."""
        found: Probes = probe(precision, probes)
        return cls(precision, *found)

    def check_stored(self) -> None:
        """Refuse draws and images from a file that are not columns of the length of w."""
        for name, part in (("draws", self.draws), ("images", self.images)):
            if part.dtype != np.float64 or part.shape != (self.dim, *self.draws.shape[1:]) or part.ndim != 2:
                raise ValueError(f"{name} must be an array of shape ({self.dim}, probes), got {part.shape}")

    @property
    def dim(self) -> int:
        return self.precision.dim

    @property
    def log_det(self) -> float:
        """log det S."""
        return -self.log_det_precision

    def diagonal(self) -> Array:
        return self.estimated(sparse.eye_array(self.dim, format="csr"))[0]

    def dense(self) -> Array:
        return self.precision.solve(np.eye(self.dim))

    def times(self, v: Array) -> Array:
        """S v, by conjugate gradients."""
        return self.precision.solve(v)

    def project(self, rows: Any) -> Array:
        """h_nᵀSh_n of every row; those of the last rows are kept, which a next fit of the same rows starts from."""
        if not sparse.issparse(rows):
            return self.estimated(rows)[0]
        held, kept = sparse.csr_array(rows), vars(self).get("_projected")
        if kept is None or kept[0] is not held.data or kept[1] is not held.indices:
            kept = vars(self)["_projected"] = (held.data, held.indices, self.estimated(held)[0])
        return kept[2].copy()

    def estimated(self, rows: Any) -> tuple[Array, Array]:
        """h_nᵀSh_n of every row, and the standard errors of these estimates."""
        held = sparse.csr_array(rows, dtype=float)
        if self.precision.rows is None and held.shape[0]:
            return self._by_conditioning(held)
        parts = [self._estimated_block(held[k : k + ROWS]) for k in range(0, held.shape[0], ROWS)]
        value, error = (np.concatenate([part[i] for part in parts]) if parts else np.zeros(0) for i in (0, 1))
        return value, error

    def _by_conditioning(self, rows: sparse.csr_array) -> tuple[Array, Array]:
        """The variance given all coordinates but I, and that of the mean given them: I are the row's own ones.

        Those that meet many others, such as covariates, are known so well that they are left out of I.
        """
        P, found = self._sorted, np.empty((2, rows.shape[0]))
        arrays = (rows.indptr, rows.indices, rows.data, P.indptr, P.indices, P.data)
        share_out(
            *(total_variances, rows.shape[0], PER_PROBE * rows.nnz / rows.shape[0] * self.draws.shape[1]),
            *(*arrays, self._thin, np.ascontiguousarray(self.draws), np.ascontiguousarray(self.images), found),
        )
        return found[0], found[1]

    @cached_property
    def _thin(self) -> NDArray[np.bool_]:
        """Coordinates that meet few others."""
        counts = np.diff(self.precision.base.indptr)
        return np.asarray(counts <= max(NONZEROS, MEETS * self.dim))

    def _estimated_block(self, rows: sparse.csr_array) -> tuple[Array, Array]:
        near = sparse.csr_array(
            (rows.data / self.precision.diagonal[rows.indices], rows.indices, rows.indptr), shape=rows.shape
        )
        at = rows @ self.draws
        known = np.asarray(rows.multiply(near).sum(axis=1)).ravel()
        terms = at * (at - near @ self.images)
        mean, error = terms.mean(axis=1), terms.std(axis=1, ddof=1) / np.sqrt(terms.shape[1])
        # a variance is at least that given all other coordinates, up to the noise of its estimate
        return np.maximum(known + mean, 1e-3 * known), error

    @cached_property
    def _sorted(self) -> sparse.csr_array:
        return self.precision.base.sorted_indices()

    def trace_with(self, matrix: Any) -> float:
        """tr(M S) for a symmetric sparse M, about D⁻¹, the inverse of P's diagonal.

        With t = δ − D⁻¹ε it is ⟨δᵀMt⟩ + tr(MD⁻¹).
        """
        scale = self.precision.diagonal
        left = self.draws - self.images / scale[:, None]
        mean = float(np.einsum("dk,dk->", matrix @ self.draws, left)) / self.draws.shape[1]
        return mean + float(np.sum(matrix.diagonal() / scale))

    def quadratic(self, deviations: Array) -> Array:
        return np.einsum("nd,nd->n", deviations, self.precision.times(np.ascontiguousarray(deviations.T)).T)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        return inverse_roots(self.precision, np.ascontiguousarray(rng.standard_normal((count, self.dim)).T)).T


@njit(cache=True, nogil=True, fastmath=FUSED, error_model="numpy")
def total_variances(
    low: int, high: int, indptr: NDArray[Any], columns: NDArray[Any], data: Array, starts: NDArray[Any],
    indices: NDArray[Any], values: Array, thin: NDArray[np.bool_], draws: Array, images: Array, found: Array,
) -> None:  # fmt: skip
    """aᵀh + ⟨(hᵀδ − aᵀε)²⟩ with a = P_II⁻¹h of the rows low … high − 1, and its standard error; P by sorted rows."""
    block, right, places = np.empty((NONZEROS, NONZEROS)), np.empty(NONZEROS), np.empty(NONZEROS, np.int64)
    count = draws.shape[1]
    left = np.empty(count)
    for n in range(low, high):
        size = 0
        for k in range(indptr[n], indptr[n + 1]):
            if thin[columns[k]] and size < NONZEROS:
                places[size] = k
                size += 1
        for a in range(size):
            right[a] = data[places[a]]
            for b in range(a + 1):
                block[a, b] = entry(starts, indices, values, columns[places[a]], columns[places[b]])
        if not solve_small(block, right, size):
            size = 0
        known = 0.0
        left[:] = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            h, c = data[k], columns[k]
            for p in range(count):
                left[p] += h * draws[c, p]
        for a in range(size):
            h, c = right[a], columns[places[a]]
            known += h * data[places[a]]
            for p in range(count):
                left[p] -= h * images[c, p]
        mean = 0.0
        for p in range(count):
            left[p] *= left[p]
            mean += left[p]
        mean /= count
        spread = 0.0
        for p in range(count):
            spread += (left[p] - mean) ** 2
        found[0, n] = known + mean
        found[1, n] = np.sqrt(spread / max(count - 1, 1) / count)


@njit(cache=True)
def entry(starts: NDArray[Any], indices: NDArray[Any], values: Array, i: int, j: int) -> float:
    """P_ij."""
    low, high = starts[i], starts[i + 1]
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < j:
            low = middle + 1
        else:
            high = middle
    return values[low] if low < starts[i + 1] and indices[low] == j else 0.0


@njit(**INNER)
def solve_small(block: Array, right: Array, size: int) -> bool:
    """right ← block⁻¹ right by a Cholesky factorisation of the lower triangle in place; False where there is none."""
    for a in range(size):
        for b in range(a + 1):
            total = block[a, b]
            for c in range(b):
                total -= block[a, c] * block[b, c]
            if a == b:
                if not total > 0.0:
                    return False
                block[a, a] = np.sqrt(total)
            else:
                block[a, b] = total / block[b, b]
    for a in range(size):
        for c in range(a):
            right[a] -= block[a, c] * right[c]
        right[a] /= block[a, a]
    for a in range(size - 1, -1, -1):
        for c in range(a + 1, size):
            right[a] -= block[c, a] * right[c]
        right[a] /= block[a, a]
    return True


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

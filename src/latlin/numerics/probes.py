"""Large sparse positive definite matrices whose factor would fill: solves, log determinants, draws by products alone.

A = Λ + HᵀΓH is scaled to C = D^−½AD^−½, D its diagonal. Lanczos' method from random signs z gives tridiagonal pictures
of C, and from them both

    log det A = Σ log D_dd + tr log C ≈ Σ log D_dd + mean of zᵀ log(C) z      (Ubaru, Chen and Saad 2017)

and draws δ = D^−½C^−½z of covariance A⁻¹. Two control variates are known exactly: C has a unit diagonal, so that
tr(C − I) is 0, and tr(C − I)² is a sum of squares of its entries. So the standard error is that of what a parabola
leaves of the logarithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh_tridiagonal

from latlin.numerics.arrays import Array
from latlin.numerics.optimise import solve_columns
from latlin.numerics.stored import storable_as
from latlin.numerics.threads import njit, share_out

# --- A sparse matrix times a vector or the columns of a matrix, on as many threads as pay.

#: nanoseconds per non-zero of a product with a vector, and per number of one with several columns
PER_ENTRY, PER_NUMBER = 1.2, 0.5


def sparse_times(matrix: sparse.csr_array, v: Array) -> Array:
    """Mv.

    Parameters
    ----------
    matrix : csr_array of shape (n, dim)
    v : ndarray of shape (dim,) or (dim, columns)

    >>> sparse_times(sparse.csr_array(np.array([[1.0, 0.0], [2.0, 3.0]])), np.array([1.0, 10.0]))
    array([ 1., 32.])
    """
    found = np.empty((matrix.shape[0], *v.shape[1:]))
    if not len(found) or matrix.data.dtype != float:
        return np.asarray(matrix @ v)
    arrays = (matrix.indptr, matrix.indices, matrix.data, np.ascontiguousarray(v), found)
    mean = matrix.nnz / len(found)
    if v.ndim == 1:
        share_out(_times_vector, len(found), PER_ENTRY * mean, *arrays)
    else:
        share_out(_times_columns, len(found), PER_NUMBER * mean * v.shape[1], *arrays)
    return found


@njit(cache=True, nogil=True)
def _times_vector(
    start: int, stop: int, indptr: NDArray[Any], indices: NDArray[Any], data: Array, v: Array, found: Array
) -> None:
    for n in range(start, stop):
        total = 0.0
        for a in range(indptr[n], indptr[n + 1]):
            total += data[a] * v[indices[a]]
        found[n] = total


@njit(cache=True, nogil=True)
def _times_columns(
    start: int, stop: int, indptr: NDArray[Any], indices: NDArray[Any], data: Array, v: Array, found: Array
) -> None:
    for n in range(start, stop):
        for k in range(v.shape[1]):
            found[n, k] = 0.0
        for a in range(indptr[n], indptr[n + 1]):
            weight, row = data[a], indices[a]
            for k in range(v.shape[1]):
                found[n, k] += weight * v[row, k]


#: numbers that the bases of several columns may hold together
NUMBERS = 25 * 10**6
#: steps of Lanczos' method and of conjugate gradients at most, and the relative residual of solves and of draws, whose
#: log determinant has an error of its square
STEPS, ACCURACY, ROUGH = 300, 1e-6, 1e-4


@dataclass(frozen=True)
class SparseSum:
    """A = Λ + HᵀΓH, symmetric and positive definite.

    Parameters
    ----------
    base : csr_array of shape (dim, dim)
        Λ; A itself where there are no rows.
    rows : csr_array of shape (n, dim), optional
        H.
    weights : ndarray of shape (n,), optional
        The diagonal of Γ.
    """

    base: sparse.csr_array
    rows: sparse.csr_array | None = None
    weights: Array | None = None

    @cached_property
    def _columns(self) -> sparse.csr_array | None:
        return None if self.rows is None else sparse.csr_array(self.rows.T)

    @property
    def dim(self) -> int:
        return int(self.base.shape[0])

    def times(self, v: Array) -> Array:
        """A times a vector or the columns of a matrix."""
        found = sparse_times(self.base, v)
        if self.rows is None or self._columns is None or self.weights is None:
            return found
        inner = sparse_times(self.rows, v)
        inner *= self.weights if v.ndim == 1 else self.weights[:, None]
        return found + sparse_times(self._columns, inner)

    @cached_property
    def diagonal(self) -> Array:
        own = self.base.diagonal()
        if self._columns is None or self.weights is None:
            return own
        return own + self._columns.multiply(self._columns) @ self.weights

    @cached_property
    def off_squares(self) -> float | None:
        """tr(C − I)², where A is held entry by entry."""
        if self.rows is not None:
            return None
        scale = 1.0 / np.sqrt(self.diagonal)
        row = np.repeat(np.arange(self.dim), np.diff(self.base.indptr))
        entries = self.base.data * scale[row] * scale[self.base.indices]
        return float(np.sum(entries[row != self.base.indices] ** 2))

    def perturb(self, noise: Array, row_noise: Array, tol: float = ACCURACY, start: Array | None = None) -> Array:
        """A⁻¹(Λ^½ε + HᵀΓ^½η), Λ being diagonal: draws of covariance A⁻¹ from standard normal ε and η.

        Each factor is perturbed by its own noise, and the mode found again (Papandreou and Yuille 2010).
        """
        right = np.sqrt(self.base.diagonal())[:, None] * noise
        if self._columns is not None and self.weights is not None:
            right += self._columns @ (np.sqrt(self.weights)[:, None] * row_noise)
        return solve_columns(self.times, right, self.diagonal, tol, STEPS, start)

    def solve(self, b: Array, tol: float = ACCURACY) -> Array:
        """A⁻¹b for one vector or the columns of a matrix, by conjugate gradients."""
        columns = b if b.ndim == 2 else b[:, None]
        return solve_columns(self.times, columns, self.diagonal, tol, STEPS).reshape(b.shape)


def _take_apart(matrix: SparseSum) -> dict[str, Any]:
    parts: dict[str, Any] = {"weights": matrix.weights}
    for name in ("base", "rows"):
        held = getattr(matrix, name)
        parts[name] = None if held is None else (held.data, held.indices, held.indptr, tuple(map(int, held.shape)))
    return parts


def _put_together(base: Any, rows: Any, weights: Any) -> SparseSum:
    """The sum of parts from a file; compiled loops follow their indices without looking, so these are checked."""
    held, beside = _matrix_of(base), None if rows is None else _matrix_of(rows)
    n, dim = (0, held.shape[0]) if beside is None else beside.shape
    length = None if weights is None else np.shape(weights)
    if held.shape != (dim, dim) or length != (None if beside is None else (n,)):
        raise ValueError(f"not a stored value: matrices of shapes {held.shape} and {(n, dim)} with weights {length}")
    return SparseSum(held, beside, weights)


def _matrix_of(parts: Any) -> sparse.csr_array:
    """The sparse matrix of stored entries, columns and beginnings of rows, if they fit together."""
    data, indices, indptr, shape = parts
    if data.dtype != np.float64 or data.shape != indices.shape:
        raise ValueError("not a stored value: the entries of a sparse matrix must be one number per place")
    matrix = sparse.csr_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


storable_as(SparseSum, _take_apart, _put_together)


class Probes(NamedTuple):
    """Draws of covariance A⁻¹, one per column; A times them; log det A and its standard error."""

    draws: Array
    images: Array
    log_det: float
    error: float


def probe(matrix: SparseSum, count: int, seed: int = 0) -> Probes:
    """Draws and the log determinant from `count` random sign vectors, the same ones for the same seed.

    Examples
    --------
    >>> a = SparseSum(sparse.csr_array(np.array([[2.0, 0.5], [0.5, 3.0]])))
    >>> found = probe(a, 200)
    >>> bool(abs(found.log_det - np.log(5.75)) <= 3 * found.error + 1e-9)
    True
    """
    scale = 1.0 / np.sqrt(matrix.diagonal)
    rng = np.random.default_rng(seed)
    signs = np.where(rng.random((count, matrix.dim)) < 0.5, -1.0, 1.0)
    draws, pictures = np.empty((matrix.dim, count)), []
    block = max(1, min(count, NUMBERS // (60 * matrix.dim)))
    for start in range(0, count, block):
        span = slice(start, min(start + block, count))
        draws[:, span], found = _inverse_roots(matrix, scale, np.ascontiguousarray(signs[span].T))
        pictures += found
    total, error = _log_det(matrix, pictures)
    return Probes(draws, matrix.times(draws), total, error)


def inverse_roots(matrix: SparseSum, noise: Array) -> Array:
    """D^−½C^−½z for the columns z of `noise`: draws of covariance A⁻¹ from standard normal ones."""
    return _inverse_roots(matrix, 1.0 / np.sqrt(matrix.diagonal), noise)[0]


def _inverse_roots(matrix: SparseSum, scale: Array, noise: Array) -> tuple[Array, list[tuple[Array, Array]]]:
    """D^−½C^−½z of every column, and the Ritz values of C with their weights in z."""
    size = np.linalg.norm(noise, axis=0)
    times = matrix.times
    basis, diagonal, off = lanczos_columns(
        lambda v: scale[:, None] * times(scale[:, None] * v), noise / size, STEPS, ROUGH
    )
    weights, pictures = np.empty(diagonal.shape), []
    for k in range(noise.shape[1]):
        values, vectors = eigh_tridiagonal(diagonal[:, k], off[:, k])
        if values[0] <= 0.0:
            raise ValueError("the precision of the posterior is not positive definite to working precision")
        weights[:, k] = vectors @ (vectors[0] / np.sqrt(values))
        pictures.append((values, vectors[0] ** 2))
    found = np.zeros_like(noise)
    for vector, weight in zip(basis, weights, strict=True):
        found += vector * weight
    return scale[:, None] * found * size, pictures


def _log_det(matrix: SparseSum, pictures: list[tuple[Array, Array]]) -> tuple[float, float]:
    """The mean over the probes, less what a parabola that fits the spectrum says too much, and its standard error."""
    values, weights = (np.concatenate(part) for part in zip(*pictures, strict=True))
    squares = matrix.off_squares
    powers = np.stack([(values - 1.0) ** p for p in range(2 if squares is None else 3)], axis=1)
    root = np.sqrt(weights)[:, None]
    # log λ ≈ c₀ + c₁(λ − 1) + c₂(λ − 1)²
    c = np.linalg.lstsq(root * powers, root[:, 0] * np.log(values), rcond=None)[0]
    known = c[2] * squares if squares is not None else 0.0
    left = np.log(values) - powers[:, 1:] @ c[1:]
    parts = np.split(weights * left, np.cumsum([len(picture[0]) for picture in pictures])[:-1])
    each = matrix.dim * np.array([part.sum() for part in parts])
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else np.inf
    return float(np.log(matrix.diagonal).sum() + each.mean() + known), error


def lanczos_columns(
    times: Callable[[Array], Array], start: Array, most: int, tol: float
) -> tuple[list[Array], Array, Array]:
    """Lanczos' recursion for every column of `start` at once, one product per step, without orthogonalisation.

    It ends where the residual of (QᵀAQ)⁻¹, that of conjugate gradients, is below `tol` for all columns. What vectors
    lose of their orthogonality delays functions of A a little and does not spoil them (Druskin and Knizhnerman 1991).

    Parameters
    ----------
    times : callable
        A times a matrix of the shape of `start`.
    start : ndarray of shape (dim, columns)
        Columns of length one.
    most : int
        Steps at most.

    Returns
    -------
    basis : list of ndarray of shape (dim, columns)
        Step by step.
    diagonal, off : ndarray of shape (steps, columns) and (steps − 1, columns)
        Of the tridiagonal matrices.

    >>> a = np.diag([1.0, 2.0, 5.0])
    >>> basis, diagonal, off = lanczos_columns(lambda v: a @ v, np.full((3, 1), 3**-0.5), 10, 1e-12)
    >>> len(basis), diagonal[:, 0].sum().round(8)
    (3, np.float64(8.0))
    """
    basis, diagonal = [start], []
    off: list[Array] = []
    # ρ, the last pivot, and the residual of T x = e₁ that a step leaves: ‖r_k‖ = ∏ β_j / ρ_j
    pivot, residual = np.ones(start.shape[1]), np.ones(start.shape[1])
    for k in range(most):
        image = times(basis[-1])
        diagonal.append(np.einsum("dk,dk->k", image, basis[-1]))
        image -= diagonal[-1] * basis[-1]
        if k:
            image -= off[-1] * basis[-2]
        size = np.linalg.norm(image, axis=0)
        pivot = diagonal[-1] - (off[-1] ** 2 / pivot if k else 0.0)
        residual = residual * size / np.maximum(np.abs(pivot), np.finfo(float).tiny)
        if k + 1 == most or np.all(residual <= tol) or np.any(size <= 1e-13 * np.abs(diagonal[-1])):
            break
        off.append(size)
        basis.append(image / size)
    return basis, np.array(diagonal), np.array(off).reshape(len(diagonal) - 1, start.shape[1])

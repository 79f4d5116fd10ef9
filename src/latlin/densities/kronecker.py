"""Covariances on complete grids: S = V diag(values) Vᵀ with V = V_1 ⊗ V_2 ⊗ …, one small orthogonal matrix per axis.

A product with V is one small product per axis, so that nothing of the size of S is ever formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

Index = NDArray[np.integer]


def times_kronecker(matrices: Sequence[Array], v: Array) -> Array:
    """(A_1 ⊗ A_2 ⊗ …)v, for a vector or the columns of a matrix.

    Examples
    --------
    >>> a, b = np.array([[1.0, 2.0], [0.0, 1.0]]), np.eye(2)
    >>> bool(np.allclose(times_kronecker([a, b], np.arange(4.0)), np.kron(a, b) @ np.arange(4.0)))
    True
    """
    grid = v.reshape(*(matrix.shape[1] for matrix in matrices), -1)
    for axis, matrix in enumerate(matrices):
        grid = np.moveaxis(np.tensordot(matrix, grid, axes=(1, axis)), 0, axis)
    found = grid.reshape(-1, grid.shape[-1])
    return found[:, 0] if v.ndim == 1 else found


@storable
@dataclass(frozen=True)
class KroneckerCovariance:
    """S of coordinates that are the points of a grid, in any order.

    Parameters
    ----------
    vectors : tuple of ndarray of shape (n_j, n_j)
        Orthogonal V_j.
    values : ndarray of shape (n,)
        Eigenvalues of S, in the order of the grid.
    place : ndarray of int, shape (n,)
        The point of the grid that each coordinate is.
    """

    vectors: tuple[Array, ...]
    values: Array
    place: Index

    @property
    def dim(self) -> int:
        return len(self.values)

    @property
    def log_det(self) -> float:
        with np.errstate(divide="ignore"):
            return float(np.log(self.values).sum())

    def rotated(self, v: Array) -> Array:
        """Vᵀv in the order of the grid, for a vector or the columns of a matrix in that of the coordinates."""
        grid = np.empty_like(v)
        grid[self.place] = v
        return times_kronecker([matrix.T for matrix in self.vectors], grid)

    def turned_back(self, v: Array) -> Array:
        """Vv in the order of the coordinates."""
        return times_kronecker(self.vectors, v)[self.place]

    def times(self, v: Array) -> Array:
        """Sv, for a vector or the columns of a matrix."""
        inner = self.rotated(v)
        return self.turned_back(self.values * inner if v.ndim == 1 else self.values[:, None] * inner)

    def diagonal(self) -> Array:
        return times_kronecker([matrix**2 for matrix in self.vectors], self.values)[self.place]

    def dense(self) -> Array:
        return self.times(np.eye(self.dim))

    def project(self, rows: Any) -> Array:
        if sparse.issparse(rows):
            csr = sparse.csr_array(rows)
            if csr.nnz == csr.shape[0] and np.all(np.diff(csr.indptr) == 1):
                return csr.data**2 * self.diagonal()[csr.indices]
            rows = csr.toarray()
        inner = self.rotated(np.asarray(rows, float).T)
        return np.einsum("dn,dn,d->n", inner, inner, self.values)

    def quadratic(self, deviations: Array) -> Array:
        inner = self.rotated(deviations.T)
        with np.errstate(divide="ignore"):
            return np.einsum("dn,dn,d->n", inner, inner, 1.0 / self.values)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((self.dim, count))
        return self.turned_back(np.sqrt(self.values)[:, None] * noise).T

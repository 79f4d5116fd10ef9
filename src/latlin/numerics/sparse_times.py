"""A sparse matrix times a vector or the columns of a matrix, on as many threads as pay."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics.arrays import Array
from latlin.numerics.threads import share_out

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

"""Compiled products of sparse rows h_n (CSR) with vectors, squares, narrow matrices and sparse triangular factors.

Every loop over rows is split into pieces with equally many non-zeros, one a thread, so that a few long rows (or
columns, when the arrays are those of the transposed matrix) do not leave the other threads idle.
"""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.integer]
#: pieces a thread, and the smallest number of non-zeros worth one
PIECES = 4
SMALLEST = 8192


def pieces(indptr: Index) -> NDArray[np.int64]:
    """Row numbers that split the rows into pieces of about equally many non-zeros."""
    count = int(min(max(1, indptr[-1] // SMALLEST), PIECES * get_num_threads(), max(1, len(indptr) - 1)))
    return _split(indptr, count)


def _split(indptr: Index, count: int) -> NDArray[np.int64]:
    targets = np.linspace(0, int(indptr[-1]), count + 1)
    edges = np.searchsorted(indptr, targets).astype(np.int64)
    edges[0], edges[-1] = 0, len(indptr) - 1
    return edges


@njit(cache=True, parallel=True)
def times(indptr: Index, indices: Index, data: Array, edges: Index, u: Array) -> Array:
    """H u."""
    out = np.empty(indptr.size - 1)
    for piece in prange(edges.size - 1):
        for n in range(edges[piece], edges[piece + 1]):
            total = 0.0
            for k in range(indptr[n], indptr[n + 1]):
                total += data[k] * u[indices[k]]
            out[n] = total
    return out


@njit(cache=True, parallel=True)
def squares_times(indptr: Index, indices: Index, data: Array, edges: Index, v: Array) -> Array:
    """(H∘H) v."""
    out = np.empty(indptr.size - 1)
    for piece in prange(edges.size - 1):
        for n in range(edges[piece], edges[piece + 1]):
            total = 0.0
            for k in range(indptr[n], indptr[n + 1]):
                total += data[k] * data[k] * v[indices[k]]
            out[n] = total
    return out


@njit(cache=True, parallel=True)
def both_times(indptr: Index, indices: Index, data: Array, edges: Index, u: Array, v: Array) -> tuple[Array, Array]:
    """H u and (H∘H) v in one pass over the matrix."""
    linear, square = np.empty(indptr.size - 1), np.empty(indptr.size - 1)
    for piece in prange(edges.size - 1):
        for n in range(edges[piece], edges[piece + 1]):
            first, second = 0.0, 0.0
            for k in range(indptr[n], indptr[n + 1]):
                h = data[k]
                first += h * u[indices[k]]
                second += h * h * v[indices[k]]
            linear[n], square[n] = first, second
    return linear, square


@njit(cache=True, parallel=True)
def block_times(indptr: Index, indices: Index, data: Array, edges: Index, block: Array) -> Array:
    """H Θ for a narrow C-ordered matrix Θ."""
    width = block.shape[1]
    out = np.empty((indptr.size - 1, width))
    for piece in prange(edges.size - 1):
        for n in range(edges[piece], edges[piece + 1]):
            row = out[n]
            row[:] = 0.0
            for k in range(indptr[n], indptr[n + 1]):
                h, source = data[k], block[indices[k]]
                for c in range(width):
                    row[c] += h * source[c]
    return out


@njit(cache=True)
def _image(
    begin: int, end: int, indices: Index, data: Array, columns: Index, entries: Index, values: Array, v: Array
) -> None:
    """Add C h to the work vector v, for one row h and a factor C stored by columns."""
    for k in range(begin, end):
        j, h = indices[k], data[k]
        for p in range(columns[j], columns[j + 1]):
            v[entries[p]] += h * values[p]


@njit(cache=True)
def _forget(begin: int, end: int, indices: Index, columns: Index, entries: Index, v: Array) -> None:
    for k in range(begin, end):
        j = indices[k]
        for p in range(columns[j], columns[j + 1]):
            v[entries[p]] = 0.0


@njit(cache=True, parallel=True)
def factor_inner(
    indptr: Index,
    indices: Index,
    data: Array,
    edges: Index,
    columns: Index,
    entries: Index,
    a: Array,
    b: Array,
    height: int,
) -> Array:
    """(A h_n)·(B h_n) for factors A and B with one pattern, stored by columns."""
    out = np.empty(indptr.size - 1)
    for piece in prange(edges.size - 1):
        v, w = np.zeros(height), np.zeros(height)
        for n in range(edges[piece], edges[piece + 1]):
            begin, end = indptr[n], indptr[n + 1]
            _image(begin, end, indices, data, columns, entries, a, v)
            _image(begin, end, indices, data, columns, entries, b, w)
            total = 0.0
            for k in range(begin, end):
                j = indices[k]
                for p in range(columns[j], columns[j + 1]):
                    i = entries[p]
                    total += v[i] * w[i]
                    v[i] = 0.0
            _forget(begin, end, indices, columns, entries, w)
            out[n] = total
    return out


@njit(cache=True, parallel=True)
def factor_pull(
    indptr: Index,
    indices: Index,
    data: Array,
    edges: Index,
    columns: Index,
    entries: Index,
    weights: Array,
    values: Array,
    height: int,
) -> Array:
    """The entries of Σ_t Σ_n weights_tn C_t h_n h_nᵀ on the pattern of the factors C_t, in their order."""
    partial = np.zeros((edges.size - 1, values.shape[1]))
    for piece in prange(edges.size - 1):
        v, total = np.zeros(height), partial[piece]
        for n in range(edges[piece], edges[piece + 1]):
            begin, end = indptr[n], indptr[n + 1]
            for t in range(values.shape[0]):
                for k in range(begin, end):
                    j, h = indices[k], weights[t, n] * data[k]
                    for p in range(columns[j], columns[j + 1]):
                        v[entries[p]] += h * values[t, p]
            for k in range(begin, end):
                j, h = indices[k], data[k]
                for p in range(columns[j], columns[j + 1]):
                    total[p] += h * v[entries[p]]
            _forget(begin, end, indices, columns, entries, v)
    return partial.sum(axis=0)

"""Compiled products of sparse rows h_n (CSR) with vectors, squares, narrow matrices and sparse triangular factors.

Every loop over rows is split into pieces with equally many non-zeros, one a thread. Products with the transpose scatter
into one copy of the result a piece, so that no second copy of the matrix is needed.
"""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

from latlin.numerics.arrays import Array

Index = NDArray[np.integer]
#: pieces, and so copies of a transposed product, at most; and the smallest number of non-zeros worth a piece
PIECES = 8
SMALLEST = 8192


def pieces(indptr: Index) -> NDArray[np.int64]:
    """Row numbers that split the rows into as many pieces as threads, of about equally many non-zeros."""
    count = int(min(max(1, indptr[-1] // SMALLEST), get_num_threads(), PIECES, max(1, len(indptr) - 1)))
    edges = np.searchsorted(indptr, np.linspace(0, int(indptr[-1]), count + 1)).astype(np.int64)
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
def transposed_times(indptr: Index, indices: Index, data: Array, edges: Index, r: Array, dim: int) -> Array:
    """Hᵀ r."""
    partial = np.zeros((edges.size - 1, dim))
    for piece in prange(edges.size - 1):
        total = partial[piece]
        for n in range(edges[piece], edges[piece + 1]):
            for k in range(indptr[n], indptr[n + 1]):
                total[indices[k]] += data[k] * r[n]
    return partial.sum(axis=0)


@njit(cache=True, parallel=True)
def transposed_squares_times(indptr: Index, indices: Index, data: Array, edges: Index, r: Array, dim: int) -> Array:
    """(H∘H)ᵀ r."""
    partial = np.zeros((edges.size - 1, dim))
    for piece in prange(edges.size - 1):
        total = partial[piece]
        for n in range(edges[piece], edges[piece + 1]):
            for k in range(indptr[n], indptr[n + 1]):
                total[indices[k]] += data[k] * data[k] * r[n]
    return partial.sum(axis=0)


@njit(cache=True, parallel=True)
def transposed_squares_pair(
    indptr: Index, indices: Index, data: Array, edges: Index, r: Array, s: Array, dim: int
) -> Array:
    """(H∘H)ᵀ [r s] in one pass, shape (dim, 2)."""
    partial = np.zeros((edges.size - 1, dim, 2))
    for piece in prange(edges.size - 1):
        total = partial[piece]
        for n in range(edges[piece], edges[piece + 1]):
            p, q = r[n], s[n]
            for k in range(indptr[n], indptr[n + 1]):
                square, j = data[k] * data[k], indices[k]
                total[j, 0] += square * p
                total[j, 1] += square * q
    return partial.sum(axis=0)


@njit(cache=True, parallel=True)
def block_times(indptr: Index, indices: Index, data: Array, edges: Index, block: Array) -> Array:
    """H Θ for a narrow C-ordered matrix Θ; four non-zeros at a time."""
    width = block.shape[1]
    out = np.zeros((indptr.size - 1, width))
    for piece in prange(edges.size - 1):
        for n in range(edges[piece], edges[piece + 1]):
            row, k, end = out[n], indptr[n], indptr[n + 1]
            while k + 4 <= end:
                p, q, r, s = data[k], data[k + 1], data[k + 2], data[k + 3]
                a, b = block[indices[k]], block[indices[k + 1]]
                c, d = block[indices[k + 2]], block[indices[k + 3]]
                for i in range(width):
                    row[i] += p * a[i] + q * b[i] + r * c[i] + s * d[i]
                k += 4
            while k < end:
                p, a = data[k], block[indices[k]]
                for i in range(width):
                    row[i] += p * a[i]
                k += 1
    return out


@njit(cache=True, parallel=True)
def transposed_block_times(indptr: Index, indices: Index, data: Array, edges: Index, block: Array, dim: int) -> Array:
    """Hᵀ W for a narrow C-ordered matrix W: rows are scattered, which keeps frequent columns in the cache."""
    width = block.shape[1]
    out, partial = np.zeros((dim, width)), np.zeros((edges.size - 2, dim, width))
    for piece in prange(edges.size - 1):
        total = out if piece == 0 else partial[piece - 1]
        for n in range(edges[piece], edges[piece + 1]):
            source = block[n]
            for k in range(indptr[n], indptr[n + 1]):
                h, target = data[k], total[indices[k]]
                for i in range(width):
                    target[i] += h * source[i]
    for piece in range(edges.size - 2):
        out += partial[piece]
    return out


@njit(cache=True, inline="always")
def _gather(begin: int, end: int, indices: Index, data: Array, loadings: Array, out: Array) -> None:
    """out = Σ_k h_k Θ[j_k] for one row h, four non-zeros at a time."""
    out[:] = 0.0
    k = begin
    while k + 4 <= end:
        p, q, r, s = data[k], data[k + 1], data[k + 2], data[k + 3]
        a, b = loadings[indices[k]], loadings[indices[k + 1]]
        c, d = loadings[indices[k + 2]], loadings[indices[k + 3]]
        for i in range(out.size):
            out[i] += p * a[i] + q * b[i] + r * c[i] + s * d[i]
        k += 4
    while k < end:
        p, a = data[k], loadings[indices[k]]
        for i in range(out.size):
            out[i] += p * a[i]
        k += 1


@njit(cache=True, parallel=True)
def loadings_squares(indptr: Index, indices: Index, data: Array, edges: Index, a: Array) -> Array:
    """‖Aᵀh_n‖² of every row."""
    out = np.empty(indptr.size - 1)
    for piece in prange(edges.size - 1):
        x = np.empty(a.shape[1])
        for n in range(edges[piece], edges[piece + 1]):
            _gather(indptr[n], indptr[n + 1], indices, data, a, x)
            total = 0.0
            for i in range(x.size):
                total += x[i] * x[i]
            out[n] = total
    return out


@njit(cache=True, parallel=True)
def loadings_inner(indptr: Index, indices: Index, data: Array, edges: Index, a: Array, b: Array) -> Array:
    """(Aᵀh_n)·(Bᵀh_n) of every row."""
    out = np.empty(indptr.size - 1)
    for piece in prange(edges.size - 1):
        x, y = np.empty(a.shape[1]), np.empty(b.shape[1])
        for n in range(edges[piece], edges[piece + 1]):
            _gather(indptr[n], indptr[n + 1], indices, data, a, x)
            _gather(indptr[n], indptr[n + 1], indices, data, b, y)
            total = 0.0
            for i in range(x.size):
                total += x[i] * y[i]
            out[n] = total
    return out


@njit(cache=True, inline="always")
def _scatter(begin: int, end: int, indices: Index, data: Array, x: Array, out: Array) -> None:
    """out[j_k] += h_k x for one row h."""
    for k in range(begin, end):
        h, target = data[k], out[indices[k]]
        for i in range(x.size):
            target[i] += h * x[i]


@njit(cache=True, parallel=True)
def loadings_pull(indptr: Index, indices: Index, data: Array, edges: Index, weights: Array, a: Array) -> Array:
    """Σ_n weights_n h_n (Aᵀh_n)ᵀ; each thread has columns of A of its own, so that nothing is summed afterwards.

    They are summed apart and copied: threads that write to neighbours in memory wait for each other.
    """
    dim, width = a.shape
    out = np.empty((dim, width))
    pieces = edges.size - 1
    for piece in prange(pieces):
        first, last = width * piece // pieces, width * (piece + 1) // pieces
        own, mine, x = a[:, first:last], np.zeros((dim, last - first)), np.empty(last - first)
        for n in range(indptr.size - 1):
            _gather(indptr[n], indptr[n + 1], indices, data, own, x)
            for i in range(x.size):
                x[i] *= weights[n]
            _scatter(indptr[n], indptr[n + 1], indices, data, x, mine)
        out[:, first:last] = mine
    return out


@njit(cache=True, parallel=True)
def loadings_pull_pair(
    indptr: Index, indices: Index, data: Array, edges: Index, r: Array, a: Array, s: Array, b: Array
) -> Array:
    """Σ_n h_n (r_n Aᵀh_n + s_n Bᵀh_n)ᵀ, in one pass over the rows."""
    dim, width = a.shape
    out = np.empty((dim, width))
    pieces = edges.size - 1
    for piece in prange(pieces):
        first, last = width * piece // pieces, width * (piece + 1) // pieces
        x, y, mine = np.empty(last - first), np.empty(last - first), np.zeros((dim, last - first))
        for n in range(indptr.size - 1):
            begin, end = indptr[n], indptr[n + 1]
            _gather(begin, end, indices, data, a[:, first:last], x)
            _gather(begin, end, indices, data, b[:, first:last], y)
            for i in range(x.size):
                x[i] = r[n] * x[i] + s[n] * y[i]
            _scatter(begin, end, indices, data, x, mine)
        out[:, first:last] = mine
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

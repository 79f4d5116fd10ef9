"""Compiled products of sparse rows h_n (CSR) with vectors, squares, narrow matrices and sparse triangular factors.

Loops over rows are split into pieces with equally many non-zeros, one per thread where threads pay. Products with the
transpose scatter into one copy of the result per piece, so that no second copy of the matrix is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit, run_together, threads_for

Index = NDArray[np.integer]
#: pieces, and so copies of a transposed product, at most
PIECES = 8
#: nanoseconds per non-zero (and column of a narrow matrix) of a product, by measurement
PER_ENTRY = 1.0

_compiled = njit(cache=True, nogil=True)


def _edges(indptr: Index, work: float) -> list[int]:
    """Row numbers that split the rows into pieces of about equally many non-zeros, each of `work` numbers."""
    count = min(threads_for(PER_ENTRY * work * int(indptr[-1])), PIECES, max(1, len(indptr) - 1))
    inner = np.searchsorted(indptr, np.linspace(0, int(indptr[-1]), count + 1)[1:-1])
    return [0, *(int(edge) for edge in inner), len(indptr) - 1]


def _by_rows(kernel: Callable[..., None], work: float, indptr: Index, *arguments: Any) -> Array:
    """One number per row; the last argument of the kernel holds them."""
    out = np.empty(len(indptr) - 1)
    edges = _edges(indptr, work)
    run_together(kernel, [(first, last, indptr, *arguments, out) for first, last in pairwise(edges)])
    return out


def _by_sums(kernel: Callable[..., None], work: float, shape: tuple[int, ...], indptr: Index, *arguments: Any) -> Array:
    """Sums over rows; the last argument of the kernel collects those of a piece."""
    edges = _edges(indptr, work)
    totals = [np.zeros(shape) for _ in edges[1:]]
    pieces = zip(pairwise(edges), totals, strict=True)
    run_together(kernel, [(first, last, indptr, *arguments, total) for (first, last), total in pieces])
    for total in totals[1:]:
        totals[0] += total
    return totals[0]


@njit(**INNER)
def _put(columns: Array, first: int, out: Array) -> None:
    """The columns into others from `first` on; an assignment of slices takes the compiler ten times as long."""
    for i in range(columns.shape[0]):
        for j in range(columns.shape[1]):
            out[i, first + j] = columns[i, j]


@njit(**INNER)
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


@njit(**INNER)
def _scatter(begin: int, end: int, indices: Index, data: Array, x: Array, out: Array) -> None:
    """out[j_k] += h_k x for one row h."""
    for k in range(begin, end):
        h, target = data[k], out[indices[k]]
        for i in range(x.size):
            target[i] += h * x[i]


def times(indptr: Index, indices: Index, data: Array, u: Array) -> Array:
    """H u."""
    return _by_rows(_times, 1, indptr, indices, data, u)


@_compiled
def _times(first: int, last: int, indptr: Index, indices: Index, data: Array, u: Array, out: Array) -> None:
    for n in range(first, last):
        total = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            total += data[k] * u[indices[k]]
        out[n] = total


def squares_times(indptr: Index, indices: Index, data: Array, v: Array) -> Array:
    """(H∘H) v."""
    return _by_rows(_squares_times, 1, indptr, indices, data, v)


@_compiled
def _squares_times(first: int, last: int, indptr: Index, indices: Index, data: Array, v: Array, out: Array) -> None:
    for n in range(first, last):
        total = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            total += data[k] * data[k] * v[indices[k]]
        out[n] = total


def transposed_times(indptr: Index, indices: Index, data: Array, r: Array, dim: int) -> Array:
    """Hᵀ r."""
    return _by_sums(_transposed_times, 1, (dim,), indptr, indices, data, r)


@_compiled
def _transposed_times(
    first: int, last: int, indptr: Index, indices: Index, data: Array, r: Array, total: Array
) -> None:
    for n in range(first, last):
        for k in range(indptr[n], indptr[n + 1]):
            total[indices[k]] += data[k] * r[n]


def transposed_squares_times(indptr: Index, indices: Index, data: Array, r: Array, dim: int) -> Array:
    """(H∘H)ᵀ r."""
    return _by_sums(_transposed_squares_times, 1, (dim,), indptr, indices, data, r)


@_compiled
def _transposed_squares_times(
    first: int, last: int, indptr: Index, indices: Index, data: Array, r: Array, total: Array
) -> None:
    for n in range(first, last):
        for k in range(indptr[n], indptr[n + 1]):
            total[indices[k]] += data[k] * data[k] * r[n]


def transposed_squares_pair(indptr: Index, indices: Index, data: Array, r: Array, s: Array, dim: int) -> Array:
    """(H∘H)ᵀ [r s] in one pass, shape (dim, 2)."""
    return _by_sums(_transposed_squares_pair, 2, (dim, 2), indptr, indices, data, r, s)


@_compiled
def _transposed_squares_pair(
    first: int, last: int, indptr: Index, indices: Index, data: Array, r: Array, s: Array, total: Array
) -> None:
    for n in range(first, last):
        p, q = r[n], s[n]
        for k in range(indptr[n], indptr[n + 1]):
            square, j = data[k] * data[k], indices[k]
            total[j, 0] += square * p
            total[j, 1] += square * q


def times_columns(indptr: Index, indices: Index, data: Array, block: Array) -> Array:
    """H Θ for a narrow C-ordered matrix Θ."""
    out = np.empty((len(indptr) - 1, block.shape[1]))
    edges = _edges(indptr, block.shape[1])
    run_together(_times_columns, [(*piece, indptr, indices, data, block, out) for piece in pairwise(edges)])
    return out


@_compiled
def _times_columns(first: int, last: int, indptr: Index, indices: Index, data: Array, block: Array, out: Array) -> None:
    for n in range(first, last):
        _gather(indptr[n], indptr[n + 1], indices, data, block, out[n])


def transposed_times_columns(indptr: Index, indices: Index, data: Array, block: Array, dim: int) -> Array:
    """Hᵀ W for a narrow C-ordered matrix W: rows are scattered, which keeps frequent columns in the cache."""
    return _by_sums(_transposed_times_columns, block.shape[1], (dim, block.shape[1]), indptr, indices, data, block)


@_compiled
def _transposed_times_columns(
    first: int, last: int, indptr: Index, indices: Index, data: Array, block: Array, total: Array
) -> None:
    for n in range(first, last):
        _scatter(indptr[n], indptr[n + 1], indices, data, block[n], total)


def loadings_squares(indptr: Index, indices: Index, data: Array, a: Array) -> Array:
    """‖Aᵀh_n‖² of every row."""
    return _by_rows(_loadings_squares, a.shape[1], indptr, indices, data, a)


@_compiled
def _loadings_squares(first: int, last: int, indptr: Index, indices: Index, data: Array, a: Array, out: Array) -> None:
    x = np.empty(a.shape[1])
    for n in range(first, last):
        _gather(indptr[n], indptr[n + 1], indices, data, a, x)
        total = 0.0
        for i in range(x.size):
            total += x[i] * x[i]
        out[n] = total


def loadings_inner(indptr: Index, indices: Index, data: Array, a: Array, b: Array) -> Array:
    """(Aᵀh_n)·(Bᵀh_n) of every row."""
    return _by_rows(_loadings_inner, 2 * a.shape[1], indptr, indices, data, a, b)


@_compiled
def _loadings_inner(
    first: int, last: int, indptr: Index, indices: Index, data: Array, a: Array, b: Array, out: Array
) -> None:
    x, y = np.empty(a.shape[1]), np.empty(b.shape[1])
    for n in range(first, last):
        _gather(indptr[n], indptr[n + 1], indices, data, a, x)
        _gather(indptr[n], indptr[n + 1], indices, data, b, y)
        total = 0.0
        for i in range(x.size):
            total += x[i] * y[i]
        out[n] = total


def _by_columns(
    kernel: Callable[..., None], indptr: Index, indices: Index, data: Array, a: Array, *others: Any
) -> Array:
    """Σ_n h_n xᵀ of as many columns as A has; each thread has columns of its own, so nothing is summed afterwards."""
    dim, width = a.shape
    out = np.empty((dim, width))
    count = min(threads_for(2.0 * PER_ENTRY * width * int(indptr[-1])), width)
    edges = [width * piece // count for piece in range(count + 1)]
    run_together(kernel, [(*piece, indptr, indices, data, a, *others, out) for piece in pairwise(edges)])
    return out


def loadings_pull(indptr: Index, indices: Index, data: Array, weights: Array, a: Array) -> Array:
    """Σ_n weights_n h_n (Aᵀh_n)ᵀ."""
    return _by_columns(_loadings_pull, indptr, indices, data, a, weights)


@_compiled
def _loadings_pull(
    first: int, last: int, indptr: Index, indices: Index, data: Array, a: Array, weights: Array, out: Array
) -> None:
    # summed apart and copied: threads that write to neighbours in memory wait for each other
    own, mine, x = a[:, first:last], np.zeros((a.shape[0], last - first)), np.empty(last - first)
    for n in range(indptr.size - 1):
        _gather(indptr[n], indptr[n + 1], indices, data, own, x)
        for i in range(x.size):
            x[i] *= weights[n]
        _scatter(indptr[n], indptr[n + 1], indices, data, x, mine)
    _put(mine, first, out)


def loadings_pull_pair(indptr: Index, indices: Index, data: Array, r: Array, a: Array, s: Array, b: Array) -> Array:
    """Σ_n h_n (r_n Aᵀh_n + s_n Bᵀh_n)ᵀ, in one pass over the rows."""
    return _by_columns(_loadings_pull_pair, indptr, indices, data, a, b, r, s)


@_compiled
def _loadings_pull_pair(
    first: int,
    last: int,
    indptr: Index,
    indices: Index,
    data: Array,
    a: Array,
    b: Array,
    r: Array,
    s: Array,
    out: Array,
) -> None:
    x, y, mine = np.empty(last - first), np.empty(last - first), np.zeros((a.shape[0], last - first))
    for n in range(indptr.size - 1):
        begin, end = indptr[n], indptr[n + 1]
        _gather(begin, end, indices, data, a[:, first:last], x)
        _gather(begin, end, indices, data, b[:, first:last], y)
        for i in range(x.size):
            x[i] = r[n] * x[i] + s[n] * y[i]
        _scatter(begin, end, indices, data, x, mine)
    _put(mine, first, out)


@njit(**INNER)
def _image(
    begin: int, end: int, indices: Index, data: Array, columns: Index, entries: Index, values: Array, v: Array
) -> None:
    """Add C h to the work vector v, for one row h and a factor C stored by columns."""
    for k in range(begin, end):
        j, h = indices[k], data[k]
        for p in range(columns[j], columns[j + 1]):
            v[entries[p]] += h * values[p]


@njit(**INNER)
def _forget(begin: int, end: int, indices: Index, columns: Index, entries: Index, v: Array) -> None:
    for k in range(begin, end):
        j = indices[k]
        for p in range(columns[j], columns[j + 1]):
            v[entries[p]] = 0.0


def factor_inner(
    indptr: Index, indices: Index, data: Array, columns: Index, entries: Index, a: Array, b: Array, height: int
) -> Array:
    """(A h_n)·(B h_n) for factors A and B with one pattern, stored by columns."""
    work = 3.0 * len(entries) / max(len(columns) - 1, 1)
    return _by_rows(_factor_inner, work, indptr, indices, data, columns, entries, a, b, height)


@_compiled
def _factor_inner(
    first: int,
    last: int,
    indptr: Index,
    indices: Index,
    data: Array,
    columns: Index,
    entries: Index,
    a: Array,
    b: Array,
    height: int,
    out: Array,
) -> None:
    v, w = np.zeros(height), np.zeros(height)
    for n in range(first, last):
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


def factor_pull(
    indptr: Index,
    indices: Index,
    data: Array,
    columns: Index,
    entries: Index,
    weights: Array,
    values: Array,
    height: int,
) -> Array:
    """The entries of Σ_t Σ_n weights_tn C_t h_n h_nᵀ on the pattern of the factors C_t, in their order."""
    work = 3.0 * len(entries) / max(len(columns) - 1, 1)
    shape = (values.shape[1],)
    return _by_sums(_factor_pull, work, shape, indptr, indices, data, columns, entries, weights, values, height)


@_compiled
def _factor_pull(
    first: int,
    last: int,
    indptr: Index,
    indices: Index,
    data: Array,
    columns: Index,
    entries: Index,
    weights: Array,
    values: Array,
    height: int,
    total: Array,
) -> None:
    v = np.zeros(height)
    for n in range(first, last):
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

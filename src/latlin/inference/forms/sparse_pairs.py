"""Sparse rows with a dense matrix, pair of entries by pair of entries: Σ_n nnz_n² operations instead of N·D².

Rows that are hardly sparse are left to BLAS; see `split_rows`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import gram

Index = NDArray[np.int64]
#: share of non-zeros from which a row counts as dense
DENSE_SHARE = 1.0 / 16.0


class SplitRows(NamedTuple):
    """Rows of a CSR matrix, the dense ones apart."""

    indptr: Index
    indices: Index
    data: Array
    thin: Index
    thick: Index
    block: Array


def split_rows(rows: sparse.csr_array) -> SplitRows:
    """Sparse rows as arrays, and the dense ones as one C-ordered block."""
    counts = np.diff(rows.indptr)
    dense = counts > DENSE_SHARE * rows.shape[1]
    thin, thick = np.flatnonzero(~dense), np.flatnonzero(dense)
    kept = rows[thin]
    block = np.ascontiguousarray(rows[thick].toarray()) if len(thick) else np.zeros((0, rows.shape[1]))
    return SplitRows(kept.indptr.astype(np.int64), kept.indices.astype(np.int64), kept.data, thin, thick, block)


def pair_gram(split: SplitRows, weights: Array) -> Array:
    """Upper triangle of Σ_n weights_n h_n h_nᵀ (nothing below it is meant)."""
    total = gram(split.block, weights[split.thick])
    _add_pairs(split.indptr, split.indices, split.data, weights[split.thin], total)
    return total


def pair_squares(split: SplitRows, matrix: Array) -> Array:
    """h_nᵀ A h_n of every row, for a symmetric A given by its upper triangle."""
    squares = np.empty(len(split.thin) + len(split.thick))
    squares[split.thin] = _row_squares(split.indptr, split.indices, split.data, matrix)
    if len(split.thick):
        image = blas.dsymm(1.0, matrix, split.block.T, lower=0)
        squares[split.thick] = np.einsum("dn,nd->n", image, split.block)
    return squares


@njit(cache=True)
def _add_pairs(indptr: Index, indices: Index, data: Array, weights: Array, total: Array) -> None:
    for n in range(len(weights)):
        for i in range(indptr[n], indptr[n + 1]):
            scaled, row = weights[n] * data[i], indices[i]
            for j in range(indptr[n], indptr[n + 1]):
                if indices[j] >= row:
                    total[row, indices[j]] += scaled * data[j]


@njit(cache=True)
def _row_squares(indptr: Index, indices: Index, data: Array, matrix: Array) -> Array:
    squares = np.zeros(len(indptr) - 1)
    for n in range(len(squares)):
        total = 0.0
        for i in range(indptr[n], indptr[n + 1]):
            here = indices[i]
            inner = 0.5 * data[i] * matrix[here, here]
            for j in range(indptr[n], i):
                there = indices[j]
                inner += data[j] * matrix[min(here, there), max(here, there)]
            total += 2.0 * data[i] * inner
        squares[n] = total
    return squares

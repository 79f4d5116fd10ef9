"""HᵀΓH for sparse rows H on a fixed pattern, and h_nᵀZh_n from a Z on that pattern: pair of non-zeros by pair.

Which entry a pair adds to is looked up once and kept, so that every new Γ costs one pass over the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics.arrays import Array
from latlin.numerics.sparse_cholesky import Analysis
from latlin.numerics.supernodes import entry_of

Index = NDArray[np.int64]


@dataclass(frozen=True)
class WeightedGram:
    """Sums over the rows of H on the entries of an `Analysis` whose pattern has that of HᵀH.

    Parameters
    ----------
    analysis : Analysis
    rows : csr_array of shape (n, dim)
        H.
    """

    analysis: Analysis
    rows: sparse.csr_array

    @cached_property
    def _indptr(self) -> Index:
        return self.rows.indptr.astype(np.int64)

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int32], Index]:
        """The entry of every pair of non-zeros of a row, and where the pairs of each row begin."""
        a, counts = self.analysis, np.diff(self._indptr)
        begin = np.concatenate([[0], np.cumsum(counts * (counts + 1) // 2)]).astype(np.int64)
        return entries_of_pairs(self._indptr, a.label[self.rows.indices], a.indptr, a.indices), begin

    def total(self, weights: Array) -> Array:
        """HᵀΓH on the entries."""
        found = np.zeros(len(self.analysis.indices))
        add_pairs(self._indptr, self.rows.data, *self._pairs, weights, found)
        return found

    def squares(self, values: Array) -> Array:
        """h_nᵀZh_n of every row."""
        return pair_squares(self._indptr, self.rows.data, *self._pairs, values)


@njit(cache=True)
def entries_of_pairs(indptr: Index, columns: Index, entry_indptr: Index, entry_indices: Index) -> NDArray[np.int32]:
    """For every row of H and every pair of its non-zeros (later, earlier or same), the entry of HᵀH that it adds to."""
    count = 0
    for n in range(len(indptr) - 1):
        k = indptr[n + 1] - indptr[n]
        count += k * (k + 1) // 2
    pairs = np.empty(count, np.int32)
    at = 0
    for n in range(len(indptr) - 1):
        for a in range(indptr[n], indptr[n + 1]):
            for b in range(indptr[n], a + 1):
                i, j = max(columns[a], columns[b]), min(columns[a], columns[b])
                pairs[at] = entry_of(entry_indptr, entry_indices, i, j)
                at += 1
    return pairs


@njit(cache=True)
def add_pairs(indptr: Index, data: Array, pairs: NDArray[np.int32], begin: Index, weights: Array, total: Array) -> None:
    """total ← total + Σ_n weights_n h_n h_nᵀ on the entries of its lower triangle."""
    for n in range(len(weights)):
        at = begin[n]
        for a in range(indptr[n], indptr[n + 1]):
            scaled = weights[n] * data[a]
            for b in range(indptr[n], a + 1):
                total[pairs[at]] += scaled * data[b]
                at += 1


@njit(cache=True, parallel=True)
def pair_squares(indptr: Index, data: Array, pairs: NDArray[np.int32], begin: Index, values: Array) -> Array:
    """h_nᵀZh_n of every row, for a symmetric Z given on the entries."""
    squares = np.empty(len(indptr) - 1)
    for n in prange(len(squares)):
        total, at = 0.0, begin[n]
        for a in range(indptr[n], indptr[n + 1]):
            inner = 0.0
            for b in range(indptr[n], a):
                inner += data[b] * values[pairs[at]]
                at += 1
            total += data[a] * (2.0 * inner + data[a] * values[pairs[at]])
            at += 1
        squares[n] = total
    return squares

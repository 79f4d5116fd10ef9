"""HᵀΓH for sparse rows H on a fixed pattern, and h_nᵀZh_n from a Z on that pattern: pair of non-zeros by pair.

Which entry a pair adds to is looked up once and kept, so that every new Γ costs one pass over the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics.arrays import Array
from latlin.numerics.elimination import entry_of
from latlin.numerics.sparse_cholesky import Analysis
from latlin.numerics.threads import run_together, share_out, threads_for

Index = NDArray[np.int64]
#: nanoseconds per pair of non-zeros
PAIR = 2.0


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
    def columns(self) -> sparse.csr_array:
        """Hᵀ."""
        return sparse.csr_array(self.rows.T)

    @cached_property
    def _indptr(self) -> Index:
        return self.rows.indptr.astype(np.int64)

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int32], Index]:
        """The entry of every pair of non-zeros of a row, and where the pairs of each row begin.

        They stay with the analysis, where rows of the same pattern find them.
        """
        a, counts = self.analysis, np.diff(self._indptr)
        kept = vars(a).get("_pairs_of_rows")
        if kept is not None and np.array_equal(kept[0], self._indptr) and np.array_equal(kept[1], self.rows.indices):
            return kept[2]
        begin = np.concatenate([[0], np.cumsum(counts * (counts + 1) // 2)]).astype(np.int64)
        found = entries_of_pairs(self._indptr, a.label[self.rows.indices], a.indptr, a.indices), begin
        vars(a)["_pairs_of_rows"] = (self._indptr, self.rows.indices, found)
        return found

    @property
    def _row_time(self) -> float:
        """Nanoseconds per row."""
        return PAIR * len(self._pairs[0]) / max(self.rows.shape[0], 1)

    def total(self, weights: Array) -> Array:
        """HᵀΓH on the entries."""
        entries, count = len(self.analysis.indices), self.rows.shape[0]
        # each thread has a sum of its own
        threads = max(1, min(threads_for(count * self._row_time), len(self._pairs[0]) // (4 * entries + 1)))
        edges = [count * part // threads for part in range(threads + 1)]
        totals = np.zeros((threads, entries))
        arrays = (self._indptr, self.rows.data, *self._pairs, weights)
        run_together(add_pairs, [(*edge, *arrays, totals[i]) for i, edge in enumerate(pairwise(edges))])
        return totals[0] if threads == 1 else totals.sum(axis=0)

    def squares(self, values: Array) -> Array:
        """h_nᵀZh_n of every row."""
        found = np.empty(self.rows.shape[0])
        share_out(pair_squares, len(found), self._row_time, self._indptr, self.rows.data, *self._pairs, values, found)
        return found


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


@njit(cache=True, nogil=True)
def add_pairs(
    first: int,
    last: int,
    indptr: Index,
    data: Array,
    pairs: NDArray[np.int32],
    begin: Index,
    weights: Array,
    total: Array,
) -> None:
    """total ← total + Σ_n weights_n h_n h_nᵀ over the rows first … last − 1, on the entries of its lower triangle."""
    for n in range(first, last):
        at = begin[n]
        for a in range(indptr[n], indptr[n + 1]):
            scaled = weights[n] * data[a]
            for b in range(indptr[n], a + 1):
                total[pairs[at]] += scaled * data[b]
                at += 1


@njit(cache=True, nogil=True)
def pair_squares(
    first: int,
    last: int,
    indptr: Index,
    data: Array,
    pairs: NDArray[np.int32],
    begin: Index,
    values: Array,
    found: Array,
) -> None:
    """h_nᵀZh_n of the rows first … last − 1, for a symmetric Z given on the entries."""
    for n in range(first, last):
        total, at = 0.0, begin[n]
        for a in range(indptr[n], indptr[n + 1]):
            inner = 0.0
            for b in range(indptr[n], a):
                inner += data[b] * values[pairs[at]]
                at += 1
            total += data[a] * (2.0 * inner + data[a] * values[pairs[at]])
            at += 1
        found[n] = total

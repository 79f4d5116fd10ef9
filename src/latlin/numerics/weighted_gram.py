"""HᵀΓH for sparse rows H on a fixed pattern, and h_nᵀZh_n from a Z on that pattern: pair of non-zeros by pair.

Which entry a pair adds to is looked up once and kept, so that every new Γ costs one pass over the pairs. Rows with
non-zeros in the same columns, such as the members of a group, share what was looked up.
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
#: rows after which it is clear whether rows are alike
TRIED = 20_000


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
        a = self.analysis
        if self.looked_up:
            return vars(a)["_pairs_of_rows"][2]
        first = alike_rows(self.rows)
        begin = np.empty(len(first), np.int64)
        pairs = entries_of_pairs(self._indptr, self.rows.indices, a.label, a.indptr, a.indices, first, begin)
        vars(a)["_pairs_of_rows"] = (self._indptr, self.rows.indices, (pairs, begin))
        return pairs, begin

    @cached_property
    def _count(self) -> int:
        """Pairs of all rows."""
        counts = np.diff(self._indptr)
        return int(np.sum(counts * (counts + 1) // 2))

    @property
    def looked_up(self) -> bool:
        """Whether the entries of the pairs of rows with this pattern are known already."""
        kept = vars(self.analysis).get("_pairs_of_rows")
        if kept is None or len(kept[1]) != self.rows.nnz:
            return False
        return np.array_equal(kept[0], self.rows.indptr) and np.array_equal(kept[1], self.rows.indices)

    @property
    def _row_time(self) -> float:
        """Nanoseconds per row."""
        return PAIR * self._count / max(self.rows.shape[0], 1)

    def total(self, weights: Array) -> Array:
        """HᵀΓH on the entries, not to be changed: the last one is kept with its weights."""
        known: tuple[Array, Array] | None = vars(self).get("_last")
        if known is None or not np.array_equal(known[0], weights):
            known = vars(self)["_last"] = (weights.copy(), self._total(weights))
            known[1].setflags(write=False)
        return known[1]

    def _total(self, weights: Array) -> Array:
        entries, count = len(self.analysis.indices), self.rows.shape[0]
        # each thread has a sum of its own
        threads = max(1, min(threads_for(count * self._row_time), self._count // (4 * entries + 1)))
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


def alike_rows(rows: sparse.csr_array) -> Index:
    """For every row the first one with non-zeros in the same columns; itself where hardly any rows are alike."""
    return _alike_rows(rows.indptr, rows.indices)


@njit(cache=True)
def _alike_rows(indptr: NDArray[np.integer], columns: NDArray[np.integer]) -> Index:
    count = len(indptr) - 1
    first, kinds, size = np.arange(count), 0, 16
    while size < 2 * count:
        size *= 2
    table = np.full(size, -1)
    for n in range(count):
        key = np.uint64(indptr[n + 1] - indptr[n])
        for a in range(indptr[n], indptr[n + 1]):
            key = (key ^ np.uint64(columns[a])) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        at = np.int64(key & np.uint64(size - 1))
        while table[at] >= 0 and not _same_columns(table[at], n, indptr, columns):
            at = (at + 1) & (size - 1)
        if table[at] < 0:
            table[at] = n
            kinds += 1
        first[n] = table[at]
        if n == TRIED and kinds > 0.9 * n:
            return np.arange(count)
    return first


@njit(cache=True)
def _same_columns(one: int, other: int, indptr: NDArray[np.integer], columns: NDArray[np.integer]) -> bool:
    length, a = indptr[one + 1] - indptr[one], 0
    if length != indptr[other + 1] - indptr[other]:
        return False
    while a < length and columns[indptr[one] + a] == columns[indptr[other] + a]:
        a += 1
    return bool(a == length)


@njit(cache=True)
def entries_of_pairs(
    indptr: Index, columns: NDArray[np.integer], label: Index, entry_indptr: Index, entry_indices: Index, first: Index,
    begin: Index,
) -> NDArray[np.int32]:  # fmt: skip
    """For every pair of non-zeros (later, earlier or same) of the rows of H, the entry of HᵀH that it adds to.

    `first` says which rows stand for others; where the pairs of every row begin is put into `begin`.
    """
    count = 0
    for n in range(len(indptr) - 1):
        begin[n] = begin[first[n]] if first[n] < n else count
        if first[n] == n:
            k = indptr[n + 1] - indptr[n]
            count += k * (k + 1) // 2
    pairs = np.empty(count, np.int32)
    at = 0
    for n in range(len(indptr) - 1):
        if first[n] < n:
            continue
        for a in range(indptr[n], indptr[n + 1]):
            for b in range(indptr[n], a + 1):
                one, other = label[columns[a]], label[columns[b]]
                i, j = max(one, other), min(one, other)
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

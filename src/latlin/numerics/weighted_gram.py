"""HᵀΓH for sparse rows H on a fixed pattern, and h_nᵀZh_n from a Z on that pattern: pair of non-zeros by pair.

Which entry a pair adds to is looked up once and kept, so that every new Γ costs one pass over the pairs. Rows with
non-zeros in the same columns, such as the members of a group, share what was looked up. Columns that every row has,
such as an intercept and covariates, need no look-up: their part is XᵀΓX. Rows of one non-zero add to the diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas

from latlin.numerics.arrays import Array, empty_array
from latlin.numerics.elimination import entry_of, find_entries
from latlin.numerics.threads import INNER, njit, run_together, share_out, threads_for

Index = NDArray[np.int64]
#: nanoseconds per pair of non-zeros
PAIR = 2.0
#: rows from which on columns that all of them have are kept apart
FEWEST = 32
#: rows after which it is clear whether rows are alike
TRIED = 20_000
#: numbers of two vectors that are compared before all are
SOME = 16


class ThinRows(NamedTuple):
    """Rows taken apart: the columns that all of them have, and the few other non-zeros of each.

    Attributes
    ----------
    full : ndarray of int
        The columns without a zero, p of them.
    X : ndarray of shape (n, p)
        Their numbers.
    indptr, columns, data : ndarray
        Of the other non-zeros, row by row.
    """

    full: Index
    X: Array
    indptr: Index
    columns: NDArray[np.integer]
    data: Array

    @classmethod
    def of(cls, rows: sparse.csr_array) -> ThinRows:
        n, indptr = rows.shape[0], rows.indptr.astype(np.int64)
        counts = np.bincount(rows.indices, minlength=rows.shape[1]) if rows.nnz else np.zeros(rows.shape[1], int)
        everywhere = (counts == n) & (n >= FEWEST)
        full, mask = np.flatnonzero(everywhere), everywhere[rows.indices]
        # a column may have as many numbers as there are rows and still be missing in some
        within = np.concatenate([[0], np.cumsum(mask)])[indptr]
        if len(full) and np.all(np.diff(within) == len(full)):
            found = rows.indices[mask].reshape(n, -1)
            if np.all(found == found[0]):
                X = rows.data[mask].reshape(n, -1)
                thin = indptr - within
                return cls(found[0].astype(np.int64), X, thin, rows.indices[~mask], rows.data[~mask])
        return cls(np.zeros(0, np.int64), np.zeros((n, 0)), indptr, rows.indices, rows.data)


class Places(NamedTuple):
    """Which entry every pair of non-zeros adds to.

    Attributes
    ----------
    pairs, begin : ndarray
        Those of pairs of thin columns, and where the pairs of each row begin.
    border : ndarray of shape (dim, p)
        Those of a thin column and a full one.
    corner : ndarray of shape (p, p)
        Those of two full ones.
    """

    pairs: NDArray[np.uint32]
    begin: Index
    border: NDArray[np.uint32]
    corner: NDArray[np.uint32]


class EntryPattern(Protocol):
    """Where a symmetric matrix may be non-zero, as an `Analysis` says it: its lower triangle in some order."""

    @property
    def label(self) -> Index:
        """The place of every coordinate in the order."""
        ...

    @property
    def indptr(self) -> Index:
        """Where the columns of the lower triangle begin."""
        ...

    @property
    def indices(self) -> Index:
        """The rows of its entries, rising in each column."""
        ...


class SingleRows(NamedTuple):
    """Rows of one non-zero each: the entry of the diagonal that each adds to, and the square of its number."""

    places: Index
    squares: Array

    @classmethod
    def of(cls, rows: sparse.csr_array, pattern: EntryPattern) -> SingleRows | None:
        """None where some row has none or several."""
        if not has_single_entries(rows):
            return None
        at = pattern.label[rows.indices]
        return cls(find_entries(pattern.indptr, pattern.indices, at, at), rows.data * rows.data)


def has_single_entries(rows: sparse.csr_array) -> bool:
    """Whether every row has one non-zero."""
    return rows.nnz == rows.shape[0] and bool(np.all(np.diff(rows.indptr) == 1))


@dataclass(frozen=True)
class WeightedGram:
    """Sums over the rows of H on the entries of a pattern that has that of HᵀH.

    Parameters
    ----------
    analysis : Analysis, or another EntryPattern
    rows : csr_array of shape (n, dim)
        H.
    """

    analysis: Any
    rows: sparse.csr_array

    @cached_property
    def columns(self) -> sparse.csr_array:
        """Hᵀ."""
        return sparse.csr_array(self.rows.T)

    @cached_property
    def single(self) -> SingleRows | None:
        """The rows, where each has one non-zero."""
        return SingleRows.of(self.rows, self.analysis)

    @cached_property
    def _thin(self) -> ThinRows:
        """The rows taken apart; those of the last rows stay with the analysis too."""
        kept = vars(self.analysis).get("_last_thin")
        if kept is None or not _same_memory(kept[0], self.rows):
            kept = vars(self.analysis)["_last_thin"] = (self.rows, ThinRows.of(self.rows))
        return kept[1]

    @cached_property
    def _places(self) -> Places:
        """The entries of the pairs; they stay with the analysis, where rows of the same pattern find them."""
        a, thin = self.analysis, self._thin
        if self.looked_up:
            return vars(a)["_pairs_of_rows"][2]
        first = _alike_rows(thin.indptr.astype(np.int64, copy=False), thin.columns)
        begin = np.empty(len(first), np.int64)
        pattern = (a.label, a.indptr, a.indices)
        pairs = entries_of_pairs(thin.indptr, thin.columns, *pattern, first, begin)
        seen = np.bincount(thin.columns, minlength=self.rows.shape[1]) > 0
        border = entries_with(np.flatnonzero(seen), thin.full, *pattern, self.rows.shape[1])
        corner = entries_with(thin.full, thin.full, *pattern, self.rows.shape[1])[thin.full]
        places = Places(pairs, begin, border, corner)
        vars(a)["_pairs_of_rows"] = (self.rows.indptr, self.rows.indices, places)
        return places

    @cached_property
    def _count(self) -> int:
        """Pairs of all rows that are looked up."""
        counts = np.diff(self._thin.indptr)
        return int(np.sum(counts * (counts + 1) // 2 + counts * len(self._thin.full)))

    @property
    def looked_up(self) -> bool:
        """Whether the entries of the pairs of rows with this pattern are known already, or quickly found."""
        if self.single is not None:
            return True
        kept = vars(self.analysis).get("_pairs_of_rows")
        if kept is None or len(kept[1]) != self.rows.nnz:
            return False
        return np.array_equal(kept[0], self.rows.indptr) and np.array_equal(kept[1], self.rows.indices)

    @property
    def _row_time(self) -> float:
        """Nanoseconds per row."""
        return PAIR * self._count / max(self.rows.shape[0], 1)

    def added(self, entries: Array, weights: Array) -> Array:
        """Some entries plus HᵀΓH, in a new array."""
        if self.single is None:
            return entries + self.total(weights)
        total = empty_array(len(entries))
        np.copyto(total, entries)
        add_singles(*self.single, weights, total)
        return total

    def total(self, weights: Array) -> Array:
        """HᵀΓH on the entries, not to be changed: the last one is kept with its weights."""
        if self.single is not None:
            return self.added(np.zeros(len(self.analysis.indices)), weights)
        known: tuple[Array, Array] | None = vars(self).get("_last")
        if known is None or not same_numbers(known[0], weights):
            known = vars(self)["_last"] = (weights.copy(), self._total(weights))
            known[1].setflags(write=False)
        return known[1]

    def _total(self, weights: Array) -> Array:
        entries, count, thin = len(self.analysis.indices), self.rows.shape[0], self._thin
        # each thread has a sum of its own
        threads = max(1, min(threads_for(count * self._row_time), self._count // (4 * entries + 1)))
        edges = [count * part // threads for part in range(threads + 1)]
        totals = np.zeros((threads, entries))
        arrays = (thin.indptr, thin.columns, thin.data, thin.X, *self._places[:3], weights)
        run_together(add_pairs, [(*edge, *arrays, totals[i]) for i, edge in enumerate(pairwise(edges))])
        total = totals[0] if threads == 1 else totals.sum(axis=0)
        if len(thin.full):
            # XᵀΓX; an entry off the diagonal is set twice, to the same sum
            total[self._places.corner] += blas.dgemm(1.0, thin.X.T * weights, thin.X.T, trans_b=True)
        return total

    def squares(self, values: Array) -> Array:
        """h_nᵀZh_n of every row."""
        if self.single is not None:
            found = np.take(values, self.single.places, out=empty_array(self.rows.shape[0]), mode="clip")
            found *= self.single.squares
            return found
        found, thin, places = np.empty(self.rows.shape[0]), self._thin, self._places
        corner = values[places.corner]
        arrays = (thin.indptr, thin.columns, thin.data, thin.X, *places[:3], values, corner, found)
        share_out(pair_squares, len(found), self._row_time, *arrays)
        return found


def same_numbers(one: Array, other: Array) -> bool:
    """Whether two vectors are equal; of those that are not a few numbers mostly tell."""
    some = slice(None, None, max(1, len(one) // SOME))
    return len(one) == len(other) and np.array_equal(one[some], other[some]) and np.array_equal(one, other)


def _same_memory(one: sparse.csr_array, other: sparse.csr_array) -> bool:
    """Whether two matrices have their numbers and indices in the same places of memory."""
    pairs = [(one.data, other.data), (one.indices, other.indices), (one.indptr, other.indptr)]
    return all(len(a) == len(b) and a.ctypes.data == b.ctypes.data for a, b in pairs)


def alike_rows(rows: sparse.csr_array) -> Index:
    """For every row the first one with non-zeros in the same columns; itself where hardly any rows are alike."""
    return _alike_rows(rows.indptr.astype(np.int64, copy=False), rows.indices)


@njit(cache=True)
def _alike_rows(indptr: NDArray[np.integer], columns: NDArray[np.integer]) -> Index:
    count = len(indptr) - 1
    first, kinds, size = np.empty(count, np.int64), 0, 16
    for n in range(count):
        first[n] = n
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
            for k in range(n):
                first[k] = k
            first[n] = n
            break
    return first


@njit(**INNER)
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
) -> NDArray[np.uint32]:  # fmt: skip
    """For every pair of non-zeros (later, earlier or same) of the rows of H, the entry of HᵀH that it adds to.

    `first` says which rows stand for others; where the pairs of every row begin is put into `begin`.
    """
    count = 0
    for n in range(len(indptr) - 1):
        begin[n] = begin[first[n]] if first[n] < n else count
        if first[n] == n:
            k = indptr[n + 1] - indptr[n]
            count += k * (k + 1) // 2
    pairs = np.empty(count, np.uint32)
    at = 0
    for n in range(len(indptr) - 1):
        if first[n] < n:
            continue
        for a in range(indptr[n], indptr[n + 1]):
            for b in range(indptr[n], a + 1):
                one, other = label[columns[a]], label[columns[b]]
                pairs[at] = entry_of(entry_indptr, entry_indices, max(one, other), min(one, other))
                at += 1
    return pairs


@njit(cache=True)
def entries_with(
    columns: Index, full: Index, label: Index, entry_indptr: Index, entry_indices: Index, dim: int
) -> NDArray[np.uint32]:
    """The entries of some columns with each of the full ones."""
    found = np.zeros((dim, len(full)), np.uint32)
    for c in columns:
        for j in range(len(full)):
            one, other = label[c], label[full[j]]
            found[c, j] = entry_of(entry_indptr, entry_indices, max(one, other), min(one, other))
    return found


@njit(cache=True, nogil=True)
def add_singles(places: Index, squares: Array, weights: Array, total: Array) -> None:
    """total ← total + Σ_n weights_n h_n h_nᵀ for rows of one non-zero."""
    for n in range(len(places)):
        total[places[n]] += squares[n] * weights[n]


@njit(cache=True, nogil=True)
def add_pairs(
    first: int,
    last: int,
    indptr: Index,
    columns: NDArray[np.integer],
    data: Array,
    X: Array,
    pairs: NDArray[np.uint32],
    begin: Index,
    border: NDArray[np.uint32],
    weights: Array,
    total: Array,
) -> None:
    """total ← total + Σ_n weights_n h_n h_nᵀ over the rows first … last − 1, on the entries of its lower triangle.

    Pairs of two full columns are left out.
    """
    for n in range(first, last):
        at = begin[n]
        for a in range(indptr[n], indptr[n + 1]):
            scaled, c = weights[n] * data[a], columns[a]
            for j in range(X.shape[1]):
                total[border[c, j]] += scaled * X[n, j]
            for b in range(indptr[n], a + 1):
                total[pairs[at]] += scaled * data[b]
                at += 1


@njit(cache=True, nogil=True)
def pair_squares(
    first: int,
    last: int,
    indptr: Index,
    columns: NDArray[np.integer],
    data: Array,
    X: Array,
    pairs: NDArray[np.uint32],
    begin: Index,
    border: NDArray[np.uint32],
    values: Array,
    corner: Array,
    found: Array,
) -> None:
    """h_nᵀZh_n of the rows first … last − 1, Z symmetric, given on the entries; `corner` is that of full columns."""
    p = X.shape[1]
    for n in range(first, last):
        total, at = 0.0, begin[n]
        for j in range(p):
            inner = 0.0
            for k in range(j):
                inner += corner[j, k] * X[n, k]
            total += X[n, j] * (2.0 * inner + corner[j, j] * X[n, j])
        for a in range(indptr[n], indptr[n + 1]):
            inner, c = 0.0, columns[a]
            for j in range(p):
                inner += X[n, j] * values[border[c, j]]
            for b in range(indptr[n], a):
                inner += data[b] * values[pairs[at]]
                at += 1
            total += data[a] * (2.0 * inner + data[a] * values[pairs[at]])
            at += 1
        found[n] = total

"""The symbolic part of a sparse Cholesky factorisation, compiled: elimination trees, supernodes, places of entries.

A supernode is a run of columns of the factor with the same rows below them; see `latlin.numerics.supernodes`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.threads import INNER, njit

Index = NDArray[np.int64]
#: a pivot below this share of the diagonal entry is rounding: the matrix is singular
ROUNDING = 1e-13


# --- What Numba's own sorts and assignments of slices do; these take the compiler twenty times as long.


@njit(**INNER)
def copy_part(numbers: Index, count: int, out: Index) -> None:
    """The first `count` numbers into the beginning of others."""
    for k in range(count):
        out[k] = numbers[k]


@njit(**INNER)
def sort_part(numbers: Index, others: Index, begin: int, end: int) -> None:
    """Sort the numbers from `begin` to `end` (Shell 1959) and move `others`, which may be the same, along with them."""
    gap = 1
    while 3 * gap < end - begin:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(begin + gap, end):
            number, other, at = numbers[k], others[k], k
            while at >= begin + gap and numbers[at - gap] > number:
                numbers[at], others[at] = numbers[at - gap], others[at - gap]
                at -= gap
            numbers[at], others[at] = number, other
        gap //= 3


# --- Trees, runs and places.


@njit(cache=True)
def neighbours(indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> tuple[Index, Index]:
    """A symmetric pattern by rows without its diagonal."""
    n = len(indptr) - 1
    begin, others, free = np.empty(n + 1, np.int64), np.empty(len(indices), np.int64), 0
    begin[0] = 0
    for i in range(n):
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] != i:
                others[free] = indices[k]
                free += 1
        begin[i + 1] = free
    return begin, others[:free].copy()


@njit(cache=True)
def lower_columns(indptr: Index, indices: Index, order: Index, label: Index) -> tuple[Index, Index]:
    """The lower triangle by columns, diagonal first, rows sorted, of a pattern in some order; from its neighbours."""
    n = len(order)
    begin, rows, free = np.empty(n + 1, np.int64), np.empty(n + len(indices) // 2, np.int64), 0
    begin[0] = 0
    for j in range(n):
        rows[free] = j
        free += 1
        ascending = True
        for k in range(indptr[order[j]], indptr[order[j] + 1]):
            i = label[indices[k]]
            if i > j:
                ascending &= i > rows[free - 1]
                rows[free] = i
                free += 1
        if not ascending:
            sort_part(rows, rows, begin[j], free)
        begin[j + 1] = free
    return begin, rows[:free].copy()


@njit(cache=True)
def elimination_tree(indptr: Index, indices: Index, most: int) -> tuple[Index, Index]:
    """Parents (−1 at roots) and numbers of entries of the columns of L, from the full symmetric pattern.

    Counting ends as soon as there are more than `most` entries.
    """
    n = len(indptr) - 1
    parent, mark, count = np.full(n, -1), np.full(n, -1), np.ones(n, np.int64)
    total = n
    for i in range(n):
        mark[i] = i
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            while j < i and mark[j] != i:
                if parent[j] < 0:
                    parent[j] = i
                count[j] += 1
                total += 1
                mark[j] = i
                j = parent[j]
        if total > most:
            break
    return parent, count


@njit(cache=True)
def postorder(parent: Index) -> Index:
    """The nodes of a forest, children before parents and subtrees together; a chain stays as it is."""
    n = len(parent)
    head, after = np.full(n, -1), np.full(n, -1)
    for i in range(n - 1, -1, -1):
        if parent[i] >= 0:
            after[i] = head[parent[i]]
            head[parent[i]] = i
    order, done = np.empty(n, np.int64), 0
    stack = np.empty(n, np.int64)
    for root in range(n):
        if parent[root] >= 0:
            continue
        stack[0], depth = root, 1
        while depth > 0:
            i = stack[depth - 1]
            child = head[i]
            if child < 0:
                order[done] = i
                done += 1
                depth -= 1
            else:
                head[i] = after[child]
                stack[depth] = child
                depth += 1
    return order


@njit(cache=True)
def runs_of_columns(parent: Index, count: Index, slack: float) -> Index:
    """First columns of the supernodes; a run may hold a share `slack` of zeros if that makes it longer."""
    n = len(parent)
    first, filled, height = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    runs = 0
    for j in range(n):
        first[runs], filled[runs], height[runs] = j, count[j], count[j]
        # the run before this one joins it where its last column has the first of this one as its parent
        while runs > 0 and parent[first[runs] - 1] == first[runs]:
            width, tall = j + 1 - first[runs - 1], first[runs] - first[runs - 1] + height[runs]
            entries, true = width * tall - width * (width - 1) // 2, filled[runs - 1] + filled[runs]
            if entries - true > slack * entries:
                break
            runs -= 1
            filled[runs], height[runs] = true, tall
        runs += 1
    first[runs] = n
    return first[: runs + 1].copy()


@njit(cache=True)
def rows_of_runs(first: Index, indptr: Index, indices: Index) -> tuple[Index, Index, Index]:
    """Rows of every supernode, its own columns first; where they begin; and the supernode of each column."""
    n, runs = len(indptr) - 1, len(first) - 1
    of = np.empty(n, np.int64)
    for s in range(runs):
        for j in range(first[s], first[s + 1]):
            of[j] = s
    head, after = np.full(runs, -1), np.full(runs, -1)
    mark = np.full(n, -1)
    begin = np.zeros(runs + 1, np.int64)
    rows = np.empty(max(2 * len(indices), 16), np.int64)
    free = 0
    for s in range(runs):
        a, b = first[s], first[s + 1]
        while free + n > len(rows):
            longer = np.empty(2 * len(rows), np.int64)
            copy_part(rows, free, longer)
            rows = longer
        for j in range(a, b):
            rows[free], mark[j] = j, s
            free += 1
        below = free
        for j in range(a, b):
            for k in range(indptr[j], indptr[j + 1]):
                free = _note(indices[k], b, s, mark, rows, free)
        child = head[s]
        while child >= 0:
            for k in range(begin[child] + first[child + 1] - first[child], begin[child + 1]):
                free = _note(rows[k], b, s, mark, rows, free)
            child = after[child]
        sort_part(rows, rows, below, free)
        begin[s + 1] = free
        if free > below:
            up = of[rows[below]]
            after[s], head[up] = head[up], s
    return rows[:free].copy(), begin, of


@njit(**INNER)
def _note(i: int, b: int, s: int, mark: Index, rows: Index, free: int) -> int:
    if i >= b and mark[i] != s:
        mark[i] = s
        rows[free] = i
        return free + 1
    return free


@njit(cache=True)
def places_of(indptr: Index, indices: Index, first: Index, begin: Index, rows: Index, place: Index, of: Index) -> Index:
    """Where the entries (i, j), i ≥ j, of a pattern by columns stand in the panels; −1 where there is no such place."""
    found = np.empty(len(indices), np.int64)
    for j in range(len(indptr) - 1):
        s = of[j]
        height = begin[s + 1] - begin[s]
        base = place[s] + (j - first[s]) * height
        for k in range(indptr[j], indptr[j + 1]):
            at = row_in(indices[k], s, first, begin, rows)
            found[k] = base + at if at >= 0 else -1
    return found


@njit(**INNER)
def row_in(i: int, s: int, first: Index, begin: Index, rows: Index) -> int:
    """Which row of supernode s is row i of the matrix, or −1."""
    if i < first[s + 1]:
        return i - first[s]
    low, high = begin[s] + first[s + 1] - first[s], begin[s + 1]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < i:
            low = middle + 1
        else:
            high = middle
    return low - begin[s] if low < begin[s + 1] and rows[low] == i else -1


@njit(cache=True)
def find_entries(indptr: Index, indices: Index, i: Index, j: Index) -> Index:
    """Where the pairs (i, j), i ≥ j, stand in a pattern by columns with sorted rows; −1 for those outside it."""
    found = np.empty(len(i), np.int64)
    for k in range(len(i)):
        found[k] = entry_of(indptr, indices, i[k], j[k])
    return found


@njit(cache=True)
def lower_places(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], label: Index, begin: Index, rows: Index
) -> tuple[NDArray[np.bool_], Index]:
    """Which entries of a symmetric matrix by rows are in the lower triangle of an order, and where in its pattern."""
    lower, places, free = np.zeros(len(indices), np.bool_), np.empty(len(indices), np.int64), 0
    for n in range(len(indptr) - 1):
        for k in range(indptr[n], indptr[n + 1]):
            i, j = label[n], label[indices[k]]
            if i >= j:
                lower[k] = True
                places[free] = entry_of(begin, rows, i, j)
                free += 1
    return lower, places[:free].copy()


@njit(cache=True)
def add_lower(lower: NDArray[np.bool_], places: Index, data: NDArray[np.float64], entries: NDArray[np.float64]) -> None:
    """Add the numbers of the lower triangle to their entries; both from `lower_places`."""
    free = 0
    for k in range(len(data)):
        if lower[k]:
            entries[places[free]] += data[k]
            free += 1


@njit(cache=True)
def times_symmetric(
    indptr: Index, indices: Index, order: Index, values: NDArray[np.float64], v: NDArray[np.float64],
    found: NDArray[np.float64],
) -> None:  # fmt: skip
    """found ← found + Mv for a symmetric M by the columns of its lower triangle, the diagonal first, in some order."""
    for j in range(len(order)):
        here = order[j]
        total = values[indptr[j]] * v[here]
        for k in range(indptr[j] + 1, indptr[j + 1]):
            there = order[indices[k]]
            found[there] += values[k] * v[here]
            total += values[k] * v[there]
        found[here] += total


@njit(**INNER)
def entry_of(indptr: Index, indices: Index, i: int, j: int) -> int:
    low, high = indptr[j], indptr[j + 1]
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < i:
            low = middle + 1
        else:
            high = middle
    return low if low < indptr[j + 1] and indices[low] == i else -1

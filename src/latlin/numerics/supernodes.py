"""The compiled loops of a sparse Cholesky factorisation by supernodes: its symbolic analysis, factor, inverse, solves.

A supernode is a run of columns of L with the same rows below them. It is stored as one dense column-major panel, its
own triangle on top, so that everything with many entries is a product of BLAS; small panels are plain loops. Panels
are parts of one array: supernode s has columns first[s] … first[s+1]−1, rows[begin[s]:begin[s+1]] and its panel at
place[s].
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.routines import (
    Desk,
    factorise_lower,
    invert_lower,
    minus_symmetric_times,
    solve_right,
    subtract_transposed_times,
    times_transposed,
)

Index = NDArray[np.int64]
#: multiplications from which on a product is left to BLAS
WORTH = 4096
#: a pivot below this share of the diagonal entry is rounding: the matrix is singular
ROUNDING = 1e-13


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
        of[first[s] : first[s + 1]] = s
    head, after = np.full(runs, -1), np.full(runs, -1)
    mark = np.full(n, -1)
    begin = np.zeros(runs + 1, np.int64)
    rows = np.empty(max(2 * len(indices), 16), np.int64)
    free = 0
    for s in range(runs):
        a, b = first[s], first[s + 1]
        while free + n > len(rows):
            longer = np.empty(2 * len(rows), np.int64)
            longer[:free] = rows[:free]
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
        rows[below:free].sort()
        begin[s + 1] = free
        if free > below:
            up = of[rows[below]]
            after[s], head[up] = head[up], s
    return rows[:free].copy(), begin, of


@njit(cache=True, inline="always")
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


@njit(cache=True)
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
def factorise(
    panels: Array, diagonal: Array, first: Index, begin: Index, rows: Index, place: Index, of: Index,
    routines: Index, d: Desk, buffer: Array,
) -> int:  # fmt: skip
    """The panels of A ← those of L; returns the first column without a positive pivot, or −1."""
    runs, n = len(first) - 1, len(of)
    head, after, reached = np.full(runs, -1), np.full(runs, -1), np.zeros(runs, np.int64)
    where = np.zeros(n, np.int64)
    for s in range(runs):
        width, height = first[s + 1] - first[s], begin[s + 1] - begin[s]
        for k in range(height):
            where[rows[begin[s] + k]] = k
        below = head[s]
        while below >= 0:
            following = after[below]
            stop = _subtract(below, s, panels, first, begin, rows, place, where, reached[below], routines, d, buffer)
            if stop < begin[below + 1] - begin[below]:
                up = of[rows[begin[below] + stop]]
                after[below], head[up] = head[up], below
            reached[below] = stop
            below = following
        stopped = _factorise_panel(panels, place[s], width, height, routines, d)
        for c in range(width):
            pivot = panels[place[s] + c * (height + 1)]
            if c == stopped or not pivot * pivot > ROUNDING * diagonal[first[s] + c]:
                return first[s] + c
        if height > width:
            reached[s] = width
            up = of[rows[begin[s] + width]]
            after[s], head[up] = head[up], s
    return -1


@njit(cache=True)
def _subtract(
    below: int, s: int, panels: Array, first: Index, begin: Index, rows: Index, place: Index, where: Index,
    start: int, routines: Index, d: Desk, buffer: Array,
) -> int:  # fmt: skip
    """Take the share of supernode `below` from the panel of s; returns its first row beyond the columns of s."""
    own, height = begin[s + 1] - begin[s], begin[below + 1] - begin[below]
    width = first[below + 1] - first[below]
    stop = start
    while stop < height and rows[begin[below] + stop] < first[s + 1]:
        stop += 1
    tall, wide, base = height - start, stop - start, place[below]
    if tall * wide * width < WORTH:
        for c in range(wide):
            target = place[s] + (rows[begin[below] + start + c] - first[s]) * own
            for k in range(width):
                column = base + k * height + start
                factor = panels[column + c]
                for r in range(c, tall):
                    panels[target + where[rows[begin[below] + start + r]]] -= factor * panels[column + r]
        return stop
    source = panels.ctypes.data + 8 * (base + start)
    times_transposed(routines, d, tall, wide, width, source, source, height, buffer.ctypes.data)
    for c in range(wide):
        target = place[s] + (rows[begin[below] + start + c] - first[s]) * own
        for r in range(c, tall):
            panels[target + where[rows[begin[below] + start + r]]] -= buffer[c * tall + r]
    return stop


@njit(cache=True)
def _factorise_panel(panels: Array, base: int, width: int, height: int, routines: Index, d: Desk) -> int:
    """L in the place of a panel; returns the column without a positive pivot, or −1."""
    if width == 1:
        if not panels[base] > 0.0:
            return 0
        root = np.sqrt(panels[base])
        panels[base] = root
        for r in range(base + 1, base + height):
            panels[r] /= root
        return -1
    address = panels.ctypes.data + 8 * base
    stopped = factorise_lower(routines, d, width, address, height)
    if stopped < 0 and height > width:
        solve_right(routines, d, height - width, width, address, height, address + 8 * width, height, True)
    return stopped


@njit(cache=True)
def invert(
    panels: Array, inverse: Array, first: Index, begin: Index, rows: Index, place: Index, of: Index,
    routines: Index, d: Desk, square: Array, turned: Array,
) -> None:  # fmt: skip
    """Entries of A⁻¹ on the pattern of L, from the last supernode to the first (Takahashi 1973; Rue and Held 2005).

    With Y = L_RJ L_JJ⁻¹: Z_RJ = −Z_RR Y and Z_JJ = (L_JJ L_JJᵀ)⁻¹ − YᵀZ_RJ; all pairs of R are on the pattern.
    """
    for s in range(len(first) - 2, -1, -1):
        width, height, base = first[s + 1] - first[s], begin[s + 1] - begin[s], place[s]
        tall = height - width
        if tall > 0:
            _gather(s, tall, inverse, first, begin, rows, place, of, square)
        if width == 1:
            _invert_column(panels, inverse, base, tall, square)
            continue
        for k in range(base, base + width * height):
            inverse[k] = panels[k]
        address, own = inverse.ctypes.data + 8 * base, turned.ctypes.data
        invert_lower(routines, d, width, address, height)
        if tall == 0:
            continue
        for c in range(width):
            for r in range(tall):
                turned[c * tall + r] = panels[base + c * height + width + r]
        solve_right(routines, d, tall, width, panels.ctypes.data + 8 * base, height, own, tall, False)
        minus_symmetric_times(routines, d, tall, width, square.ctypes.data, own, address + 8 * width, height)
        subtract_transposed_times(routines, d, width, tall, own, tall, address + 8 * width, address, height)


@njit(cache=True)
def _gather(
    s: int, tall: int, inverse: Array, first: Index, begin: Index, rows: Index, place: Index, of: Index, square: Array
) -> None:
    """The lower triangle of Z_RR, R the rows of supernode s below its own."""
    start = begin[s + 1] - tall
    c = 0
    while c < tall:
        t = of[rows[start + c]]
        height, stop = begin[t + 1] - begin[t], first[t + 1]
        ahead = begin[t] + stop - first[t]
        # the rows of s from c on are among those of t
        end = c
        while end < tall and rows[start + end] < stop:
            end += 1
        for r in range(c, tall):
            i = rows[start + r]
            if i < stop:
                at = i - first[t]
            else:
                while rows[ahead] < i:
                    ahead += 1
                at = ahead - begin[t]
            for k in range(c, min(end, r + 1)):
                square[k * tall + r] = inverse[place[t] + (rows[start + k] - first[t]) * height + at]
        c = end


@njit(cache=True)
def _invert_column(panels: Array, inverse: Array, base: int, tall: int, square: Array) -> None:
    """A supernode of one column, by plain loops over the lower triangle of Z_RR."""
    pivot = panels[base]
    for r in range(tall):
        inverse[base + 1 + r] = 0.0
    for c in range(tall):
        factor = panels[base + 1 + c] / pivot
        total = square[c * tall + c] * factor
        for r in range(c + 1, tall):
            z = square[c * tall + r]
            inverse[base + 1 + r] -= z * factor
            total += z * panels[base + 1 + r] / pivot
        inverse[base + 1 + c] -= total
    own = 1.0 / (pivot * pivot)
    for r in range(tall):
        own -= panels[base + 1 + r] / pivot * inverse[base + 1 + r]
    inverse[base] = own


@njit(cache=True)
def _down(panels: Array, first: Index, begin: Index, rows: Index, place: Index, b: Array) -> None:
    """b ← L⁻¹b."""
    for s in range(len(first) - 1):
        height, width, start = begin[s + 1] - begin[s], first[s + 1] - first[s], begin[s]
        for c in range(width):
            column = place[s] + c * height
            x = b[first[s] + c] / panels[column + c]
            b[first[s] + c] = x
            for r in range(c + 1, height):
                b[rows[start + r]] -= panels[column + r] * x


@njit(cache=True)
def _up(panels: Array, first: Index, begin: Index, rows: Index, place: Index, b: Array) -> None:
    """b ← L⁻ᵀb."""
    for s in range(len(first) - 2, -1, -1):
        height, width, start = begin[s + 1] - begin[s], first[s + 1] - first[s], begin[s]
        for c in range(width - 1, -1, -1):
            column = place[s] + c * height
            x = b[first[s] + c]
            for r in range(c + 1, height):
                x -= panels[column + r] * b[rows[start + r]]
            b[first[s] + c] = x / panels[column + c]


@njit(cache=True, parallel=True)
def solve_rows(
    panels: Array, first: Index, begin: Index, rows: Index, place: Index, b: Array, down: bool, up: bool
) -> None:
    """Every row of b ← L⁻¹b, L⁻ᵀb or, with both, A⁻¹b."""
    for k in prange(len(b)):
        if down:
            _down(panels, first, begin, rows, place, b[k])
        if up:
            _up(panels, first, begin, rows, place, b[k])


@njit(cache=True, parallel=True)
def times_factor_rows(panels: Array, first: Index, begin: Index, rows: Index, place: Index, b: Array) -> None:
    """Every row of b ← Lᵀb, so that ‖Lᵀb‖² = bᵀAb."""
    for k in prange(len(b)):
        for s in range(len(first) - 1):
            height, width, start = begin[s + 1] - begin[s], first[s + 1] - first[s], begin[s]
            for c in range(width):
                column = place[s] + c * height
                x = 0.0
                for r in range(c, height):
                    x += panels[column + r] * b[k, rows[start + r]]
                b[k, first[s] + c] = x


@njit(cache=True)
def find_entries(indptr: Index, indices: Index, i: Index, j: Index) -> Index:
    """Where the pairs (i, j), i ≥ j, stand in a pattern by columns with sorted rows; −1 for those outside it."""
    found = np.empty(len(i), np.int64)
    for k in range(len(i)):
        found[k] = entry_of(indptr, indices, i[k], j[k])
    return found


@njit(cache=True)
def entry_of(indptr: Index, indices: Index, i: int, j: int) -> int:
    low, high = indptr[j], indptr[j + 1]
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < i:
            low = middle + 1
        else:
            high = middle
    return low if low < indptr[j + 1] and indices[low] == i else -1


@njit(cache=True, parallel=True)
def selected_squares(
    indptr: Index, columns: Index, data: Array, inverse: Array, first: Index, begin: Index, rows: Index, place: Index,
    of: Index,
) -> Array:  # fmt: skip
    """h_nᵀZh_n of sparse rows; not a number where a pair of the row is not on the pattern of L."""
    squares = np.zeros(len(indptr) - 1)
    for n in prange(len(squares)):
        total = 0.0
        for a in range(indptr[n], indptr[n + 1]):
            for b in range(indptr[n], a + 1):
                i, j = max(columns[a], columns[b]), min(columns[a], columns[b])
                s = of[j]
                at = row_in(i, s, first, begin, rows)
                if at < 0:
                    total = np.nan
                    continue
                z = inverse[place[s] + (j - first[s]) * (begin[s + 1] - begin[s]) + at]
                total += data[a] * data[b] * (z if a == b else 2.0 * z)
        squares[n] = total
    return squares


@njit(cache=True)
def selected_entries(
    i: Index, j: Index, inverse: Array, first: Index, begin: Index, rows: Index, place: Index, of: Index
) -> Array:
    """Z_ij for pairs i ≥ j in the order of elimination; not a number for those that are not on the pattern of L."""
    found = np.empty(len(i))
    for k in range(len(i)):
        s = of[j[k]]
        at = row_in(i[k], s, first, begin, rows)
        found[k] = np.nan if at < 0 else inverse[place[s] + (j[k] - first[s]) * (begin[s + 1] - begin[s]) + at]
    return found

"""The numeric part of a sparse Cholesky factorisation, compiled: the factor by supernodes, the inverse, solves.

A supernode is a run of columns of L with the same rows below them. It is stored as one dense column-major panel, its
own triangle on top, so that everything with many entries is a product of BLAS; small panels are plain loops. Panels
are parts of one array: supernode s has columns first[s] … first[s+1]−1, rows[begin[s]:begin[s+1]] and its panel at
place[s].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.elimination import ROUNDING, row_in
from latlin.numerics.routines import (
    Workspace,
    factorise_lower,
    invert_lower,
    minus_symmetric_times,
    solve_right,
    subtract_transposed_times,
    times_transposed,
)
from latlin.numerics.stored import are_offsets, rise_within
from latlin.numerics.threads import INNER, njit

Index = NDArray[np.int64]
#: multiplications from which on a product is left to BLAS
WORTH = 4096
#: columns of a supernode up to which its products stay in loops in any case
NARROW = 4
#: numbers that are smaller, or larger than its inverse, stand for themselves in a product of many
SMALL = 1e-100


@njit(cache=True, nogil=True)
def factorise(
    panels: Array, diagonal: Array, first: Index, begin: Index, rows: Index, place: Index, of: Index,
    routines: Index, d: Workspace, buffer: Array,
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


@njit(**INNER)
def _subtract(
    below: int, s: int, panels: Array, first: Index, begin: Index, rows: Index, place: Index, where: Index,
    start: int, routines: Index, d: Workspace, buffer: Array,
) -> int:  # fmt: skip
    """Take the share of supernode `below` from the panel of s; returns its first row beyond the columns of s."""
    own, height = begin[s + 1] - begin[s], begin[below + 1] - begin[below]
    width = first[below + 1] - first[below]
    stop = start
    while stop < height and rows[begin[below] + stop] < first[s + 1]:
        stop += 1
    tall, wide, base = height - start, stop - start, place[below]
    if width < NARROW or tall * wide * width < WORTH:
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


@njit(**INNER)
def _factorise_panel(panels: Array, base: int, width: int, height: int, routines: Index, d: Workspace) -> int:
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


@njit(cache=True, nogil=True)
def invert(
    panels: Array, inverse: Array, first: Index, begin: Index, rows: Index, place: Index, of: Index,
    routines: Index, d: Workspace, square: Array, turned: Array,
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


@njit(**INNER)
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


@njit(**INNER)
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


@njit(**INNER)
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


@njit(**INNER)
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


@njit(cache=True, nogil=True)
def solve_rows(
    start: int, stop: int, panels: Array, first: Index, begin: Index, rows: Index, place: Index, b: Array,
    down: bool, up: bool,
) -> None:  # fmt: skip
    """Rows start … stop − 1 of b ← L⁻¹b, L⁻ᵀb or, with both, A⁻¹b."""
    for k in range(start, stop):
        if down:
            _down(panels, first, begin, rows, place, b[k])
        if up:
            _up(panels, first, begin, rows, place, b[k])


@njit(cache=True, nogil=True)
def times_factor_rows(
    start: int, stop: int, panels: Array, first: Index, begin: Index, rows: Index, place: Index, b: Array
) -> None:
    """Rows start … stop − 1 of b ← Lᵀb, so that ‖Lᵀb‖² = bᵀAb."""
    for k in range(start, stop):
        for s in range(len(first) - 1):
            height, width, base = begin[s + 1] - begin[s], first[s + 1] - first[s], begin[s]
            for c in range(width):
                column = place[s] + c * height
                x = 0.0
                for r in range(c, height):
                    x += panels[column + r] * b[k, rows[base + r]]
                b[k, first[s] + c] = x


@njit(cache=True, nogil=True)
def selected_squares(
    start: int, stop: int, indptr: Index, columns: Index, data: Array, inverse: Array, first: Index, begin: Index,
    rows: Index, place: Index, of: Index, squares: Array,
) -> None:  # fmt: skip
    """h_nᵀZh_n of the sparse rows start … stop − 1; not a number where a pair is not on the pattern of L."""
    for n in range(start, stop):
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


@njit(cache=True, nogil=True)
def log_product(panels: Array, places: Index) -> float:
    """The logarithm of the product of the numbers at some places of the panels: one logarithm for many of them."""
    total, product = 0.0, 1.0
    for at in places:
        number = panels[at]
        if not SMALL < number < 1.0 / SMALL:
            total += np.log(number)
            continue
        product *= number
        if not SMALL < product < 1.0 / SMALL:
            total += np.log(product)
            product = 1.0
    return total + np.log(product)


# --- Parts from a file: compiled loops follow them without looking.


def refuse_misfit(analysis: Any) -> None:
    """Refuse an analysis from a file whose parts do not fit together."""
    a = analysis
    parts = (a.order, a.indptr, a.indices, a.first, a.begin, a.rows, a.place, a.of, a.source)
    arrays = all(isinstance(part, np.ndarray) for part in parts)
    if not arrays or not fits_together(*parts[:3], parts[3:8], a.source):
        raise ValueError("not a stored value: the parts of the analysis of a sparse matrix do not fit together")


def refuse_panels(factor: Any) -> None:
    """Refuse the panels of a factor from a file that are not those of its analysis."""
    numbers = getattr(factor.analysis, "numbers", None)
    panels = factor.panels
    if not isinstance(panels, np.ndarray) or panels.dtype != np.float64 or panels.shape != (numbers,):
        raise ValueError("not a stored value: the factor of a sparse matrix does not fit its analysis")


def fits_together(order: Index, indptr: Index, indices: Index, supernodes: tuple[Index, ...], source: Index) -> bool:
    """Whether numbers from elsewhere are an order, a lower triangle by columns, and supernodes that hold its factor.

    Compiled loops follow these numbers without looking: one that is out of place would read or write anywhere.
    """
    first, begin, rows, place, of = supernodes
    if any(part.ndim != 1 or part.dtype != np.int64 for part in (order, indptr, indices, source, *supernodes)):
        return False
    n, runs = len(order), len(first) - 1
    if not np.array_equal(np.sort(order), np.arange(n)) or not are_offsets(indptr, n, len(indices)):
        return False
    column = np.repeat(np.arange(n), np.diff(indptr))
    if (
        not rise_within(column, indices, n)
        or np.any(indptr[1:] == indptr[:-1])
        or np.any(indices[indptr[:-1]] != np.arange(n))
    ):
        return False
    if not are_offsets(first, runs, n) or not are_offsets(begin, runs, len(rows)) or np.any(np.diff(first) < 1):
        return False
    width, height, run = np.diff(first), np.diff(begin), np.repeat(np.arange(runs), np.diff(begin))
    if (
        np.any(height < width)
        or not rise_within(run, rows, n)
        or not np.array_equal(of, np.repeat(np.arange(runs), width))
    ):
        return False
    # a supernode's own columns are its first rows
    within = np.arange(len(rows)) - begin[run]
    if np.any(rows[within < width[run]] != np.arange(n)) or not np.array_equal(np.diff(place), width * height):
        return False
    if place[0] != 0 or len(source) != len(indices) or np.any((source < 0) | (source >= place[-1])):
        return False
    # the rows below a supernode are rows of the one that its first row below belongs to (Liu 1990)
    below = within >= width[run]
    lowest = rows[np.minimum(begin[:-1] + width, len(rows) - 1)] if len(rows) else rows
    wanted = of[lowest[run[below]]] * n + rows[below]
    return bool(np.all(np.isin(wanted, run * n + rows, kind="sort")))

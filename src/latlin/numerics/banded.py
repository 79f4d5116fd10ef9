"""Cholesky factors within a band and a dense border, compiled: walks, seasons, smooth curves, groups with covariates.

Of n columns the first `inner` have no entry more than `width` rows below the diagonal but in the last `border` rows,
where they may have all; the last `border` columns are dense. L stays within that pattern, so that a column needs no
list of rows: its diagonal stands at place[j], then min(width, inner − 1 − j) rows of the band, then the border. These
are the panels of `latlin.numerics.supernodes` with one column each, and the numbers are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from latlin.numerics.arrays import Array
from latlin.numerics.elimination import ROUNDING
from latlin.numerics.stored import storable
from latlin.numerics.threads import INNER, njit

Index = NDArray[np.int64]
#: rows of a column up to which it is worth a band
TALLEST = 32
#: numbers that are kept for each entry of the matrix, at most
PADDED = 2.0


@storable
class Band(NamedTuple):
    """The pattern of a factor: see the module."""

    inner: int
    width: int
    border: int

    @property
    def heights(self) -> Index:
        """Rows of every column."""
        reach = np.minimum(self.width, np.arange(self.inner - 1, -1, -1)) + 1 + self.border
        return np.concatenate([reach, np.arange(self.border, 0, -1)]).astype(np.int64)

    def rows(self) -> Index:
        """Rows of all columns, one column after the other."""
        rows = np.empty(int(self.heights.sum()), np.int64)
        _walk_rows(*self, rows, False)
        return rows

    def has_rows(self, rows: Index) -> bool:
        """Whether these are the rows of all columns."""
        return len(rows) == int(self.heights.sum()) and _walk_rows(*self, rows, True)


@njit(cache=True)
def _walk_rows(inner: int, width: int, border: int, rows: Index, compare: bool) -> bool:
    """Write the rows of all columns, or compare them."""
    at = 0
    for j in range(inner + border):
        reach = min(width, inner - 1 - j) if j < inner else inner + border - 1 - j
        for r in range(reach + 1 + (border if j < inner else 0)):
            i = j + r if r <= reach else inner + r - reach - 1
            if not compare:
                rows[at] = i
            elif rows[at] != i:
                return False
            at += 1
    return True


def banded_order(graph: tuple[Index, Index], dense: NDArray[np.bool_]) -> tuple[Index, Band] | None:
    """An order in which a pattern is a band with the dense columns as its border; None where no band is worth it.

    The order as it came is kept where it will do; else that of Cuthill and McKee (1969), reversed, is tried.
    """
    indptr, indices = graph
    thin, last = np.flatnonzero(~dense), np.flatnonzero(dense)
    entries, border = len(dense) + len(indices) // 2, len(last)
    widest = min(TALLEST, int(PADDED * entries / max(len(thin), 1))) - 1 - border
    if widest < 0 or not len(thin):
        return None
    order = np.concatenate([thin, last]).astype(np.int64)
    width = reach_of(indptr, indices, order, len(thin), 4 * widest)
    if 0 < width > widest and not _has_hub(indptr, dense, widest):
        ones = np.ones(len(indices), np.int8)
        matrix = sparse.csr_array((ones, indices, indptr), shape=(len(dense),) * 2)
        inner = matrix[thin][:, thin] if border else matrix
        thin = thin[reverse_cuthill_mckee(sparse.csr_matrix(inner), symmetric_mode=True)]
        order = np.concatenate([thin, last]).astype(np.int64)
        width = reach_of(indptr, indices, order, len(thin), widest)
    return (order, Band(len(thin), width, border)) if width <= widest else None


def _has_hub(indptr: Index, dense: NDArray[np.bool_], widest: int) -> bool:
    """Whether some thin column meets more others than any band of this width lets it."""
    return bool(np.any(np.diff(indptr)[~dense] > 2 * widest + int(dense.sum())))


@njit(cache=True)
def reach_of(indptr: Index, indices: Index, order: Index, inner: int, most: int) -> int:
    """The width of the band of the first `inner` columns in some order; more than `most` as soon as it is."""
    label = np.empty(len(order), np.int64)
    for k in range(len(order)):
        label[order[k]] = k
    width = 0
    for k in range(inner):
        i = order[k]
        for at in range(indptr[i], indptr[i + 1]):
            j = label[indices[at]]
            if j < inner and k - j > width:
                width = k - j
                if width > most:
                    return width
    return width


def band_of(first: Index, begin: Index, rows: Index) -> Band | None:
    """The band that some supernodes are; None where they are none."""
    n = len(first) - 1
    if n < 1 or first[n] != n:
        return None
    found = Band(*_shape(begin, rows))
    return found if np.array_equal(np.diff(begin), found.heights) and found.has_rows(rows) else None


@njit(cache=True)
def _shape(begin: Index, rows: Index) -> tuple[int, int, int]:
    """The band that the first column says there is, if there is one."""
    n, height = len(begin) - 1, begin[1]
    width = 0
    while width + 1 < height and rows[width + 1] == width + 1:
        width += 1
    border = height - 1 - width
    return n - border, width, border


@njit(cache=True, nogil=True)
def factorise(panels: Array, diagonal: Array, inner: int, width: int, border: int, place: Index) -> int:
    """The panels of A ← those of L; returns the first column without a positive pivot, or −1."""
    for j in range(inner + border):
        base = place[j]
        pivot = panels[base]
        if not pivot > ROUNDING * diagonal[j]:
            return j
        reach = min(width, inner - 1 - j) if j < inner else inner + border - 1 - j
        # A_ij − A_ik A_jk / A_kk: the next pivot does not wait for a square root
        for c in range(1, reach + 1):
            target, factor = place[j + c], panels[base + c] / pivot
            for r in range(c, reach + 1):
                panels[target + r - c] -= factor * panels[base + r]
        if border > 0 and j < inner:
            _subtract_border(panels, j, reach, inner, width, border, place)
        root = np.sqrt(pivot)
        panels[base] = root
        for r in range(base + 1, base + reach + 1 + (border if j < inner else 0)):
            panels[r] /= root
    return -1


@njit(**INNER, inline="always")
def _subtract_border(panels: Array, j: int, reach: int, inner: int, width: int, border: int, place: Index) -> None:
    """What column j of the band takes from the border rows of later columns and from the border's own columns."""
    own, pivot = place[j] + reach + 1, panels[place[j]]
    for c in range(1, reach + 1):
        target, factor = place[j + c] + min(width, inner - 1 - j - c) + 1, panels[place[j] + c] / pivot
        for q in range(border):
            panels[target + q] -= factor * panels[own + q]
    for c in range(border):
        target, factor = place[inner + c], panels[own + c] / pivot
        for q in range(c, border):
            panels[target + q - c] -= factor * panels[own + q]


@njit(cache=True, nogil=True)
def invert(panels: Array, inverse: Array, inner: int, width: int, border: int, place: Index) -> None:
    """Entries of A⁻¹ on the pattern of L, from the last column to the first (Takahashi 1973; Rue and Held 2005).

    With y = L_Rj/L_jj: Z_Rj = −Z_RR y and Z_jj = 1/L_jj² − yᵀZ_Rj; all pairs of R are on the pattern.
    """
    y, z = np.zeros(width + border + 1), np.zeros(width + border + 1)
    for j in range(inner + border - 1, -1, -1):
        base, pivot = place[j], panels[place[j]]
        reach = min(width, inner - 1 - j) if j < inner else inner + border - 1 - j
        edge = border if j < inner else 0
        for r in range(reach + edge):
            y[r], z[r] = panels[base + 1 + r] / pivot, 0.0
        for c in range(reach):
            column = place[j + 1 + c]
            below = min(width, inner - 2 - j - c) if j < inner else inner + border - 2 - j - c
            total = inverse[column] * y[c]
            for r in range(c + 1, reach):
                entry = inverse[column + r - c]
                z[r] -= entry * y[c]
                total += entry * y[r]
            for q in range(edge):
                entry = inverse[column + below + 1 + q]
                z[reach + q] -= entry * y[c]
                total += entry * y[reach + q]
            z[c] -= total
        for c in range(edge):
            column = place[inner + c]
            z[reach + c] -= inverse[column] * y[reach + c]
            for q in range(c + 1, edge):
                entry = inverse[column + q - c]
                z[reach + q] -= entry * y[reach + c]
                z[reach + c] -= entry * y[reach + q]
        own = 1.0 / (pivot * pivot)
        for r in range(reach + edge):
            inverse[base + 1 + r] = z[r]
            own -= y[r] * z[r]
        inverse[base] = own


@njit(cache=True, nogil=True)
def times(panels: Array, inner: int, width: int, place: Index, v: Array, found: Array) -> None:
    """Av for the panels of a band A without a border."""
    found[:] = 0.0
    for j in range(inner):
        base, total = place[j], panels[place[j]] * v[j]
        for r in range(1, min(width, inner - 1 - j) + 1):
            found[j + r] += panels[base + r] * v[j]
            total += panels[base + r] * v[j + r]
        found[j] += total


@njit(cache=True, nogil=True)
def solve_rows(
    start: int, stop: int, panels: Array, inner: int, width: int, border: int, place: Index, b: Array,
    down: bool, up: bool,
) -> None:  # fmt: skip
    """Rows start … stop − 1 of b ← L⁻¹b, L⁻ᵀb or, with both, A⁻¹b."""
    for k in range(start, stop):
        if down:
            _down(panels, inner, width, border, place, b[k])
        if up:
            _up(panels, inner, width, border, place, b[k])


@njit(**INNER)
def _down(panels: Array, inner: int, width: int, border: int, place: Index, b: Array) -> None:
    """b ← L⁻¹b."""
    for j in range(inner + border):
        base = place[j]
        reach = min(width, inner - 1 - j) if j < inner else inner + border - 1 - j
        # a product, unlike a quotient, does not keep the next row waiting
        x = b[j] * (1.0 / panels[base])
        b[j] = x
        for r in range(1, reach + 1):
            b[j + r] -= panels[base + r] * x
        if j < inner:
            for q in range(border):
                b[inner + q] -= panels[base + reach + 1 + q] * x


@njit(**INNER)
def _up(panels: Array, inner: int, width: int, border: int, place: Index, b: Array) -> None:
    """b ← L⁻ᵀb."""
    for j in range(inner + border - 1, -1, -1):
        base = place[j]
        reach = min(width, inner - 1 - j) if j < inner else inner + border - 1 - j
        x = b[j]
        for r in range(1, reach + 1):
            x -= panels[base + r] * b[j + r]
        if j < inner:
            for q in range(border):
                x -= panels[base + reach + 1 + q] * b[inner + q]
        b[j] = x * (1.0 / panels[base])

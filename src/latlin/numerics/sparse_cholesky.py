"""Sparse positive definite matrices A = LLᵀ: one analysis of the pattern, then a factorisation for any values on it.

An `Analysis` finds an order of elimination, the pattern of L and its supernodes; it costs about as much as one
factorisation of a sparse matrix. `Analysis.factorise` then takes values on the pattern and gives a `SparseCholesky`:
log determinant, solves, draws, and the entries of A⁻¹ on the pattern of L (the *selected inverse*), which cost about
as much as the factorisation itself (Rue and Held 2005, §2.3 and §2.4; Takahashi 1973).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics import banded, elimination, supernodes
from latlin.numerics.arrays import Array, all_finite, empty_array
from latlin.numerics.banded import Band
from latlin.numerics.minimum_degree import dense_nodes, independent_nodes, minimum_degree
from latlin.numerics.routines import ROUTINES, make_workspace
from latlin.numerics.stored import storable
from latlin.numerics.threads import one_blas_thread, share_out

Index = NDArray[np.int64]
#: entries of L for each entry of A up to which the order as it came is kept
NATURAL = 1.3
#: entries of L for each entry of A from which on other orders than minimum degree are tried
FILLED = 3.0
#: share of zeros that a supernode may hold
SLACK = 0.15
#: rows of the largest panel from which on BLAS keeps its threads
TALL = 2000
#: nanoseconds to look up one pair of a row in the selected inverse
PAIR = 20.0
#: numbers in a block of right-hand sides
NUMBERS = 4 * 10**6


@storable
class Plan(NamedTuple):
    """An order of elimination and what it costs."""

    order: Index
    parent: Index
    counts: Index
    #: the pattern of L, where that is a band
    band: Band | None = None

    @property
    def entries(self) -> int:
        """Entries of L."""
        return int(self.counts.sum())

    @property
    def flops(self) -> float:
        """Multiplications and additions of a factorisation."""
        return float(np.sum(self.counts.astype(float) ** 2))


def plan_elimination(pattern: sparse.csr_array) -> Plan:
    """The order as it came, dense columns last, or that by neighbours, where it hardly fills; else the best of a few.

    Minimum degree serves most patterns. Two crossed factors are better off when all levels of one, none of which meets
    another, are eliminated before those of the other: an independent set of columns first, then the rest.

    Parameters
    ----------
    pattern : csr_array of shape (n, n)
        Its non-zeros, both triangles, are those of the matrix; values do not matter.
    """
    graph = elimination.neighbours(pattern.indptr, pattern.indices)
    last = dense_nodes(graph[0])
    banded_plan = _banded_plan(graph, last)
    if banded_plan is not None:
        return banded_plan
    natural = np.concatenate([np.flatnonzero(~last), np.flatnonzero(last)]).astype(np.int64)
    n = len(natural)
    most = int(NATURAL * (n + 0.5 * len(graph[1])))
    # few neighbours first is best for groups with covariates, wherever these stand
    for order in (natural, np.argsort(np.diff(graph[0]), kind="stable").astype(np.int64)):
        plan = _counted(graph, order, most)
        if plan.entries <= most:
            return plan
    best = _counted(graph, minimum_degree(*graph), np.iinfo(np.int64).max)
    if best.entries < FILLED * most:
        return best
    thin = np.flatnonzero(~last)
    for candidates in (thin, thin[::-1]):
        first = independent_nodes(*graph, candidates.astype(np.int64))
        order = np.concatenate([np.flatnonzero(first), np.flatnonzero(~first & ~last), np.flatnonzero(last)])
        other = _counted(graph, order.astype(np.int64), best.entries)
        if other.entries <= best.entries and other.flops < best.flops:
            best = other
    return best


def _banded_plan(graph: tuple[Index, Index], dense: NDArray[np.bool_]) -> Plan | None:
    """A band, where the pattern is one but for its dense columns."""
    found = banded.banded_order(graph, dense)
    if found is None:
        return None
    order, band = found
    n = len(order)
    # every column has the next one as its parent but where nothing is below it
    return Plan(order, np.where(np.arange(n) < n - 1, np.arange(1, n + 1), -1), band.heights, band)


def _counted(graph: tuple[Index, Index], order: Index, most: int) -> Plan:
    """The elimination tree of an order, put into postorder so that supernodes are runs of columns."""
    indptr, indices = _permuted(graph, order)
    parent, count = elimination.elimination_tree(indptr, indices, most)
    if count.sum() > most:
        return Plan(order, parent, count)
    post = elimination.postorder(parent)
    label = np.empty_like(post)
    label[post] = np.arange(len(post))
    moved = np.where(parent[post] < 0, -1, label[parent[post]])
    return Plan(order[post], moved, count[post])


def _permuted(graph: tuple[Index, Index], order: Index) -> tuple[Index, Index]:
    if np.array_equal(order, np.arange(len(order))):
        return graph
    n = len(order)
    ones = np.ones(len(graph[1]), np.int8)
    matrix = sparse.csr_array((ones, graph[1], graph[0]), shape=(n, n))[order]
    label = np.empty(n, np.int64)
    label[order] = np.arange(n)
    return matrix.indptr.astype(np.int64), label[matrix.indices]


@storable
@dataclass(frozen=True)
class Analysis:
    """The pattern of a matrix and of its factor, in the order of elimination; made by `analyse`.

    Parameters
    ----------
    order : ndarray of shape (n,)
        The coordinate that is eliminated first, second, ….
    indptr, indices : ndarray
        Lower triangle of the reordered pattern by columns, rows sorted. Values are given in this order.
    first, begin, rows, place, of : ndarray
        The supernodes; see `latlin.numerics.supernodes`.
    source : ndarray
        Where the entries of the matrix stand in the panels.
    """

    order: Index
    indptr: Index
    indices: Index
    first: Index
    begin: Index
    rows: Index
    place: Index
    of: Index
    source: Index

    check_stored = supernodes.refuse_misfit

    @property
    def dim(self) -> int:
        return len(self.order)

    @property
    def numbers(self) -> int:
        """Length of the panels."""
        return int(self.place[-1])

    @cached_property
    def flops(self) -> float:
        """Multiplications and additions of a factorisation, nearly."""
        return float(np.sum(np.diff(self.first) * np.diff(self.begin).astype(float) ** 2))

    @cached_property
    def label(self) -> Index:
        """The place of every coordinate in the order of elimination."""
        label = np.empty_like(self.order)
        label[self.order] = np.arange(self.dim)
        return label

    @cached_property
    def diagonal(self) -> Index:
        """Which entries are the diagonal, in the order of elimination."""
        return self.indptr[:-1]

    @cached_property
    def band(self) -> Band | None:
        """The band that L is, with a border; None where it is none."""
        return banded.band_of(self.first, self.begin, self.rows)

    @cached_property
    def pivot_places(self) -> Index:
        """Where the diagonal of L stands in the panels."""
        return self.source[self.diagonal]

    @cached_property
    def as_it_came(self) -> tuple[bool, bool]:
        """Whether coordinates are eliminated in their own order, and whether entries are the panels as they are."""
        own = np.array_equal(self.order, np.arange(self.dim))
        return own, self.numbers == len(self.source) and np.array_equal(self.source, np.arange(self.numbers))

    def inwards(self, rows: Array) -> Array:
        """The columns of a matrix in the order of elimination, always a copy."""
        if not self.as_it_came[0]:
            return np.ascontiguousarray(rows[:, self.order])
        return np.add(rows, 0.0, out=empty_array(*rows.shape))

    @cached_property
    def _largest(self) -> tuple[int, int]:
        """Numbers in the largest product of two supernodes, and in the largest square below one."""
        width, height = np.diff(self.first), np.diff(self.begin)
        return int((width * height).max(initial=1)), int(((height - width) ** 2).max(initial=1))

    def values(self, matrix: Any) -> Array:
        """The entries of a symmetric sparse matrix, whose non-zeros are within the pattern, in this order."""
        coo = sparse.coo_array(matrix)
        i, j = self.label[coo.row], self.label[coo.col]
        lower = (i >= j) & (coo.data != 0.0)
        found = self.entries(i[lower], j[lower])
        if np.any(found < 0):
            raise ValueError("the matrix has entries outside the analysed pattern")
        return np.bincount(found, coo.data[lower], len(self.indices)).astype(float)

    def entries(self, i: Index, j: Index) -> Index:
        """Which entries are (i, j), i ≥ j, in the order of elimination; −1 for pairs outside the pattern."""
        return elimination.find_entries(self.indptr, self.indices, i.astype(np.int64), j.astype(np.int64))

    @property
    def threads(self) -> AbstractContextManager[Any]:
        """BLAS with one thread where all panels are small: handing them to others would take longer."""
        return one_blas_thread() if np.diff(self.begin).max(initial=0) < TALL else nullcontext()

    def factorise(self, values: Array, overwrite: bool = False) -> SparseCholesky | None:
        """The factor for given entries, or None where the matrix is not (numerically) positive definite."""
        return self.attempt(values, overwrite)[0]

    def attempt(self, values: Array, overwrite: bool = False) -> tuple[SparseCholesky | None, int]:
        """The factor, perhaps where the values were, or None and the place in the order where there was no pivot."""
        if not all_finite(values):
            return None, 0
        diagonal = np.take(values, self.diagonal, out=empty_array(self.dim), mode="clip")
        if self.as_it_came[1]:
            panels = values if overwrite else np.array(values)
        else:
            panels = np.zeros(self.numbers)
            panels[self.source] = values
        if self.band is not None:
            broken = banded.factorise(panels, diagonal, *self.band, self.place)
            return (SparseCholesky(self, panels), -1) if broken < 0 else (None, int(broken))
        parts = (self.first, self.begin, self.rows, self.place, self.of)
        buffer = np.empty(self._largest[0])
        with self.threads:
            broken = supernodes.factorise(panels, diagonal, *parts, ROUTINES, make_workspace(), buffer)
        return (SparseCholesky(self, panels), -1) if broken < 0 else (None, int(broken))


def analyse(pattern: Any, plan: Plan | None = None) -> Analysis:
    """Order a symmetric pattern and find the supernodes of its factor.

    Parameters
    ----------
    pattern : sparse matrix of shape (n, n)
        Both triangles; the diagonal is always included.
    plan : Plan, optional
        An order, if `plan_elimination` has already been asked.
    """
    n, whole = pattern.shape[0], sparse.csr_array(pattern)
    if not whole.has_canonical_format:
        whole = whole.copy()
        whole.sum_duplicates()
    plan = plan_elimination(whole) if plan is None else plan
    label = np.empty(n, np.int64)
    label[plan.order] = np.arange(n)
    graph = elimination.neighbours(whole.indptr, whole.indices)
    indptr, indices = elimination.lower_columns(*graph, plan.order, label)
    if plan.band is not None:
        first = np.arange(n + 1)
        of, begin = first[:-1].copy(), np.concatenate([[0], np.cumsum(plan.counts)]).astype(np.int64)
        rows = plan.band.rows()
    else:
        first = elimination.runs_of_columns(plan.parent, plan.counts, SLACK)
        rows, begin, of = elimination.rows_of_runs(first, indptr, indices)
    place = np.concatenate([[0], np.cumsum(np.diff(first) * np.diff(begin))]).astype(np.int64)
    if len(indices) == place[-1] and plan.band is not None:
        source = np.arange(len(indices))
    else:
        source = elimination.places_of(indptr, indices, first, begin, rows, place, of)
    found = Analysis(plan.order, indptr, indices, first, begin, rows, place, of, source)
    vars(found)["band"] = plan.band
    return found


@storable
@dataclass(frozen=True)
class SparseCholesky:
    """A = LLᵀ in the order of elimination; vectors come and go in the matrix's own order.

    Parameters
    ----------
    analysis : Analysis
    panels : ndarray
        L by supernodes.
    """

    analysis: Analysis
    panels: Array

    check_stored = supernodes.refuse_panels

    @property
    def _parts(self) -> tuple[Index, Index, Index, Index]:
        a = self.analysis
        return a.first, a.begin, a.rows, a.place

    @property
    def pivots(self) -> Array:
        """Squares of the diagonal of L, in the order of elimination."""
        return self.panels[self.analysis.pivot_places] ** 2

    @property
    def log_det(self) -> float:
        """log det A."""
        return 2.0 * supernodes.log_product(self.panels, self.analysis.pivot_places)

    def solve(self, b: Array) -> Array:
        """A⁻¹b for one vector or the columns of a matrix."""
        inner = self.analysis.inwards(np.atleast_2d(b.T))
        self._solve(inner, True, True)
        return self._outwards(inner, b.ndim)

    def whiten(self, b: Array) -> Array:
        """L⁻¹b in the order of elimination, for one vector or the columns of a matrix: ‖L⁻¹b‖² = bᵀA⁻¹b."""
        inner = self.analysis.inwards(np.atleast_2d(b.T))
        self._solve(inner, True, False)
        return inner[0] if b.ndim == 1 else inner.T

    def unwhiten(self, b: Array) -> Array:
        """L⁻ᵀb for one vector or the columns of a matrix: standard normals become draws of covariance A⁻¹."""
        inner = np.array(np.atleast_2d(b.T), order="C")
        self._solve(inner, False, True)
        return self._outwards(inner, b.ndim)

    def whitened_squares(self, rows: Any) -> Array:
        """‖L⁻¹h_n‖² = h_nᵀA⁻¹h_n for the rows of a dense or sparse matrix, a block at a time."""
        block = max(1, NUMBERS // self.analysis.dim)
        parts = []
        for start in range(0, rows.shape[0], block):
            part = rows[start : start + block]
            dense = part.toarray() if sparse.issparse(part) else np.asarray(part, float)
            inner = self.analysis.inwards(dense)
            self._solve(inner, True, False)
            parts.append(np.einsum("nd,nd->n", inner, inner))
        return np.concatenate(parts) if parts else np.zeros(0)

    def squares(self, rows: Array) -> Array:
        """rᵀAr for every row of a dense matrix."""
        inner = self.analysis.inwards(rows)
        self._run(supernodes.times_factor_rows, inner)
        return np.einsum("nd,nd->n", inner, inner)

    @cached_property
    def inverse(self) -> Array:
        """A⁻¹ on the pattern of L, in panels like those of L."""
        a = self.analysis
        if a.band is not None:
            found = empty_array(len(self.panels))
            banded.invert(self.panels, found, *a.band, a.place)
            return found
        found = np.zeros_like(self.panels)
        square, turned = np.empty(a._largest[1]), np.empty(a._largest[0])
        parts = (a.first, a.begin, a.rows, a.place, a.of)
        with a.threads:
            supernodes.invert(self.panels, found, *parts, ROUTINES, make_workspace(), square, turned)
        return found

    @property
    def inverse_values(self) -> Array:
        """A⁻¹ on the pattern of A, in the order of `Analysis.indices`; not to be changed."""
        a = self.analysis
        return self.inverse if a.as_it_came[1] else self.inverse[a.source]

    @property
    def inverse_diagonal(self) -> Array:
        """The diagonal of A⁻¹."""
        a = self.analysis
        diagonal = np.empty(a.dim)
        diagonal[a.order] = self.inverse[a.pivot_places]
        return diagonal

    def inverse_entries(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Array:
        """[A⁻¹]_ij for given pairs: from the selected inverse, and by solves for pairs that are not in it."""
        a = self.analysis
        one, other = a.label[i], a.label[j]
        found = supernodes.selected_entries(
            np.maximum(one, other), np.minimum(one, other), self.inverse, *self._parts, a.of
        )
        missing = np.flatnonzero(np.isnan(found))
        columns, which = np.unique(j[missing], return_inverse=True)
        block = max(1, NUMBERS // a.dim)
        for start in range(0, len(columns), block):
            some = columns[start : start + block]
            units = np.zeros((a.dim, len(some)))
            units[some, np.arange(len(some))] = 1.0
            inside = (which >= start) & (which < start + block)
            found[missing[inside]] = self.solve(units)[i[missing[inside]], which[inside] - start]
        return found

    def inverse_squares(self, rows: sparse.csr_array) -> Array:
        """h_nᵀA⁻¹h_n of sparse rows: from the selected inverse where all pairs of a row are in it, else by solves."""
        a = self.analysis
        found = np.empty(rows.shape[0])
        arrays = (
            rows.indptr.astype(np.int64),
            a.label[rows.indices],
            rows.data,
            self.inverse,
            *self._parts,
            a.of,
            found,
        )
        share_out(supernodes.selected_squares, len(found), PAIR * (rows.nnz / max(len(found), 1)) ** 2, *arrays)
        missing = np.flatnonzero(np.isnan(found))
        if len(missing):
            found[missing] = self.whitened_squares(rows[missing])
        return found

    def _solve(self, rows: Array, down: bool, up: bool) -> None:
        """b ← L⁻¹b, L⁻ᵀb or, with both, A⁻¹b for the rows of a matrix in the order of elimination, in their place."""
        a = self.analysis
        if a.band is None:
            self._run(supernodes.solve_rows, rows, down, up)
            return
        arrays = (self.panels, *a.band, a.place, rows, down, up)
        share_out(banded.solve_rows, len(rows), float(len(self.panels)), *arrays)

    def _run(self, kernel: Any, rows: Array, *words: bool) -> None:
        """A compiled loop over right-hand sides, the rows of a matrix, in their place."""
        share_out(kernel, len(rows), float(len(self.panels)), self.panels, *self._parts, rows, *words)

    def _outwards(self, inner: Array, ndim: int) -> Array:
        if self.analysis.as_it_came[0]:
            return inner[0] if ndim == 1 else inner.T
        outer = np.empty_like(inner)
        outer[:, self.analysis.order] = inner
        return outer[0] if ndim == 1 else outer.T

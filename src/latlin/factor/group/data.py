"""What group factor analysis needs of its data: centred and scaled entries, and which rows and columns look alike.

Missing entries are stored as zeros, so that every product with the data sums over observed entries only. Rows that miss
the same features share a posterior covariance, and so do features of a view that are missing in the same rows: complete
data have one pattern of rows and one class of features a view, a whole missing view adds one pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.factor.group.rows import Labels, RowsInMemory, RowSource
from latlin.factor.group.views import Views
from latlin.numerics.linalg import Array


@dataclass(frozen=True)
class Patterns:
    """Rows r and classes c of features that are missing together: `seen[r, c]` is 1 where entries are observed."""

    row: Labels
    column: Labels
    seen: Array
    rows_per: Array

    @property
    def n_classes(self) -> int:
        return self.seen.shape[1]


@dataclass(frozen=True)
class GroupData:
    """The rows, wherever they are, with what is known of them beforehand.

    `view`, `noise_group` and `patterns.column` label the columns; `counts` and `squares` are sums over the observed
    rows of each column; `log_scale` is Σ over entries of the log of the scale, to report densities in the user's units.
    """

    rows: RowSource
    patterns: Patterns
    view: Labels
    noise_group: Labels
    counts: Array
    squares: Array
    sizes: Array
    log_scale: float

    @property
    def n_rows(self) -> float:
        return float(self.patterns.rows_per.sum())

    @property
    def n_noise(self) -> int:
        return int(self.noise_group.max()) + 1

    @cached_property
    def class_view(self) -> Labels:
        """The view of every class of features."""
        view = np.zeros(self.patterns.n_classes, dtype=np.int64)
        view[self.patterns.column] = self.view
        return view


def find_patterns(missing: NDArray[np.bool_] | None, n: int, view: Labels) -> Patterns:
    """Group rows by which columns they miss, and the columns of each view by the rows that miss them."""
    if missing is None:
        classes, column = np.unique(view, return_inverse=True)
        row = np.zeros(n, dtype=np.int64)
        return Patterns(row, column.astype(np.int64), np.ones((1, len(classes))), np.array([float(n)]))
    row_first, row = _alike(missing)
    column_first, column = _alike(np.concatenate([missing.T, (view[:, None] >> np.arange(16)) & 1 == 1], axis=1))
    seen = (~missing[np.ix_(row_first, column_first)]).astype(np.float64)
    return Patterns(row, column, seen, np.bincount(row).astype(np.float64))


def _alike(flags: NDArray[np.bool_]) -> tuple[Labels, Labels]:
    """The first of every kind of row of `flags`, and the kind of each row."""
    _, first, kind = np.unique(packed(flags), return_index=True, return_inverse=True)
    return first, kind.ravel().astype(np.int64)


def packed(flags: NDArray[np.bool_]) -> NDArray[Any]:
    """Every row of `flags` as one item of bytes."""
    bits = np.ascontiguousarray(np.packbits(flags, axis=1))
    return bits.view(np.dtype((np.void, bits.shape[1]))).ravel()


@dataclass(frozen=True)
class Scaling:
    """x = centre + scale · stored, one number a column each."""

    centre: Array
    scale: Array


def fit_scaling(rows: Array, views: Views, scale: str) -> Scaling:
    """Column means, and standard deviations of columns or of whole views; refuses empty and constant columns."""
    count = (~np.isnan(rows)).sum(axis=0)
    check_observed(count, views)
    return scaling_of(np.nanmean(rows, axis=0), np.nanvar(rows, axis=0), views, scale)


def check_observed(counts: NDArray[Any], views: Views) -> None:
    """Refuse columns without an entry."""
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise ValueError(f"X has no observed entry in {views.columns_in_words(empty)}")


def scaling_of(centre: Array, variance: Array, views: Views, scale: str) -> Scaling:
    """The scaling from means and variances; refuses constant columns."""
    flat = np.flatnonzero(variance <= (1e-14 * centre) ** 2)
    if len(flat):
        raise ValueError(f"X is constant in {views.columns_in_words(flat)}: drop them, there is nothing to explain")
    view = views.of_column
    mean_variance = np.bincount(view, variance) / np.bincount(view)
    chosen = {"feature": variance, "view": mean_variance[view], "none": np.ones(len(view))}
    return Scaling(centre, np.sqrt(chosen[scale]))


def prepare(rows: Array, views: Views, scaling: Scaling, per_feature: bool) -> GroupData:
    """Centre, scale and fill `rows`, which are overwritten, and find their patterns."""
    gap = np.isnan(rows)
    missing = gap if gap.any() else None
    counts = (~gap).sum(axis=0).astype(np.float64)
    rows -= scaling.centre
    rows /= scaling.scale
    if missing is not None:
        rows[missing] = 0.0
    patterns = find_patterns(missing, len(rows), views.of_column.astype(np.int64))
    source = RowsInMemory(rows, patterns.row, len(patterns.rows_per))
    return describe(source, patterns, views, scaling, counts, np.einsum("nd,nd->d", rows, rows), per_feature)


def describe(
    rows: RowSource,
    patterns: Patterns,
    views: Views,
    scaling: Scaling,
    counts: Array,
    squares: Array,
    per_feature: bool,
) -> GroupData:
    """Everything that is known of the rows before the first sweep."""
    view = views.of_column.astype(np.int64)
    return GroupData(
        rows=rows,
        patterns=patterns,
        view=view,
        noise_group=np.arange(len(view)) if per_feature else view,
        counts=counts,
        squares=squares,
        sizes=np.array(views.sizes, dtype=np.float64),
        log_scale=float(counts @ np.log(scaling.scale)),
    )

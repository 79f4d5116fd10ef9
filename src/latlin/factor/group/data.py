"""What group factor analysis needs of its data: centred and scaled entries, and which rows and columns look alike.

Missing entries are stored as zeros, so that every product with the data sums over observed entries only. Rows that miss
the same features share a posterior covariance, and so do features of a view that are missing in the same rows: complete
data have one pattern of rows and one class of features per view, a whole missing view adds one pattern.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array

from latlin.distributed.blocks import Blocks
from latlin.distributed.opening import is_blocked, open_side_by_side
from latlin.factor.group.rows import Labels, RowsInMemory, RowSource
from latlin.numerics.arrays import check_numeric
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable

# --- Views in and out: a list, a dict or one matrix with groups become one matrix whose columns lie view by view.

Name = Hashable
_ABSENT = "view {!r} is None: every view must be given to fit, NaN marks what is missing"


@storable
@dataclass(frozen=True)
class Views:
    """Which columns belong to which view, and the form in which a user gives and gets them.

    Parameters
    ----------
    names : tuple
        Keys of a dict, positions in a list, or labels of the columns' groups.
    sizes : tuple of int
        Columns of each view.
    form : {"dict", "list", "matrix"}
    order : ndarray of int
        Where each stored column stands in the user's matrix.
    """

    names: tuple[Any, ...]
    sizes: tuple[int, ...]
    form: str
    order: np.ndarray

    @property
    def n_columns(self) -> int:
        return sum(self.sizes)

    @property
    def of_column(self) -> np.ndarray:
        """The view of every stored column."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def slice_of(self, view: Name) -> slice:
        """The stored columns of a view."""
        first = sum(self.sizes[: self.position(view)])
        return slice(first, first + self.sizes[self.position(view)])

    def position(self, view: Name) -> int:
        """The number of a view."""
        if view not in self.names:
            raise ValueError(f"unknown view {view!r}; the model has {list(self.names)}")
        return self.names.index(view)

    def columns_in_words(self, columns: np.ndarray) -> str:
        """Stored columns as a reader finds them: view and column."""
        if self.form == "matrix":
            return f"column(s) {sorted(self.order[columns].tolist())[:10]}"
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        parts = []
        for view in np.unique(self.of_column[columns]):
            local = columns[self.of_column[columns] == view] - starts[view]
            parts.append(f"column(s) {local[:10].tolist()} of view {self.names[view]!r}")
        return ", ".join(parts)

    def join(self, given: Any) -> Array:
        """One matrix of the stored columns; NaN where a view is absent."""
        if self.form == "matrix" and not is_views(given):
            rows = check_array(check_numeric("X", given), dtype=np.float64, ensure_all_finite="allow-nan")
            if rows.shape[1] != self.n_columns:
                raise ValueError(f"X has {rows.shape[1]} features, but the model was fitted to {self.n_columns}")
            return np.take(rows, self.order, axis=1)
        parts = {name: part for name, part in _named(given) if part is not None}
        if not parts:
            raise ValueError("X must hold at least one view")
        arrays = {name: _checked(name, part) for name, part in parts.items()}
        n = _common_rows(arrays)
        joined = np.full((n, self.n_columns), np.nan)
        for name, array in arrays.items():
            where = self.slice_of(name)
            if array.shape[1] != where.stop - where.start:
                raise ValueError(f"view {name!r} must have {where.stop - where.start} columns, got {array.shape[1]}")
            joined[:, where] = array
        return joined

    def split(self, joined: Array) -> Any:
        """Back to the form of the user's data."""
        if self.form == "matrix":
            back = np.empty_like(joined)
            back[..., self.order] = joined
            return back
        parts = {name: joined[..., self.slice_of(name)] for name in self.names}
        return parts if self.form == "dict" else list(parts.values())


def is_views(given: Any) -> bool:
    """Whether these are several views rather than one matrix (some sparse matrices are dicts)."""
    if isinstance(given, Mapping):
        return not sparse.issparse(given)
    if not isinstance(given, list | tuple) or not given:
        return False
    return all(part is None or np.ndim(part) == 2 for part in given)


def read_views(given: Any) -> tuple[Views, Array]:
    """The layout of a list or dict of views, and their columns side by side."""
    arrays = {name: _checked(name, part) for name, part in _named(given)}
    if not arrays:
        raise ValueError("X must hold at least one view")
    _common_rows(arrays)
    form = "dict" if isinstance(given, Mapping) else "list"
    sizes = tuple(array.shape[1] for array in arrays.values())
    return Views(tuple(arrays), sizes, form, np.arange(sum(sizes))), np.concatenate(list(arrays.values()), axis=1)


def read_matrix(rows: Array, groups: Sequence[Name] | None) -> tuple[Views, Array]:
    """The layout of one matrix whose columns have group labels (one view without), and its columns view by view."""
    views = matrix_views(rows.shape[1], groups)
    return views, np.take(rows, views.order, axis=1)


def matrix_views(n_columns: int, groups: Sequence[Name] | None) -> Views:
    """The layout of one matrix whose columns have group labels; one view without."""
    labels = [0] * n_columns if groups is None else list(groups)
    if len(labels) != n_columns:
        raise ValueError(f"groups must have one label a column ({n_columns}), got {len(labels)}")
    names = tuple(dict.fromkeys(labels))
    number = np.array([names.index(label) for label in labels])
    sizes = tuple(int(size) for size in np.bincount(number))
    return Views(names, sizes, "matrix", np.argsort(number, kind="stable"))


def has_blocks(given: Any) -> bool:
    """Whether these are several views, at least one of them to be read block by block."""
    return is_views(given) and any(is_blocked(part) for _, part in _named(given))


def open_views(given: Any) -> tuple[Views, Blocks]:
    """The layout of a list or dict of views, and blocks of their rows with the columns side by side."""
    parts = dict(_named(given))
    for name, part in parts.items():
        if part is None:
            raise ValueError(_ABSENT.format(name))
        if not hasattr(part, "shape"):
            raise ValueError(f"view {name!r} must be an array or a Dask collection, got {type(part).__name__}")
    sizes = tuple(int(part.shape[1]) for part in parts.values())
    form = "dict" if isinstance(given, Mapping) else "list"
    return Views(tuple(parts), sizes, form, np.arange(sum(sizes))), open_side_by_side(parts)


def _named(given: Any) -> list[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return list(given.items())
    if is_views(given):
        return list(enumerate(given))
    raise ValueError(f"X must be a dict or list of views (two-dimensional arrays), got {type(given).__name__}")


def _checked(name: Any, part: Any) -> Array:
    if part is None:
        raise ValueError(_ABSENT.format(name))
    name = f"view {name!r}"
    return check_array(check_numeric(name, part), dtype=np.float64, ensure_all_finite="allow-nan", input_name=name)


def _common_rows(arrays: Mapping[Any, Array]) -> int:
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise ValueError(f"all views must have the same number of rows: {found}")
    return next(iter(counts.values()))


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
    _, first, kind = np.unique(pack_flags(flags), return_index=True, return_inverse=True)
    return first, kind.ravel().astype(np.int64)


def pack_flags(flags: NDArray[np.bool_]) -> NDArray[Any]:
    """Every row of `flags` as one item of bytes."""
    bits = np.ascontiguousarray(np.packbits(flags, axis=1))
    return bits.view(np.dtype((np.void, bits.shape[1]))).ravel()


@dataclass(frozen=True)
class Scaling:
    """x = centre + scale · stored, one number per column each."""

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

"""Views in and out: a list, a dict or one matrix with groups become one matrix whose columns lie view by view."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from latlin.distributed.blocks import Blocks
from latlin.distributed.joining import open_side_by_side
from latlin.distributed.opening import is_blocked
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable
from latlin.numerics.visible import visible

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
            rows = check_array(visible("X", given), dtype=np.float64, ensure_all_finite="allow-nan")
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


def any_blocked(given: Any) -> bool:
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
    return check_array(
        visible(f"view {name!r}", part), dtype=np.float64, ensure_all_finite="allow-nan", input_name=f"view {name!r}"
    )


def _common_rows(arrays: Mapping[Any, Array]) -> int:
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise ValueError(f"all views must have the same number of rows: {found}")
    return next(iter(counts.values()))

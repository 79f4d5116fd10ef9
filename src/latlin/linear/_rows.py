"""Rows as they come, and what comes with them: tables, weights, offsets, exposures, labels; decisions about new rows.

Texts, categories, dates and gaps of data frames become numbers as the command line encodes them.
Arguments that belong to rows (y, weights, offsets, exposures, trials, events) may be names of columns of the frame.
What was learnt of the columns stays with the model as `encoding_`, and the names as `columns_`, so that new rows are
read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_X_y, validate_data

from latlin.distributed.opening import is_blocked, is_dask
from latlin.numerics.arrays import Array, check_convertible, check_numeric, check_visible
from latlin.numerics.options import PerRow, Rows, check_list, float_array
from latlin.potentials.checks import naming_rows, refuse
from latlin.potentials.survival import INTERVAL

if TYPE_CHECKING:
    from latlin.datasets.encoding import Encoding

#: options of `latlin.datasets.learn_encoding` that a fit takes
OPTIONS = ("missing", "drop", "categorical", "dates", "numbers", "decimal", "coding", "reference")


def as_pandas(X: Rows) -> Any:
    """Tables of polars or Arrow as pandas frames; everything else as it is."""
    is_foreign = type(X).__module__.partition(".")[0] in ("polars", "pyarrow") and hasattr(X, "to_pandas")
    return X.to_pandas() if is_foreign else X


def _without_hidden(X: Rows) -> Any:
    """X, if numbers hide nothing of it; dates of data frames are named where they are encoded."""
    check_visible("X", X.select_dtypes(exclude=["datetime", "datetimetz"]) if is_frame(X) else X)
    return X


def is_frame(X: Rows) -> bool:
    """Whether X is a data frame of pandas."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def validate_rows(model: BaseEstimator, X: Rows, y: PerRow = "no_validation", *, reset: bool, **options: Any) -> Any:
    """X, or X and y, by scikit-learn's checks; numbers of a data frame at once, not column by column."""
    y = check_convertible("y", y) if options.get("y_numeric") else y
    if not is_frame(X) or not _is_one_array(X):
        return validate_data(model, X if is_frame(X) else check_numeric("X", X), y, reset=reset, **options)
    validate_data(model, X, y, reset=reset, skip_check_array=True)
    if isinstance(y, str):
        return check_array(X.to_numpy(), input_name="X", estimator=model, **options)
    return check_X_y(X.to_numpy(), y, estimator=model, **options)


def _is_one_array(X: Rows) -> bool:
    """Whether all columns of a frame are of one kind of NumPy's numbers."""
    kinds = set(X.dtypes)
    return len(kinds) == 1 and all(isinstance(kind, np.dtype) and kind.kind in "fiu" for kind in kinds)


def needs_encoding(X: Rows) -> bool:
    """Whether X is a data frame with a column that is not of plain numbers."""
    if not is_frame(X):
        return False
    from latlin.datasets.columns import holds_numbers  # arrays do without it

    return not all(map(holds_numbers, set(X.dtypes))) and not _is_arraylike(X)


def _named(frame: Any) -> Any:
    """A frame with one text per column for its name, as columns are kept under their names."""
    nameless = np.flatnonzero(frame.columns.isna())
    if len(nameless):
        raise ValueError(f"the table has no name for the column at place {nameless[0] + 1}: give it one")
    if _is_arraylike(frame):
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    if not frame.columns.is_unique:
        name = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"the table has two columns of the name {name!r}: rename one")
    return frame


def _is_arraylike(X: Rows) -> bool:
    """Columns without names of their own are left to the checks of arrays."""
    return not all(isinstance(name, str) for name in X.columns)


def read_rows(model: BaseEstimator, X: Rows, given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """X as numbers, and what belongs to its rows as arrays; the model remembers how.

    Parameters
    ----------
    model : estimator
        Gets `encoding_` and `columns_` where X needs them, and loses those of an earlier fit.
    X : rows
    given : dict
        Argument → array, name of a column of X, or None.
    options : dict
        Of `latlin.datasets.learn_encoding`.
    """
    _refuse_unknown(model, options)
    names = {argument: value for argument, value in given.items() if isinstance(value, str)}
    if is_blocked(X):
        if names or options:
            said = ", ".join([*names, *options])
            raise ValueError(f"X is in blocks of rows, where {said} cannot be read from its columns: give arrays")
    else:
        X = _without_hidden(as_pandas(X))
    if is_blocked(X) or not (names or options or needs_encoding(X)):
        for name in ("encoding_", "columns_"):
            model.__dict__.pop(name, None)
        return {"X": X, **given}
    return _encoded_rows(model, X, dict(given), names, dict(options))


def _encoded_rows(
    model: BaseEstimator, X: Rows, given: dict[str, Any], names: dict[str, str], options: dict[str, Any]
) -> dict[str, Any]:
    from latlin.datasets.columns import join_names as quoted
    from latlin.datasets.encoding import learn_encoding

    frame, is_unnamed = (_named(X), False) if is_frame(X) else (_framed(X), True)
    if is_unnamed and names:
        raise ValueError(f"{', '.join(names)} cannot be the name of a column: X must be a data frame, got an array")
    absent = [name for name in names.values() if name not in frame.columns]
    if absent:
        raise ValueError(f"the table has no column {quoted(absent)}; it has {quoted(frame.columns)}")
    for argument, name in names.items():
        given[argument] = frame[name]
    left = options.pop("drop", ())
    dropped = (*names.values(), *([left] if isinstance(left, str) else left))
    if options.get("missing", "error") == "error":
        learnt = _learn_or_refuse(frame, given["y"] if "y" in names else None, dropped, options)
    else:
        if "y" in names and given["y"].isna().any():
            known = given["y"].notna().to_numpy()
            frame, given = frame[known], _rows_of(given, known)
        learnt = learn_encoding(frame, None, drop=dropped, **options)
    encoding = replace(learnt, is_unnamed=is_unnamed)
    found = encoding.encode(frame)
    model.encoding_, model.columns_ = encoding, names
    given = given if found.kept.all() else _rows_of(given, found.kept)
    return {"X": found.matrix, **{name: _as_array(value) for name, value in given.items()}}


def _refuse_unknown(model: BaseEstimator, options: Mapping[str, Any]) -> None:
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise TypeError(f"{type(model).__name__}.fit() has no argument {unknown[0]!r}; for tables it has {OPTIONS}")


def _framed(X: Rows) -> Any:
    """An array as a data frame with columns x0, x1, …"""
    from latlin.datasets.table import need_pandas

    if hasattr(X, "tocsr"):
        raise ValueError("options of tables are for data frames and dense arrays, got a sparse matrix")
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and columns, got shape {array.shape}")
    return need_pandas().DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])


def _learn_or_refuse(frame: Any, y: PerRow, dropped: tuple[str, ...], options: Mapping[str, Any]) -> Any:
    """The encoding; or columns that need a decision, missing cells and missing responses, in one message."""
    from latlin.datasets.encoding import learn_encoding, refusal_of_gaps
    from latlin.datasets.problems import refuse_all, try_collecting

    said: list[str] = []
    learnt = try_collecting(said, lambda: learn_encoding(frame, None, drop=dropped, **options), None)
    used = frame.columns.drop(list(dropped)) if learnt is None else [column.name for column in learnt.columns]
    said.append(refusal_of_gaps(frame[used]))
    if y is not None and y.isna().any():
        said.append(f"y is missing in {int(y.isna().sum())} of {len(y)} rows; missing='drop' leaves them out")
    refuse_all(said)
    return learnt


def _rows_of(given: Mapping[str, Any], kept: Any) -> dict[str, Any]:
    """What belongs to some of the rows; single numbers belong to all."""
    return {
        name: value if value is None or np.ndim(value) == 0 else np.asarray(value)[kept]
        for name, value in given.items()
    }


def _as_array(value: Any) -> Any:
    """A column of numbers, of labels or of truth values as an array."""
    if not hasattr(value, "iloc"):
        return value
    from latlin.datasets.columns import column_of_numbers

    numbers = column_of_numbers(value)
    return np.asarray(value) if numbers is None or value.dtype.kind in "biu" else numbers


def column_of(model: BaseEstimator, X: Rows, argument: str, value: Any, default: Any = None) -> Any:
    """What belongs to new rows: an array as it is, a column by its name, or the column that the fit named."""
    fitted = getattr(model, "columns_", {}).get(argument)
    name = value if isinstance(value, str) else fitted if value is None else None
    if name is None:
        return default if value is None else check_visible(argument, value)
    frame = as_pandas(X)
    if not is_frame(frame) or name not in frame.columns:
        because = f"the model was fitted with {argument}={name!r}" if value is None else f"{argument} is {name!r}"
        raise ValueError(f"the table has no column {name!r}, and {because}: add it, or give {argument} as an array")
    return _as_array(frame[name])


def encode_rows(X: Rows, encoding: Encoding | None) -> Any:
    """A data frame as it came as numbers; arrays, and frames that hold the encoded columns already, as they are."""
    X = _without_hidden(as_pandas(X))
    if encoding is None:
        return X
    if not is_frame(X):
        width = np.shape(X)[1] if np.ndim(X) == 2 else 0
        if not encoding.is_unnamed or (width == len(encoding.names) and encoding.indicated):
            return X
        X = _framed(X)
    X = _named(X)
    if list(map(str, X.columns)) == encoding.names != [column.name for column in encoding.columns]:
        return X
    if encoding.missing == "drop":
        return encoding.encode(X, "error").matrix
    return encoding.encode(X).matrix


# --- What comes with the rows: weights, offsets, exposures, and numbers beside the response.


def add_exposure(offset: PerRow, exposure: PerRow, count: int | None = None) -> Any:
    """The offsets with the logarithms of the exposures of so many rows; Dask arrays stay lazy."""
    if exposure is None:
        return offset
    if is_dask(exposure):
        return np.log(exposure) + (0.0 if offset is None else offset)
    array = float_array("exposure", exposure)
    if array.ndim and count is not None and array.shape != (count,):
        raise ValueError(f"exposure must have shape ({count},), one number per row, got shape {array.shape}")
    with naming_rows():
        refuse("exposure", array, ~(np.isfinite(array) & (array > 0.0)), "positive and finite numbers")
    return np.log(array) if offset is None else float_array("offset", offset) + np.log(array)


def join_response(y: PerRow, **extra: Any) -> Any:
    """The response of one row with other numbers beside it, shape (n, 1 + k); y as it is where there are none."""
    if not (given := {name: part for name, part in extra.items() if part is not None}):
        return y
    if "upper" in given and "event" not in given:
        raise ValueError("upper is the end of intervals, which event marks with 3: give event too")
    if is_dask(y):
        import dask.array as da

        columns = [da.asarray(getattr(part, "values", part)).astype(float) for part in (y, *given.values())]
        if "upper" in given:
            columns[-1] = da.where(columns[1] == INTERVAL, columns[-1], 0.0)
        return da.stack(columns, axis=1).rechunk({1: len(columns)})
    first = np.asarray(check_convertible("y", check_visible("y", y)))
    if first.ndim != 1:
        raise ValueError(f"y must hold one number per row beside {', '.join(given)}, got shape {first.shape}")
    parts = [first]
    for name, part in given.items():
        array = float_array(name, check_convertible(name, check_visible(name, part)))
        array = np.full(len(first), float(array)) if array.ndim == 0 else array
        if array.shape != first.shape:
            raise ValueError(f"{name} must have shape {first.shape}, one number per row, got shape {array.shape}")
        if name == "upper":  # beside events; where no interval ends it may have no number
            array = np.where(parts[1] == INTERVAL, array, 0.0)
        with naming_rows():
            refuse(name, array, ~np.isfinite(array), "finite numbers")
        parts.append(array)
    return np.column_stack(parts)


# --- From labels to the numbers of a likelihood: small objects that can travel to where the labels are (`LabelCoding`).


@dataclass(frozen=True)
class Numbers:
    """Numbers as they are."""

    def __call__(self, y: NDArray[Any]) -> Array:
        return np.asarray(y, float)


@dataclass(frozen=True)
class OneLabel:
    """1 for one label, 0 for the others."""

    label: Any

    def __call__(self, y: NDArray[Any]) -> Array:
        return (y == self.label).astype(float)


@dataclass(frozen=True)
class ClassIndex:
    """Place of each label among the classes."""

    classes: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> Array:
        return class_index(np.asarray(y), self.classes).astype(float)


def class_index(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Place of each label among the classes."""
    order = np.argsort(classes)
    try:
        place = order[np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)]
    except TypeError:  # texts among numbers
        place = None
    if place is None or np.any(classes[place] != labels):
        raise ValueError(f"y has labels that were not in the training data, which had {classes.tolist()}")
    return place


def places_of(y: PerRow, count: int, classes: NDArray[Any]) -> NDArray[np.intp]:
    """Places among the classes of new labels, one for each of so many rows."""
    labels = np.asarray(y)
    if labels.shape != (count,):
        raise ValueError(f"y must have shape ({count},), one label per row, got shape {labels.shape}")
    return class_index(labels, classes)


def check_classes(classes: NDArray[Any]) -> NDArray[Any]:
    """The classes, if there is something to tell apart."""
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got one class: {classes.tolist()[0]!r}")
    return classes


# --- Decisions: the action whose loss, averaged over what is not known, is least (Challis (2013), eq. 2.1.8).


Loss = Callable[[Any, NDArray[Any]], ArrayLike] | ArrayLike


def loss_table(actions: Sequence[Any], loss: Loss, outcomes: NDArray[Any]) -> Array:
    """Loss of each action (first axis) at each outcome (any shape)."""
    if callable(loss):
        parts = [np.broadcast_to(np.asarray(loss(action, outcomes), float), outcomes.shape) for action in actions]
        table = np.stack(parts)
    else:
        table = float_array("loss", loss)
        if table.shape != (len(actions), len(outcomes)):
            raise ValueError(
                f"loss must be a function of (action, y) or a table of shape ({len(actions)}, {len(outcomes)}), "
                f"one row per action and one column per class, got shape {table.shape}"
            )
    if np.any(np.isnan(table)):
        raise ValueError("loss gave NaN; it must give a number for every action and outcome")
    return table


def choose_actions(actions: Sequence[Any], expected: Array) -> NDArray[Any]:
    """The action of least expected loss for each column of (actions, n)."""
    try:
        listed = np.asarray(actions)
    except ValueError:  # vectors of several lengths
        listed = np.empty(len(actions), dtype=object)
        listed[:] = actions
    return listed[np.argmin(expected, axis=0)]


def check_actions(actions: Sequence[Any]) -> list[Any]:
    """At least one action."""
    found = check_list("actions", actions, "actions")
    if not found:
        raise ValueError("actions must name at least one action, got none")
    return found

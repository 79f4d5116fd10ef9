"""Tables: anything with named columns of one length, such as a pandas or polars frame or a dict of arrays."""

from __future__ import annotations

import re
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.problems import absent_words
from latlin.numerics.arrays import Array, check_measurable, check_visible
from latlin.numerics.options import Table

#: a column of labels or numbers, of any kind
Column = NDArray[Any]
#: how texts of dates begin
DATE = re.compile(r"\s*\d+[-/.]\d+[-/.]\d+")


def formula_name(name: str) -> str:
    """How formulas hold the name of a column.

    >>> formula_name("rain (mm)")
    'rain_mm'
    """
    return re.sub(r"\W+", "_", name).strip("_")


def name_of(frame: Table, name: str) -> str:
    """The column that is meant: the one of this name, or the only one whose name is written so in formulas."""
    names = names_of_columns(frame)
    alike = [] if name in names else [other for other in names if formula_name(other) == name]
    return alike[0] if len(alike) == 1 else name


def column(frame: Table, name: str) -> NDArray[Any]:
    """A column as an array, or a ValueError that names what there is."""
    try:
        values = frame[name]
    except Exception as error:
        # every kind of frame has its own error for a missing column
        if not isinstance(name, str):
            raise ValueError(f"a column is named by a text, got {name!r:.80}") from error
        if (meant := name_of(frame, name)) != name:
            return column(frame, meant)
        if name in names_of_columns(frame):
            raise
        raise ValueError(absent_words([name], names_of_columns(frame))) from error
    if isinstance(values, np.ma.MaskedArray):
        check_visible(f"column {name!r}", values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"column {name!r} must hold one value per row, got {values!r:.80}") from error
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must hold one value per row, got shape {array.shape}")
    return array


def has_column(frame: Table, name: str) -> bool:
    """Whether a table has this column."""
    return name_of(frame, name) in names_of_columns(frame)


def replace_column(frame: Table, name: str, values: Any) -> Any:
    """A table with one column replaced."""
    return {**{n: column(frame, n) for n in names_of_columns(frame)}, name: np.asarray(values)}


def n_rows(frame: Table) -> int:
    """The number of rows; a ValueError where columns differ in length or there are none."""
    names = names_of_columns(frame)
    if not names:
        raise ValueError("the table has no columns")
    lengths = {name: len(column(frame, name)) for name in names}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of the table differ in length: {lengths}")
    return next(iter(lengths.values()))


def check_n_rows(frame: Table) -> int:
    """The number of rows, at least one."""
    if not (rows := n_rows(frame)):
        raise ValueError("the table has no rows")
    return rows


def is_labelled(frame: Table, name: str) -> bool:
    """Whether a column holds labels: because it is one of categories, whatever these are, or by its values."""
    return _categories(frame, name) is not None or is_category(column(frame, name))


def is_category(values: NDArray[Any]) -> bool:
    """Whether a column holds labels: strings, objects that are no numbers, or truth values."""
    if values.dtype.kind in "OUSTb":
        return not all(isinstance(v, Number) and not isinstance(v, bool) for v in values[:1000])
    return values.dtype.kind not in "iuf"


def check_numbers(values: Any, name: str) -> Array:
    """A column of finite numbers."""
    array = check_visible(name, np.asarray(values))
    try:
        found = array.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        dated = all(DATE.match(str(value)) for value in array[:100].tolist())
        hint = "; for dates, add a column of days since the first date to the table, and name it instead" * dated
        raise ValueError(f"{name} must hold numbers, got {array[:3].tolist()} …{hint}") from error
    bad = ~np.isfinite(found)
    if np.any(bad):
        raise ValueError(
            f"{name} has {int(bad.sum())} missing or infinite values, the first in row {int(np.argmax(bad))}; "
            "drop or fill these rows"
        )
    return np.asarray(check_measurable(name, found))


def levels_of(values: NDArray[Any], name: str) -> NDArray[Any]:
    """The distinct labels of a column in their order; missing ones are refused."""
    _refuse_missing(values, name)
    if (span := _narrow_span(values)) is not None:
        low, width = span
        present = np.zeros(width, dtype=bool)
        present[values.astype(np.int64) - low] = True
        return (np.flatnonzero(present) + low).astype(values.dtype)
    try:
        return np.unique(values)
    except TypeError:
        # labels of several kinds have no order of their own
        try:
            return np.array(sorted(set(values.tolist()), key=str), dtype=object)
        except TypeError as error:
            raise ValueError(f"{name} must hold labels or numbers, got {values[:3].tolist()!r:.80} …") from error


def ordered_levels(frame: Table, name: str) -> Column:
    """The labels of a column: in the order of its categories where it has such, else in their own."""
    values = column(frame, name)
    found = levels_of(values, f"column {name!r}")
    categories = _categories(frame, name)
    if categories is None:
        return found
    present = set(found.tolist())
    return np.array([label for label in np.asarray(categories).tolist() if label in present], dtype=found.dtype)


def _categories(frame: Table, name: str) -> Any:
    """The categories that a column declares, or None."""
    values = frame[name_of(frame, name)]
    found = getattr(getattr(values, "cat", values), "categories", None)
    return None if callable(found) else found


def codes_of(values: NDArray[Any], levels: NDArray[Any], name: str) -> NDArray[np.int64]:
    """The place of each label among the levels, −1 for one that is not there."""
    _refuse_missing(values, name)
    if np.ndim(levels) != 1:
        raise ValueError(f"the levels of {name} must be a vector, got an array of shape {levels.shape}")
    if values.dtype.kind == "i" and (span := _narrow_span(levels)) is not None:
        low, width = span
        # one place more, for numbers beyond the levels
        places = np.full(width + 1, -1)
        places[levels.astype(np.int64) - low] = np.arange(len(levels))
        steps = values.astype(np.int64) - low
        return places[np.where((steps >= 0) & (steps < width), steps, width)]
    place = {label: code for code, label in enumerate(levels.tolist())}
    distinct, inverse = np.unique(values, return_inverse=True) if _sortable(values) else (None, None)
    if distinct is not None:
        found = np.array([place.get(label, -1) for label in distinct.tolist()], dtype=np.int64)
        return np.asarray(found[inverse])
    return np.array([place.get(label, -1) for label in values.tolist()], dtype=np.int64)


def refuse_other_kinds(unseen: NDArray[Any], levels: NDArray[Any], name: str) -> None:
    """Labels that are not known only because they are texts and the known ones numbers, or the other way round.

    >>> refuse_other_kinds(np.array(["1", "new"]), np.array([1, 2]), "g")
    Traceback (most recent call last):
    ...
    ValueError: column 'g' holds the label '1', and 1 in training: make texts or numbers of both
    """
    texts = {_text(label): label for label in levels.tolist()}
    for label in dict.fromkeys(unseen.tolist()):
        known = texts.get(_text(label), label)
        if isinstance(known, str) != isinstance(label, str):
            raise ValueError(
                f"column {name!r} holds the label {label!r}, and {known!r} in training: make texts or numbers of both"
            )


def _narrow_span(values: NDArray[Any]) -> tuple[int, int] | None:
    """The least of some whole numbers, and how many there are up to the largest where these are few per value."""
    if values.dtype.kind != "i" or not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    return (low, high - low + 1) if high - low < 4 * len(values) else None


def join_labels(frame: Table, names: tuple[str, ...]) -> NDArray[Any]:
    """One column of labels, or the combinations "a:b" of several, each combination with a label of its own.

    Examples
    --------
    >>> join_labels({"a": [1.0, 2.5, 3.0], "b": ["x", "y", "z:1"]}, ("a", "b")).tolist()
    ['1:x', '2.5:y', '3:z\\\\:1']
    """
    if len(names) == 1:
        return column(frame, names[0])
    parts = [column(frame, name) for name in names]
    for name, values in zip(names, parts, strict=True):
        _refuse_missing(values, f"column {name!r}")
    texts = [list(map(_text, values.tolist())) for values in parts]
    return np.array([":".join(row) for row in zip(*texts, strict=True)], dtype=object)


def _text(label: Any) -> str:
    """A label within a combination: equal numbers are one label, and a colon of its own is marked."""
    text = str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _sortable(values: NDArray[Any]) -> bool:
    return values.dtype.kind != "O" or len({type(v) for v in values.tolist()}) <= 1


def _refuse_missing(values: NDArray[Any], name: str) -> None:
    missing = np.array([_is_missing(v) for v in values.tolist()]) if values.dtype.kind in "OfM" else np.zeros(1, bool)
    if np.any(missing):
        raise ValueError(
            f"{name} has {int(missing.sum())} missing labels, the first in row {int(np.argmax(missing))}; "
            "drop these rows or give them a label"
        )


def _is_missing(value: Any) -> bool:
    """Nothing, and whatever does not say that it equals itself: NaN, NaT, NA."""
    same = value == value
    return value is None or not (isinstance(same, bool | np.bool_) and same)


def names_of_columns(frame: Table) -> list[str]:
    if isinstance(frame, np.ndarray) and frame.dtype.names:
        return list(frame.dtype.names)
    if hasattr(frame, "column_names"):  # a table of Arrow
        return list(frame.column_names)
    held = frame.columns if hasattr(frame, "columns") else frame.keys() if hasattr(frame, "keys") else None
    if held is None:
        raise ValueError(f"the table must have named columns (a data frame or a dict), got {type(frame).__name__}")
    return [str(name) for name in held]

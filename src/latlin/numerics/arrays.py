"""Arrays of real numbers: their type, constants of Gaussian densities, and what an array of a user must be."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

#: an array of float64 numbers of any shape
Array = NDArray[np.float64]
#: log 2π
LOG_2PI = float(np.log(2.0 * np.pi))
LOG_SQRT_2PI = 0.5 * LOG_2PI


def all_finite(values: Array) -> bool:
    """Whether no number is infinite or NaN; a finite sum tells it without another array.

    Examples
    --------
    >>> all_finite(np.array([1e308, 1e308])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.all(np.isfinite(values)))


def max_abs(values: Array) -> float:
    """The largest absolute number, NaN if there is one; without another array.

    Examples
    --------
    >>> max_abs(np.array([1.0, -3.0])), max_abs(np.array([1.0, np.nan])), max_abs(np.zeros(0))
    (3.0, nan, 0.0)
    """
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


# --- Data whose squares can be summed: variances of larger numbers overflow.


#: its square, times as many rows as there can be, is a number
LARGEST = 1e140
#: its square is a number of full accuracy
SMALLEST = 1e-140
#: rows, copies included, beyond which a count loses its units
MOST_ROWS = 1e15


def check_summable(name: str, values: Any) -> Any:
    """`values` (an array, NaN allowed, or a sparse matrix) as they are, or a ValueError if one of them is too large.

    Examples
    --------
    >>> check_summable("y", np.array([1e150]))
    Traceback (most recent call last):
        ...
    ValueError: y must hold numbers of at most 1e+140 in size, got 1e+150: change its units
    """
    numbers = np.asarray(values.data if sparse.issparse(values) else values)
    if numbers.size and numbers.dtype == np.float64:
        size = max(np.fmax.reduce(numbers, axis=None), -np.fmin.reduce(numbers, axis=None))
        if size > LARGEST:
            raise ValueError(f"{name} must hold numbers of at most {LARGEST:g} in size, got {size:g}: change its units")
    return values


def check_measurable(name: str, values: Any) -> Any:
    """`values` as `check_summable` has them, and not all of them so small that their squares vanish.

    Examples
    --------
    >>> check_measurable("y", np.array([1e-300, 0.0]))
    Traceback (most recent call last):
        ...
    ValueError: y must hold a number of at least 1e-140 in size, or only zeros, got at most 1e-300: change its units
    """
    numbers = np.asarray(check_summable(name, values))
    if numbers.size and numbers.dtype.kind == "f":
        size = float(np.abs(numbers).max())
        if 0.0 < size < SMALLEST:
            raise ValueError(
                f"{name} must hold a number of at least {SMALLEST:g} in size, or only zeros, got at most {size:g}: "
                "change its units"
            )
    return values


def check_countable(name: str, weights: Any) -> Any:
    """Weights, if no more rows than a number can count are meant.

    Examples
    --------
    >>> check_countable("sample_weight", np.array([1e30]))
    Traceback (most recent call last):
        ...
    ValueError: sample_weight must add up to at most 1e+15 rows, got 1e+30: divide by a constant
    """
    total = float(np.sum(weights))
    if total > MOST_ROWS:
        raise ValueError(f"{name} must add up to at most {MOST_ROWS:g} rows, got {total:g}: divide by a constant")
    return weights


# --- Numbers as the user sees them: no hidden part of an argument is used, none is dropped without a word.


#: names of kinds of columns, in NumPy, pandas and polars, that are points or spans of time
TIMES = ("datetime", "timedelta", "period", "date", "duration", "time", "interval")


def check_visible(name: str, values: Any) -> Any:
    """`values` as they came; a ValueError where they hold what numbers would hide.

    Masked entries have data under the mask, complex numbers an imaginary part, and dates and spans of time are counts
    of some unit: none is a number that a model can take without a decision of the user's.

    Examples
    --------
    >>> check_visible("X", np.ma.masked_invalid([[1.0], [np.nan]]))
    Traceback (most recent call last):
        ...
    ValueError: X has 1 masked entries, got a masked array: fill them, or leave out their rows
    """
    if type(values) is np.ndarray and values.dtype.kind in "fiub":
        return values
    if count := _masked(values):
        raise ValueError(f"{name} has {count} masked entries, got a masked array: fill them, or leave out their rows")
    for column, kind in _kinds(values):
        if kind.lower().startswith("complex"):
            raise ValueError(f"{name} must hold real numbers. Complex data not supported: {column}got {kind}")
        if kind.lower().startswith(TIMES):
            raise ValueError(
                f"{name} must hold numbers, {column}got {kind}: make numbers of points and spans of time first, "
                "such as days since a date"
            )
    return values


def check_sortable(name: str, labels: Any) -> Any:
    """`labels` as they came, if they can be put in order: texts alone, or numbers alone.

    Examples
    --------
    >>> check_sortable("y", [1, "a"])
    Traceback (most recent call last):
        ...
    ValueError: y must hold labels of one kind, texts or numbers, got int and str
    """
    found = labels
    if isinstance(labels, list | tuple):
        with suppress(ValueError):  # rows of several lengths are named by scikit-learn
            found = np.array(labels, dtype=object)
    if getattr(getattr(found, "dtype", None), "kind", "") not in ("O", "S"):
        return labels
    kinds = {*map(type, np.asarray(found).flat)}
    texts = {kind for kind in kinds if issubclass(kind, str)}
    numbers = {kind for kind in kinds if issubclass(kind, Number | np.bool_)}
    if kinds not in (texts, numbers):
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"{name} must hold labels of one kind, texts or numbers, got {names}")
    return labels


def check_convertible(name: str, values: Any) -> Any:
    """`values`, with those in an array of objects made numbers, if they can be; None becomes NaN.

    Examples
    --------
    >>> check_convertible("y", np.array([1.0, {}], dtype=object))
    Traceback (most recent call last):
        ...
    ValueError: y must hold numbers, got {} at place 1
    >>> check_convertible("y", np.array([1.0, None], dtype=object))
    array([ 1., nan])
    """
    _refuse_texts(name, values, (TypeError, ValueError, OverflowError))
    with suppress(TypeError, ValueError, OverflowError):  # what is no array is left to scikit-learn
        if np.asarray(values).dtype.kind == "O":
            return np.asarray(values, dtype=float)
    return values


def check_numeric(name: str, values: Any) -> Any:
    """`values` as they came, if they are no single thing and hide nothing, and texts in them can be made numbers.

    Objects that are neither texts nor numbers are left to scikit-learn, which has its own words for them.

    Examples
    --------
    >>> check_numeric("X", [[1.0, "a"]])
    Traceback (most recent call last):
        ...
    ValueError: X must hold numbers, got 'a' at place 1
    >>> check_numeric("X", None)
    Traceback (most recent call last):
        ...
    ValueError: X must be a table of numbers with rows and columns, got None
    """
    check_visible(name, values)
    if values is None or isinstance(values, str | bytes | Mapping | Set | Number):
        raise ValueError(f"{name} must be a table of numbers with rows and columns, got {values!r:.80}")
    _refuse_texts(name, values, (ValueError, OverflowError))
    return values


def _refuse_texts(name: str, values: Any, errors: tuple[type[Exception], ...]) -> None:
    """Name the first text or object in an array or a list that cannot be made a number."""
    if isinstance(values, list | tuple):
        with suppress(ValueError):  # rows of several lengths are named by scikit-learn
            values = np.array(values, dtype=object)
    if getattr(getattr(values, "dtype", None), "kind", "") not in ("O", "U", "S"):
        return
    with suppress(TypeError, ValueError, OverflowError):
        np.asarray(values, dtype=float)
        return
    for place, value in enumerate(np.asarray(values).flat):
        try:
            float(value)
        except errors:
            shown = value.item() if isinstance(value, np.generic) else value
            raise ValueError(f"{name} must hold numbers, got {shown!r:.80} at place {place}") from None
        except TypeError:
            return


def _masked(values: Any) -> int:
    """How many entries of an array, or of a list of arrays, are masked."""
    if isinstance(values, list | tuple):
        return sum(_masked(part) for part in values if isinstance(part, np.ma.MaskedArray))
    return int(np.ma.getmaskarray(values).sum()) if isinstance(values, np.ma.MaskedArray) else 0


def _kinds(values: Any) -> list[tuple[str, str]]:
    """Where each kind of values is (in words, empty for a whole array), and its name."""
    if isinstance(values, list | tuple):
        with suppress(ValueError, TypeError, OverflowError):  # rows of several lengths are named by scikit-learn
            values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        # single numbers of NumPy become floats, their imaginary parts and units without a word
        return [("", kind.__name__) for kind in {*map(type, values.flat)}]
    if sparse.issparse(values) or isinstance(values, np.ndarray):
        return [("", str(values.dtype))]
    kinds = getattr(values, "dtypes", None)
    columns = getattr(values, "columns", None)
    if kinds is not None and columns is not None and not callable(kinds):
        first: dict[Any, Any] = {}
        for column, kind in zip(columns, list(kinds), strict=False):
            first.setdefault(kind, column)
        return [(f"column {column!r} ", str(kind)) for kind, column in first.items()]
    kind = getattr(values, "dtype", None)
    return [] if kind is None or callable(kind) else [("", str(kind))]


def stack_answers(parts: Sequence[Array]) -> Array:
    """Answers of several fits along a last axis of their own; those of a single fit as they are."""
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


def stack_traces(traces: Sequence[ArrayLike]) -> Array:
    """The trace of one fit as it is; those of several as rows, with NaN after the end of the shorter ones.

    Examples
    --------
    >>> stack_traces([[1.0, 2.0], [3.0]])
    array([[ 1.,  2.],
           [ 3., nan]])
    """
    rows = [np.atleast_1d(np.asarray(trace, float)) for trace in traces]
    if len(rows) == 1:
        return rows[0]
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


# --- Memory of large arrays that is used again as soon as nobody holds them.
#
# An operating system hands out fresh memory page by page, which may take longer than the arithmetic on it: a fit that
# makes a dozen vectors of a million numbers in every step spends most of its time there. Within `reuse_memory`,
# `empty_array` gives an array that was made earlier and that nothing refers to any more.

#: numbers from which on memory is worth keeping, and how many times as much as is needed may be taken
LARGE, WIDER = 100_000, 1.1
_kept: ContextVar[list[Array] | None] = ContextVar("kept", default=None)


@contextmanager
def reuse_memory() -> Iterator[None]:
    """While the block runs, large arrays from `empty_array` take the memory of those that are not in use any more.

    Examples
    --------
    >>> with reuse_memory():
    ...     first = empty_array(LARGE)
    ...     place = first.ctypes.data
    ...     same = empty_array(LARGE).ctypes.data == place
    ...     del first
    ...     same, empty_array(LARGE).ctypes.data == place
    (False, True)
    """
    # without one lock for all threads a count of references is not to be trusted
    counted = getattr(sys, "_is_gil_enabled", lambda: True)()
    token = None if _kept.get() is not None or not counted else _kept.set([])
    try:
        yield
    finally:
        if token is not None:
            _kept.reset(token)


def empty_array(*shape: int) -> Array:
    """An array of numbers that are not set."""
    kept, size = _kept.get(), math.prod(shape)
    if kept is None or size < LARGE:
        return np.empty(shape)
    for at in range(len(kept)):
        # views count as references to what they are views of
        if size <= len(kept[at]) <= WIDER * size and _references(kept, at) == UNUSED:
            return kept[at][:size].reshape(shape)
    kept.append(np.empty(size))
    return kept[-1].reshape(shape)


def _references(kept: list[Array], at: int) -> int:
    return sys.getrefcount(kept[at])


#: references to an array that only the list has
UNUSED = _references([np.empty(0)], 0)

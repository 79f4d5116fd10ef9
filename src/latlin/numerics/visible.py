"""Numbers as the user sees them: no hidden part of an argument is used, none is dropped without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

#: names of kinds of columns, in NumPy, pandas and polars, that are points or spans of time
TIMES = ("datetime", "timedelta", "period", "date", "duration", "time", "interval")


def visible(name: str, values: Any) -> Any:
    """`values` as they came; a ValueError where they hold what numbers would hide.

    Masked entries have data under the mask, complex numbers an imaginary part, and dates and spans of time are counts
    of some unit: none is a number that a model can take without a decision of the user's.

    Examples
    --------
    >>> visible("X", np.ma.masked_invalid([[1.0], [np.nan]]))
    Traceback (most recent call last):
        ...
    ValueError: X has 1 masked entries, got a masked array: fill them, or leave out their rows
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        count = int(np.ma.getmaskarray(values).sum())
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


def _kinds(values: Any) -> list[tuple[str, str]]:
    """Where each kind of values is first (in words, empty for a whole array), and its name."""
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

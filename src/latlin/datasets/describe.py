"""What a table holds, column by column, in words and numbers that fit on a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from latlin.datasets.columns import Series, column_of_numbers, level_counts
from latlin.datasets.table import Frame


def describe_columns(frame: Frame, categorical: Iterable[str] = ()) -> list[dict[str, Any]]:
    """One dict a column: name, kind ("numbers" or "levels"), number missing, number of different values, summary.

    Examples
    --------
    >>> import pandas
    >>> describe_columns(pandas.DataFrame({"age": [30.0, 40.0, None]}))[0]["summary"]
    'mean 35, sd 7.07, from 30 to 40'
    """
    levels = set(categorical)
    return [_describe(frame[name], name in levels) for name in frame.columns]


def _describe(series: Series, is_categorical: bool) -> dict[str, Any]:
    present = series.dropna()
    is_number = not is_categorical and column_of_numbers(present) is not None
    return {
        "name": str(series.name),
        "kind": "numbers" if is_number else "levels",
        "missing": int(series.isna().sum()),
        "distinct": int(present.nunique()),
        "summary": _numbers(present) if is_number else _levels(present),
    }


def _numbers(present: Series) -> str:
    values = column_of_numbers(present)
    if values is None or not values.size:
        return "empty"
    spread = f", sd {np.std(values, ddof=1):.3g}" if values.size > 1 else ""
    return f"mean {values.mean():.3g}{spread}, from {values.min():.4g} to {values.max():.4g}"


def _levels(present: Series) -> str:
    counts = level_counts(present)
    shown = ", ".join(f"{level} ({count})" for level, count in list(counts.items())[:4])
    return shown + (f" and {len(counts) - 4} more" if len(counts) > 4 else "")

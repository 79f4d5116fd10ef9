"""One column of a table as columns of numbers: as it is, or one indicator a level.

What a column looked like when the model was fitted (its levels, what fills a gap) is kept, so that new rows are
encoded in the same way, and a cell that does not fit is told by row and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.table import need_pandas
from latlin.numerics.arrays import Array

Series = Any  # a pandas.Series
#: more levels than the first, or more than the second and than half the rows, are names
MOST_LEVELS, FEW_LEVELS = 100, 10


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers; `fill` is its mean, which stands in for a missing value when asked to."""

    name: str
    fill: float

    @property
    def names(self) -> list[str]:
        return [self.name]

    def encode(self, series: Series) -> Array:
        """(rows, 1), NaN where a value is missing."""
        numbers = need_pandas().to_numeric(series, errors="coerce")
        values = np.array(numbers.to_numpy(float, na_value=np.nan))
        wrong = np.flatnonzero((np.isnan(values) & series.notna().to_numpy()) | np.isinf(values))
        if wrong.size:
            cell = as_text(series.iloc[wrong[0]])
            raise ValueError(f"column {self.name!r} must hold finite numbers, and has {cell!r} in row {wrong[0] + 1}")
        return values[:, None]

    def filled(self) -> Array:
        return np.array([self.fill])


@dataclass(frozen=True)
class LevelColumn:
    """A column of levels, one indicator each (only the second of two); `fill` is the most frequent one."""

    name: str
    levels: tuple[str, ...]
    fill: str

    @property
    def shown(self) -> tuple[str, ...]:
        return self.levels[1:] if len(self.levels) == 2 else self.levels

    @property
    def names(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.shown]

    def encode(self, series: Series) -> Array:
        """(rows, indicators), NaN where a value is missing."""
        place, texts = coded(series)
        unknown = np.flatnonzero(np.isin(place, [k for k, text in enumerate(texts) if text not in self.levels]))
        if unknown.size:
            row = unknown[0]
            raise ValueError(
                f"column {self.name!r} has the level {texts[place[row]]!r} in row {row + 1}, which the model has never "
                f"seen; it knows {told(self.levels)}"
            )
        # the last row is that of what is missing, place −1
        table = [[float(text == level) for level in self.shown] for text in texts]
        return np.array([*table, [np.nan] * len(self.shown)])[place]

    def filled(self) -> Array:
        return np.array([level == self.fill for level in self.shown], float)


Column = NumberColumn | LevelColumn


def learn_column(series: Series, is_categorical: bool = False) -> Column | None:
    """How to encode a column; None for one that is the same (or missing) in every row."""
    name, present = str(series.name), series.dropna()
    if present.nunique() < 2:
        return None
    if not is_categorical and (column_of_numbers(present) is not None):
        return NumberColumn(name, float(NumberColumn(name, 0.0).encode(present).mean()))
    counts = level_counts(present)
    if len(counts) > min(MOST_LEVELS, max(FEW_LEVELS, len(present) // 2)):
        raise ValueError(
            f"column {name!r} holds {len(counts)} different texts in {len(present)} rows, too many to be levels; "
            f"leave it out with drop (--drop {name})"
        )
    return LevelColumn(name, tuple(in_order(counts)), next(iter(counts)))


def column_of_numbers(series: Series) -> Array | None:
    """The values of a column of numbers or truth values, or None if it is of another kind."""
    from pandas.api import types

    if types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype):
        return series.to_numpy(float, na_value=np.nan)
    return None


def coded(series: Series) -> tuple[NDArray[np.intp], list[str]]:
    """The place of each cell's text in a list of texts, −1 where it is missing.

    Examples
    --------
    >>> import pandas
    >>> place, texts = coded(pandas.Series([2.0, None, 1.5, 2.0]))
    >>> place.tolist(), texts
    ([0, -1, 1, 0], ['2', '1.5'])
    """
    pandas = need_pandas()
    if series.dtype == object:  # True and 1 are alike to pandas, and not to people
        series = series.map(as_text, na_action="ignore")
    place, values = pandas.factorize(series)
    return place, [as_text(value) for value in values]


def level_counts(series: Series) -> dict[str, int]:
    """How often each text occurs, the most frequent first."""
    place, texts = coded(series)
    found = dict.fromkeys(texts, 0)
    for text, count in zip(texts, np.bincount(place[place >= 0], minlength=len(texts)), strict=True):
        found[text] += int(count)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def as_text(cell: Any) -> str:
    """A cell as people write it: 2.0 and 2 are the same level.

    Examples
    --------
    >>> as_text(2.0), as_text(True), as_text(0.25)
    ('2', 'True', '0.25')
    """
    if isinstance(cell, float | np.floating):
        return str(int(cell)) if float(cell).is_integer() else repr(float(cell))
    return str(cell)


def in_order(texts: Any) -> list[str]:
    """Levels by number where all are numbers, else by alphabet.

    Examples
    --------
    >>> in_order(["10", "9"]), in_order(["low", "high"])
    (['9', '10'], ['high', 'low'])
    """
    try:
        return sorted(texts, key=float)
    except ValueError:
        return sorted(texts)


def told(names: Any, most: int = 12) -> str:
    """A list of names in a sentence, cut where it gets long."""
    names = list(names)
    return ", ".join(repr(name) for name in names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")

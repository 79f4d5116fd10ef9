"""What a column of many tables holds, from one look at each: summaries that add up.

They are enough to learn how to encode the column, to guess the family of a target, and to describe the whole table as
if it had been read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latlin.datasets.columns import (
    MOST_LEVELS,
    TREATMENT,
    LevelColumn,
    Levelling,
    NumberColumn,
    Series,
    column_of_numbers,
    has_many_levels,
    level_counts,
)
from latlin.datasets.table import Frame, need_pandas

#: different values of a column that are remembered
MOST_VALUES = 2 * MOST_LEVELS


@dataclass(frozen=True)
class ColumnSummary:
    """Rows of one column, in a few numbers.

    Attributes
    ----------
    name : str
    is_number : bool
    missing, present : int
    mean, squares : float
        Of numbers; `squares` is the sum of squared deviations from the mean.
    low, high : float
        Of numbers; infinite where there are none.
    counts : dict
        Level → rows, of columns of levels; cut once there are too many to be levels.
    values : tuple
        Different values, in the order they came; of many, the first ones, and with them the smallest, the largest and
        one that is not whole.
    """

    name: str
    is_number: bool
    missing: int
    present: int
    mean: float
    squares: float
    low: float
    high: float
    counts: dict[str, int]
    values: tuple[Any, ...]

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        present = self.present + other.present
        shift = other.mean - self.mean
        share = other.present / max(present, 1)
        counts = dict(self.counts)
        for level, count in other.counts.items():
            counts[level] = counts.get(level, 0) + count
        return ColumnSummary(
            self.name,
            self.is_number,
            self.missing + other.missing,
            present,
            self.mean + share * shift,
            self.squares + other.squares + self.present * share * shift**2,
            min(self.low, other.low),
            max(self.high, other.high),
            _first(counts),
            _remembered((*self.values, *other.values)),
        )

    @property
    def series(self) -> Series:
        """The remembered values, which tell the family of a target as all rows would."""
        return need_pandas().Series(list(self.values), name=self.name)

    def column(self, levelling: Levelling = TREATMENT) -> NumberColumn | LevelColumn | None:
        """How to encode the column; None for one that is the same (or missing) in every row."""
        if len(self.values) < 2:
            return None
        if self.is_number:
            return NumberColumn(self.name, self.mean)
        if has_many_levels(len(self.counts), self.present):
            raise ValueError(
                f"column {self.name!r} holds more than {min(MOST_LEVELS, len(self.counts) - 1)} different texts in "
                f"{self.present} rows, too many to be levels; leave it out with drop (--drop {self.name})"
            )
        return levelling.column(self.name, self.counts)

    def described(self) -> dict[str, Any]:
        """As `latlin.datasets.encoding.describe_columns` has it."""
        many = len(self.values) > MOST_LEVELS
        return {
            "name": self.name,
            "kind": "numbers" if self.is_number else "levels",
            "missing": self.missing,
            "distinct": f"more than {MOST_LEVELS}" if many else len(self.values),
            "summary": self._numbers() if self.is_number else self._levels(),
        }

    def _numbers(self) -> str:
        if not self.present:
            return "empty"
        spread = f", sd {np.sqrt(self.squares / (self.present - 1)):.3g}" if self.present > 1 else ""
        return f"mean {self.mean:.3g}{spread}, from {self.low:.4g} to {self.high:.4g}"

    def _levels(self) -> str:
        often = sorted(self.counts.items(), key=lambda pair: -pair[1])
        shown = ", ".join(f"{level} ({count})" for level, count in often[:4])
        return shown + (f" and {len(often) - 4} more" if len(often) > 4 else "")


def summarise(frame: Frame, categorical: Iterable[str] = ()) -> list[ColumnSummary]:
    """One summary per column.

    Examples
    --------
    >>> import pandas
    >>> first, second = (summarise(pandas.DataFrame({"age": ages}))[0] for ages in ([30.0, 40.0], [50.0, None]))
    >>> (first + second).described()["summary"]
    'mean 40, sd 10, from 30 to 50'
    """
    levels = set(categorical)
    return [_summarised(frame[name], str(name) in levels) for name in frame.columns]


def merge(first: Sequence[ColumnSummary], second: Sequence[ColumnSummary]) -> list[ColumnSummary]:
    """Summaries of the same columns of two tables, as of both."""
    return [a + b for a, b in zip(first, second, strict=True)]


def _summarised(series: Series, is_categorical: bool) -> ColumnSummary:
    present = series.dropna()
    numbers = None if is_categorical else column_of_numbers(present)
    common = (str(series.name), numbers is not None, int(series.isna().sum()), len(present))
    values = _remembered(_values_to_keep(present.unique()))
    if numbers is None:
        return ColumnSummary(*common, 0.0, 0.0, np.inf, -np.inf, _first(level_counts(present)), values)
    mean = float(numbers.mean()) if numbers.size else 0.0
    squares = float(np.sum((numbers - mean) ** 2))
    low, high = float(numbers.min(initial=np.inf)), float(numbers.max(initial=-np.inf))
    return ColumnSummary(*common, mean, squares, low, high, {}, values)


def _first(counts: dict[str, int]) -> dict[str, int]:
    return {str(level): int(count) for level, count in list(counts.items())[: MOST_VALUES + 1]}


def _values_to_keep(different: Any) -> list[Any]:
    """All different values, or of very many numbers those that `_remembered` would keep."""
    if not isinstance(different, np.ndarray) or different.dtype.kind not in "iuf" or len(different) <= MOST_VALUES:
        return list(different.tolist())
    parts = [different[:MOST_VALUES], [different.min()], [different.max()]]
    return [*np.concatenate([*parts, different[different != np.round(different)][:1]]).tolist()]


def _remembered(values: Iterable[Any]) -> tuple[Any, ...]:
    different = list(dict.fromkeys(values))
    if len(different) <= MOST_VALUES:
        return tuple(different)
    kept = different[:MOST_VALUES]
    if all(isinstance(value, int | float) for value in different):
        kept += [min(different), max(different)]
        kept += [value for value in different if value != round(value)][:1]
    return tuple(dict.fromkeys(kept))

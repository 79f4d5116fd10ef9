"""A column of dates as features: years since the first one, the season, the day of the week, the time of day.

A season is a wave of one year, sin and cos of 2π t with t in years, so that December is beside January; a time of day
is a wave of one day. Which of these a column has is decided by the rows that the model learns from.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.columns import Series, odd_cells
from latlin.datasets.table import need_pandas
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
YEAR = 365.2425
#: days that dates must span for a season, and rows and days of the week that they must have for a week
SEASON_SPAN, WEEK_ROWS, WEEK_DAYS = 330.0, 30, 5
#: Monday, 5 January 1970, in days since 1 January 1970
MONDAY = 4


@storable
@dataclass(frozen=True)
class DateColumn:
    """A column of dates.

    Parameters
    ----------
    name : str
    first : float
        The first date, in days since 1 January 1970.
    parts : tuple of {"season", "week", "clock"}
        Features besides the years since the first date.
    fill : tuple of float
        Means of the features, which replace those of a missing date where that is wanted.
    day_first : bool
        Whether 3/4/2021 is in April.
    """

    name: str
    first: float
    parts: tuple[str, ...]
    fill: tuple[float, ...] = ()
    day_first: bool = False

    @property
    def names(self) -> list[str]:
        found = [f"{self.name} (years)"]
        if "season" in self.parts:
            found += [f"{self.name} (season, sin)", f"{self.name} (season, cos)"]
        if "week" in self.parts:
            found += [f"{self.name}={day}" for day in DAYS[1:]]
        if "clock" in self.parts:
            found += [f"{self.name} (time of day, sin)", f"{self.name} (time of day, cos)"]
        return found

    def values(self, series: Series) -> Array:
        """Days since the first date, NaN where a date is missing; cells that are no dates are named."""
        days = days_of(series, self.day_first)
        wrong = np.flatnonzero(np.isnan(days) & series.notna().to_numpy())
        if wrong.size:
            raise ValueError(f"column {self.name!r} must hold dates, and has {odd_cells(series, wrong)}")
        return np.asarray(days - self.first)

    def expand(self, values: NDArray[Any]) -> Array:
        """(rows, features), NaN where a date is missing."""
        since = np.asarray(values, float)
        days = since + self.first
        found = [since / YEAR]
        if "season" in self.parts:
            found += _wave(days / YEAR)
        if "week" in self.parts:
            weekday = np.mod(np.floor(days) - MONDAY, 7.0)
            found += [np.where(np.isnan(days), np.nan, weekday == k) for k in range(1, 7)]
        if "clock" in self.parts:
            found += _wave(np.mod(days, 1.0))
        return np.column_stack(found)

    def filled(self) -> Array:
        return np.array(self.fill)


def learn_dates(series: Series) -> DateColumn | None:
    """The features that suit a column of dates; None for one that is the same (or missing) in every row.

    Examples
    --------
    >>> import pandas
    >>> learn_dates(pandas.Series(["2021-03-01", "2021-09-15", "2022-04-20"], name="when")).names
    ['when (years)', 'when (season, sin)', 'when (season, cos)']
    """
    present, day_first = series.dropna(), _is_day_first(series)
    days = DateColumn(str(series.name), 0.0, (), day_first=day_first).values(present)
    if len(np.unique(days)) < 2:
        return None
    first, parts = float(days.min()), []
    if days.max() - first >= SEASON_SPAN:
        parts.append("season")
    if len(days) >= WEEK_ROWS and len(np.unique(np.mod(np.floor(days), 7))) >= WEEK_DAYS:
        parts.append("week")
    if len(np.unique(np.mod(days, 1.0))) > 2:
        parts.append("clock")
    made = DateColumn(str(series.name), first, tuple(parts), day_first=day_first)
    means = made.expand(days - first).mean(axis=0)
    return DateColumn(made.name, first, made.parts, tuple(means.tolist()), day_first)


def days_of(series: Series, day_first: bool = False) -> Array:
    """Days since 1 January 1970, NaN for what is no date."""
    pandas = need_pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas says when it reads cell by cell
        options = {} if series.dtype.kind == "M" else {"dayfirst": day_first}
        read = pandas.to_datetime(series, errors="coerce", utc=True, **options)
    since = read - pandas.Timestamp(0, tz="UTC")
    return np.asarray(since.dt.total_seconds().to_numpy(float)) / 86400.0


def looks_dated(series: Series) -> bool:
    """Whether a column holds dates: of that kind, or texts with digits and a mark that all can be read as dates."""
    if series.dtype.kind in "mM" or str(series.dtype).startswith("datetime64"):
        return series.dtype.kind != "m"
    present = series.dropna().drop_duplicates().head(200)
    if not len(present) or not present.map(lambda cell: isinstance(cell, str)).all():
        return False
    marked = present.str.contains(r"\d[-/.:]\d").all()
    return bool(marked) and not np.isnan(days_of(present, _is_day_first(present, False))).any()


def _is_day_first(series: Series, refuse: bool = True) -> bool:
    """Whether days come before months, by the dates that have only one reading; a sentence where none has."""
    present = series.dropna().drop_duplicates()
    if series.dtype.kind == "M" or not len(present) or not present.map(lambda cell: isinstance(cell, str)).all():
        return False
    slashed = present[present.str.match(r"\s*\d{1,2}[/.\-]\d{1,2}[/.\-]\d{2,4}")]
    if not len(slashed):
        return False
    first, second = (slashed.str.extract(r"(\d{1,2})[/.\-](\d{1,2})")[k].astype(int) for k in (0, 1))
    if refuse and not (first > 12).any() and not (second > 12).any():
        raise ValueError(
            f"column {series.name!r}: {slashed.iloc[0]!r} and all other dates can be read with the day or with the "
            "month first; write them as YYYY-MM-DD"
        )
    return bool((first > 12).any())


def _wave(turns: Array) -> list[Array]:
    return [np.sin(2.0 * np.pi * turns), np.cos(2.0 * np.pi * turns)]

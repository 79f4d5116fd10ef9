"""One column of a table as columns of numbers: as it is, or as indicators of its levels.

What a column looked like when the model was fitted (its levels, what fills a gap) is kept, so that new rows are
encoded in the same way, and a cell that does not fit is named by row and column. `values` reads the cells, as numbers
or texts with gaps; `expand` makes the columns of the model of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.table import need_pandas
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

Series = Any  # a pandas.Series
#: more levels than the first, or more than the second and than half the rows, are names
MOST_LEVELS, FEW_LEVELS = 100, 10
#: signs beside a number written for people
SIGNS = r"[\s\u00a0\u202f$€£¥₹'’%]"
#: share of cells that are no numbers up to which a column of texts is one of numbers with odd cells
NEARLY = 0.2
#: cells of a column of texts that are looked at for numbers beyond the range of doubles
LOOKED_AT = 1000
#: what pandas calls cells of objects that are numbers
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")


@storable
@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers.

    Parameters
    ----------
    name : str
    fill : float
        Its mean, which replaces a missing value where that is wanted.
    mark : {"", ".", ","}
        The decimal mark of numbers written for people, such as $1,234.50; empty for plain numbers.
    """

    name: str
    fill: float
    mark: str = ""

    @property
    def names(self) -> list[str]:
        return [self.name]

    def values(self, series: Series) -> Array:
        """The numbers, NaN where a value is missing."""
        written = self.mark and column_of_numbers(series) is None
        read = parse_numbers(series, self.mark) if written else need_pandas().to_numeric(series, errors="coerce")
        values = np.array(read.to_numpy(float, na_value=np.nan))
        wrong = np.flatnonzero((np.isnan(values) & series.notna().to_numpy()) | np.isinf(values))
        if wrong.size:
            raise ValueError(f"column {self.name!r} must hold finite numbers, and has {odd_cells(series, wrong)}")
        return values

    def expand(self, values: NDArray[Any]) -> Array:
        """(rows, 1)."""
        return np.asarray(values, float)[:, None]

    def filled(self) -> Array:
        return np.array([self.fill])


@storable
@dataclass(frozen=True)
class LevelColumn:
    """A column of levels as columns of numbers.

    Parameters
    ----------
    name : str
    levels : tuple of str
    fill : str
        The most frequent level, which replaces a missing value where that is wanted.
    coding : {"treatment", "sum", "one-hot"}
        "treatment": one indicator per level but the reference, whose coefficients are differences from it; "sum": the
        same columns with −1 in the rows of the reference, whose coefficients are differences from the mean of the
        levels; "one-hot": one indicator per level (of two levels, of the second only).
    reference : str
        A level; the first one where it is empty.
    """

    name: str
    levels: tuple[str, ...]
    fill: str
    coding: str = "one-hot"
    reference: str = ""

    @property
    def left_out(self) -> str:
        """The level without a column of its own, or empty."""
        return "" if self.coding == "one-hot" and len(self.levels) > 2 else self.reference or self.levels[0]

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(level for level in self.levels if level != self.left_out)

    @property
    def names(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.shown]

    @property
    def baseline(self) -> str:
        """What the coefficients of the levels are differences from, in words."""
        if self.coding == "sum":
            return "the mean of its levels"
        return self.left_out or "nothing (one coefficient per level)"

    def values(self, series: Series) -> NDArray[Any]:
        """The levels as texts, None where a value is missing; an unknown level is named with its row."""
        place, texts = encode_texts(series)
        unknown = np.flatnonzero(np.isin(place, [k for k, text in enumerate(texts) if text not in self.levels]))
        if unknown.size:
            row = unknown[0]
            raise ValueError(
                f"column {self.name!r} has the level {texts[place[row]]!r} in row {row + 1}, which the model has never "
                f"seen; it knows {join_names(self.levels)}"
            )
        # the last entry is that of what is missing, place −1
        return np.array([*texts, None], dtype=object)[place]

    def expand(self, values: NDArray[Any]) -> Array:
        """(rows, columns), NaN where a value is missing."""
        place = {level: k for k, level in enumerate(self.levels)}
        table = np.array([*(self._row(level) for level in self.levels), [np.nan] * len(self.shown)])
        return table[[place.get(text, -1) for text in values.tolist()]]

    def _row(self, text: str) -> list[float]:
        if self.coding == "sum" and text == self.left_out:
            return [-1.0] * len(self.shown)
        return [float(text == level) for level in self.shown]

    def filled(self) -> Array:
        return np.array(self._row(self.fill), float)


CODINGS = ("treatment", "sum", "one-hot")


class Levelling(NamedTuple):
    """How levels become numbers: the coding, and a reference level by column where it is not the first."""

    coding: str = "treatment"
    references: Mapping[str, str] = MappingProxyType({})

    def column(self, name: str, counts: Mapping[str, int]) -> LevelColumn:
        """For levels that occurred so often."""
        if self.coding not in CODINGS:
            raise ValueError(f"coding must be one of {join_names(CODINGS)}, got {self.coding!r}")
        reference, levels = self.references.get(name, ""), tuple(sort_levels(counts))
        if reference and reference not in levels:
            raise ValueError(f"the reference of {name!r} must be one of {join_names(levels)}, got {reference!r}")
        return LevelColumn(name, levels, max(counts, key=lambda level: counts[level]), self.coding, reference)


#: differences from the first level
TREATMENT = Levelling()


def learn_numbers(series: Series, mark: str = "") -> NumberColumn | None:
    """A column of numbers, plain or written for people; None for one that is the same (or missing) in every row."""
    column = NumberColumn(str(series.name), 0.0, mark)
    values = column.values(series.dropna())
    return replace(column, fill=float(values.mean())) if len(np.unique(values)) > 1 else None


def read_numbers(series: Series, mark: str = ".") -> Array:
    """The numbers of a column written for people, NaN where a cell is missing; others are named.

    Examples
    --------
    >>> import pandas
    >>> read_numbers(pandas.Series(["$1,234", None], name="price")).tolist()
    [1234.0, nan]
    """
    return NumberColumn(str(series.name), 0.0, mark).values(series)


def has_many_levels(levels: int, rows: int) -> bool:
    """Whether a column has too many different texts for a coefficient each, so that these are most likely names."""
    return levels > min(MOST_LEVELS, max(FEW_LEVELS, rows // 2))


def hint_of(name: str, **kinds: bool) -> str:
    """How texts could be made dates or numbers."""
    return "".join(f"make {kind} of them with {kind} (--{kind} {quote(name)}), or " for kind in kinds if kinds[kind])


def learn_levels(series: Series, levelling: Levelling = TREATMENT, hint: str = "") -> LevelColumn | None:
    """A column of levels; None for one that is the same (or missing) in every row."""
    name, present = str(series.name), series.dropna()
    counts = level_counts(present)
    if has_many_levels(len(counts), len(present)):
        raise ValueError(
            f"column {name!r} holds {len(counts)} different texts in {len(present)} rows, too many to be levels; "
            f"{hint}leave it out with drop (--drop {quote(name)})"
        )
    return levelling.column(name, counts) if len(counts) > 1 else None


def parse_numbers(series: Series, mark: str = ".") -> Series:
    """Texts such as $12.30, 1,234, (50) for −50, 12 % or 1 234,5 (with the mark ",") as numbers; NaN for others.

    Examples
    --------
    >>> import pandas
    >>> parse_numbers(pandas.Series(["$1,234.50", "(12)", "1,2", "15 %", "7"])).tolist()
    [1234.5, -12.0, nan, 15.0, 7.0]
    >>> parse_numbers(pandas.Series(["1.234,50 €"]), mark=",").tolist()
    [1234.5]
    """
    text = series.astype("string").str.replace(SIGNS, "", regex=True).str.replace("−", "-")
    text = text.str.replace(r"^\((.*)\)$", r"-\1", regex=True)
    group = "," if mark == "." else r"\."
    whole = rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)"
    plain = text.where(text.str.fullmatch(rf"[+-]?(?:{whole}(?:{re.escape(mark)}\d*)?|{re.escape(mark)}\d+)"))
    plain = plain.str.replace(group, "", regex=True).str.replace(mark, ".", regex=False)
    return need_pandas().to_numeric(plain, errors="coerce").astype(float)


def odd_cells(series: Series, rows: NDArray[np.intp], most: int = 3) -> str:
    """Cells by their text and the row of the first of each.

    Examples
    --------
    >>> import pandas
    >>> odd_cells(pandas.Series([1, "n/a", "?", "n/a"]), np.array([1, 2, 3]))
    "'n/a' in row 2, '?' in row 3"
    """
    first: dict[str, int] = {}
    for row in rows:
        first.setdefault(write_cell(series.iloc[row]), int(row) + 1)
    shown = ", ".join(f"{text!r} in row {row}" for text, row in list(first.items())[:most])
    more = f" and {len(first) - most} other texts" if len(first) > most else ""
    return shown + more


def refuse_containers(series: Series) -> None:
    """A column with lists, dictionaries or other cells of several values is named.

    Examples
    --------
    >>> import pandas
    >>> refuse_containers(pandas.Series([[1.0], None], name="tags"))
    Traceback (most recent call last):
        ...
    ValueError: column 'tags' must hold one number or text per cell, got [1.0] in row 1: drop it, or take it apart
    """
    several = {kind for kind in {*map(type, series)} if kind.__hash__ is None} if series.dtype == object else set()
    if several:
        row, cell = next((row, cell) for row, cell in enumerate(series, 1) if type(cell) in several)
        raise ValueError(
            f"column {str(series.name)!r} must hold one number or text per cell, got {cell!r:.40} in row {row}: "
            "drop it, or take it apart"
        )


def refuse_nearly_numbers(series: Series, is_target: bool = False, levels_by: str = "", mark: str = ".") -> None:
    """A column of texts nearly all of which are numbers gets a sentence that names the others.

    `levels_by` is how its cells could be made levels, if not by --categorical; `mark` is the decimal mark of the file,
    whose numbers stay texts where a cell is none.

    Examples
    --------
    >>> import pandas
    >>> refuse_nearly_numbers(pandas.Series(["1,5"] * 9 + ["?"], name="size"), mark=",")
    Traceback (most recent call last):
        ...
    ValueError: column 'size': 1 of 10 cells are not numbers: '?' in row 10; treat them as missing ...
    """
    if series.dtype.kind in "biufcmM" or not len(series):
        return
    cells = series if mark == "." else series.astype("string").str.replace(mark, ".", regex=False).astype(object)
    numbers = need_pandas().to_numeric(cells, errors="coerce")
    wrong = np.flatnonzero((numbers.isna() & series.notna()).to_numpy())
    # pandas 2 leaves a column with a number beyond the range of doubles as texts
    infinite = np.flatnonzero(np.isinf(numbers.to_numpy(float, na_value=np.nan)))
    endless = [row for row in (*wrong[:LOOKED_AT], *infinite[:LOOKED_AT]) if _is_endless(series.iloc[row])]
    if endless:
        said = odd_cells(series, np.array(sorted(endless)))
        raise ValueError(f"column {str(series.name)!r} must hold finite numbers, and has {said}")
    if len(wrong) and len(wrong) <= NEARLY * int(series.notna().sum()):
        marks = ",".join(dict.fromkeys(write_cell(series.iloc[row]) for row in wrong[:3]))
        what = f"the target {str(series.name)!r}" if is_target else f"column {str(series.name)!r}"
        levels = (
            ""
            if is_target
            else f", or the column as levels with {levels_by or f'--categorical {quote(str(series.name))}'}"
        )
        raise ValueError(
            f"{what}: {len(wrong)} of {len(series)} cells are not numbers: {odd_cells(series, wrong)}; "
            f"treat them as missing with --missing-values '{marks}'{levels}{_or_written(series)}"
        )


def _is_endless(cell: Any) -> bool:
    """Whether a text is a number beyond the range of doubles.

    Examples
    --------
    >>> _is_endless("1e400"), _is_endless("12"), _is_endless("inf"), _is_endless("Rome")
    (True, False, False, False)
    """
    try:
        return bool(np.isinf(float(cell))) and any(mark.isdigit() for mark in str(cell))
    except (TypeError, ValueError):
        return False


def looks_written(series: Series) -> bool:
    """Whether every cell is a number as people write it, such as $12.30 or 1,234, and some cell is no plain number."""
    present = series.dropna().drop_duplicates()
    numbers = need_pandas().to_numeric(present, errors="coerce")
    return bool(
        len(present) and numbers.isna().any() and any(parse_numbers(present, mark).notna().all() for mark in ".,")
    )


def _or_written(series: Series) -> str:
    return f", or read numbers such as $12.30 and 1,234 with --numbers {series.name}" if looks_written(series) else ""


def column_of_numbers(series: Series) -> Array | None:
    """The values of a column of numbers or truth values, or None if it is of another kind.

    Examples
    --------
    >>> import pandas
    >>> column_of_numbers(pandas.Series([1, None, 2.5], dtype=object))
    array([1. , nan, 2.5])
    """
    plain = holds_numbers(series.dtype) or (series.dtype == object and _infer(series) in NUMBERS)
    return series.to_numpy(float, na_value=np.nan) if plain else None


def _infer(series: Series) -> str:
    """What the present cells of a column of objects are."""
    return str(need_pandas().api.types.infer_dtype(series, skipna=True))


def holds_numbers(dtype: Any) -> bool:
    """Whether a column of this type holds numbers or truth values."""
    from pandas.api import types

    return bool(types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype))


def encode_texts(series: Series) -> tuple[NDArray[np.intp], list[str]]:
    """The place of each cell's text in a list of texts, −1 where it is missing.

    Examples
    --------
    >>> import pandas
    >>> place, texts = encode_texts(pandas.Series([2.0, None, 1.5, 2.0]))
    >>> place.tolist(), texts
    ([0, -1, 1, 0], ['2', '1.5'])
    """
    pandas = need_pandas()
    if series.dtype == object:  # True and 1 are alike to pandas, and not to people
        series = series.map(write_cell, na_action="ignore")
    place, values = pandas.factorize(series)
    return place, [write_cell(value) for value in values]


def level_counts(series: Series) -> dict[str, int]:
    """How often each text occurs, the most frequent first."""
    place, texts = encode_texts(series)
    found = dict.fromkeys(texts, 0)
    for text, count in zip(texts, np.bincount(place[place >= 0], minlength=len(texts)), strict=True):
        found[text] += int(count)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def write_cell(cell: Any) -> str:
    """A cell as people write it: 2.0 and 2 are the same level.

    Examples
    --------
    >>> write_cell(2.0), write_cell(True), write_cell(0.25)
    ('2', 'True', '0.25')
    """
    if isinstance(cell, float | np.floating):
        return str(int(cell)) if float(cell).is_integer() else repr(float(cell))
    return str(cell)


def sort_levels(texts: Any) -> list[str]:
    """Levels by number where all are numbers, else by alphabet.

    Examples
    --------
    >>> sort_levels(["10", "9"]), sort_levels(["low", "high"])
    (['9', '10'], ['high', 'low'])
    """
    try:
        return sorted(texts, key=float)
    except ValueError:
        return sorted(texts)


def join_names(names: Any, most: int = 12) -> str:
    """A list of names in a sentence, cut where it gets long."""
    names = list(names)
    return ", ".join(repr(name) for name in names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")

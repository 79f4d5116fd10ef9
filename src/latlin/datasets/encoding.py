"""From a table to a matrix of numbers with names, and the same way again for new rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.columns import (
    Column,
    LevelColumn,
    Levelling,
    NumberColumn,
    Series,
    column_of_numbers,
    learn_column,
    level_counts,
    listed,
)
from latlin.datasets.table import Frame, need_pandas
from latlin.numerics.stored import storable

# --- What a table holds, column by column, in words and numbers that fit on a page.


def describe_columns(frame: Frame, categorical: Iterable[str] = ()) -> list[dict[str, Any]]:
    """One dict per column: name, kind ("numbers" or "levels"), number missing, number of different values, summary.

    Examples
    --------
    >>> import pandas
    >>> describe_columns(pandas.DataFrame({"age": [30.0, 40.0, None]}))[0]["summary"]
    'mean 35, sd 7.07, from 30 to 40'
    """
    levels = set(categorical)
    together = _describe_numbers(frame, [name for name in frame.columns if name not in levels])
    return [together.get(name) or _describe(frame[name], name in levels) for name in frame.columns]


def _plain_numbers(frame: Frame, names: Iterable[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Columns that NumPy holds as finite numbers or NaN, and their values: thousands of them at once."""
    kinds = dict(zip(frame.columns, frame.dtypes, strict=True))
    plain = [name for name in names if isinstance(kinds[name], np.dtype) and kinds[name].kind in "iuf"]
    values = frame[plain].to_numpy(float)
    finite = ~np.isinf(values).any(axis=0)
    return [name for name, good in zip(plain, finite, strict=True) if good], values[:, finite]


def _describe_numbers(frame: Frame, names: list[str]) -> dict[str, dict[str, Any]]:
    """What `_describe` says of columns of plain numbers without gaps."""
    plain, values = _plain_numbers(frame, names)
    if len(values) < 2:
        return {}
    ordered = np.sort(values, axis=0)
    distinct = 1 + (ordered[1:] > ordered[:-1]).sum(axis=0)
    facts = zip(plain, values.mean(axis=0), values.std(axis=0, ddof=1), ordered[0], ordered[-1], distinct, strict=True)
    return {
        name: {
            "name": str(name),
            "kind": "numbers",
            "missing": 0,
            "distinct": int(different),
            "summary": f"mean {mean:.3g}, sd {sd:.3g}, from {low:.4g} to {high:.4g}",
        }
        for name, mean, sd, low, high, different in facts
        if not np.isnan(mean)
    }


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


MISSING = ("error", "drop", "impute")


class Encoded(NamedTuple):
    """The matrix as a data frame, which rows of the table it holds, and what was missing, by column."""

    matrix: Frame
    kept: NDArray[np.bool_]
    gaps: dict[str, int]


@storable
@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become numbers.

    Attributes
    ----------
    columns : tuple of NumberColumn and LevelColumn
    missing : {"error", "drop", "impute"}
        What a missing value does: stop with a sentence, drop its row, or become the column's mean or its most
        frequent level.
    left_out : tuple of str
        Columns that are the same in every row, and so say nothing.
    """

    columns: tuple[Column, ...]
    missing: str = "error"
    left_out: tuple[str, ...] = ()

    @property
    def factors(self) -> dict[str, dict[str, Any]]:
        """Columns of levels: their encoded columns, levels, coding, and what the coefficients are differences from."""
        return {
            column.name: {
                "features": column.names,
                "levels": list(column.levels),
                "coding": column.coding,
                "baseline": column.baseline,
            }
            for column in self.columns
            if isinstance(column, LevelColumn)
        }

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns: `column`, or `column=level`."""
        return [name for column in self.columns for name in column.names]

    def encode(self, frame: Frame, missing: str | None = None) -> Encoded:
        """Encode rows of a table that has (at least) the columns learnt from.

        Examples
        --------
        >>> import pandas
        >>> frame = pandas.DataFrame({"age": [30, 40, 50], "city": ["Rome", "Oslo", "Rome"], "y": [1, 0, 1]})
        >>> learn_encoding(frame, "y").encode(frame.head(1)).matrix
            age  city=Rome
        0  30.0        1.0
        """
        missing = checked_missing(missing or self.missing)
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise ValueError(f"the table lacks {listed(absent)}, which the model was fitted with")
        plain, values = _plain_numbers(frame, [c.name for c in self.columns if isinstance(c, NumberColumn)])
        known = {name: values[:, [k]] for k, name in enumerate(plain)}
        blocks = [known[c.name] if c.name in known else c.encode(frame[c.name]) for c in self.columns]
        holes = np.column_stack([np.isnan(block[:, 0]) for block in blocks])
        gaps = {c.name: int(n) for c, n in zip(self.columns, holes.sum(axis=0), strict=True) if n}
        if gaps and missing == "error":
            raise ValueError(
                f"there are missing values: {listed_gaps(gaps)} of {len(frame)} rows; say what to do with them: "
                "missing 'drop' or 'impute' (--missing)"
            )
        for column, block, hole in zip(self.columns, blocks, holes.T, strict=True):
            block[hole] = column.filled()
        kept = np.asarray(~holes.any(axis=1) if missing == "drop" else np.ones(len(frame), bool))
        matrix = need_pandas().DataFrame(np.column_stack(blocks)[kept], columns=self.names, index=frame.index[kept])
        return Encoded(matrix, kept, gaps)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Encoding:
        """Back from a JSON object."""
        columns = tuple(_column(column) for column in stored["columns"])
        return cls(columns, checked_missing(stored["missing"]), tuple(stored["left_out"]))


def learn_encoding(
    frame: Frame,
    target: str | None,
    *,
    missing: str = "error",
    drop: Iterable[str] = (),
    categorical: Iterable[str] = (),
    coding: str = "treatment",
    reference: Mapping[str, str] | None = None,
) -> Encoding:
    """Learn how to encode every column but the target.

    Parameters
    ----------
    frame : DataFrame
    target : str or None
        The column to leave out because it is explained by the others, if it is in the table.
    missing : {"error", "drop", "impute"}
    drop : iterable of str
        Columns to leave out.
    categorical : iterable of str
        Columns of numbers that stand for levels.
    coding : {"treatment", "sum", "one-hot"}
        How levels become numbers; see `LevelColumn`.
    reference : dict, optional
        Column → the level that the others are compared with; the first one unless given.
    """
    drop, categorical, levelling = set(drop), set(categorical), Levelling(coding, dict(reference or {}))
    goal = () if target is None else (target,)
    for name in (*goal, *drop, *categorical, *levelling.references):
        if name not in frame.columns:
            raise ValueError(f"the table has no column {name!r}; it has {listed(frame.columns)}")
    names = [name for name in frame.columns if name != target and name not in drop]
    learnt = _learnt(frame, names, categorical, levelling)
    columns = tuple(column for column in learnt.values() if column is not None)
    if len(frame) < 2:
        raise ValueError(f"the table must have at least two rows to learn from, got {len(frame)}")
    if not columns:
        besides = "" if target is None else f" besides {target!r}"
        raise ValueError(f"the table has no column{besides} that could explain it")
    return Encoding(columns, checked_missing(missing), tuple(name for name, column in learnt.items() if column is None))


def _learn_numbers(frame: Frame, names: list[str]) -> dict[str, Column | None]:
    """What `learn_column` learns of columns of plain numbers; None for those that are the same in every row."""
    plain, values = _plain_numbers(frame, names)
    if not len(values):
        return {}
    seen = ~np.isnan(values)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, values, 0.0).sum(axis=0) / count
    varies = np.fmin.reduce(values, axis=0) < np.fmax.reduce(values, axis=0)
    return {
        name: NumberColumn(str(name), float(fill)) if different else None
        for name, fill, different in zip(plain, mean, varies, strict=True)
    }


def _learnt(
    frame: Frame, names: Iterable[str], categorical: set[str], levelling: Levelling
) -> dict[str, Column | None]:
    """Every column; what is wrong with some of them is said in one message."""
    names = list(names)
    plain = _learn_numbers(frame, [name for name in names if name not in categorical])
    learnt: dict[str, Column | None] = {}
    wrong: list[str] = []
    for name in names:
        try:
            known = name in plain
            learnt[str(name)] = plain[name] if known else learn_column(frame[name], name in categorical, levelling)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError(
            "; ".join(wrong) if len(wrong) == 1 else f"{len(wrong)} columns need a word: {'; '.join(wrong)}"
        )
    return learnt


def checked_missing(missing: str) -> str:
    if missing not in MISSING:
        raise ValueError(f"missing must be one of {listed(MISSING)}, got {missing!r}")
    return missing


def listed_gaps(gaps: Mapping[str, int]) -> str:
    """Missing values by column, in a sentence."""
    return ", ".join(f"{name!r} {count}" for name, count in gaps.items())


def _column(stored: Mapping[str, Any]) -> Column:
    if "levels" in stored:
        # files of version 0.1 know one coding only
        more = (str(stored.get("coding", "one-hot")), str(stored.get("reference", "")))
        return LevelColumn(str(stored["name"]), tuple(map(str, stored["levels"])), str(stored["fill"]), *more)
    return NumberColumn(str(stored["name"]), float(stored["fill"]))

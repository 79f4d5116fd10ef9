"""From a table to a matrix of numbers with names, and the same way again for new rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.columns import (
    TREATMENT,
    LevelColumn,
    Levelling,
    NumberColumn,
    Series,
    column_of_numbers,
    hint_of,
    join_names,
    learn_levels,
    learn_numbers,
    level_counts,
    looks_written,
    refuse_containers,
    refuse_nearly_numbers,
)
from latlin.datasets.dates import DateColumn, learn_dates, looks_dated
from latlin.datasets.problems import refuse_all, refuse_unknown, sentences_of, try_collecting
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


Column = NumberColumn | LevelColumn | DateColumn
#: what can be done with missing values; "impute" is the name of "mean" in version 0.1, "modelled" means "model"
MISSING = ("error", "drop", "mean", "indicator", "model")


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
    columns : tuple of NumberColumn, LevelColumn and DateColumn
    missing : {"error", "drop", "mean", "indicator", "model"}
        What a missing value does: stop with a sentence; drop its row; become the column's mean or its most frequent
        level; the same with one more column "… missing" of 0 and 1; or become what the other columns of its row say of
        it, by `latlin.factor.MixedFactorAnalysis`.
    left_out : tuple of str
        Columns that are the same in every row, and so explain nothing.
    indicated : tuple of str
        Columns that have an indicator of missing values.
    imputer : MixedFactorAnalysis or None
        The model of missing values.
    is_unnamed : bool
        Whether the rows came as an array, whose columns are called x0, x1 and so on.
    """

    columns: tuple[Column, ...]
    missing: str = "error"
    left_out: tuple[str, ...] = ()
    indicated: tuple[str, ...] = ()
    imputer: Any = field(default=None, compare=False)
    is_unnamed: bool = False

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
        """Names of the encoded columns: `column`, `column=level`, `column (years)`, `column missing`."""
        return [name for column in self.columns for name in column.names] + [f"{n} missing" for n in self.indicated]

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
        missing = self._policy(missing)
        values = self._values(frame)
        holes = np.column_stack([_is_gap(values[column.name]) for column in self.columns])
        gaps = {c.name: int(n) for c, n in zip(self.columns, holes.sum(axis=0), strict=True) if n}
        if gaps and missing == "error":
            raise ValueError(_refusal(gaps, len(frame)))
        if gaps and missing == "model":
            values = self._modelled(values, np.asarray(holes.any(axis=1)))
        blocks = [column.expand(values[column.name]) for column in self.columns]
        for column, block, hole in zip(self.columns, blocks, holes.T, strict=True):
            if missing != "model":
                block[hole] = column.filled()
        marks = [holes[:, [k]] for k, column in enumerate(self.columns) if column.name in self.indicated]
        kept = np.asarray(~holes.any(axis=1) if missing == "drop" else np.ones(len(frame), bool))
        table = np.column_stack([*blocks, *marks])[kept]
        matrix = need_pandas().DataFrame(table, columns=self.names, index=frame.index[kept])
        return Encoded(matrix, kept, gaps)

    def _policy(self, missing: str | None) -> str:
        missing = self.missing if missing is None else check_missing(missing)
        if missing == "model" and self.imputer is None:
            raise ValueError("missing='model' needs a model that was fitted with it, and this one was not")
        return missing

    def _values(self, frame: Frame) -> dict[str, NDArray[Any]]:
        """Cells by column: numbers, texts of levels, days, with NaN and None where they are missing."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise ValueError(f"the table lacks {join_names(absent)}, which the model was fitted with")
        plain, table = _plain_numbers(frame, [c.name for c in self.columns if isinstance(c, NumberColumn)])
        known = {name: table[:, k] for k, name in enumerate(plain)}
        return {c.name: known[c.name] if c.name in known else c.values(frame[c.name]) for c in self.columns}

    def _modelled(self, values: dict[str, NDArray[Any]], rows: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """The cells with those that are missing replaced by what the imputer expects."""
        pandas = need_pandas()
        filled = self.imputer.impute(pandas.DataFrame({name: cells[rows] for name, cells in values.items()}))
        found = {name: cells.copy() for name, cells in values.items()}
        for name, cells in found.items():
            cells[rows] = filled[name].to_numpy()
        return found


def learn_encoding(
    frame: Frame,
    target: str | None,
    *,
    missing: str = "error",
    drop: Iterable[str] = (),
    categorical: Iterable[str] = (),
    dates: Iterable[str] = (),
    numbers: Iterable[str] = (),
    decimal: str = ".",
    coding: str = "treatment",
    reference: Mapping[str, str] | None = None,
) -> Encoding:
    """Learn how to encode every column but the target.

    Parameters
    ----------
    frame : DataFrame
    target : str or None
        The column to leave out because it is explained by the others, if it is in the table.
    missing : {"error", "drop", "mean", "indicator", "model"}
        What a missing value does; see `Encoding`.
    drop : iterable of str
        Columns to leave out.
    categorical : iterable of str
        Columns of numbers that stand for levels.
    dates : iterable of str
        Columns of dates, which become years since the first one and, where the rows allow it, season, day of the week
        and time of day.
    numbers : iterable of str
        Columns of numbers written for people, such as $12.30, 1,234, (50) or 12 %.
    decimal : {".", ","}
        Their decimal mark.
    coding : {"treatment", "sum", "one-hot"}
        How levels become numbers; see `LevelColumn`.
    reference : dict, optional
        Column → the level that the others are compared with; the first one unless given.
    """
    drop, levelling = set(drop), Levelling(coding, dict(reference or {}))
    kinds = _requested_kinds({"categorical": categorical, "dates": dates, "numbers": numbers})
    goal = () if target is None else (target,)
    refuse_unknown(frame.columns, (*goal, *drop, *kinds, *levelling.references))
    names = [name for name in frame.columns if name != target and name not in drop]
    problems: list[str] = []
    learnt = try_collecting(problems, lambda: _learnt(frame, names, kinds, levelling, decimal), {})
    if problems and check_missing(missing) == "error":
        problems.append(refusal_of_gaps(frame[names]))
    refuse_all(problems)
    columns = tuple(column for column in learnt.values() if column is not None)
    if len(frame) < 2:
        raise ValueError(f"the table must have at least two rows to learn from, got {len(frame)}")
    if not columns:
        besides = "" if target is None else f" besides {target!r}"
        raise ValueError(f"the table has no column{besides} that could explain it")
    made = Encoding(columns, check_missing(missing), tuple(name for name, column in learnt.items() if column is None))
    return _with_gaps(made, frame)


def fill_missing(frame: Frame, missing: str) -> Frame:
    """A table without gaps: rows dropped, or cells filled, as `learn_encoding` does it; numbers and texts stay so.

    Examples
    --------
    >>> import pandas
    >>> table = pandas.DataFrame({"age": [30.0, None, 50.0], "city": ["Rome", "Oslo", None]})
    >>> fill_missing(table, "mean")["age"].tolist(), len(fill_missing(table, "drop"))
    ([30.0, 40.0, 50.0], 1)
    """
    missing = check_missing(missing)
    gappy = [name for name in frame.columns if frame[name].isna().any()]
    if missing == "error" or not gappy:
        return frame
    if missing == "drop":
        return frame.dropna()
    encoding = learn_encoding(frame, None, missing=missing, drop=_names_only(frame, set(gappy)))
    values = encoding._values(frame)
    holes = {name: _is_gap(cells) for name, cells in values.items()}
    if missing == "model":
        values = encoding._modelled(values, np.logical_or.reduce(list(holes.values())))
    else:
        fills = {column.name: column.fill for column in encoding.columns}
        for name, cells in values.items():
            cells[holes[name]] = fills[name]
    filled = frame.copy()
    for name in gappy:
        whole = values.get(name)
        if whole is None:
            raise ValueError(f"column {name!r} has missing values and is the same in every other row: leave it out")
        filled[name] = frame[name].astype(object).where(~holes[name], whole).infer_objects()
        if missing == "indicator":
            filled[f"{name} missing"] = holes[name].astype(float)
    return filled


def _names_only(frame: Frame, needed: set[str]) -> list[str]:
    """Columns that cannot be encoded and need not be: names, dates and the like without gaps."""
    spare = []
    for name in frame.columns:
        if name not in needed:
            try:
                learn_column(frame[name])
            except ValueError:
                spare.append(name)
    return spare


def _requested_kinds(named: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Column → what it holds, where that was said."""
    kinds: dict[str, str] = {}
    for kind, names in named.items():
        for name in [names] if isinstance(names, str) else names:
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"column {name!r} is named in {kinds[name]} and in {kind}: choose one")
    return kinds


def _with_gaps(encoding: Encoding, frame: Frame) -> Encoding:
    """The encoding with what its policy needs: columns to indicate, or a model of the cells."""
    if encoding.missing == "indicator":
        gappy = tuple(c.name for c in encoding.columns if frame[c.name].isna().any())
        return replace(encoding, indicated=gappy)
    if encoding.missing == "model":
        return replace(encoding, imputer=_learn_imputer(encoding, encoding._values(frame)))
    return encoding


def _learn_imputer(encoding: Encoding, values: dict[str, NDArray[Any]]) -> Any:
    from latlin.factor.mixed.estimator import MixedFactorAnalysis  # only missing cells need it

    if len(values) < 2:
        raise ValueError("missing='model' learns a column from the others, and there is only one: use 'mean'")
    kinds = {c.name: "real" if not isinstance(c, LevelColumn) else _level_kind(c) for c in encoding.columns}
    latents = 1 if len(values) < 5 else 2 if len(values) < 12 else 4
    return MixedFactorAnalysis(latents, types=kinds, random_state=0).fit(need_pandas().DataFrame(values))


def _level_kind(column: LevelColumn) -> str:
    return "binary" if len(column.levels) == 2 else "categorical"


def _is_gap(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind == "f" else np.array([cell is None for cell in values.tolist()], bool)


def _learn_numbers(frame: Frame, names: list[str]) -> dict[str, Column | None]:
    """What `learn_numbers` learns of columns of plain numbers; None for those that are the same in every row."""
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
    frame: Frame, names: Iterable[str], kinds: Mapping[str, str], levelling: Levelling, decimal: str
) -> dict[str, Column | None]:
    """Every column; what is wrong with some of them is said in one message."""
    names, wrong = list(names), list[str]()
    plain = _learn_numbers(frame, [name for name in names if name not in kinds])
    learnt: dict[str, Column | None] = {}
    for name in names:
        try:
            kind = kinds.get(name, "")
            learnt[str(name)] = plain[name] if name in plain else learn_column(frame[name], kind, levelling, decimal)
        except ValueError as error:
            wrong.extend(sentences_of(error))
    refuse_all(wrong)
    return learnt


def learn_column(series: Series, kind: str = "", levelling: Levelling = TREATMENT, decimal: str = ".") -> Column | None:
    """A column by what was said of it, or by what its cells are."""
    refuse_containers(series)
    if kind == "dates":
        return learn_dates(series)
    if kind == "numbers":
        return learn_numbers(series, decimal)
    if kind == "categorical" or series.dropna().nunique() < 2:
        return learn_levels(series, levelling)
    if column_of_numbers(series.dropna()) is not None:
        return learn_numbers(series)
    name, is_dated = str(series.name), looks_dated(series)
    if is_dated and series.dtype.kind == "M":
        raise ValueError(
            f"column {name!r} holds dates: make features of them with dates (--dates {name}), take them as levels with "
            f"categorical (--categorical {name}), or leave the column out with drop (--drop {name})"
        )
    refuse_nearly_numbers(series, mark=decimal)
    return learn_levels(series, levelling, hint_of(name, dates=is_dated, numbers=looks_written(series)))


def refuse_gaps(frame: Frame, encoding: Encoding) -> None:
    """A sentence where cells of the encoded columns are missing."""
    if words := refusal_of_gaps(frame[[column.name for column in encoding.columns]]):
        raise ValueError(words)


def refusal_of_gaps(frame: Frame) -> str:
    """Missing cells by column and what can be done about them, in a sentence; empty where there are none."""
    counts = frame.isna().sum()
    return _refusal({str(name): int(count) for name, count in counts.items() if count}, len(frame))


def _refusal(gaps: Mapping[str, int], rows: int) -> str:
    if not gaps:
        return ""
    return (
        f"there are missing values: {describe_gaps(gaps)} of {rows} rows; say what to do with them by "
        "missing (--missing): 'drop', 'mean', 'indicator' or 'model'"
    )


def check_missing(missing: str) -> str:
    missing = {"impute": "mean", "modelled": "model"}.get(missing, missing)
    if missing not in MISSING:
        raise ValueError(f"missing must be one of {join_names(MISSING)}, got {missing!r}")
    return missing


def describe_gaps(gaps: Mapping[str, int]) -> str:
    """Missing values by column, in a sentence."""
    return ", ".join(f"{name!r} {count}" for name, count in gaps.items())

"""Missing and odd cells of the columns that a formula names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latlin.datasets.columns import (
    column_of_numbers,
    has_many_levels,
    level_counts,
    looks_written,
    refuse_nearly_numbers,
)
from latlin.datasets.dates import looks_dated
from latlin.datasets.encoding import check_missing, fill_missing
from latlin.datasets.problems import refuse_all
from latlin.datasets.table import Frame

#: share of the rows that a column may cost without being named
COSTLY = 0.1
#: functions, and what is in brackets
CALLS = re.compile(r"\w*\((?:[^()]|\([^()]*\))*\)")


def fill_formula(frame: Frame, formula: str, missing: str, others: Sequence[str] = ()) -> tuple[Frame, list[str]]:
    """The columns that a formula names, without gaps as the policy says, and what was done about these.

    Rows without a response are left out unless the policy is "error". What else prevents a fit is said with the gaps.

    Examples
    --------
    >>> import pandas
    >>> table = pandas.DataFrame({"y": [1.0, None, 3.0], "x": [1.0, 2.0, None], "other": [None, 1.0, 2.0]})
    >>> made, notes = fill_formula(table, "y ~ x", "drop")
    >>> len(made), *notes[0].split("; ")
    (1, "Missing cells: 1 in 'y', 1 in 'x'", '2 of 3 rows were left out',
     "1 of these has no 'x': a formula without it uses 1 row more.")
    """
    if check_missing(missing) == "indicator":
        raise ValueError(
            "missing 'indicator' cannot be used with a formula, which names its columns: use drop, mean or model"
        )
    goal, _, rest = formula.partition("~")
    response = named_columns(frame, goal)
    explaining = [name for name in named_columns(frame, rest) if name not in response]
    named = frame[[*response, *explaining]]
    gaps = {name: int(count) for name, count in named.isna().sum().items() if count}
    counts = ", ".join(f"{count} in {name!r}" for name, count in gaps.items())
    problems = [*others, *_odd_cells(named, response), *_names(frame, rest)]
    if gaps and missing == "error":
        problems.append(
            f"the columns of the formula have missing cells: {counts}; say what to do with them by "
            "missing (--missing): 'drop' leaves these rows out, 'mean' and 'model' fill the cells of columns that "
            "explain (rows without an outcome are left out)"
        )
    refuse_all(problems)
    if missing == "error":
        return frame, []
    # by places, since labels of rows may be there twice
    known = named.reset_index(drop=True).dropna(subset=response)
    made = fill_missing(known.drop(columns=response), missing).join(known[response])
    made.index = named.index[made.index]
    left = len(frame) - len(made)
    did = f"{left} of {len(frame)} rows were left out" if left else ""
    did += _costly(named, explaining) if missing == "drop" else ""
    if missing != "drop" and any(name not in response for name in gaps):
        did += f"{'; ' if did else ''}gaps in columns that explain were filled (missing {missing!r})"
    return made, [f"Missing cells: {counts}; {did}."] if gaps else []


def _costly(named: Frame, explaining: list[str]) -> str:
    """Columns whose gaps cost more than a tenth of the rows, and how many rows there would be without them."""
    empty = named.isna()
    costly = [name for name in explaining if empty[name].sum() > COSTLY * len(named)]
    gained = int((empty[costly].any(axis=1) & ~empty.drop(columns=costly).any(axis=1)).sum())
    if not gained:
        return ""
    counts = [(name, int(empty[name].sum())) for name in costly]
    these = ", ".join(f"{count} of these {'has' if count == 1 else 'have'} no {name!r}" for name, count in counts)
    without = f"a formula without {'it' if len(costly) == 1 else 'them'}"
    return f"; {these}: {without} uses {gained} row{'s' * (gained > 1)} more"


def _odd_cells(named: Frame, response: list[str]) -> list[str]:
    """Columns of numbers in which some cells are texts, each in a sentence."""
    found = []
    for name in named.columns:
        try:
            refuse_nearly_numbers(named[name], name in response, f"C({name}) in the formula")
        except ValueError as error:
            found.append(str(error))
    return found


def _names(frame: Frame, rest: str) -> list[str]:
    """Columns with a coefficient per text, of which there are too many; C(…) insists on them, (1 | …) is a group."""
    found = []
    for name in named_columns(frame, CALLS.sub("", rest)):
        series = frame[name].dropna()
        if series.dtype.kind in "biufcmM" or series.dtype == "category" or column_of_numbers(series) is not None:
            continue
        if has_many_levels(texts := len(level_counts(series)), len(series)):
            numbers = f"make numbers of them with --numbers {name!r}, " if looks_written(series) else ""
            if looks_dated(series):
                numbers = "if they are dates, add a column of numbers to the table, such as days since the first date; "
            found.append(
                f"column {name!r} holds {texts} different texts in {len(series)} rows, too many for a coefficient "
                f"each; {numbers}write (1 | {name}) if they are groups, or C({name}) if you want all these coefficients"
            )
    return found


def named_columns(frame: Frame, words: str) -> list[str]:
    """Columns whose names occur in an expression, not as the names of functions.

    Examples
    --------
    >>> import pandas
    >>> named_columns(pandas.DataFrame(columns=["s", "t", "log"]), "s(t) + log (t)")
    ['t']
    """
    return [name for name in frame.columns if re.search(rf"(?<!\w){re.escape(str(name))}(?!\w|\s*\()", words)]

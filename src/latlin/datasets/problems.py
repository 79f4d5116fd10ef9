"""Everything that is wrong with a table, in one message with a line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from latlin.datasets.columns import join_names

#: how like a name must be that may have been meant
LIKE = 0.7


class TableProblems(ValueError):
    """Several things that prevent a fit, each in a sentence of its own.

    Examples
    --------
    >>> print(TableProblems(["'x' has texts", "'y' has gaps"]))
    2 things need a decision:
    - 'x' has texts
    - 'y' has gaps
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        super().__init__(tuple(sentences))

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence per problem."""
        found: tuple[str, ...] = self.args[0]
        return found

    def __str__(self) -> str:
        return "\n- ".join([f"{len(self.sentences)} things need a decision:", *self.sentences])


def refuse_all(sentences: Iterable[str]) -> None:
    """Raise one error for all sentences; with none, do nothing.

    Examples
    --------
    >>> refuse_all([])
    >>> refuse_all(["'x' has texts"])
    Traceback (most recent call last):
    ValueError: 'x' has texts
    """
    told = tuple(dict.fromkeys(filter(None, sentences)))
    if told:
        raise ValueError(told[0]) if len(told) == 1 else TableProblems(told)


def sentences_of(error: ValueError) -> tuple[str, ...]:
    """The sentences of an error, one per problem."""
    return error.sentences if isinstance(error, TableProblems) else (str(error),)


def try_collecting(problems: list[str], make: Callable[[], Any], otherwise: Any) -> Any:
    """What a function makes; or something else, and its sentences among the problems."""
    try:
        return make()
    except ValueError as error:
        problems.extend(sentences_of(error))
        return otherwise


def absent_words(absent: Sequence[str], columns: Any) -> str:
    """What is said of columns that a table does not have; names that are nearly theirs are shown.

    Examples
    --------
    >>> absent_words(["moth", "z"], ["month", "age"])
    "the table has no column 'moth' (did you mean 'month'?) and no column 'z'; it has 'month', 'age'"
    """
    small = {str(name).lower(): str(name) for name in columns}
    near = [get_close_matches(name.lower(), small, 1, LIKE) for name in absent]
    said = [
        f"no column {name!r}" + (f" (did you mean {small[found[0]]!r}?)" if found else "")
        for name, found in zip(absent, near, strict=True)
    ]
    return f"the table has {' and '.join(said)}; it has {join_names(columns) or 'none'}"


def refuse_unknown(columns: Any, names: Sequence[str]) -> None:
    """Columns that are named but not there, all in one sentence."""
    absent = [name for name in dict.fromkeys(names) if name not in columns]
    if absent:
        raise ValueError(absent_words(absent, columns))

"""Everything that is wrong with a table, in one message with a line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


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

"""What the commands print: plain text in rich tables, in which nothing from a file is taken for markup."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from latlin.datasets.problems import TableProblems
from latlin.distributed.clusters import ClusterError
from latlin.numerics.threads import announce_compiling

WIDE = 200
#: an option as Python and the terminal spell it: drop (--drop x)
OPTION = re.compile(r"\b[a-z]+(?: '[a-z]+')? \((--[^()]+)\)")


def screen() -> Console:
    """Standard output; wide when it is a file or a pipe, so that nothing is cut there."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)


def mask_controls(value: Any) -> str:
    """Text without characters that would steer a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))


def mask_lines(words: str) -> str:
    """Several lines, each without characters that would steer a terminal."""
    return "\n".join(mask_controls(line) for line in words.splitlines())


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table; columns of numbers are set flush right."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(headings))
    lines = [[mask_controls(cell) for cell in row] for row in rows]
    for place, heading in enumerate(headings):
        is_number = all(_is_number(line[place]) for line in lines)
        made.add_column(mask_controls(heading), justify="right" if is_number else "left", overflow="fold")
    for line in lines:
        made.add_row(*line)
    return made


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell == "–"
    return True


def format_number(value: Any, form: str = ".4g") -> str:
    """A number, or a dash where there is none; what is rounded to zero has no sign.

    Examples
    --------
    >>> format_number(-0.00004, ".4f"), format_number(float("nan"))
    ('0.0000', '–')
    """
    return f"{value:z{form}}" if isinstance(value, int | float) and value == value else "–"


@contextmanager
def show_steps(words: str, total: int, quiet: bool = False) -> Iterator[Any]:
    """A progress bar on standard error, if that is a terminal; yields a function (words=None) → one step done."""
    shown = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=shown, transient=True, disable=quiet or not shown.is_terminal) as bar:
        task = bar.add_task(mask_controls(words), total=total)

        def advance(text: str | None = None) -> None:
            bar.update(task, advance=1, description=None if text is None else mask_controls(text))

        with nullcontext() if quiet else announce_compiling(shown.print):
            yield advance


@contextmanager
def report_errors(debug: bool) -> Iterator[None]:
    """Errors become one sentence and exit code 1; warnings become notes. With `debug` both stay as they are."""
    if debug:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            _show_warnings(caught)
            typer.echo(f"latlin: {mask_lines(explain_error(error))}", err=True)
            raise typer.Exit(1) from None
    _show_warnings(caught)


def _show_warnings(caught: list[warnings.WarningMessage]) -> None:
    shown = (str(warning.message) for warning in caught if issubclass(warning.category, UserWarning | RuntimeWarning))
    for words in dict.fromkeys(" ".join(text.split()) for text in shown):
        typer.echo(f"note: {mask_controls(words)}", err=True)


def explain_error(error: Exception) -> str:
    """An error as the terminal shows it: options as flags, several problems one per line.

    Examples
    --------
    >>> print(explain_error(TableProblems(["leave 'x' out with drop (--drop x)", "'y' has gaps"])))
    2 things need a decision:
    - leave 'x' out with --drop x
    - 'y' has gaps
    """
    if not isinstance(error, TableProblems):
        return OPTION.sub(r"\1", error_sentence(error))
    lines = str(error).splitlines() if not any("\n" in words for words in error.sentences) else [error_sentence(error)]
    return "\n".join(OPTION.sub(r"\1", line) for line in lines)


def error_sentence(error: Exception) -> str:
    """What went wrong, on one line.

    Examples
    --------
    >>> error_sentence(ValueError("two\\nlines"))
    'two lines'
    >>> error_sentence(KeyError("x"))
    "unexpected KeyError: 'x' (run again with --debug to see where)"
    """
    words = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, ValueError | ImportError | OSError | ClusterError) and words:
        return words
    return f"unexpected {type(error).__name__}: {words} (run again with --debug to see where)"

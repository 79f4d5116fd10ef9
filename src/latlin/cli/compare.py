"""`latlin compare`: families and engines beside each other, by evidence and on rows they have not seen."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from latlin.cli.models import Choices, checked_engine, make_estimator, prepare
from latlin.cli.screen import decimal, plain, steps, table
from latlin.datasets.table import Frame
from latlin.datasets.target import KINDS, LABELLED, Guess, Target, kind_of
from latlin.numerics.alerts import MisfitWarning
from latlin.report.assess import held_out_score

HEADINGS = ("family", "engine", "log evidence", "kind", "held out", "±", "seconds", "note")
#: engines unless told, for rows in memory and for rows in blocks
ENGINES, BLOCK_ENGINES = ("laplace", "lvb", "ep", "gkl"), ("laplace", "gkl")
#: families that are tried unless told, by what the target holds; all of its kind can be compared
USUAL = {
    "numbers": ("linear", "robust", "sparse"),
    "counts": ("poisson", "negative-binomial"),
    "amounts": ("gamma", "log-normal", "inverse-gaussian"),
}


def rivals(family: str) -> tuple[str, ...]:
    """Families whose log densities are of the same thing, so that they can be compared."""
    if family in LABELLED:
        return ("ordinal", "logistic") if family == "ordinal" else ("logistic", "probit")
    return KINDS[kind_of(family)]


class Candidate(NamedTuple):
    """One line of the table to be."""

    target: Target
    engine: str


def candidates(
    target: Target, families: Sequence[str], engines: Sequence[str], usual: Sequence[str] = ENGINES
) -> list[Candidate]:
    """Families that suit the target, each by the engines told, or else the usual ones; the linear family is exact."""
    for engine in engines:
        checked_engine(engine)
    suited = rivals(target.family)
    chosen = families or USUAL.get(kind_of(target.family), suited)
    for family in chosen:
        if family not in suited:
            raise ValueError(
                f"family {family!r} cannot be compared with {target.family!r} on {target.name!r}; "
                f"families must be among {', '.join(suited)}"
            )
    lines = []
    for family in chosen:
        default = ("auto",) if family == "linear" else usual
        lines += [Candidate(replace(target, family=family), engine) for engine in engines or default]
    return lines


class Trying(NamedTuple):
    """What to compare, and how: families and engines (those that suit unless told), folds of held-out rows."""

    families: Sequence[str] = ()
    engines: Sequence[str] = ()
    prior_scale: float | str = "auto"
    folds: int = 5
    quiet: bool = False


class Found(NamedTuple):
    """One dict a candidate with the keys of `HEADINGS`, best first; how many rows there were, and notes on them."""

    rows: list[dict[str, Any]]
    n_rows: int
    notes: list[str]


class Trial(NamedTuple):
    """Rows to try all candidates on, in memory or in blocks."""

    X: Any
    y: Any
    prior_scale: float | str
    folds: int
    offset: Any = None


def compare_table(frame: Frame, choices: Choices, how: Trying, ask: Callable[[Guess], str]) -> Found:
    """All candidates on a table in memory."""
    rows = prepare(frame, choices, ask)
    if how.folds > len(rows.y):
        raise ValueError(f"folds must be at most the number of rows, {len(rows.y)}, got {how.folds}")
    lines = candidates(rows.target, how.families, how.engines)
    return Found(
        _compared(Trial(rows.X, rows.y, how.prior_scale, how.folds, rows.offset), lines, how.quiet),
        len(rows.y),
        rows.notes,
    )


def compare_blocks(pattern: str, choices: Choices, how: Trying, ask: Callable[[Guess], str]) -> Found:
    """All candidates on the rows of many files."""
    from latlin.cli.blocks import look_at, spreads, told_rows  # Dask may be missing

    rows = look_at(pattern, choices, ask)
    lines = candidates(rows.target, how.families, how.engines, BLOCK_ENGINES)
    compared = _compared(Trial(rows.X, rows.y, how.prior_scale, how.folds), lines, how.quiet)
    count, _ = spreads(rows)
    return Found(compared, count, told_rows(rows, count))


def tell_comparison(found: Found, folds: int, console: Console) -> None:
    """The table, in a terminal."""
    for note in found.notes:
        console.print(plain(note))
    held_out = f"held out: log predictive density a row, {folds} folds, best first"
    console.print(f"{found.n_rows} rows; {held_out if folds else 'no rows held out; best evidence first'}\n")
    console.print(table(HEADINGS, map(cells, found.rows)))


def _compared(trial: Trial, lines: Sequence[Candidate], quiet: bool) -> list[dict[str, Any]]:
    """One that does not apply says why."""
    rows = []
    with steps("Comparing", len(lines), quiet) as advance:
        for line in lines:
            rows.append(_row(trial, line))
            advance()
    return ranked(rows)


def _row(trial: Trial, line: Candidate) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(HEADINGS) | {"family": line.target.family, "engine": line.engine, "note": ""}
    try:
        estimator = make_estimator(line.target, line.engine, trial.prior_scale)
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MisfitWarning)
            estimator.fit(trial.X, trial.y, **({} if trial.offset is None else {"offset": trial.offset}))
        row["seconds"] = time.perf_counter() - started
        values = getattr(estimator, "log_evidence_", float("nan"))
        row |= {"log evidence": float(_total(values)), "kind": estimator.evidence_kind_}
        if trial.folds:
            score = held_out_score(estimator, trial.X, trial.y, folds=trial.folds, offset=trial.offset)
            row |= dict(zip(("held out", "±"), score, strict=True))
    except ValueError as error:
        return row | {"note": " ".join(str(error).split())}
    return row if estimator.converged_ else row | {"note": "did not converge"}


def _total(values: Any) -> float:
    return float(values.sum()) if hasattr(values, "sum") else float(values)


def ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Best held-out density first, or best evidence where nothing was held out; those that do not apply last."""
    return sorted(rows, key=lambda row: (row["kind"] is None, row["held out"] is None, -_score(row)))


def _score(row: dict[str, Any]) -> float:
    value = row["held out"] if row["held out"] is not None else row["log evidence"]
    return -np.inf if value is None or np.isnan(value) else float(value)


def cells(row: dict[str, Any]) -> list[str]:
    """A line as people read it."""
    forms = {"log evidence": ".3f", "held out": ".4f", "±": ".4f", "seconds": ".2f"}
    return [decimal(row[name], forms[name]) if name in forms else str(row[name] or "") for name in HEADINGS]

"""`latlin compare`: families and engines beside each other, by evidence and on rows they have not seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from latlin.cli.models import Prepared, make_estimator
from latlin.cli.screen import decimal
from latlin.datasets.target import Target
from latlin.report.assess import held_out_density

HEADINGS = ("family", "engine", "log evidence", "kind", "held out", "±", "seconds", "note")
ENGINES = ("laplace", "lvb", "ep", "gkl")
#: families whose log densities are of the same thing, so that they can be compared
RIVALS = {
    "linear": ("linear", "robust", "sparse"),
    "robust": ("linear", "robust", "sparse"),
    "sparse": ("linear", "robust", "sparse"),
    "logistic": ("logistic", "probit"),
    "probit": ("logistic", "probit"),
    "ordinal": ("ordinal", "logistic"),
    "poisson": ("poisson",),
}


class Candidate(NamedTuple):
    """One line of the table to be."""

    target: Target
    engine: str


def candidates(target: Target, families: Sequence[str], engines: Sequence[str]) -> list[Candidate]:
    """Families that suit the target, each by its engines; the linear family is exact."""
    chosen = families or RIVALS[target.family]
    for family in chosen:
        if family not in RIVALS[target.family]:
            raise ValueError(
                f"family {family!r} cannot be compared with {target.family!r} on {target.name!r}; "
                f"families must be among {', '.join(RIVALS[target.family])}"
            )
    lines = []
    for family in chosen:
        default = ("auto",) if family == "linear" else ENGINES
        lines += [Candidate(replace(target, family=family), engine) for engine in engines or default]
    return lines


def compare_rows(
    prepared: Prepared, lines: Sequence[Candidate], prior_scale: float | str, folds: int, advance: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """One dict a candidate, with the keys of `HEADINGS`; one that does not apply says why."""
    for line in lines:
        yield _row(prepared, line, prior_scale, folds)
        advance()


def _row(prepared: Prepared, line: Candidate, prior_scale: float | str, folds: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(HEADINGS) | {"family": line.target.family, "engine": line.engine, "note": ""}
    try:
        estimator = make_estimator(line.target, line.engine, prior_scale)
        started = time.perf_counter()
        estimator.fit(prepared.X, prepared.y)
        row["seconds"] = time.perf_counter() - started
        density = held_out_density(estimator, prepared.X, prepared.y, folds=folds)
    except ValueError as error:
        return row | {"note": " ".join(str(error).split())}
    values = getattr(estimator, "log_evidence_", float("nan"))
    row |= {"log evidence": float(_total(values)), "kind": estimator.evidence_kind_}
    row |= {"held out": float(density.mean()), "±": float(density.std(ddof=1) / len(density) ** 0.5)}
    return row if estimator.converged_ else row | {"note": "did not converge"}


def _total(values: Any) -> float:
    return float(values.sum()) if hasattr(values, "sum") else float(values)


def ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Best held-out density first, those that do not apply last."""
    return sorted(rows, key=lambda row: (row["held out"] is None, -(row["held out"] or 0.0)))


def cells(row: dict[str, Any]) -> list[str]:
    """A line as people read it."""
    forms = {"log evidence": ".3f", "held out": ".4f", "±": ".4f", "seconds": ".2f"}
    return [decimal(row[name], forms[name]) if name in forms else str(row[name] or "") for name in HEADINGS]

"""Additive models on the command line: `latlin fit data.csv --formula "y ~ x + (1 | g)"`."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from latlin.additive import AdditiveModel
from latlin.additive.formula import read_formula
from latlin.additive.frame import column, is_category
from latlin.cli.screen import decimal, plain, plain_lines, steps, table
from latlin.datasets.gaps import fill_formula
from latlin.datasets.table import Frame, read_table
from latlin.numerics.archive import load_with_card, save_with_card
from latlin.report.additive import render_additive
from latlin.report.additive_words import AdditiveFacts, describe_additive

#: the mark of a card of an additive model
KIND = "additive"
#: models of the command line are exact or approximate at the same price; these names mean the same family
FAMILIES = {"linear": "gaussian", "logistic": "bernoulli", "robust": "student-t"}


#: what an option that a formula does not take is written as
INSTEAD = {
    "exposure": "write offset(log(COLUMN)) in the formula",
    "trials": "write 'y | trials(COLUMN) ~ …'",
    "event": "write 'y | event(COLUMN) ~ …'",
    "categorical": "write C(COLUMN) in the formula",
    "drop": "a formula uses only the columns that it names",
    "group": "in Python, loo(group) leaves out whole groups",
    "folds": "rows are left out one by one, without folds",
    "time": "rows are left out one by one, in no order",
    "scheduler": "in Python, fit takes Dask data frames",
    **dict.fromkeys(("dates", "numbers", "levels"), "prepare the column in the table first"),
    "reference": "name the levels in the table so that the reference comes first in the alphabet",
}


class Additive(NamedTuple):
    """A model of a formula, and what is said of it."""

    estimator: AdditiveModel
    facts: AdditiveFacts


def fit_formula(
    table: Frame,
    formula: str,
    family: str,
    engine: str,
    graph: Path | None,
    out: Path,
    console: Console,
    missing: str = "error",
    quiet: bool = False,
) -> None:
    """Fit, print what was found, and write the model."""
    table, (formula,) = with_writable_names(table, [formula])
    with steps("Fitting", 2, quiet) as advance:
        frame, notes = fill_formula(table, formula, missing)
        model = _fitted(frame, formula, family, engine, graph)
        advance("Describing the model")
        facts = describe_additive(model, frame)
        advance()
    console.print(plain_lines("\n".join([f"{len(frame)} rows.", *notes, *facts.conclusion(), ""])))
    console.print(plain_lines(repr(model.summary())))
    if "[T." in repr(model.summary()):
        console.print(
            plain_lines("column[T.level] is the difference of that level from the first level of its column.")
        )
    console.print(plain_lines(f"leave-one-out: {facts.loo}") if facts.loo else "")
    save_with_card(out, model, {"kind": KIND, **facts.to_card()})
    console.print(f"Saved {plain(out)}. Next: latlin report {plain(out)}, or latlin predict {plain(out)} new.csv")


def refuse_beside_formula(given: dict[str, Any]) -> None:
    """Options that a formula does not take are refused, never passed over in silence."""
    for name in (name for name in INSTEAD if given.get(name)):
        raise ValueError(f"--{name} cannot be used with --formula: {INSTEAD[name]}")


def compare_formulas(
    frame: Frame,
    formulas: list[str],
    family: str,
    engine: str,
    graph: Path | None,
    console: Console,
    missing: str = "error",
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """One line per formula, best first: leave-one-out, the paired difference from the best with its error, evidence."""
    if len(formulas) < 2:
        raise ValueError("compare needs two formulas or more: --formula '…' --formula '…'")
    frame, formulas = with_writable_names(frame, formulas)
    # one table for all formulas, so that rows are the same
    frame, notes = fill_formula(
        frame, formulas[0] + " + " + " + ".join(formula.partition("~")[2] for formula in formulas[1:]), missing
    )
    console.print(plain_lines("\n".join([f"{len(frame)} rows.", *notes])))
    tried = []
    with steps("Comparing", len(formulas), quiet) as advance:
        for formula in formulas:
            start = time.perf_counter()
            model = _fitted(frame, formula, family, engine, graph)
            tried.append((formula, model, model.loo(), time.perf_counter() - start))
            advance()
    tried.sort(key=lambda one: -one[2].elpd)
    best = tried[0][2]
    rows = []
    for formula, model, loo, took in tried:
        difference, error = loo.compare(best) if loo is not best else (0.0, 0.0)
        place = "best" if loo is best else "tie" if abs(difference) <= 2.0 * error else "worse"
        found = {"formula": formula, "leave-one-out": loo.elpd, "difference": difference, "±": error}
        found["against the best"] = place
        kind = {"log evidence": float(model.log_evidence_), "kind": model.evidence_kind_}
        rows.append({**found, **kind, "seconds": took})
    shown = [
        [
            row["formula"],
            decimal(row["leave-one-out"], ".2f"),
            decimal(row["difference"], ".2f"),
            decimal(row["±"], ".2f"),
            row["against the best"],
            decimal(row["log evidence"], ".2f"),
            row["kind"],
            decimal(row["seconds"], ".2g"),
        ]
        for row in rows
    ]
    console.print(table(list(rows[0]), shown))
    console.print(
        "Differences of leave-one-out log densities from the best, in pairs of rows, with their standard error; "
        "within two standard errors it is a tie."
    )
    return rows


def additive_of(path: str | os.PathLike[str]) -> Additive | None:
    """The additive model in a file, or None if it holds another kind."""
    try:
        estimator, card = load_with_card(path)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a model written by 'latlin fit': {error}") from error
    if not isinstance(estimator, AdditiveModel):
        return None
    known = card if isinstance(card, dict) and card.get("kind") == KIND else {}
    return Additive(estimator, AdditiveFacts.from_card(known))


def with_writable_names(frame: Frame, formulas: list[str]) -> tuple[Frame, list[str]]:
    """Columns such as "pain before" under names that a formula can hold, pain_before, in the table and in formulas."""
    names = {name: re.sub(r"\W", "_", name) for name in frame.columns if re.search(r"\W", name)}
    names = {old: new for old, new in names.items() if new.isidentifier() and new not in frame.columns}
    if len(set(names.values())) < len(names):
        return frame, formulas
    for old in sorted(names, key=len, reverse=True):
        # a sign between words may be arithmetic: only blanks, or backquotes, make a name of them
        written = rf"`{re.escape(old)}`" + (rf"|(?<!\w){re.escape(old)}(?!\w)" if re.fullmatch(r"[\w ]+", old) else "")
        formulas = [re.sub(written, names[old], formula) for formula in formulas]
    return frame.rename(columns=names), formulas


def predict_formula(model: Additive, frame: Frame, interval: float, keep: bool) -> Frame:
    """Expected responses with intervals, one row per row of the table; of ordered classes their probabilities too."""
    estimator, (frame, _) = model.estimator, with_writable_names(frame, [])
    low, high = estimator.predict_interval(frame, interval, random_state=0).T
    found = {"prediction": estimator.predict(frame), "low": low, "high": high}
    if estimator.family == "ordinal":
        labels, p = np.asarray(estimator.classes_), estimator.predict_proba(frame)
        found = {
            "prediction": labels[p.argmax(axis=1)],
            "low": labels[low.astype(int)],
            "high": labels[high.astype(int)],
        }
        found |= {f"P({label})": p[:, k] for k, label in enumerate(labels)}
    return frame.assign(**found) if keep else frame.iloc[:, :0].assign(**found)


def report_formula(model: Additive, title: str | None) -> str:
    """The page of a model."""
    return render_additive(model.estimator, title, model.facts)


def _fitted(frame: Frame, formula: str, family: str, engine: str, graph: Path | None) -> AdditiveModel:
    pairs = None
    if graph is not None:
        edges = read_table(graph)
        if edges.shape[1] != 2:
            raise ValueError(f"{graph} must have two columns, a pair of neighbours per row, got {edges.shape[1]}")
        pairs = list(edges.itertuples(index=False, name=None))
    chosen = FAMILIES.get(family, family) if family != "auto" else _guess(frame, formula)
    return AdditiveModel(formula, chosen, engine=engine).fit(frame, graph=pairs)


def _guess(frame: Frame, formula: str) -> str:
    """The family that suits a response: binary, counts, or any number."""
    response = read_formula(formula).response
    if response.failures is not None or response.trials is not None:
        return "binomial"
    if not response.y.isidentifier():
        return "gaussian"
    values = column(frame, response.y)
    if is_category(values) or set(values.tolist()) <= {0, 1}:
        # more than two labels need to be said to have an order
        return "bernoulli"
    if values.dtype.kind in "iu" and values.min() >= 0 and response.se is None:
        raise ValueError(
            f"column {response.y!r} holds whole numbers: say whether they are counts (--family poisson or "
            "negative-binomial) or measurements (--family gaussian)"
        )
    return "gaussian"

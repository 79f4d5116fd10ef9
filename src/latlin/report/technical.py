"""The technical part of a page: the log evidence and its kind, what was learnt, and how the fit ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.report import words
from latlin.report.markup import number, paragraph, section, table, text


def technical_part(model: Any, meaning: str | None = None) -> str:
    """Evidence, hyperparameters and message of a fitted estimator.

    Parameters
    ----------
    model : fitted estimator
    meaning : str, optional
        What the log evidence is, where the usual sentence for its kind does not hold.
    """
    kind = str(model.evidence_kind_)
    said = words.evidence_words(kind) if meaning is None else meaning
    if kind == "none":
        said = "There is no log evidence: a prior is flat, or the engine finds the most probable values only."
    value = "–" if kind == "none" else number(float(np.sum(model.log_evidence_)), 6)
    lines = [("log evidence", value), ("its kind", text(kind)), ("steps", text(np.max(model.n_iter_)))]
    learnt = getattr(model, "hyperparameters_", ())
    rows = getattr(learnt, "rows", ())
    return section(
        "Technical part",
        paragraph(said),
        table("learnt", [("", ""), ("value", "num")], lines),
        "<h3>Hyperparameters</h3>" + hyperparameter_table(learnt) if rows else "",
        paragraph(str(getattr(model, "message_", "")), "note" if model.converged_ else "note bad"),
    )


def hyperparameter_table(found: Any) -> str:
    """Name, mean, standard deviation, ends and prior of what was learnt."""
    headings = [("name", ""), ("mean", "num"), ("sd", "num"), ("5 %", "num"), ("95 %", "num"), ("prior", "")]
    lines = [
        (text(row["name"]), *(number(row[key]) for key in ("mean", "sd", "5%", "95%")), text(row["prior"]))
        for row in found.rows
    ]
    return table("learnt", headings, lines)

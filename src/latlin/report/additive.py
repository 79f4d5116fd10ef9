"""The page of an additive model: coefficients, hyperparameters, and every term with its picture."""

from __future__ import annotations

from typing import Any

import numpy as np

import latlin
from latlin.report.charts import Chart, strip
from latlin.report.markup import figure, number, paragraph, section, table, text, tiles
from latlin.report.page import page_of

#: levels of a term shown at most
MOST = 40


def render_additive(model: Any, title: str | None = None, note: str = "") -> str:
    """The page of a fitted `AdditiveModel`, as text.

    Parameters
    ----------
    model : AdditiveModel
    title : str, optional
    note : str
        A sentence for the head, such as what `loo()` says.
    """
    heading = title or str(model.formula or "additive model")
    parts = [_head(model, heading, note)]
    if "fixed" in model.term_names_:
        parts.append(section("Coefficients", _effects(model.effects().rows)))
    if len(model.hyperparameters_):
        parts.append(section("Hyperparameters", hyperparameter_table(model.hyperparameters_)))
    parts += [_term(model, name) for name in model.term_names_ if name != "fixed"]
    parts.append(section("The fit", paragraph(model.message_)))
    return page_of(heading, "".join(parts), latlin.__version__)


def _head(model: Any, title: str, note: str) -> str:
    kind = "" if model.evidence_kind_ == "none" else model.evidence_kind_
    entries = [
        ("Family", str(model.family), f"{len(model.term_names_)} terms"),
        ("Log evidence", number(float(model.log_evidence_), 6), kind or "a prior is flat"),
        ("Fit", "converged" if model.converged_ else "not converged", model.posterior_.engine),
    ]
    lead = f"An additive model by latlin {latlin.__version__}. {note}"
    return f"<header><h1>{text(title)}</h1>{paragraph(lead, 'lead')}{tiles(entries)}</header>"


def _effects(rows: list[dict[str, Any]]) -> str:
    ends = (min([0.0, *(row["low"] for row in rows)]), max([0.0, *(row["high"] for row in rows)]))
    headings = [("effect", ""), ("mean", "num mean"), ("interval", "bar"), ("90 %", "num ends"), ("P(> 0)", "num sign")]
    lines = [
        (
            text(row["name"]),
            number(row["mean"]),
            strip(row["low"], row["mean"], row["high"], ends, f"{row['name']} {row['mean']:.4g}"),
            f"{number(row['low'], 3)} … {number(row['high'], 3)}",
            number(row["p_positive"], 3),
        )
        for row in rows
    ]
    return table("coefficients", headings, lines)


def hyperparameter_table(found: Any) -> str:
    """Name, mean, standard deviation, ends and prior of what was learnt."""
    headings = [("name", ""), ("mean", "num"), ("sd", "num"), ("5 %", "num"), ("95 %", "num"), ("prior", "")]
    lines = [
        (text(row["name"]), *(number(row[key]) for key in ("mean", "sd", "5%", "95%")), text(row["prior"]))
        for row in found.rows
    ]
    return table("learnt", headings, lines)


def _term(model: Any, name: str) -> str:
    """A curve where the term has one, else its levels."""
    try:
        x, found = model.curve(name)
    except ValueError:
        rows = model.effects(name).rows
        order = np.argsort([-abs(row["mean"]) for row in rows], kind="stable")[:MOST]
        shown = [rows[k] for k in sorted(order)]
        rest = f"The {MOST} largest of {len(rows)} effects." if len(rows) > MOST else ""
        return section(name, paragraph(rest), _effects(shown))
    low, mean, high = (found.column(key) for key in ("low", "mean", "high"))
    chart = Chart(
        (float(x[0]), float(x[-1])), (float(low.min()), float(high.max())), name, "effect", f"{name} with band"
    )
    chart.line(list(zip(x.tolist(), mean.tolist(), strict=True)), "curve")
    for edge in (low, high):
        chart.line(list(zip(x.tolist(), edge.tolist(), strict=True)), "diagonal")
    return section(
        name, figure(chart.render(), "Mean and 90 % interval at each place, on the linear predictor's scale.")
    )

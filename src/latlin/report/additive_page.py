"""The page of an additive model: a conclusion, the coefficients, every term with its picture, the checks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from latlin.additive.family import family_of
from latlin.potentials.laplace import AsymmetricLaplace
from latlin.report.additive import BINARY, AdditiveFacts, describe_additive, is_surface, response_name
from latlin.report.charts import Chart, strip, strip_axis
from latlin.report.interactions import readable
from latlin.report.markup import figure, number, opening, page_of, paragraph, section, table, text
from latlin.report.sections import checks_table
from latlin.report.words import coefficient_words, technical_part
from latlin.version import __version__

#: levels of a term shown at most
MOST = 40
SURFACE = (
    "This term is a surface over two columns. Its coefficients belong to basis functions, not to places, and are not "
    "listed; in Python, predict_latent gives its height at places of your choice."
)
LEVELS = "The line of a level shows its difference from {}."


def render_additive(model: Any, title: str | None = None, facts: AdditiveFacts | None = None) -> str:
    """The page of a fitted `AdditiveModel`, as text.

    Parameters
    ----------
    model : AdditiveModel
    title : str, optional
    facts : AdditiveFacts, optional
        What is said of it, of `describe_additive`; made here unless given.
    """
    facts = describe_additive(model) if facts is None else facts
    heading = title or str(model.formula or "additive model")
    parts = [_head(model, heading, facts)]
    if "fixed" in model.term_names_:
        family = family_of(model.family)
        name = "quantile" if isinstance(family.template, AsymmetricLaplace) else family.name
        labels = model.classes_ if name in BINARY else None
        one = f"{response_name(model)} = {1 if labels is None else labels[1]}" if name in BINARY else "a success"
        meaning = coefficient_words(
            {"gaussian": "linear", "bernoulli": "logistic"}.get(name, name), response_name(model), one
        )
        rows = model.effects().rows
        named = [f"{label} ({column})" for column, label in model.references_.items()]
        first = ", ".join(named) or "the first level of its column"
        levels = LEVELS.format(first) if any("[T." in row["name"] for row in rows) else ""
        parts.append(section("Coefficients", paragraph(f"{meaning} {levels}".strip()), _effects(rows)))
    parts += [_term(model, name) for name in model.term_names_ if name != "fixed"]
    if facts.checks.checks:
        parts.append(section(f"Model: {facts.checks.verdict}", checks_table(facts.checks.checks)))
    parts.append(technical_part(model))
    if facts.loo:
        said = [f"Leave-one-out: {facts.loo}."]
        said += [f"The approximation is {facts.approximation}."] if facts.approximation else []
        parts.append(section("Technical part: checks", *map(paragraph, said)))
    return page_of(heading, "".join(parts), __version__)


def _head(model: Any, title: str, facts: AdditiveFacts) -> str:
    entries = [
        ("Family", family_of(model.family).name, f"{len(model.term_names_)} terms"),
        ("Fit", "converged" if model.converged_ else "not converged", ""),
    ]
    if facts.checks.checks:
        entries.append(("Model", facts.checks.verdict, ""))
    lead = f"An additive model by latlin {__version__}."
    return opening(title, lead, facts.conclusion(), entries)


def _effects(rows: list[dict[str, Any]]) -> str:
    """One line per effect, on one axis; that of an intercept is no effect, and would only make it long."""
    drawn = [row for row in rows if row["name"] != "Intercept"]
    ends = (min([0.0, *(row["low"] for row in drawn)]), max([0.0, *(row["high"] for row in drawn)]))
    headings = [("effect", ""), ("mean", "num mean"), ("interval", "bar"), ("90 %", "num ends"), ("P(> 0)", "num sign")]
    lines = [
        (
            text(readable(row["name"])),
            number(row["mean"]),
            strip(row["low"], row["mean"], row["high"], ends, f"{row['name']} {row['mean']:.4g}")
            if row["name"] != "Intercept"
            else "",
            f"{number(row['low'], 3)} … {number(row['high'], 3)}",
            f"{row['p_positive']:.3f}",
        )
        for row in rows
    ]
    axis = [("", "", strip_axis(ends), "", "")] if ends[0] < ends[1] < math.inf else []
    return table("coefficients", headings, lines + axis)


def _term(model: Any, name: str) -> str:
    """A curve where the term has one, else its levels."""
    try:
        x, found = model.curve(name)
    except ValueError:
        if is_surface(name) and not name.startswith("lattice"):
            return section(name, paragraph(SURFACE))
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

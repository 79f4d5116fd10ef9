"""The sections of the report, one function each, and the page of a fit with all of them: facts in, HTML out."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

from latlin.diagnostics.model_checks import Check
from latlin.report import words
from latlin.report.assess import Assessment
from latlin.report.charts import calibration_chart, pit_chart, scatter_chart, strip, strip_axis, trace_chart
from latlin.report.effect_curves import effects_section
from latlin.report.facts import Facts, is_intercept
from latlin.report.markup import (
    bullets,
    figure,
    fold,
    number,
    opening,
    page_of,
    paragraph,
    section,
    table,
    text,
    write_minus,
)
from latlin.report.tasks import BEYOND_RATE, R2
from latlin.report.words import conclusion, count_words

MOST_COEFFICIENTS = 60


def head(facts: Facts) -> str:
    """The title, the conclusion in plain words, and the numbers to see first."""
    entries = [("Rows", f"{facts.rows:,}".replace(",", "\u202f"), f"{facts.features} features")]
    if facts.checks:
        entries.append(("Model", facts.model_checks.verdict, _checked(facts)))
    if facts.approximation:
        entries.append(("Approximation", facts.approximation.partition(":")[0], "of the posterior"))
    if facts.assessment is not None:
        entries += _score_tiles(facts.assessment)
    lead = f"{facts.model} by latlin {facts.version}. {count_words(facts)}"
    return opening(facts.title, lead, conclusion(facts), entries)


def _checked(facts: Facts) -> str:
    found = facts.model_checks
    cautions = f", {len(found.cautions)} with a caution" if found.cautions else ""
    return f"{len(facts.checks) - len(found.failed)} of {len(facts.checks)} checks passed{cautions}"


def checks(facts: Facts) -> str:
    """Whether the model describes the data, check by check."""
    if not facts.checks:
        return ""
    return section(f"Model: {facts.model_checks.verdict}", checks_table(facts.checks))


def checks_table(checks: Iterable[Check]) -> str:
    """One line per check: what was found, and what to do."""
    rows = [(text(check.name), _outcome(check), text(write_minus(check.sentence)) + _remedy(check)) for check in checks]
    return table("checks", [("check", ""), ("", ""), ("finding, and what to do", "")], rows)


def _outcome(check: Check) -> str:
    if check.is_caution:
        return '<span class="failed">caution</span>'
    return "passed" if check.passed else '<span class="failed">failed</span>'


def _remedy(check: Check) -> str:
    return f"<small>{text(check.remedy)}.</small>" if check.remedy else ""


def _score_tiles(seen: Assessment) -> list[tuple[str, str, str]]:
    if "accuracy" in seen.scores:
        return [("Held-out accuracy", f"{100 * seen.scores['accuracy']:.1f} %", f"{seen.folds} folds")]
    if "share below" in seen.scores:
        should = f"and {100 * seen.curve[0]['predicted']:g} % should"
        return [("Held-out rows below", f"{100 * seen.scores['share below']:.0f} %", should)]
    name = next((name for name in (R2, BEYOND_RATE) if name in seen.scores), "concordance")
    tiles_ = [(f"Held-out {name}", number(seen.scores[name], 2), f"{seen.folds} folds")] if name in seen.scores else []
    promised = next((group for group in seen.curve if abs(group["predicted"] - 0.9) < 1e-9), None)
    if promised is not None:
        tiles_.append(("90 % intervals hold", f"{100 * promised['observed']:.0f} %", "of held-out rows"))
    return tiles_


def data(facts: Facts) -> str:
    """The columns as they came, and what was done to them."""
    if not facts.columns and not facts.notes:
        return ""
    rows = [
        (
            text(column["name"]) + (" <em>(target)</em>" if column["name"] == facts.target else ""),
            text(column["kind"]),
            text(column["missing"]),
            text(column["distinct"]),
            text(column["summary"]),
        )
        for column in facts.columns
    ]
    headings = [("column", ""), ("kind", "wide"), ("missing", "num"), ("different", "num wide"), ("values", "")]
    columns = fold(f"{len(rows)} columns, the target included", table("columns", headings, rows)) if rows else ""
    return section("Data", bullets(facts.notes), columns)


def coefficients(facts: Facts) -> str:
    """One line per coefficient, largest effect first."""
    slopes = [row for row in facts.coefficients if not is_intercept(row)]
    intercepts = [row for row in facts.coefficients if is_intercept(row)]
    shown = sorted(slopes, key=lambda row: -abs(row["mean"] * row["effect"]))[:MOST_COEFFICIENTS]
    reach = [row["effect"] * row[end] for row in shown for end in ("low", "high")]
    ends = (min([0.0, *reach]), max([0.0, *reach]))
    share = f"{100 * facts.coverage:.0f} % interval"
    headings = [("feature", ""), ("effect", "bar"), ("mean", "num mean"), (share, "num ends"), ("sd", "num wide")]
    headings.append(("P(> 0)", "num sign"))
    axis = [("", strip_axis(ends), "", "", "", "")] if shown and ends[0] < ends[1] < math.inf else []
    lines = [_coefficient(row, ends) for row in shown] + axis + [_coefficient(row, None) for row in intercepts]
    cut = f" The {len(shown)} largest of {len(slopes)} are shown." if len(slopes) > len(shown) else ""
    scaled = any(row["effect"] != 1.0 for row in shown)
    unit = "one standard deviation of the feature" if scaled else "one unit of the feature"
    return section(
        "Coefficients",
        paragraph(words.coefficient_words(facts.family, facts.target, facts.positive)),
        table("coefficients", headings, lines),
        _factors(facts),
        paragraph(
            f"Bars show the change for {unit}, on one axis; numbers are in the units of the data.{cut}", "unsure"
        ),
    )


def _factors(facts: Facts) -> str:
    """Columns of levels, each as a whole."""
    if not facts.factors:
        return ""
    rows = [
        (text(line["name"]), text(line["baseline"]), _joint_words(line["joint"], facts.coverage))
        for line in facts.factors
    ]
    return "<h3>Columns of levels</h3>" + table(
        "factors", [("column", ""), ("compared with", ""), ("all levels", "")], rows
    )


def _joint_words(joint: float, coverage: float) -> str:
    if not math.isfinite(joint):
        return "–"
    shown = f"{joint:.2g}" if joint >= 1e-4 else f"{joint:.0e}"
    return f"the levels {'differ' if joint < 1.0 - coverage else 'do not clearly differ'} (joint p = {shown})"


def _coefficient(row: Mapping[str, Any], ends: tuple[float, float] | None) -> tuple[str, ...]:
    low, mean, high = (row["effect"] * row[key] for key in ("low", "mean", "high"))
    label = f"{row['name']}: {mean:.3g}, from {low:.3g} to {high:.3g}"
    drawable = ends is not None and all(map(math.isfinite, (low, mean, high)))
    return (
        text(row["name"]),
        strip(low, mean, high, ends, label) if drawable and ends is not None else "",
        number(row["mean"]),
        f"{number(row['low'], 3)} … {number(row['high'], 3)}",
        number(row["sd"], 3),
        f"{row['p_positive']:.3f}" if math.isfinite(row["p_positive"]) else "–",
    )


def calibration(facts: Facts) -> str:
    """How the model did on rows it had not seen."""
    seen = facts.assessment
    if seen is None:
        return section("Calibration", paragraph("No rows were held out, so nothing can be said about new ones."))
    parts = [
        figure(calibration_chart(seen), words.calibration_words(seen.curve_kind, facts.positive)),
    ]
    if seen.points:
        some = "" if len(seen.points) == seen.rows else f" ({len(seen.points)} of {seen.rows} rows)"
        caption = f"Held-out rows: observed against predicted {facts.target}{some}."
        parts.append(figure(scatter_chart(seen, facts.target), caption))
    if seen.pit:
        parts.append(figure(pit_chart(seen), words.PIT))
    scores: dict[str, float] = {"log predictive density": seen.log_density, "baseline": seen.baseline, **seen.scores}
    rows = [(text(name), number(value)) for name, value in scores.items()]
    failed = f"{seen.unconverged} of {seen.folds} fits to the folds did not converge." if seen.unconverged else ""
    parts.append(table("scores", [("held out", ""), ("value", "num")], rows))
    return section(
        "Calibration on held-out rows",
        paragraph(words.HELD_OUT.format(folds=seen.folds)),
        paragraph(f"{words.gain_words(seen)} {words.calibration_verdict(seen, facts.family)}", "note"),
        f'<div class="pair">{"".join(parts)}</div>',
        paragraph(failed, "note bad"),
    )


def evidence(facts: Facts) -> str:
    """The evidence, its kind, what was learnt by it, and other engines if they were tried."""
    several = len(facts.log_evidence) > 1
    per_class = [(text(f"log evidence, {label}"), number(value, 6)) for label, value in facts.log_evidence if several]
    learnt = [(text(name), number(value)) for name, value in facts.learnt]
    total = [] if several or facts.evidence_kind == "none" else [("log evidence", number(facts.log_evidence[0][1], 6))]
    rows = per_class + total + learnt
    return section(
        "Technical part: evidence",
        paragraph(words.evidence_words(facts.evidence_kind)),
        paragraph("" if facts.evidence_kind == "none" else words.COMPARE),
        table("learnt", [("", ""), ("value", "num")], rows) if rows else "",
        paragraph(words.SCALES.get(facts.scales, "")),
        _engines(facts),
    )


def _engines(facts: Facts) -> str:
    if not facts.engines:
        return ""
    names = list(facts.engines[0])
    rows = [[text(line.get(name, "")) for name in names] for line in facts.engines]
    headings = [(name, "") for name in names]
    return "<h3>Engines beside each other</h3>" + table("engines", headings, rows)


def convergence(facts: Facts) -> str:
    """How the fit ended, and what the draws say about the approximation."""
    verdict = paragraph(facts.message, "note" if facts.converged else "note bad")
    drawing = figure(trace_chart(facts.trace), "The objective after each step.") if _has_moved(facts.trace) else ""
    lines = [(text(label), text(write_minus(said))) for label, said in facts.diagnosis]
    diagnosis = "<h3>Diagnosis</h3>" + table("diagnosis", [("", ""), ("", "")], lines) if lines else ""
    return section("Technical part: approximation", verdict, diagnosis, drawing)


def _has_moved(trace: list[float]) -> bool:
    """Whether there is something to see: a last fit that starts at the optimum stays there."""
    return len(trace) > 2 and max(trace) - min(trace) > 1e-6 * max(map(abs, trace))


def meaning(facts: Facts) -> str:
    """How to read the page, and how to cite."""
    year = datetime.date.today().year
    return section(
        "What the numbers mean",
        paragraph(words.INTERVALS.format(coverage=100 * facts.coverage)),
        paragraph(
            "Coefficients describe this model of these data. They are not causes: a feature may stand in for another "
            "that was not measured, and features that go together share what they explain."
        ),
    ) + section("How to cite", f"<pre>{text(words.citation(facts.version, year))}</pre>")


def render(facts: Facts) -> str:
    """The page of a fit, as text."""
    parts = (
        head(facts),
        coefficients(facts),
        effects_section(facts.curves, facts.target, facts.positive),
        calibration(facts),
        checks(facts),
        data(facts),
        evidence(facts),
        convergence(facts),
        meaning(facts),
    )
    return page_of(facts.title, "".join(parts), facts.version)

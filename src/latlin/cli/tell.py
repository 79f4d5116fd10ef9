"""What a fit says in a terminal."""

from __future__ import annotations

from rich.console import Console

from latlin.cli.screen import format_number, mask_controls, table
from latlin.report.facts import Facts, is_intercept
from latlin.report.words import SCALES, coefficient_words, count_words, gain_words

SHOWN = 20


def tell(facts: Facts, console: Console, most: int = SHOWN) -> None:
    """The facts of a fit, in a terminal."""
    console.print(
        f"{facts.title}: {facts.rows} rows, {facts.features} feature{'s' * (facts.features != 1)}, "
        f"engine {facts.engine}"
    )
    for note in facts.notes:
        console.print(f"  {mask_controls(note)}")
    for label, value in facts.log_evidence:
        of = f" of {mask_controls(label)}" if label else ""
        worth = facts.evidence_kind if facts.evidence_kind != "none" else "this engine has none"
        console.print(f"\nLog evidence{of} {format_number(value, '.4f')} ({worth})")
    ended = f"{'Converged' if facts.converged else 'NOT converged'} after {facts.steps} step{'s' * (facts.steps != 1)}"
    console.print(
        ", ".join([ended, *(f"{mask_controls(name)} {format_number(value)}" for name, value in facts.learnt)])
    )
    if facts.scales in SCALES:
        console.print(SCALES[facts.scales])
    tell_assessment(facts, console)
    if facts.approximation:
        console.print(f"Approximation: {mask_controls(facts.approximation)}")
    if facts.checks:
        console.print(mask_controls(facts.model_checks))
    console.print(mask_controls(coefficient_words(facts.family, facts.target, facts.positive)))
    tell_coefficients(facts, console, most)
    tell_factors(facts, console)


def tell_assessment(facts: Facts, console: Console) -> None:
    """Held-out numbers, in a line, and whether features help, unless a check tells it."""
    seen = facts.assessment
    if seen is None:
        return
    scores = ", ".join(f"{name} {value:.4g}" for name, value in seen.scores.items())
    console.print(
        f"Held out, {seen.folds} folds: log predictive density {seen.log_density:.4f} ± {seen.log_density_error:.4f} "
        f"per row (without features {seen.baseline:.4f}), {scores}"
    )
    if not any(check.name == "baseline" and check.remedy for check in facts.checks):
        console.print(gain_words(seen))


def tell_factors(facts: Facts, console: Console) -> None:
    """Columns of levels as a whole, and how many features have a clear effect."""
    for line in facts.factors:
        differ = "differ" if line["joint"] < 1.0 - facts.coverage else "do not clearly differ"
        said = f"the levels {differ} (joint p = {line['joint']:.2g})" if line["joint"] == line["joint"] else ""
        console.print(mask_controls(f"{line['name']}, compared with {line['baseline']}: {said}"))
    console.print(count_words(facts))


def tell_coefficients(facts: Facts, console: Console, most: int = SHOWN) -> None:
    """The largest effects; all of them are in `latlin summary`."""
    rows = sorted(facts.coefficients, key=lambda row: (is_intercept(row), -abs(row["mean"] * row["effect"])))
    share = 100 * facts.coverage
    headings = ("coefficient", "mean", "sd", f"{50 - share / 2:g} %", f"{50 + share / 2:g} %", "P(> 0)")
    forms = {"mean": ".4g", "sd": ".3g", "low": ".4g", "high": ".4g", "p_positive": ".3f"}
    lines = [(row["name"], *(format_number(row[key], form) for key, form in forms.items())) for row in rows[:most]]
    console.print()
    console.print(table(headings, lines))
    if len(rows) > most:
        console.print(f"… and {len(rows) - most} smaller ones; 'latlin summary' shows all")

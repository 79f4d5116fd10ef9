"""A fit in plain words: what drives the target, how well new rows are predicted, what to be careful about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from latlin.report.facts import Facts, is_intercept
from latlin.report.words import compared_words

NAMED = 6


class KnownEffects(NamedTuple):
    """Features by what is known of their effect; a column of levels counts once."""

    rising: list[str]
    falling: list[str]
    differing: list[str]
    unclear: list[str]

    @property
    def n_clear(self) -> int:
        return len(self.rising) + len(self.falling) + len(self.differing)

    @property
    def total(self) -> int:
        return self.n_clear + len(self.unclear)


def effects(facts: Facts) -> KnownEffects:
    """Features with a clear effect: zero lies outside their interval, or outside the joint region of all levels."""
    found = KnownEffects([], [], [], [])
    in_factor = {feature for factor in facts.factors for feature in factor["features"]}
    for factor in facts.factors:
        is_clear = factor["joint"] < 1.0 - facts.coverage
        (found.differing if is_clear else found.unclear).append(factor["name"])
    slopes = [row for row in facts.coefficients if not is_intercept(row) and _feature(row, facts) not in in_factor]
    for row in sorted(slopes, key=lambda row: -abs(row["mean"] * row["effect"])):
        side = found.rising if row["low"] > 0.0 else found.falling if row["high"] < 0.0 else found.unclear
        side.append(str(row["name"]))
    return found


def _feature(row: Mapping[str, Any], facts: Facts) -> str:
    """The feature of a line, without the class before it."""
    name = str(row["name"])
    return name.partition(": ")[2] if len(facts.log_evidence) > 1 else name


def count_words(facts: Facts) -> str:
    """How many features have a clear effect."""
    found = effects(facts)
    if facts.evidence_kind == "none" or not found.total:
        return ""
    levels = ", a column of levels counted once" if facts.factors else ""
    weak = any(check.name == "baseline" and check.remedy for check in facts.checks)
    but = ", but together they do not clearly predict held-out rows better" if weak and found.n_clear else ""
    return (
        f"{found.n_clear} of {found.total} features {'has' if found.n_clear == 1 else 'have'} a clear effect "
        f"({100 * facts.coverage:.0f} % probability{levels}){but}."
    )


def conclusion(facts: Facts) -> list[str]:
    """A few sentences."""
    return [*_driven(facts), *_predicted(facts), *_verdicts(facts)]


def _driven(facts: Facts) -> list[str]:
    found, goal = effects(facts), facts.positive or facts.target
    if facts.evidence_kind == "none":
        return ["This engine finds the most probable coefficients only, and does not say how uncertain they are."]
    if not found.n_clear:
        return [f"No feature has a clear effect on {facts.target}."]
    what = f"the probability of {goal}" if facts.positive else goal
    parts = []
    if found.rising:
        parts.append(f"rises with {_listed(found.rising)}")
    if found.falling:
        parts.append(f"falls with {_listed(found.falling)}")
    if found.differing:
        parts.append(f"differs between the levels of {_listed(found.differing)}")
    several = len(facts.log_evidence) > 1
    said = f"Given the other features, {what} {', '.join(parts)}." if not several else _of_classes(found)
    rest = f" No clear effect: {_listed(found.unclear)}." if found.unclear else ""
    return [said + rest]


def _of_classes(found: KnownEffects) -> str:
    clear = [*found.rising, *found.falling, *found.differing]
    return f"Clear effects, each class against the rest: {_listed(clear)}."


def _predicted(facts: Facts) -> list[str]:
    seen = facts.assessment
    if seen is None:
        return []
    better = compared_words(seen.log_density - seen.baseline, seen.gain_error, seen.rows)
    if "accuracy" in seen.scores:
        how = f"the most probable class is right in {100 * seen.scores['accuracy']:.0f} % of them"
    elif "share below" in seen.scores:
        should = f"and {100 * seen.curve[0]['predicted']:g} % should"
        how = f"{100 * seen.scores['share below']:.0f} % of them lie below their predicted quantile, {should}"
    elif "R²" not in seen.scores:
        pairs = (
            f"{100 * seen.scores['concordance']:.0f} % of pairs" if "concordance" in seen.scores else "pairs of rows"
        )
        how = f"{pairs} whose order is known come in the predicted order" if seen.scores else "no order is known"
    else:
        how = (
            f"predictions are off by {seen.scores['root mean square error']:.3g} (root mean square) and explain "
            f"{max(0.0, 100 * seen.scores['R²']):.0f} % of the variance"
        )
    return [f"Rows that were held out are predicted {better} than without features: {how}."]


def _verdicts(facts: Facts) -> list[str]:
    lines = [str(facts.model_checks)] if facts.checks else []
    if facts.approximation:
        word = facts.approximation.partition(":")[0]
        advice = "" if word == "accurate" else f" See the technical part: {facts.approximation.partition(': ')[2]}."
        lines.append(f"Approximation: {word}.{advice}")
    if not facts.converged:
        lines.append("The fit did not converge: do not rely on its numbers.")
    return lines


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence, the first few of many."""
    shown = ", ".join(names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")

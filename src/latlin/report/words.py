"""What the numbers mean, in words, and the conclusion of a page: what drives the target, how well it is predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from latlin.diagnostics.model_checks import GAIN, is_loss
from latlin.potentials.families import AMOUNTS, COUNTS, FAMILIES, TIMES
from latlin.report.assess import Assessment
from latlin.report.facts import Facts, is_intercept
from latlin.report.markup import number, paragraph, section, table, text, write_minus
from latlin.report.tasks import BEYOND_RATE, R2

#: standard errors of a paired difference up to which two models are not told apart
APART = 2.0

# --- The technical part of a page: the log evidence and its kind, what was learnt, and how the fit ended.


def technical_part(model: Any, meaning: str | None = None) -> str:
    """Evidence, hyperparameters and message of a fitted estimator.

    Parameters
    ----------
    model : fitted estimator
    meaning : str, optional
        What the log evidence is, where the usual sentence for its kind does not hold.
    """
    kind = str(model.evidence_kind_)
    said = evidence_words(kind) if meaning is None else meaning
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


EVIDENCE = {
    "exact": "The log evidence is exact: the log probability (density) that this model, before it saw them, gave to "
    "the observed values.",
    "lower bound": "The log evidence is a lower bound: the log probability that this model, before it saw them, gave "
    "to the observed values is at least this number.",
    "approximation": "The log evidence is an approximation: the log probability that this model, before it saw them, "
    "gave to the observed values is near this number, which may be too high or too low.",
    "none": "This engine finds the most probable coefficients only; it has no evidence and no intervals.",
}

COMPARE = (
    "Between two models of the same target and the same rows the one with the higher log evidence explains the data "
    "better: a difference of 1 is slight, of 3 (a factor of 20) is strong. Scales found by maximising the evidence "
    "raise it a little above what an average over the scales would give."
)

#: of a log link: what its exponential multiplies
LOG_OF = (
    "A coefficient is the change of the log of {} when the feature grows by one unit and the others stay: "
    "exp(coefficient) multiplies it."
)
ZERO_INFLATED, HURDLES = (tuple(name for name in COUNTS if name.startswith(kind)) for kind in ("zero-", "hurdle-"))

COEFFICIENTS = {
    "linear": "A coefficient is the change of {target} when the feature grows by one unit and the others stay.",
    "robust": "A coefficient is the change of {target} when the feature grows by one unit and the others stay; rows "
    "far off the rest count for less.",
    "sparse": "A coefficient is the change of {target} when the feature grows by one unit and the others stay; the "
    "prior pulls those that the data do not need towards zero.",
    "quantile": "A coefficient is the change of the quantile of {target} when the feature grows by one unit and the "
    "others stay.",
    "logistic": "A coefficient is the change of the log odds of {positive} when the feature grows by one unit and the "
    "others stay: exp(coefficient) multiplies the odds.",
    "probit": "A coefficient is the change of the probit (the normal score of the probability) of {positive} when the "
    "feature grows by one unit and the others stay.",
    **dict.fromkeys(COUNTS, LOG_OF.format("the expected count")),
    **dict.fromkeys(ZERO_INFLATED, LOG_OF.format("the expected count of rows that are not zero by inflation")),
    **dict.fromkeys(HURDLES, LOG_OF.format("the mean of the counts before their zeros are set apart")),
    **dict.fromkeys(AMOUNTS, LOG_OF.format("the expected {target}")),
    "log-normal": LOG_OF.format("the median of {target}"),
    **dict.fromkeys(TIMES, LOG_OF.format("{target}, of every quantile alike,")),
    "softmax": "A coefficient is the change of the log probability of a class, less the mean of those of all classes, "
    "when the feature grows by one unit and the others stay.",
    "multinomial probit": "A coefficient is the change of the score of a class when the feature grows by one unit and "
    "the others stay; the class whose score with standard normal noise is largest is seen.",
    "ordinal": "A coefficient is the shift on the latent scale of {target} when the feature grows by one unit and the "
    "others stay; positive means higher levels become more probable.",
}

#: for families that have no words of their own
BY_LINK = {
    "identity": "A coefficient is the change of the centre of {target} when the feature grows by one unit and the "
    "others stay.",
    "log": "A coefficient is the change of the log of the size of {target} when the feature grows by one unit and the "
    "others stay: exp(coefficient) multiplies it.",
    "share": "A coefficient is the change of the linear predictor of the mean share when the feature grows by one unit "
    "and the others stay: of its log odds with a logistic link.",
    "ordered": "A coefficient is the shift on the latent scale when the feature grows by one unit and the others stay.",
}

INTERVALS = (
    "Given the model, a coefficient lies in its {coverage:.0f} % interval with {coverage:.0f} % probability. P(> 0) is "
    "the probability that it is positive: near 0 or 1 its sign is clear, near ½ it is not."
)

SCALES = {
    "integrated": "Intervals contain the uncertainty of the scales: they are averaged over.",
    "maximised": "The scales are fixed at their most probable values, so that intervals do not contain their "
    "uncertainty and may be a little too narrow.",
}

HELD_OUT = (
    "The rows were split into {folds} folds, and each fold was predicted by a model fitted to the others. The log "
    "predictive density is the mean log probability (density) given to what was then observed, per row: higher is "
    "better, and a model that ignores the features reaches the baseline."
)

OVERDISPERSED = (
    "the observations vary more than the family allows (over-dispersion), so that these intervals, and those of "
    "the coefficients, are too narrow."
)

PIT = (
    "Where held-out observations fall in their predicted distributions. Bars between the outer lines are even within "
    "chance: high ends mean intervals that are too narrow, a high middle intervals that are too wide, a slope a bias."
)

CALIBRATION = {
    "probability": "Rows are grouped by the probability of {positive} that they were given. On the diagonal, events "
    "come as often as promised; vertical lines are 90 % intervals for the frequency.",
    "confidence": "Rows are grouped by the probability of the class that was chosen. On the diagonal, the choice is "
    "right as often as promised; vertical lines are 90 % intervals for the frequency.",
    "coverage": "Intervals that promise 50, 80, 90 and 95 % should hold that share of rows: the marks should lie on "
    "the diagonal. Vertical lines are 90 % intervals for the share.",
    "quantile": "The share of held-out rows below their predicted quantile should be the level of the quantile: the "
    "mark should lie on the diagonal. The vertical line is the 90 % interval for the share.",
}


def evidence_words(kind: str) -> str:
    return EVIDENCE.get(kind, "It is not known whether the log evidence is exact, a bound or an approximation.")


def coefficient_words(family: str, target: str, positive: str) -> str:
    """How to read a coefficient; a family that is not known gets the general sentence."""
    general = "A coefficient is the change of the linear predictor when the feature grows by one unit."
    known = COEFFICIENTS.get(family) or (BY_LINK[FAMILIES[family].link] if family in FAMILIES else general)
    return known.format(target=target, positive=positive or "each class against the rest")


def calibration_words(kind: str, positive: str) -> str:
    return CALIBRATION.get(kind, "").format(positive=positive)


def gain_words(seen: Assessment) -> str:
    """Whether the features help to predict rows that were not seen."""
    gain, error = seen.log_density - seen.baseline, seen.gain_error
    said = f"{write_minus(f'{gain:+.3f}')} ± {error:.3f} in log probability per row"
    if (how := compared_words(gain, error, seen.rows)) == "not clearly better":
        return f"No clear gain over a model that ignores the features: {said}."
    return f"The features predict {how} than a model that ignores them: {said}."


def compared_words(gain: float, error: float, rows: int) -> str:
    """A mean difference of log predictive densities beside its standard error.

    Examples
    --------
    >>> compared_words(0.3, 0.1, 50), compared_words(0.1, 0.1, 50), compared_words(-0.4, 0.1, 50)
    ('better', 'not clearly better', 'worse')
    """
    return "better" if gain > GAIN * error else "worse" if is_loss(gain, error, rows) else "not clearly better"


def predicted_words(gain: float, error: float, rows: int) -> str:
    """The same as what happens to rows.

    Examples
    --------
    >>> predicted_words(0.3, 0.1, 50), predicted_words(0.1, 0.1, 50)
    ('predicted better', 'not predicted clearly better')
    """
    how = compared_words(gain, error, rows)
    return "not predicted clearly better" if how == "not clearly better" else f"predicted {how}"


def place_words(difference: float, error: float, shown: float = 0.0) -> str:
    """A difference from the best of several models beside its standard error; less than `shown` is nothing.

    Examples
    --------
    >>> place_words(-0.2, 0.4), place_words(-0.7, 0.4), place_words(-0.9, 0.4)
    ('tie', 'not told apart (1.75 standard errors)', 'worse')
    """
    size = max(abs(difference) - shown, 0.0)
    if size <= error:
        return "tie"
    return "worse" if size > APART * error else f"not told apart ({size / error:.2f} standard errors)"


def calibration_verdict(seen: Assessment, family: str) -> str:
    """What the curve says, in a sentence: on the diagonal within its error, or on which side of it."""
    groups = seen.curve
    if seen.curve_kind == "quantile":
        below, level = (f"{100 * groups[0][key]:.0f} %" for key in ("observed", "predicted"))
        return f"Of the held-out rows {below} lie below their predicted quantile, and {level} should."
    if seen.curve_kind != "coverage":
        near = sum(group["low"] <= group["predicted"] <= group["high"] for group in groups)
        return f"{near} of {len(groups)} groups hold the diagonal within their 90 % interval."
    group = min(groups, key=lambda group: abs(group["predicted"] - 0.9))
    promised, held = f"{100 * group['predicted']:.0f} %", f"{100 * group['observed']:.0f} %"
    said = f"Intervals that promise {promised} hold {held} of the held-out rows"
    if group["high"] < group["predicted"]:
        wider = FAMILIES[family].wider if family in FAMILIES else ""
        more = f"{OVERDISPERSED} Try the family {wider}." if wider else "they are too narrow."
        return f"{said}: {more}"
    return f"{said}: they are wider than they need to be." if group["low"] > group["predicted"] else f"{said}."


def citation(version: str, year: int) -> str:
    """A BibTeX entry."""
    return (
        "@software{latlin,\n"
        "  author  = {{The latlin developers}},\n"
        "  title   = {latlin: deterministic Bayesian inference in latent linear models},\n"
        f"  version = {{{version}}},\n"
        f"  year    = {{{year}}}\n"
        "}"
    )


# --- A fit in plain words: what drives the target, how well new rows are predicted, what to be careful about.

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
    caution = f" {facts.model_checks.effects_caution}" if found.n_clear and facts.model_checks.effects_caution else ""
    have = f"feature{'s' * (found.total != 1)} {'has' if found.n_clear == 1 else 'have'}"
    return (
        f"{found.n_clear} of {found.total} {have} a clear effect "
        f"({100 * facts.coverage:.0f} % probability{levels}){but}.{caution}"
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
    driven = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    said = f"Given the other features, {what} {driven}." if not several else _of_classes(found)
    rest = f" No clear effect: {_listed(found.unclear)}." if found.unclear else ""
    caution = f" {facts.model_checks.effects_caution}" if facts.model_checks.effects_caution else ""
    return [said + rest + caution]


def _of_classes(found: KnownEffects) -> str:
    clear = [*found.rising, *found.falling, *found.differing]
    return f"Clear effects, each class against the rest: {_listed(clear)}."


def _predicted(facts: Facts) -> list[str]:
    seen = facts.assessment
    if seen is None:
        return []
    gain = predicted_words(seen.log_density - seen.baseline, seen.gain_error, seen.rows)
    if "accuracy" in seen.scores:
        how = f"the most probable class is right in {100 * seen.scores['accuracy']:.0f} % of them"
    elif "share below" in seen.scores:
        should = f"and {100 * seen.curve[0]['predicted']:g} % should"
        how = f"{100 * seen.scores['share below']:.0f} % of them lie below their predicted quantile, {should}"
    elif not (explained := {name: seen.scores[name] for name in (R2, BEYOND_RATE) if name in seen.scores}):
        pairs = f"{100 * seen.scores['concordance']:.0f} % of pairs" if seen.scores else "no pairs"
        how = f"{pairs} whose order is known come in the predicted order"
    else:
        how = (
            f"predictions are off by {seen.scores['root mean square error']:.3g} (root mean square) and explain "
            f"{max(0.0, 100 * max(explained.values())):.0f} % of the variance"
            + (" that a common rate of all rows leaves" if BEYOND_RATE in explained else "")
        )
    return [f"Rows that were held out are {gain} than without features: {how}."]


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

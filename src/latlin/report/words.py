"""What the numbers mean, in words."""

from __future__ import annotations

from latlin.diagnostics.model_checks import GAIN, is_loss
from latlin.potentials.families import AMOUNTS, COUNTS, FAMILIES, TIMES
from latlin.report.assess import Assessment
from latlin.report.markup import one_minus

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
    "make it a little too kind to the model."
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
    **dict.fromkeys(("poisson", "negative-binomial", "generalised-poisson"), LOG_OF.format("the expected count")),
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
    "the observations vary more than the family does (over-dispersion), so that these intervals, and those of "
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
    said = f"{one_minus(f'{gain:+.3f}')} ± {error:.3f} in log probability per row"
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

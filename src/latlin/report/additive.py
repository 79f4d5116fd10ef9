"""What is said of an additive model in plain words: its coefficients and terms, and the checks behind its verdicts."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from latlin.additive.family import family_of, link_of
from latlin.additive.group import GroupPart
from latlin.additive.misfits import OF_FORMULAS
from latlin.additive.notes import UNIDENTIFIED
from latlin.diagnostics.model_checks import Check, ModelChecks, check_baseline, check_calibration, check_coverage
from latlin.numerics.alerts import MisfitWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import Table
from latlin.potentials.laplace import AsymmetricLaplace
from latlin.report.interactions import LEVEL, factors_of, interaction_words, readable, reference_of, stem, step_of
from latlin.report.markup import number, write_minus
from latlin.report.words import predicted_words

# --- An additive model in plain words: clear effects, how much groups differ, how well rows are predicted, checks.

#: offsets of a formula
OFFSET = re.compile(r"offset\((?:[^()]|\([^()]*\))*\)")
#: families with two outcomes per row
BINARY = ("bernoulli", "probit", "cloglog")
#: levels named at most; a standard deviation whose interval is wider than this factor may be nearly zero
NAMED, OPEN = 6, 20.0
#: joint probability below which the levels of a column differ
CHANCE = 0.1
#: checks of the linear predictor, whose misfit makes noise look odd
PREDICTOR = ("residuals", "slopes")
#: draws that check an approximation where no number is given
DRAWS = 4000


class AdditiveFacts(NamedTuple):
    """What is said of an additive model besides its numbers."""

    sentences: list[str]
    checks: ModelChecks
    loo: str = ""
    approximation: str = ""

    def to_card(self) -> dict[str, Any]:
        """The same as JSON."""
        checks = [[c.name, bool(c.passed), c.sentence, c.remedy] for c in self.checks.checks]
        return {"sentences": self.sentences, "checks": checks, "loo": self.loo, "approximation": self.approximation}

    @classmethod
    def from_card(cls, card: dict[str, Any]) -> AdditiveFacts:
        """What `to_card` wrote."""
        checks = ModelChecks(tuple(Check(*one) for one in card.get("checks", ())))
        loo, approximation = str(card.get("loo", "")), str(card.get("approximation", ""))
        return cls(list(card.get("sentences", ())), checks, loo, approximation)

    def conclusion(self) -> list[str]:
        """The sentences, then the two verdicts."""
        verdicts = [str(self.checks)] if self.checks.checks else []
        if self.approximation:
            word, _, reason = self.approximation.partition(": ")
            verdicts.append(f"Approximation: {word}" + ("." if word == "accurate" else f": {reason}."))
        caution = [self.checks.effects_caution] if self.sentences and self.checks.effects_caution else []
        return [*self.sentences, *caution, *verdicts]


def describe_additive(model: Any, frame: Table = None, draws: int = DRAWS) -> AdditiveFacts:
    """The words of a fitted `AdditiveModel`.

    Parameters
    ----------
    model : AdditiveModel
    frame : table, optional
        The rows it was fitted to. They are fitted once more without terms, to see whether the terms predict better.
    draws : int
        For the check of the approximation.
    """
    sentences = [*_coefficients(model, response_words(model, frame), frame), *_terms(model)]
    try:
        loo = model.loo()
    except ValueError:
        # rows in blocks, a model of a file, or an engine without stand-ins of sites
        return AdditiveFacts(sentences, model.checks_)
    checks = [*model.checks_.checks, *_held_out(model, loo)]
    if frame is not None and (baseline := _fit_without_terms(model, frame)) is not None:
        total, error = loo.compare(baseline.loo())
        rows = len(loo.pointwise)
        gain, kinds, common = total / rows, _kinds(model), _common_words(model)
        size = write_minus(f"{gain:+.2f} per row")
        said = f"{predicted_words(gain, error / rows, rows)} than by their {common} ({size})"
        what = f"{' and '.join(filter(None, (', '.join(kinds[:-1]), kinds[-1])))}{' together' * (len(kinds) > 1)}"
        sentences.append(f"Rows that are left out one by one are {said}{f', with {what}' * (len(kinds) > 1)}.")
        checks.append(check_baseline(gain, error / rows, rows, f"the {what}", f"the {common} of all rows"))
    return AdditiveFacts(sentences, ModelChecks(tuple(checks)), repr(loo), _approximation(model, draws))


def _approximation(model: Any, draws: int) -> str:
    """The verdict on the posterior and its reason; empty where it cannot be checked."""
    try:
        return str(model.posterior_.diagnose(draws, random_state=0)).splitlines()[0]
    except ValueError:
        return ""


def response_words(model: Any, frame: Table = None) -> str:
    """What coefficients act on, in words: the response, its expected value, or a probability.

    Examples
    --------
    >>> from latlin.additive import AdditiveModel
    >>> response_words(AdditiveModel("visits ~ age", family="poisson"))
    'the expected value of visits'
    >>> response_words(AdditiveModel("grade ~ age", family="ordinal"))
    'the class of grade'
    >>> from latlin.potentials import AsymmetricLaplace
    >>> response_words(AdditiveModel("visits ~ age", family=AsymmetricLaplace(0.9)))
    'the quantile of visits'
    """
    target = response_name(model)
    family = family_of(model.family)
    if family.binary:
        labels = sorted({str(value) for value in frame[target]}) if frame is not None and target in frame else []
        return f"the probability of {target}" + (f" = {labels[1]}" if len(labels) == 2 else "")
    if isinstance(family.template, AsymmetricLaplace):
        return f"the quantile of {target}"
    return {"identity": target, "ordered": f"the class of {target}"}.get(family.link, f"the expected value of {target}")


def response_name(model: Any) -> str:
    """The response without what belongs to it: trials, events, weights."""
    return response_of(model).partition("|")[0].strip()


def response_of(model: Any) -> str:
    """The left-hand side of the formula."""
    return str(model.formula).partition("~")[0].strip() if model.formula else str(model.response)


def _kinds(model: Any) -> list[str]:
    """What a model without terms leaves out, in words."""
    groups = [label for label in model.term_names_ if _is_group(model, label)]
    others = [label for label in model.term_names_ if label not in (*groups, "fixed")]
    fixed = "fixed" in model.term_names_ and any(row["name"] != "Intercept" for row in model.effects().rows)
    named = {"groups": groups, "coefficients": fixed}
    found = [name for name, there in named.items() if there]
    return [*(["other terms" if found else "terms"] if others else []), *found][::-1]


def _is_group(model: Any, label: str) -> bool:
    return any(isinstance(part, GroupPart) for part in model._parts if part.label == label)


def _common_words(model: Any) -> str:
    """What a model without terms predicts all rows by."""
    mean = "mean" if family_of(model.family).link in ("identity", "log") else "distribution"
    return f"common {mean}{' and their offsets' if OFFSET.search(model.formula) else ''}"


def _fit_without_terms(model: Any, frame: Table) -> Any:
    """A model of the same rows with an intercept and the same offsets, or None where there is nothing to leave out."""
    if not model.formula or (model.term_names_ == ["fixed"] and len(model.effects().rows) < 2):
        return None
    offsets = OFFSET.findall(model.formula)
    formula = " + ".join([f"{response_of(model)} ~ 1", *offsets])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        return type(model)(formula, model.family, engine=model.engine).fit(frame)


def _coefficients(model: Any, what: str, frame: Table = None) -> list[str]:
    """What the response rises and falls with; columns of levels once; what an interaction makes conditional is said."""
    if "fixed" not in model.term_names_:
        return []
    rows = [row for row in model.effects().rows if row["name"] != "Intercept"]
    crossed = [row for row in rows if len(factors_of(row["name"])) > 1]
    conditional = {stem(part) for row in crossed for part in factors_of(row["name"])}
    columns: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row not in crossed and stem(row["name"]) not in conditional:
            columns.setdefault(stem(row["name"]), []).append(row)
    found: dict[str, list[str]] = {}
    for name, lines in columns.items():
        verb, words = _effect(model, name, lines, frame)
        found.setdefault(verb, []).append(words)
    said = [f"{verb} {_listed(names)}" for verb, names in found.items() if verb]
    alone = len(columns) == 1 and not crossed and len(model.term_names_) == 1
    given = what.replace("the ", "The ", 1) if alone else f"Given the other terms, {what}"
    sentences = [f"{given} {' and '.join(said)}."] if said else []
    if "" in found:
        sentences.append(f"No clear effect: {_listed(found[''])}.")
    sentences += interaction_words(model, rows, what, frame)
    return [" ".join(sentences)] if sentences else []


def _effect(model: Any, name: str, lines: list[dict[str, Any]], frame: Table) -> tuple[str, str]:
    """A verb, empty where nothing is clear, and what it is said of."""
    if len(lines) > 1:
        p = _joint(model, name)
        return ("differs between the levels of", f"{name} (joint p = {p:.1g})") if p < CHANCE else ("", name)
    (row,) = lines
    if row["low"] <= 0.0 <= row["high"]:
        return "", name
    is_level, up = LEVEL.match(row["name"]), row["low"] > 0.0
    if not is_level:
        return "rises with" if up else "falls with", f"{name}{_amount(model, row, step_of(model, name, frame))}"
    against = reference_of(model, name, [is_level["level"]], frame)
    level = f"{name} {is_level['level']}{f' than for {against}' if against else ''}"
    return "is higher for" if up else "is lower for", f"{level}{_amount(model, row)}"


def _amount(model: Any, row: dict[str, Any], step: float = 0.0) -> str:
    """A clear effect as a difference, or as a factor of the mean or of the odds, with its 90 % interval.

    Of a column of numbers it is that of a `step`.
    """
    family = family_of(model.family)
    each = {0.0: "", 1.0: " per unit"}.get(step, f" per {step:g}")
    row = {end: row[end] * (step or 1.0) for end in ("mean", "low", "high")}
    if family.link == "identity":
        mean, low, high = (abs(v) for v in (row["mean"], *sorted((row["low"], row["high"]), key=abs)))
        return f" (by {mean:.2g}{each}, 90 %: {low:.2g} to {high:.2g})"
    factors = {"log": "×", "share": "odds ×" if link_of(family.template) == "logit" else ""}
    if not factors.get(family.link):
        return ""
    mean, low, high = np.exp(np.clip([row["mean"], row["low"], row["high"]], -700.0, 700.0))
    return f" ({factors[family.link]} {mean:.2g}{each}, 90 %: {low:.2g} to {high:.2g})"


def _joint(model: Any, name: str) -> float:
    """Probability content outside the region of equal density that touches "all levels are the same".

    With differences dᵢ from the first level and cov(dᵢ, dⱼ) = (vᵢ₀ + vⱼ₀ − vᵢⱼ)/2, it is P(χ² > dᵀC⁻¹d).
    """
    try:
        pairs = model.contrasts(name).rows
    except ValueError:
        return math.nan
    count = round(0.5 * (1.0 + math.sqrt(1.0 + 8.0 * len(pairs))))
    later, earlier = np.tril_indices(count, -1)
    variance = np.zeros((count, count))
    variance[later, earlier] = variance[earlier, later] = [row["sd"] ** 2 for row in pairs]
    d = np.array([row["mean"] for row, first in zip(pairs, earlier, strict=True) if first == 0])
    C = 0.5 * (variance[1:, :1] + variance[:1, 1:] - variance[1:, 1:])
    return float(chi2.sf(d @ np.linalg.solve(C, d), len(d)))


def _terms(model: Any) -> list[str]:
    """How much the levels of groups differ, and where curves go."""
    spread = {row["name"]: row for row in model.hyperparameters_.rows}
    said = []
    # what a caution says of them instead
    unsaid = [check.sentence.split("'")[1] for check in model.checks_.checks if check.name == UNIDENTIFIED]
    for name in model.term_names_:
        if name == "fixed" or name in unsaid:
            continue
        try:
            # 99 %: the two ends of a centred line are one number, and many places are looked at
            x, found = model.curve(name, coverage=0.99)
        except ValueError:
            said += _surface(model, name, spread) if is_surface(name) else _group(model, name, spread)
        else:
            said.append(_curve(model, name, x, found))
    return said


def is_surface(name: str) -> bool:
    """Whether a term is over two columns.

    Examples
    --------
    >>> is_surface("s(x, z)"), is_surface("s(x)"), is_surface("county"), is_surface("a:b")
    (True, False, False, False)
    """
    return re.fullmatch(r"\w+\(.+,.+\)(:.+)?", name) is not None


def _surface(model: Any, name: str, spread: dict[str, Any]) -> list[str]:
    """How much a field over two columns varies; its coefficients are no levels."""
    learnt = spread.get(f"sd({name})")
    if learnt is None:
        return []
    size, is_clear = _size(model, learnt)
    return [
        f"The surface {name} is not flat ({size})." if is_clear else f"Whether {name} varies is not clear ({size})."
    ]


def _group(model: Any, name: str, spread: dict[str, Any]) -> list[str]:
    """How much levels differ where all columns with a slope per level are zero, and how much each slope differs."""
    rows = model.effects(name).rows
    slopes = [
        key.removeprefix(f"sd({name}:").removesuffix(")")
        for key in spread
        if key.startswith(f"sd({name}:") and any(row["name"].startswith(f"{key[3:-1]}[") for row in rows)
    ]
    said = _intercepts(model, name, [row for row in rows if row["name"].startswith(f"{name}[")], spread, slopes)
    for slope in slopes:
        size, is_clear = _size(model, spread[f"sd({name}:{slope})"])
        differs = f"the effect of {readable(slope)} differs between the levels of {name}"
        words = f"T{differs[1:]} ({size})." if is_clear else f"Whether {differs} is not clear ({size})."
        said.append(words)
    return said


def _size(model: Any, learnt: Any) -> tuple[str, bool]:
    """A standard deviation with its interval, and whether it is clearly above zero."""
    low, high, mean = learnt["5%"], learnt["95%"], learnt["mean"]
    size = f"standard deviation {number(mean, 2)}, 90 % interval {number(low, 2)} to {number(high, 2)}"
    return size + _scale_words(model), not (low <= 0.0 or high / low > OPEN)


def _scale_words(model: Any) -> str:
    """Where a link stands between terms and responses: what numbers are on."""
    return "" if family_of(model.family).link == "identity" else ", on the scale of the coefficients"


def _intercepts(model: Any, name: str, rows: Any, spread: dict[str, Any], slopes: list[str]) -> list[str]:
    learnt = spread.get(f"sd({name})")
    if learnt is None or not rows:
        return []
    size, is_clear = _size(model, learnt)
    measured = [slope for slope in slopes if not LEVEL.match(slope)]
    where = f" where {' and '.join(measured)} = 0" if measured else ""
    if not is_clear:
        return [f"Whether the {len(rows)} levels of {name} differ at all{where} is not clear ({size})."]
    if slopes:
        return [f"The {len(rows)} levels of {name} differ{where} ({size})."]
    ends = sorted(rows, key=lambda row: row["mean"])
    bottom, top = ends[0], ends[-1]
    clear = top["low"] > 0.0 and bottom["high"] < 0.0
    names = [row["name"].removeprefix(f"{name}[").removesuffix("]") for row in (top, bottom)]
    which = f" Highest: {names[0]}; lowest: {names[1]}." if clear else ""
    return [f"The {len(rows)} levels of {name} differ ({size}).{which}"]


def _curve(model: Any, name: str, x: Array, found: Any) -> str:
    low, mean, high = (np.asarray(found.column(key)) for key in ("low", "mean", "high"))
    if np.max(low) <= np.min(high):
        return f"{name}: a level line lies within the band, so the data do not show clearly that it changes."
    top, bottom = (number(float(x[k]), 3) for k in (np.argmax(mean), np.argmin(mean)))
    change = number(float(np.ptp(mean)), 2) + _scale_words(model)
    return f"{name} is highest near {top} and lowest near {bottom}, a change of {change}."


def _held_out(model: Any, loo: Any) -> list[Check]:
    """Coverage of rows that were left out, or calibration of their probabilities."""
    pit = np.asarray(loo.pit)
    if len(pit) < 20 or not np.all(np.isfinite(pit)):
        return []
    family = family_of(model.family)
    if family.name in BINARY and "|" not in response_of(model):
        # the middle of its step is ½ P(0) for a 0 and 1 − ½ P(1) for a 1
        happened = pit > 0.5
        return [check_calibration(happened.astype(float), np.where(happened, 2.0 * (1.0 - pit), 1.0 - 2.0 * pit))]
    if family.whole:  # somewhere within its step
        step = np.exp(np.minimum(loo.pointwise, 0.0))
        pit = pit + step * (np.random.default_rng(0).random(len(pit)) - 0.5)
    found = check_coverage(np.clip(pit, 0.0, 1.0), remedies=OF_FORMULAS if family.template.gaussian else None)
    if not found.passed and any(check.name in PREDICTOR for check in model.checks_.failed):
        found = found._replace(remedy="Mend the pattern of the residuals first")
    return [found]


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence, the first few of many."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")

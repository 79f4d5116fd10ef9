"""An estimator for a target, its fit, and models on disk."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from latlin import linear
from latlin.cli.file_rows import describe_rows, learn_files, measure_spreads
from latlin.cli.prepare import Choices, Prepared
from latlin.cli.screen import show_steps
from latlin.datasets.columns import join_names
from latlin.datasets.encoding import (
    Encoding,
)
from latlin.datasets.target import (
    Guess,
    Target,
    kind_of,
)
from latlin.inference.diagnosis.diagnose import WORDS
from latlin.linear import BayesianCountRegression
from latlin.numerics.alerts import MisfitWarning
from latlin.numerics.archive import load_with_card, save_with_card
from latlin.report.assess import Assessment, assess, held_out_score
from latlin.report.effect_curves import effect_curves
from latlin.report.facts import VERDICT, Facts, gather

ESTIMATORS: dict[str, type] = {
    "linear": linear.BayesianLinearRegression,
    "logistic": linear.BayesianLogisticRegression,
    "probit": linear.BayesianProbitRegression,
    "softmax": linear.BayesianSoftmaxRegression,
    "multinomial-probit": linear.BayesianMultinomialProbitRegression,
    "poisson": linear.BayesianPoissonRegression,
    "negative-binomial": linear.BayesianCountRegression,
    "ordinal": linear.BayesianOrdinalRegression,
    "robust": linear.RobustRegression,
    "sparse": linear.SparseRegression,
    "beta": linear.BayesianBetaRegression,
    "quantile": linear.BayesianQuantileRegression,
}
#: families of all classes together, which have one engine
JOINT = ("softmax", "multinomial-probit")
#: what a target holds → the estimator that takes the family as its argument
BY_FAMILY: dict[str, type] = {
    "counts": linear.BayesianCountRegression,
    "amounts": linear.BayesianGammaRegression,
    "times": linear.BayesianSurvivalRegression,
    "successes": linear.BayesianBinomialRegression,
}
#: draws of a diagnosis unless given, at least, and sites evaluated (rows × draws × values of the hyperparameters)
USUAL_DRAWS, FEWEST_DRAWS, EVALUATIONS = 4000, 400, 5 * 10**7
ENGINES = ("auto", "map", "laplace", "mean-field", "lvb", "ep", "gkl", "ai-kl")
#: families of counts that are always compared
CANDIDATES = ("negative-binomial", "poisson")
#: a guessed family → those that are compared by evidence, from the simplest on
COMPARED = {
    "binomial": ("binomial", "beta-binomial"),
    "weibull": ("exponential", "weibull", "log-logistic"),
    "gamma": ("gamma", "log-normal", "inverse-gaussian"),
}
#: the same of measured numbers that are all above zero, or between zero and one
POSITIVE, SHARES = ("linear", "gamma", "log-normal"), ("linear", "beta")
#: log evidence by which a simpler family may be behind; that of a linear model may be by what is "very strong" evidence
#: (Kass and Raftery, 1995), as another family changes what coefficients mean
BEHIND, BEHIND_LINEAR = 1.0, 5.0
#: entries of the table beyond which a linear model, which is exact, is not compared with slower ones
MOST_ENTRIES = 10**6
UNDIAGNOSED = "Rows in blocks: the approximation was not diagnosed."
UNSEEN = "No rows were held out (--folds 5 would fit five more times, each without a fifth of the rows)."
FORMAT = 2


def make_estimator(
    target: Target, engine: str = "auto", prior_scale: float | str = "auto", verbose: bool = False
) -> Any:
    """The estimator of a target's family, not fitted."""
    options: dict[str, Any] = {
        "engine": check_engine(engine),
        "prior_scale": prior_scale,
        "random_state": 0,
        "verbose": verbose,
    }
    if target.family in JOINT and options.pop("engine") not in ("auto", "gkl"):
        raise ValueError(f"the family {target.family!r} is fitted by Gaussian KL, not by the engine {engine!r}")
    if target.family == "negative-binomial":
        options["family"] = target.family
    if target.family == "ordinal":
        options["order"] = target.labels
    if target.family == "quantile":
        options["quantile"] = target.quantile
    if target.family in ESTIMATORS:
        return ESTIMATORS[target.family](**options)
    return BY_FAMILY[kind_of(target.family)](target.family, **options)


def scale_of(words: str) -> float | str:
    """ "auto" or a positive number."""
    if words == "auto":
        return words
    try:
        value = float(words)
    except ValueError:
        value = float("nan")
    if not 0.0 < value < float("inf"):
        raise ValueError(f"prior-scale must be 'auto' or a positive number, got {words!r}")
    return value


def check_engine(engine: str) -> str:
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {join_names(ENGINES)}, got {engine!r}")
    return engine


def check_folds(folds: int) -> int:
    if folds == 1:
        raise ValueError("folds must be 0 (no rows are held out) or at least 2, got 1")
    return folds


def check_interval(interval: float) -> float:
    if not 0.0 < interval < 1.0:
        raise ValueError(f"interval must lie strictly between 0 and 1 (0.9 for 90 %), got {interval:g}")
    return interval


class Fitting(NamedTuple):
    """How to fit."""

    engine: str = "auto"
    prior_scale: float | str = "auto"
    folds: int = 5
    quiet: bool = False
    verbose: bool = False
    draws: int = 4000
    hyperparameters: str = "auto"

    def estimator(self, target: Target, verbose: bool = False) -> Any:
        """The estimator of a target's family, not fitted."""
        made = make_estimator(target, self.engine, self.prior_scale, verbose)
        return made.set_params(hyperparameters=self.hyperparameters)


def fit_model(prepared: Prepared, how: Fitting) -> FittedModel:
    """Choose among families if none was named, fit, hold rows out, diagnose, and gather what is known."""
    estimator, rival = None, ""
    # the mode has no evidence to choose by
    if prepared.guessed and how.engine != "map":
        choose = choose_counts if prepared.target.family in CANDIDATES else choose_family
        prepared, estimator, rival = choose(prepared, how)
    with show_steps("Fitting", how.folds + 2, how.quiet) as advance:
        if estimator is None:
            estimator = how.estimator(prepared.target, how.verbose)
            fit_on_screen(estimator, prepared)
        advance("Holding rows out")
        quiet_one = how.estimator(prepared.target)
        seen, trouble = assess_folds(quiet_one, prepared.X, prepared.y, how.folds, advance, prepared.offset)
        if rival and seen is not None:
            prepared.notes[0] += compare_with_rival(prepared, how, seen, rival)
        found = diagnose_fit(estimator, len(prepared.y), how.draws)
        facts = gather(
            estimator,
            len(prepared.y),
            target=prepared.target.name,
            columns=prepared.columns,
            notes=[*prepared.notes, *trouble],
            spread=prepared.spread,
            diagnosis=found,
            assessment=seen,
            factors=prepared.encoding.factors,
            curves=effect_curves(estimator, prepared.X),
        )
        advance("Done")
    return FittedModel(estimator, prepared.encoding, prepared.target, facts)


def fit_on_screen(estimator: Any, prepared: Prepared) -> None:
    """Fit; what the fit says of its family is among the facts, not a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        more = {} if prepared.offset is None else {"offset": prepared.offset}
        estimator.fit(prepared.X, prepared.y, **more)


def choose_counts(prepared: Prepared, how: Fitting) -> tuple[Prepared, Any, str]:
    """The family of counts with the highest evidence, a note that names it beside the others, its fit, and a rival."""
    with show_steps("Choosing the family", 1, how.quiet) as advance:
        given: dict[str, Any] = {
            "engine": how.engine,
            "prior_scale": how.prior_scale,
            "hyperparameters": how.hyperparameters,
        }
        chosen = BayesianCountRegression(**given, random_state=0)
        fit_on_screen(chosen, prepared)
        advance()
    target = replace(prepared.target, family=chosen.family_)
    note = f"{chosen.choice_[0].upper()}{chosen.choice_[1:]}."
    # a Poisson fit is quick, and has an estimator of its own
    fitted = None if chosen.family_ == "poisson" else chosen.set_params(family=chosen.family_)
    chosen.choice_ = ""  # the note has it
    rival = next(name for name in CANDIDATES if name != chosen.family_)
    return prepared._replace(target=target, notes=[note, *prepared.notes[1:]]), fitted, rival


def choose_family(prepared: Prepared, how: Fitting) -> tuple[Prepared, Any, str]:
    """The simplest family that is not behind the best by its evidence, with a note, its fit, and its best rival."""
    names = families_to_compare(prepared, how)
    if len(names) < 2:
        return prepared, None, ""
    fits = {}
    with show_steps("Choosing the family", len(names), how.quiet) as advance:
        for name in names:
            fits[name] = how.estimator(replace(prepared.target, family=name))
            fit_on_screen(fits[name], prepared)
            advance()
    ranked = sorted(fits, key=lambda name: -fits[name].log_evidence_)
    gaps = {name: fits[ranked[0]].log_evidence_ - fits[name].log_evidence_ for name in names}
    best = next(name for name in names if gaps[name] <= (BEHIND_LINEAR if name == "linear" else BEHIND))
    others = [name for name in ranked if name != best]
    said = ", ".join(f"{name} {fits[name].log_evidence_:.2f}" for name in others)
    kind = f"{fits[best].log_evidence_:.2f} ({fits[best].evidence_kind_})"
    why = "by its log evidence" if best == ranked[0] else "as the simplest one near the highest log evidence"
    note = f"Family {best} was chosen {why}: {best} {kind} against {said}."
    chosen = prepared._replace(target=replace(prepared.target, family=best), notes=[note, *prepared.notes[1:]])
    return chosen, fits[best], others[0]


def families_to_compare(prepared: Prepared, how: Fitting) -> tuple[str, ...]:
    """The families between which the evidence chooses, from the simplest on; one where there is no choice."""
    family, y = prepared.target.family, prepared.y
    # whole numbers may be grades, and with an engine of the user's own choice the linear model stays
    plain = family != "linear" or how.engine != "auto" or prepared.X.size > MOST_ENTRIES or np.all(y == np.round(y))
    if plain or y.min() <= 0.0:
        return COMPARED.get(family, (family,))
    return SHARES if y.max() < 1.0 else POSITIVE


def compare_with_rival(prepared: Prepared, how: Fitting, seen: Assessment, rival: str) -> str:
    """Mean log densities of held-out rows, of the family that was chosen and of another one."""
    other = how.estimator(replace(prepared.target, family=rival))
    score, _ = held_out_score(other, prepared.X, prepared.y, folds=how.folds, offset=prepared.offset)
    scores = f"{prepared.target.family} {seen.log_density:.3f}, {rival} {score:.3f}"
    is_tie = f"{score:.3f}" == f"{seen.log_density:.3f}"
    agree = "are too close to decide" if is_tie else "agree" if score < seen.log_density else f"favour {rival}"
    return f" Mean log probability per held-out row: {scores}; held-out rows {agree}."


def assess_folds(
    estimator: Any, X: Any, y: Any, folds: int, advance: Callable[[], None], offset: Any = None
) -> tuple[Assessment | None, list[str]]:
    """What the folds say; rows that cannot be split are fitted all the same, with a note."""
    if not folds:
        return None, []
    try:
        return assess(estimator, X, y, folds=folds, advance=advance, offset=offset), []
    except ValueError as error:
        return None, [f"No rows were held out: {error}."]


def fit_blocks(pattern: str, choices: Choices, how: Fitting, ask: Callable[[Guess], str]) -> FittedModel:
    """Learn how to encode the rows, fit, hold rows out if that is wanted, and gather what is known."""
    with show_steps("Looking at the rows", how.folds + 3, how.quiet) as advance:
        rows = learn_files(pattern, choices, ask)
        advance("Fitting")
        estimator = how.estimator(rows.target, how.verbose).fit(rows.X, rows.y)
        advance("Holding rows out" if how.folds else "Summing up")
        quiet_one = how.estimator(rows.target)
        seen, trouble = assess_folds(quiet_one, rows.X, rows.y, how.folds, advance)
        count, spread = measure_spreads(rows)
    facts = gather(
        estimator,
        count,
        target=rows.target.name,
        columns=rows.learnt.columns,
        notes=[*describe_rows(rows, count), *trouble, UNDIAGNOSED, *([] if how.folds else [UNSEEN])],
        spread=spread,
        assessment=seen,
        factors=rows.learnt.encoding.factors,
    )
    return FittedModel(estimator, rows.learnt.encoding, rows.target, facts)


def diagnose_fit(estimator: Any, rows: int, most: int = USUAL_DRAWS) -> list[tuple[str, str]]:
    """What draws say about the approximation, as label and words, of several classes the worst; nothing of a mode."""
    finding = [("family", words)] if (words := getattr(estimator, "finding_", "")) else []
    posteriors = estimator.posterior_ if isinstance(estimator.posterior_, list) else [estimator.posterior_]
    kind = posteriors[0].evidence_kind
    if kind == "none":
        return finding
    if len(posteriors) > 1 and np.ndim(estimator.log_evidence_) == 0:
        return [
            (VERDICT, "not checked: all classes are fitted by one model, and draws of one class cannot check it"),
            *finding,
        ]
    if kind == "exact":
        word, reason = posteriors[0].caution or ("accurate", "this posterior is exact, given the scales")
        return [(VERDICT, f"{word}: {reason}"), *finding]
    parts = len(getattr(posteriors[0].model, "parts", (None,)))  # one model per value of the hyperparameters
    cheap = int(np.clip(EVALUATIONS // max(rows * parts * len(posteriors), 1), FEWEST_DRAWS, most))
    draws = cheap if most == USUAL_DRAWS else most
    each = [posterior.diagnose(draws, random_state=0) for posterior in posteriors]
    worst = max(range(len(each)), key=lambda k: WORDS.index(each[k].verdict))
    found, of = each[worst], "" if len(each) == 1 else f"class {estimator.classes_[worst]}: "
    low, high = found.evidence_interval
    lines = [
        (VERDICT, f"{found.verdict}: {of}{found.reason}"),
        ("k̂", f"{found.k_hat:.2f} (above 0.7 the draws cannot be trusted)"),
        ("log evidence by importance sampling", f"{found.log_evidence:.3f} ± {found.log_evidence_se:.2g}"),
        ("it lies between", f"{low:.3f} and {high:.3f}"),
    ]
    next_engine = [("engine to try next", found.next_engine)] if found.next_engine else []
    return [*lines, *next_engine, *finding]


# --- A model on disk: the estimator's archive, with a card inside that says what was found.
#
# The card is part of the archive's header, so that `latlin.load` reads the same file and finds the estimator.


class FittedModel(NamedTuple):
    """A fitted estimator with the way to it from a table, and what is known about the fit."""

    estimator: Any
    encoding: Encoding
    target: Target
    facts: Facts


def save_model(path: str | os.PathLike[str], model: FittedModel) -> None:
    """Write a model, all or nothing."""
    card = {
        "format": FORMAT,
        "target": model.target.to_json(),
        "facts": model.facts.to_json(),
    }
    model.estimator.encoding_ = model.encoding  # so that `latlin.load` gives a model that reads tables as they come
    save_with_card(path, model.estimator, card)


def load_model(path: str | os.PathLike[str]) -> FittedModel:
    """Read a model; a file that is none, or of a later format, gets a sentence, and nothing in it is run."""
    where = os.fspath(path)
    try:
        estimator, card = load_with_card(path)
    except ValueError as error:
        raise ValueError(f"{where} is not a model written by 'latlin fit': {error}") from error
    if not isinstance(card, dict) or not isinstance(card.get("format"), int):
        raise ValueError(f"{where} is not a model written by 'latlin fit': it has no card")
    if card["format"] > FORMAT:
        raise ValueError(f"{where} has format {card['format']}, and this latlin reads up to {FORMAT}: upgrade it")
    try:
        target, facts = Target.from_json(card["target"]), Facts.from_json(card["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{where} has a card that cannot be read: {error}") from error
    encoding = getattr(estimator, "encoding_", None)
    if encoding is None:
        raise ValueError(
            f"{where} is not a model written by 'latlin fit': it does not hold how a table becomes numbers"
        )
    return FittedModel(estimator, encoding, target, facts)

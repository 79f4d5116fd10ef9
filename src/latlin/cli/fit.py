"""`latlin fit`: from a table to a model file, its evidence, and how well it predicts rows that it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from latlin.cli.model_file import Model, save_model
from latlin.cli.models import Prepared, diagnosis, make_estimator
from latlin.cli.screen import decimal, plain, steps, table
from latlin.linear import BayesianCountRegression
from latlin.numerics.alerts import MisfitWarning
from latlin.report.assess import Assessment, assess, held_out_score
from latlin.report.conclusion import count_words
from latlin.report.facts import Facts, gather, is_intercept
from latlin.report.words import coefficient_words, gain_words

SHOWN = 20
#: families of counts that are always compared
CANDIDATES = ("negative-binomial", "poisson")


class Fitting(NamedTuple):
    """How to fit."""

    engine: str = "auto"
    prior_scale: float | str = "auto"
    folds: int = 5
    quiet: bool = False
    verbose: bool = False
    draws: int = 4000


def fit_model(prepared: Prepared, how: Fitting) -> Model:
    """Choose among families of counts if none was named, fit, hold rows out, diagnose, and gather what is known."""
    if prepared.guessed and prepared.target.family in CANDIDATES:
        prepared = choose_family(prepared, how)
    estimator = make_estimator(prepared.target, how.engine, how.prior_scale, how.verbose)
    with steps("Fitting", how.folds + 2, how.quiet) as advance:
        fit_quietly_told(estimator, prepared)
        advance("Holding rows out")
        quiet_one = make_estimator(prepared.target, how.engine, how.prior_scale)
        seen, trouble = assessed(quiet_one, prepared.X, prepared.y, how.folds, advance, prepared.offset)
        found = diagnosis(estimator, len(prepared.y), how.draws)
        advance("Done")
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
    )
    return Model(estimator, prepared.encoding, prepared.target, facts)


def fit_quietly_told(estimator: Any, prepared: Prepared) -> None:
    """Fit; what the fit says of its family is among the facts, not a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        more = {} if prepared.offset is None else {"offset": prepared.offset}
        estimator.fit(prepared.X, prepared.y, **more)


def choose_family(prepared: Prepared, how: Fitting) -> Prepared:
    """The family of counts with the highest evidence, and a note that says so beside the best other one, held out."""
    if how.engine == "map":  # no evidence to choose by
        return prepared
    with steps("Choosing the family", 1, how.quiet) as advance:
        chosen = BayesianCountRegression(engine=how.engine, prior_scale=how.prior_scale, random_state=0)
        fit_quietly_told(chosen, prepared)
        advance()
    target = replace(prepared.target, family=chosen.family_)
    note = f"{chosen.choice_[0].upper()}{chosen.choice_[1:]}{_held_out(prepared, how, chosen.family_)}."
    return prepared._replace(target=target, notes=[note, *prepared.notes[1:]])


def _held_out(prepared: Prepared, how: Fitting, chosen: str) -> str:
    """Mean log densities of held-out rows, of the family that was chosen and of the other one of the first two."""
    if not how.folds:
        return ""
    scores = []
    for family in (chosen, *(name for name in CANDIDATES if name != chosen))[:2]:
        estimator = make_estimator(replace(prepared.target, family=family), how.engine, how.prior_scale)
        score, _ = held_out_score(estimator, prepared.X, prepared.y, folds=how.folds, offset=prepared.offset)
        scores.append(f"{family} {score:.3f}")
    return f"; held out, nat per row: {', '.join(scores)}"


def assessed(
    estimator: Any, X: Any, y: Any, folds: int, advance: Callable[[], None], offset: Any = None
) -> tuple[Assessment | None, list[str]]:
    """What the folds say; rows that cannot be split are fitted all the same, with a note."""
    if not folds:
        return None, []
    try:
        return assess(estimator, X, y, folds=folds, advance=advance, offset=offset), []
    except ValueError as error:
        return None, [f"No rows were held out: {error}."]


def save_and_tell(model: Model, path: Path, console: Console) -> None:
    """Write the model and say what it is."""
    save_model(path, model)
    tell(model.facts, console)
    console.print(f"\nSaved {plain(path)}. Next: latlin report {plain(path)}, or latlin predict {plain(path)} new.csv")


def tell(facts: Facts, console: Console, most: int = SHOWN) -> None:
    """The facts of a fit, in a terminal."""
    console.print(f"{facts.title}: {facts.rows} rows, {facts.features} features, engine {facts.engine}")
    for note in facts.notes:
        console.print(f"  {plain(note)}")
    for label, value in facts.log_evidence:
        told = f" of {plain(label)}" if label else ""
        worth = facts.evidence_kind if facts.evidence_kind != "none" else "this engine has none"
        console.print(f"\nLog evidence{told} {decimal(value, '.4f')} ({worth})")
    ended = f"{'Converged' if facts.converged else 'NOT converged'} after {facts.steps} step{'s' * (facts.steps != 1)}"
    console.print(", ".join([ended, *(f"{plain(name)} {decimal(value)}" for name, value in facts.learnt)]))
    tell_assessment(facts.assessment, console)
    if facts.approximation:
        console.print(f"Approximation: {plain(facts.approximation)}")
    if facts.checks:
        console.print(plain(facts.model_checks))
    console.print(plain(coefficient_words(facts.family, facts.target, facts.positive)))
    tell_coefficients(facts, console, most)
    tell_factors(facts, console)


def tell_assessment(seen: Assessment | None, console: Console) -> None:
    """Held-out numbers, in a line."""
    if seen is None:
        return
    scores = ", ".join(f"{name} {value:.4g}" for name, value in seen.scores.items())
    console.print(
        f"Held out, {seen.folds} folds: log predictive density {seen.log_density:.4f} ± {seen.log_density_error:.4f} "
        f"per row (without features {seen.baseline:.4f}), {scores}"
    )
    console.print(gain_words(seen))


def tell_factors(facts: Facts, console: Console) -> None:
    """Columns of levels as a whole, and how many features have a clear effect."""
    for line in facts.factors:
        differ = "differ" if line["joint"] < 1.0 - facts.coverage else "do not clearly differ"
        said = f"the levels {differ} (joint p = {line['joint']:.2g})" if line["joint"] == line["joint"] else ""
        console.print(plain(f"{line['name']}, compared with {line['baseline']}: {said}"))
    console.print(count_words(facts))


def tell_coefficients(facts: Facts, console: Console, most: int = SHOWN) -> None:
    """The largest effects; all of them are in `latlin summary`."""
    rows = sorted(facts.coefficients, key=lambda row: (is_intercept(row), -abs(row["mean"] * row["effect"])))
    share = 100 * facts.coverage
    headings = ("coefficient", "mean", "sd", f"{50 - share / 2:g} %", f"{50 + share / 2:g} %", "P(> 0)")
    forms = {"mean": ".4g", "sd": ".3g", "low": ".4g", "high": ".4g", "p_positive": ".3f"}
    lines = [(row["name"], *(decimal(row[key], form) for key, form in forms.items())) for row in rows[:most]]
    console.print()
    console.print(table(headings, lines))
    if len(rows) > most:
        console.print(f"… and {len(rows) - most} smaller ones: latlin summary")

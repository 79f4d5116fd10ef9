"""`latlin fit`: from a table to a model file, its evidence, and how well it predicts rows that it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from latlin.cli.models import (
    Choices,
    FittedModel,
    Prepared,
    describe_encoding,
    describe_quantile,
    diagnosis,
    make_estimator,
    save_model,
    with_quantile,
)
from latlin.cli.screen import decimal, plain, steps, table
from latlin.datasets.columns import listed
from latlin.datasets.encoding import Encoding, checked_missing, listed_gaps
from latlin.datasets.summary import ColumnSummary, merge, summarise
from latlin.datasets.table import Frame, need_pandas
from latlin.datasets.target import FAMILIES, LABELLED, Guess, Target, guess_family, learn_target
from latlin.distributed.blocks import Block, tree
from latlin.distributed.dask_blocks import each_part
from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows
from latlin.linear import BayesianCountRegression
from latlin.numerics.alerts import MisfitWarning
from latlin.report.assess import Assessment, assess, held_out_score
from latlin.report.effect_curves import effect_curves
from latlin.report.facts import Facts, gather, is_intercept
from latlin.report.words import SCALES, coefficient_words, count_words, gain_words

SHOWN = 20
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


class Fitting(NamedTuple):
    """How to fit."""

    engine: str = "auto"
    prior_scale: float | str = "auto"
    folds: int = 5
    quiet: bool = False
    verbose: bool = False
    draws: int = 4000


def fit_model(prepared: Prepared, how: Fitting) -> FittedModel:
    """Choose among families if none was named, fit, hold rows out, diagnose, and gather what is known."""
    estimator, rival = None, ""
    # the mode has no evidence to choose by
    if prepared.guessed and how.engine != "map":
        choose = choose_counts if prepared.target.family in CANDIDATES else choose_family
        prepared, estimator, rival = choose(prepared, how)
    with steps("Fitting", how.folds + 2, how.quiet) as advance:
        if estimator is None:
            estimator = make_estimator(prepared.target, how.engine, how.prior_scale, how.verbose)
            fit_on_screen(estimator, prepared)
        advance("Holding rows out")
        quiet_one = make_estimator(prepared.target, how.engine, how.prior_scale)
        seen, trouble = assessed(quiet_one, prepared.X, prepared.y, how.folds, advance, prepared.offset)
        if rival and seen is not None:
            prepared.notes[0] += compare_with_rival(prepared, how, seen, rival)
        found = diagnosis(estimator, len(prepared.y), how.draws)
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
    with steps("Choosing the family", 1, how.quiet) as advance:
        chosen = BayesianCountRegression(engine=how.engine, prior_scale=how.prior_scale, random_state=0)
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
    names = compared_families(prepared, how)
    if len(names) < 2:
        return prepared, None, ""
    fits = {}
    with steps("Choosing the family", len(names), how.quiet) as advance:
        for name in names:
            fits[name] = make_estimator(replace(prepared.target, family=name), how.engine, how.prior_scale)
            fit_on_screen(fits[name], prepared)
            advance()
    ranked = sorted(fits, key=lambda name: -fits[name].log_evidence_)
    gaps = {name: fits[ranked[0]].log_evidence_ - fits[name].log_evidence_ for name in names}
    best = next(name for name in names if gaps[name] <= (BEHIND_LINEAR if name == "linear" else BEHIND))
    others = [name for name in ranked if name != best]
    said = ", ".join(f"{name} {fits[name].log_evidence_:.2f}" for name in others)
    kind = f"{fits[best].log_evidence_:.2f} ({fits[best].evidence_kind_})"
    note = f"Family {best} was chosen by its log evidence: {best} {kind} against {said}."
    chosen = prepared._replace(target=replace(prepared.target, family=best), notes=[note, *prepared.notes[1:]])
    return chosen, fits[best], others[0]


def compared_families(prepared: Prepared, how: Fitting) -> tuple[str, ...]:
    """The families between which the evidence chooses, from the simplest on; one where there is no choice."""
    family, y = prepared.target.family, prepared.y
    # whole numbers may be grades, and with an engine of the user's own choice the linear model stays
    plain = family != "linear" or how.engine != "auto" or prepared.X.size > MOST_ENTRIES or np.all(y == np.round(y))
    if plain or y.min() <= 0.0:
        return COMPARED.get(family, (family,))
    return SHARES if y.max() < 1.0 else POSITIVE


def compare_with_rival(prepared: Prepared, how: Fitting, seen: Assessment, rival: str) -> str:
    """Mean log densities of held-out rows, of the family that was chosen and of another one."""
    other = make_estimator(replace(prepared.target, family=rival), how.engine, how.prior_scale)
    score, _ = held_out_score(other, prepared.X, prepared.y, folds=how.folds, offset=prepared.offset)
    scores = f"{prepared.target.family} {seen.log_density:.3f}, {rival} {score:.3f}"
    agree = "agree" if score <= seen.log_density else f"would rather have {rival}"
    return f" Mean log probability per held-out row: {scores}; held-out rows {agree}."


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


def save_and_tell(model: FittedModel, path: Path, console: Console, quiet: bool = False) -> None:
    """Write the model and say what it is."""
    with steps("Writing", 1, quiet):
        save_model(path, model)
    tell(model.facts, console)
    console.print(f"\nSaved {plain(path)}. Next: latlin report {plain(path)}, or latlin predict {plain(path)} new.csv")


def tell(facts: Facts, console: Console, most: int = SHOWN) -> None:
    """The facts of a fit, in a terminal."""
    console.print(
        f"{facts.title}: {facts.rows} rows, {facts.features} feature{'s' * (facts.features != 1)}, "
        f"engine {facts.engine}"
    )
    for note in facts.notes:
        console.print(f"  {plain(note)}")
    for label, value in facts.log_evidence:
        of = f" of {plain(label)}" if label else ""
        worth = facts.evidence_kind if facts.evidence_kind != "none" else "this engine has none"
        console.print(f"\nLog evidence{of} {decimal(value, '.4f')} ({worth})")
    ended = f"{'Converged' if facts.converged else 'NOT converged'} after {facts.steps} step{'s' * (facts.steps != 1)}"
    console.print(", ".join([ended, *(f"{plain(name)} {decimal(value)}" for name, value in facts.learnt)]))
    if facts.scales in SCALES:
        console.print(SCALES[facts.scales])
    tell_assessment(facts, console)
    if facts.approximation:
        console.print(f"Approximation: {plain(facts.approximation)}")
    if facts.checks:
        console.print(plain(facts.model_checks))
    console.print(plain(coefficient_words(facts.family, facts.target, facts.positive)))
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


# --- Many Parquet files to fit or compare by: the rows stay where they are, and are encoded again in every pass.


UNDIAGNOSED = "Rows in blocks: the approximation was not diagnosed."
UNSEEN = "No rows were held out (--folds 5 would fit five more times, each without a fifth of the rows)."


class LearntEncoding(NamedTuple):
    """How the rows of the files become numbers, what to say about it, gaps by column, and rows that have a target."""

    encoding: Encoding
    target: Target
    columns: list[dict[str, Any]]
    notes: list[str]
    gaps: dict[str, int]
    rows: int


class FileBlockRows(NamedTuple):
    """The rows of the files as numbers, when their turn comes, the target beside them, and how that came about."""

    X: Any
    y: Any
    learnt: LearntEncoding

    @property
    def target(self) -> Target:
        return self.learnt.target


def look_at(pattern: str, choices: Choices, ask: Callable[[Guess], str]) -> FileBlockRows:
    """Look at all rows once to learn how to encode them."""
    if choices.others:
        raise ValueError("--exposure, --trials and --event are for a table in memory, not for rows in blocks")
    if choices.dates or choices.numbers or choices.missing == "model":
        raise ValueError("--dates, --numbers and --missing model are for a table in memory, not for rows in blocks")
    frame = read_rows(pattern).X
    learnt = learn(summaries(frame, choices), choices, ask)
    rows = encoded(frame, learnt)
    return FileBlockRows(rows[learnt.encoding.names], rows[learnt.target.name], learnt)


def fit_blocks(pattern: str, choices: Choices, how: Fitting, ask: Callable[[Guess], str]) -> FittedModel:
    """Learn how to encode the rows, fit, hold rows out if that is wanted, and gather what is known."""
    with steps("Looking at the rows", how.folds + 3, how.quiet) as advance:
        rows = look_at(pattern, choices, ask)
        advance("Fitting")
        estimator = make_estimator(rows.target, how.engine, how.prior_scale, how.verbose).fit(rows.X, rows.y)
        advance("Holding rows out" if how.folds else "Summing up")
        quiet_one = make_estimator(rows.target, how.engine, how.prior_scale)
        seen, trouble = assessed(quiet_one, rows.X, rows.y, how.folds, advance)
        count, spread = spreads(rows)
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


def spreads(rows: FileBlockRows) -> tuple[int, dict[str, float]]:
    """How many rows there are to fit, and the standard deviation of every feature."""
    encoding = rows.learnt.encoding
    count, total, squares = open_blocks(rows.X).total(moments, _fills(encoding))
    spread = np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0))
    return count, dict(zip(encoding.names, spread.tolist(), strict=True))


def describe_rows(rows: FileBlockRows, count: int) -> list[str]:
    """What became of the rows of the files, of which `count` are left."""
    learnt = rows.learnt
    return [*learnt.notes, *describe_encoding(learnt.encoding, learnt.gaps, learnt.rows - count)]


def summaries(frame: Any, choices: Choices) -> dict[str, ColumnSummary]:
    """One summary a column, in one pass over the files."""
    for name in (choices.target, *choices.drop, *choices.categorical):
        if name not in frame.columns:
            raise ValueError(f"the table has no column {name!r}; it has {listed(frame.columns)}")
    kept = frame[[name for name in frame.columns if name not in choices.drop]]
    return {summary.name: summary for summary in tree(each_part(kept, summarise, choices.categorical), merge)}


def learn(seen: dict[str, ColumnSummary], choices: Choices, ask: Callable[[Guess], str]) -> LearntEncoding:
    """The encoding and the target from what was seen; gaps that must not be get a sentence."""
    goal, others = seen[choices.target], [s for name, s in seen.items() if name != choices.target]
    if choices.family not in ("auto", *FAMILIES):
        raise ValueError(f"family must be one of {listed(('auto', *FAMILIES))}, got {choices.family!r}")
    if goal.present < 2:
        raise ValueError(f"only {goal.present} rows are left to fit")
    columns = {summary.name: summary.column(choices.levelling) for summary in others}
    used = tuple(column for column in columns.values() if column is not None)
    if not used:
        raise ValueError(f"the table has no column besides {choices.target!r} that could explain it")
    left_out = tuple(name for name, column in columns.items() if column is None)
    missing = checked_missing(choices.missing)
    gaps = {column.name: seen[column.name].missing for column in used if seen[column.name].missing}
    encoding = Encoding(used, missing, left_out, tuple(gaps) if missing == "indicator" else ())
    _refuse_gaps(gaps, goal, encoding.missing)
    family, notes = choices.family, []
    if family == "auto":
        guess = guess_family(goal.series)
        family = guess.family or ask(guess)
        notes = [f"Family {family}, because {guess.reason}."] if guess.family else []
    target = with_quantile(learn_target(goal.series, family, choices.levels), choices)
    notes += describe_quantile(target)
    notes += [f"{goal.missing} rows without a target were left out."] if goal.missing else []
    return LearntEncoding(encoding, target, [s.described() for s in seen.values()], notes, gaps, goal.present)


def _refuse_gaps(gaps: dict[str, int], goal: ColumnSummary, missing: str) -> None:
    rows = goal.present + goal.missing
    if goal.missing and missing == "error":
        raise ValueError(
            f"the target {goal.name!r} is missing in {goal.missing} of {rows} rows; --missing drop leaves them out"
        )
    if gaps and missing == "error":
        raise ValueError(
            f"there are missing values: {listed_gaps(gaps)} of {rows} rows; say what to do with them: "
            "missing 'drop', 'mean' or 'indicator' (--missing)"
        )


def encoded(frame: Any, learnt: LearntEncoding) -> Any:
    """The rows as numbers, and the target beside them, when their turn comes."""
    kind = np.asarray(learnt.target.labels).dtype if learnt.target.family in LABELLED else np.dtype(float)
    meta = need_pandas().DataFrame({name: np.empty(0) for name in learnt.encoding.names})
    meta[learnt.target.name] = np.empty(0, kind if kind.kind in "if" else object)
    return frame.map_partitions(encode_part, learnt.encoding, learnt.target, meta=meta)


def encode_part(part: Frame, encoding: Encoding, target: Target) -> Frame:
    """Rows of one file (or part of one) whose target is known."""
    known = part[part[target.name].notna()]
    found = encoding.encode(known)
    y = target.encode(known[target.name][found.kept])
    return found.matrix.assign(**{target.name: y if y.dtype.kind in "if" else y.astype(object)})


def moments(block: Block, centre: Any) -> tuple[Any, ...]:
    """Rows, and sums and sums of squares of the columns about a centre."""
    apart = block.X - centre
    return block.n_rows, apart.sum(axis=0), np.einsum("nd,nd->d", apart, apart)


def _fills(encoding: Encoding) -> Any:
    return np.concatenate([*(column.filled() for column in encoding.columns), np.zeros(len(encoding.indicated))])

"""`latlin compare`: families and engines beside each other, by evidence and on rows they have not seen."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from latlin.cli.file_rows import describe_rows, learn_files, measure_spreads
from latlin.cli.models import JOINT, Fitting, check_engine, families_to_compare, make_estimator
from latlin.cli.prepare import Choices, Prepared, prepare
from latlin.cli.screen import format_number, mask_controls, show_steps, table
from latlin.datasets.problems import refuse_unknown
from latlin.datasets.table import Frame, need_pandas
from latlin.datasets.target import EXPOSED, KINDS, LABELLED, Guess, Target, kind_of
from latlin.diagnostics.model_checks import Check, ModelChecks
from latlin.numerics.alerts import MisfitWarning
from latlin.numerics.arrays import Array
from latlin.report.assess import Split, grouped_splits, held_out_densities, held_out_score, ordered_splits, usual_splits
from latlin.report.facts import scales_of
from latlin.report.tasks import task_of
from latlin.report.words import APART, place_words

HEADINGS = (
    "family",
    "engine",
    "log evidence",
    "kind",
    "held out",
    "±",
    "difference",
    "its ±",
    "against the best",
    "seconds",
    "note",
)
#: checks of features that say too much about the target: all candidates look good then
TELLING = ("leakage", "separation")
#: a difference per row that is shown as 0.0000
UNSEEN = 5e-5
#: engines unless given, for rows in memory and for rows in blocks
ENGINES, BLOCK_ENGINES = ("laplace", "lvb", "ep", "gkl"), ("laplace", "gkl")
#: families that are tried by default, by what the target holds; all of its kind can be compared
USUAL = {
    "numbers": ("linear", "robust", "sparse"),
    "counts": ("poisson", "negative-binomial"),
    "amounts": ("gamma", "log-normal", "inverse-gaussian"),
}


#: families of one measured number, whose log densities can be compared; tweedie's only with those of other amounts
MEASURED = (*KINDS["numbers"], *(name for name in KINDS["amounts"] if name != "tweedie"), *KINDS["shares"])


def rivals_of(target: Target) -> tuple[str, ...]:
    """Families whose log densities are of the same thing, so that they can be compared."""
    family, kind = target.family, kind_of(target.family)
    if family in LABELLED:
        return ("ordinal", "logistic") if family == "ordinal" else ("logistic", "probit", *JOINT)
    suited = (*MEASURED, "tweedie") if family in MEASURED and kind == "amounts" else MEASURED
    suited = suited if family in MEASURED else KINDS[kind]
    return tuple(name for name in suited if name in EXPOSED) if target.exposure else suited


class Candidate(NamedTuple):
    """One line of the table to be."""

    target: Target
    engine: str


def list_candidates(
    target: Target,
    families: Sequence[str],
    engines: Sequence[str],
    usual: Sequence[str] = ENGINES,
    more: Sequence[str] = (),
) -> list[Candidate]:
    """Families that suit the target, each by the engines given, or else the usual ones; the linear family is exact.

    `more` are families that suit the values of the target, beside the usual ones of its kind.
    """
    for engine in engines:
        check_engine(engine)
    suited = rivals_of(target)
    kind = kind_of(target.family)
    known = USUAL.get(kind) or [name for name in KINDS[kind] if name in suited and name not in JOINT]
    chosen = families or [*dict.fromkeys([*known, *more])]
    for family in chosen:
        if family not in suited:
            raise ValueError(
                f"family {family!r} cannot be compared with {target.family!r} on {target.name!r}; "
                f"families must be among {', '.join(suited)}"
            )
    lines = []
    for family in chosen:
        default = ("auto",) if family in ("linear", "log-normal", *JOINT) else usual
        lines += [Candidate(replace(target, family=family), engine) for engine in engines or default]
    return lines


class ComparisonOptions(NamedTuple):
    """What to compare, and how: families and engines (those that suit unless given), folds of held-out rows.

    `group` is a column whose rows are held out together, `time` one by which rows are predicted from earlier ones.
    """

    families: Sequence[str] = ()
    engines: Sequence[str] = ()
    prior_scale: float | str = "auto"
    folds: int = 5
    quiet: bool = False
    group: str = ""
    time: str = ""


class RankedCandidates(NamedTuple):
    """One dict per candidate with the keys of `HEADINGS`, best first; how many rows there were, and notes on them.

    `cautions` are what the candidates found of features that say too much.
    """

    rows: list[dict[str, Any]]
    n_rows: int
    notes: list[str]
    cautions: list[str]


class ComparedRows(NamedTuple):
    """Rows to try all candidates on, in memory or in blocks."""

    X: Any
    y: Any
    prior_scale: float | str
    folds: int
    offset: Any = None
    splits: Callable[[], list[Split]] | None = None


def compare_table(
    frame: Frame, choices: Choices, how: ComparisonOptions, ask: Callable[[Guess], str]
) -> RankedCandidates:
    """All candidates on a table in memory."""
    rows, splits = _split_table(frame, choices, how, ask)
    if how.folds > len(rows.y):
        raise ValueError(f"folds must be at most the number of rows, {len(rows.y)}, got {how.folds}")
    more = families_to_compare(rows, Fitting()) if rows.guessed else ()
    lines = list_candidates(rows.target, how.families, how.engines, more=more)
    trial = ComparedRows(rows.X, rows.y, how.prior_scale, how.folds, rows.offset, splits)
    compared, cautions = _compared(trial, lines, how.quiet)
    notes = rows.notes[rows.guessed :]  # the first one would name a family, and several are tried
    return RankedCandidates(compared, len(rows.y), [*notes, *_split_notes(how)], cautions)


def _split_table(
    frame: Frame, choices: Choices, how: ComparisonOptions, ask: Callable[[Guess], str]
) -> tuple[Prepared, Callable[[], list[Split]] | None]:
    """The rows, and which of them are held out when; columns of groups and times are no features."""
    if how.group and how.time:
        raise ValueError("group and time exclude each other: name one of them")
    by = how.group or how.time
    refuse_unknown(frame.columns, (by,) if by else ())
    if by == choices.target:
        raise ValueError(f"the target {by!r} cannot be the column by which rows are held out")
    rows = prepare(frame, choices._replace(drop=(*choices.drop, by)) if by else choices, ask)
    if not how.folds:
        return rows, None
    labelled = rows.target.family in LABELLED
    if not by:
        return rows, lambda: usual_splits(task_of(make_estimator(rows.target)), rows.y, how.folds)
    values = frame.loc[rows.X.index, by]
    if values.isna().any():
        raise ValueError(f"column {by!r} has {int(values.isna().sum())} missing values, and rows are held out by it")
    if how.group:
        splits = grouped_splits(values.astype(str).to_numpy(), rows.y, how.folds, labelled)
    else:
        splits = ordered_splits(_times(values), how.folds)
    return rows, lambda: splits


def _times(values: Any) -> Any:
    """Numbers as they are, texts as dates."""
    if values.dtype.kind in "iufM":
        return values.to_numpy()
    try:
        return need_pandas().to_datetime(values).to_numpy()
    except (ValueError, TypeError) as error:
        raise ValueError(f"column {values.name!r} must hold numbers or dates to order rows by: {error}") from error


def _split_notes(how: ComparisonOptions) -> list[str]:
    if how.group:
        return [f"Rows of the same {how.group!r} are held out together; the column is no feature."]
    return [f"Rows are predicted from earlier {how.time!r} only; the column is no feature."] if how.time else []


def compare_blocks(
    pattern: str, choices: Choices, how: ComparisonOptions, ask: Callable[[Guess], str]
) -> RankedCandidates:
    """All candidates on the rows of many files."""
    rows = learn_files(pattern, choices, ask)
    lines = list_candidates(rows.target, how.families, how.engines, BLOCK_ENGINES)
    compared, cautions = _compared(ComparedRows(rows.X, rows.y, how.prior_scale, how.folds), lines, how.quiet)
    count, _ = measure_spreads(rows)
    return RankedCandidates(compared, count, describe_rows(rows, count), cautions)


def tell_comparison(found: RankedCandidates, folds: int, console: Console) -> None:
    """The table, in a terminal."""
    for note in found.notes:
        console.print(mask_controls(note))
    held_out = (
        f"held out: log predictive density per row, {folds} folds, best first; differences to the best, row by row"
    )
    console.print(f"{found.n_rows} rows; {held_out if folds else 'no rows held out; best evidence first'}\n")
    console.print(table(HEADINGS, map(format_row, found.rows)))
    near = [row for row in found.rows if row["against the best"] not in (None, "best", "worse")]
    if near:
        names = ", ".join(f"{row['family']} by {row['engine']}" for row in near)
        console.print(f"\nNot told apart from the best, within {APART:g} standard errors: {names}.")
    for words in found.cautions:
        console.print(f"\nBe careful. {mask_controls(words)}")


def _compared(trial: ComparedRows, lines: Sequence[Candidate], quiet: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The candidates, one that does not apply with its reason, and what they found of features that say too much."""
    rows = []
    with show_steps("Comparing", len(lines), quiet) as advance:
        for line in lines:
            rows.append(_row(trial, line))
            advance()
    cautions = dict.fromkeys(words for row in rows for words in row.pop("cautions", ()))
    apart = _unlike_evidences(rows)
    return compare_to_best(rank_rows(rows)), [*cautions, *apart]


def _unlike_evidences(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence where some evidences are averages over scales and others are those of the best scales."""
    ways = [(f"{row['family']} by {row['engine']}", row.pop("scales", "")) for row in rows]
    best = [name for name, way in ways if way == "maximised"]
    if not best or not any(way == "integrated" for _, way in ways):
        return []
    return [
        f"Log evidences of {', '.join(best)} are those of the most probable scales; the others are averages over all "
        "scales, which makes them lower. Compare the held-out scores, or use --folds 0, which takes the most probable "
        "scales for all."
    ]


def _row(trial: ComparedRows, line: Candidate) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(HEADINGS) | {"family": line.target.family, "engine": line.engine, "note": ""}
    try:
        estimator = make_estimator(line.target, line.engine, trial.prior_scale)
        if not trial.folds and "hyperparameters" in estimator.get_params():
            estimator.set_params(hyperparameters="maximise")  # evidences alone decide, so all must be of one kind
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MisfitWarning)
            estimator.fit(trial.X, trial.y, **({} if trial.offset is None else {"offset": trial.offset}))
        row["seconds"] = time.perf_counter() - started
        row["cautions"] = [str(check) for check in _failed_checks(estimator) if check.name in TELLING]
        values = getattr(estimator, "log_evidence_", float("nan"))
        row |= {"log evidence": float(_total(values)), "kind": estimator.evidence_kind_, "scales": scales_of(estimator)}
        if trial.splits is not None:
            row |= _scores(held_out_densities(estimator, trial.X, trial.y, trial.splits(), trial.offset))
        elif trial.folds:
            score = held_out_score(estimator, trial.X, trial.y, folds=trial.folds, offset=trial.offset)
            row |= dict(zip(("held out", "±"), score, strict=True))
    except ValueError as error:
        return row | {"note": " ".join(str(error).split())}
    return row if estimator.converged_ else row | {"note": "did not converge"}


def _failed_checks(estimator: Any) -> tuple[Check, ...]:
    return getattr(estimator, "checks_", ModelChecks()).failed


def _scores(density: Array) -> dict[str, Any]:
    """The mean and its standard error, and for paired differences the rows one by one."""
    seen = density[np.isfinite(density)]
    return {"held out": float(seen.mean()), "±": float(seen.std(ddof=1) / np.sqrt(len(seen))), "rows": density}


def compare_to_best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Differences to the best row by row, so that what makes rows hard to predict cancels, and what they say."""
    densities = [row.pop("rows", None) for row in rows]
    best = densities[0] if densities else None
    for row, density in zip(rows, densities, strict=True):
        if best is None or density is None:
            continue
        gap = (density - best)[np.isfinite(density - best)]
        mean, error = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))
        said = "best" if density is best else place_words(mean, error, UNSEEN)
        row |= {"difference": mean, "its ±": error, "against the best": said}
    return rows


def _total(values: Any) -> float:
    return float(values.sum()) if hasattr(values, "sum") else float(values)


def rank_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Best held-out density first, or best evidence where nothing was held out; those that do not apply last."""
    return sorted(rows, key=lambda row: (row["kind"] is None, row["held out"] is None, -_score(row)))


def _score(row: dict[str, Any]) -> float:
    value = row["held out"] if row["held out"] is not None else row["log evidence"]
    return -np.inf if value is None or np.isnan(value) else float(value)


def format_row(row: dict[str, Any]) -> list[str]:
    """A line as people read it."""
    forms = {"log evidence": ".3f", "seconds": ".2f"}
    forms |= dict.fromkeys(("held out", "±", "difference", "its ±"), ".4f")
    return [format_number(row[name], forms[name]) if name in forms else str(row[name] or "") for name in HEADINGS]

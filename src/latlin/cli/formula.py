"""Additive models on the command line: `latlin fit data.csv --formula "y ~ x + (1 | g)"`."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from latlin.additive import AdditiveModel, Group
from latlin.additive.formula import absent_columns, read_formula
from latlin.additive.group import UnseenLabels
from latlin.cli.models import USUAL_DRAWS, check_interval
from latlin.cli.options import PredictionOptions
from latlin.cli.screen import format_number, mask_controls, mask_lines, show_steps
from latlin.cli.screen import table as screen_table
from latlin.datasets.columns import join_names, level_counts, read_numbers, sort_levels, write_cell
from latlin.datasets.gaps import fill_formula, named_columns
from latlin.datasets.problems import absent_words, refuse_all, refuse_unknown, try_collecting
from latlin.datasets.table import Frame, need_pandas, read_table
from latlin.datasets.target import EXPOSED, guess_family
from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.archive import load_with_card, save_with_card
from latlin.potentials.checks import RefusedSites
from latlin.report.additive import AdditiveFacts, describe_additive
from latlin.report.additive_page import render_additive
from latlin.report.words import place_words

# --- From a table and options to the rows, the formulas and the family of an additive model.

#: names of the command line that mean a family of additive models
FAMILIES = {"linear": "gaussian", "logistic": "bernoulli", "robust": "student-t"}
#: families between which the evidence chooses where a response holds counts and no family is named
OF_COUNTS = ("poisson", "negative-binomial")
#: the same of times with events
OF_TIMES = ("weibull", "exponential", "log-logistic")
#: what an option that a formula does not take is written as
INSTEAD = {
    "categorical": "write C(COLUMN) in the formula",
    "drop": "a formula uses only the columns that it names",
    "group": "in Python, loo(group) leaves out whole groups",
    "folds": "rows are left out one by one, without folds",
    "time": "rows are left out one by one, in no order",
    "coding": "levels are compared with the first of them, or with the one that --reference names",
    "quantile": "in Python, AdditiveModel takes family=AsymmetricLaplace(0.9) of latlin.potentials",
    "prior_scale": "in Python, AdditiveModel takes priors=",
    "scheduler": "in Python, fit takes Dask data frames",
    "dates": "add a column of numbers to the table, such as days since the first date, and name it in the formula",
    "levels": "write the levels in the table as the numbers 1, 2, …, and take --family ordinal",
}


#: below a comparison of formulas with groups
OF_SEEN_GROUPS = (
    "This compares predictions for rows of groups that were seen; it does not say that a term has no effect: look at "
    "its interval."
)
#: labels that a note names
NAMED = 4
#: options that are always there, and what they are when nobody gave them
USUAL = {"coding": "treatment", "prior_scale": "auto"}


class TableOptions(NamedTuple):
    """What the options say of the table of a formula."""

    family: str = "auto"
    missing: str = "error"
    exposure: str = ""
    trials: str = ""
    event: str = ""
    numbers: tuple[str, ...] = ()
    references: Mapping[str, str] = {}
    decimal: str = "."


class PreparedFormulas(NamedTuple):
    """A table without gaps, formulas that can be read, families to choose from, and what is said of it."""

    frame: Frame
    formulas: list[str]
    families: tuple[str, ...]
    notes: list[str]


def refuse_beside_formula(given: Mapping[str, Any]) -> None:
    """Options that a formula does not take are refused, never passed over in silence."""
    said = [name for name in INSTEAD if given.get(name) and given[name] != USUAL.get(name)]
    if said:
        raise ValueError(
            "; ".join(f"--{name.replace('_', '-')} cannot be used with --formula: {INSTEAD[name]}" for name in said)
        )


def prepare_formulas(table: Frame, formulas: list[str], stated: TableOptions) -> PreparedFormulas:
    """Everything that prevents a fit is said in one message."""
    problems: list[str] = []
    table = try_collecting(problems, lambda: read_columns(table, stated), table)
    written = [add_row_columns(formula, stated) for formula in formulas]
    columns = table.columns
    table, written = rename_columns(table, written)
    missed = [name for one in written for name in try_collecting(problems, partial(absent_columns, one, table), [])]
    families, why = try_collecting(problems, lambda: _families(table, written[0], stated), ((), []))
    # one table for all formulas, so that their rows are the same
    names = written[0] + "".join(f" + {formula.partition('~')[2]}" for formula in written[1:])
    frame, notes = try_collecting(problems, lambda: fill_formula(table, names, stated.missing), (table, []))
    if missed:
        problems.insert(0, absent_words([*dict.fromkeys(missed)], columns))
    refuse_all(_as_written(words, columns, table.columns) for words in problems)
    return PreparedFormulas(frame, written, families, [*why, *notes])


def _as_written(words: str, columns: Sequence[str], renamed: Sequence[str]) -> str:
    """A message with the names of columns that stand in the file."""
    for old, new in zip(columns, renamed, strict=True):
        words = old.join(re.split(rf"(?<!\w){re.escape(new)}(?!\w)", words)) if old != new else words
    return words


def read_columns(table: Frame, stated: TableOptions) -> Frame:
    """Numbers written for people as numbers, and the reference as the first of a column's levels."""
    refuse_unknown(table.columns, (*stated.numbers, *stated.references))
    problems: list[str] = []
    made = {
        **{name: partial(read_numbers, table[name], stated.decimal) for name in stated.numbers},
        **{name: partial(_from_reference, table[name], level) for name, level in stated.references.items()},
    }
    read = {name: try_collecting(problems, make, None) for name, make in made.items()}
    refuse_all(problems)
    return table.assign(**read)


def _from_reference(series: Any, reference: str) -> Any:
    levels = sort_levels(level_counts(series.dropna()))
    if reference not in levels:
        raise ValueError(
            f"reference: the column {str(series.name)!r} has no level {reference!r}; it has {join_names(levels)}"
        )
    order = [reference, *(level for level in levels if level != reference)]
    return need_pandas().Categorical(series.map(write_cell, na_action="ignore"), categories=order)


def add_row_columns(formula: str, stated: TableOptions) -> str:
    """A formula with the columns of exposures, trials and events that the options name.

    Examples
    --------
    >>> add_row_columns("falls ~ age + (1 | ward)", TableOptions(exposure="days"))
    'falls ~ age + (1 | ward) + offset(log(days))'
    >>> add_row_columns("cured ~ dose", TableOptions(trials="number treated"))
    'cured | trials(`number treated`) ~ dose'
    """
    goal, mark, rest = formula.partition("~")
    for option, name in (("trials", stated.trials), ("event", stated.event)):
        if name and "|" in goal:
            raise ValueError(f"--{option} cannot be used when the formula has '{goal.strip()}': write one of them")
        if name:
            goal = f"{goal.strip()} | {option}({_quoted(name)}) "
    offset = f" + offset(log({_quoted(stated.exposure)}))" if stated.exposure else ""
    return goal + mark + rest + offset


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def rename_columns(frame: Frame, formulas: list[str]) -> tuple[Frame, list[str]]:
    """Columns such as "pain before" under names that a formula can hold, pain_before, in the table and in formulas."""
    names = {name: re.sub(r"\W+", "_", name).strip("_") for name in frame.columns if re.search(r"\W", name)}
    names = {old: new for old, new in names.items() if new.isidentifier() and new not in frame.columns}
    if len(set(names.values())) < len(names):
        return frame, formulas
    for old in sorted(names, key=len, reverse=True):
        # a sign between words may be arithmetic: where a part is a column itself, backquotes make a name of them
        is_one = re.fullmatch(r"[\w ]+", old) or not {*re.findall(r"\w+", old)} & {*frame.columns}
        written = rf"`{re.escape(old)}`" + (rf"|(?<!\w){re.escape(old)}(?!\w)" if is_one else "")
        formulas = [re.sub(written, names[old], formula) for formula in formulas]
    return frame.rename(columns=names), formulas


def _families(table: Frame, formula: str, stated: TableOptions) -> tuple[tuple[str, ...], list[str]]:
    """The family, or those between which the evidence chooses, and why."""
    families: tuple[str, ...] = (FAMILIES.get(stated.family, stated.family),)
    why: list[str] = []
    if stated.family == "auto":
        families, why = _guess(table, formula, bool(stated.exposure))
    if stated.exposure and families[0] not in EXPOSED:
        raise ValueError(f"--exposure is for counts and amounts, not for the family {families[0]!r}")
    return families, why


def _guess(table: Frame, formula: str, is_exposed: bool) -> tuple[tuple[str, ...], list[str]]:
    """The families that suit a response by its values, by the rules of a fit without a formula."""
    response = read_formula(formula).response
    if response.failures is not None or response.trials is not None:
        return ("binomial",), []
    if response.event is not None:
        return OF_TIMES, []
    if not response.y.isidentifier() or response.se is not None:
        return ("gaussian",), []
    if response.y not in table.columns:
        # which is said together with the other names
        return OF_COUNTS if is_exposed else ("gaussian",), []
    guess = guess_family(table[response.y])
    if guess.family == "poisson" or (is_exposed and "poisson" in guess.choices):
        return OF_COUNTS, []
    if guess.family is None:
        # several classes without an order are no response of a formula
        families = [name for name in guess.choices if name != "logistic"]
        raise ValueError(f"{guess.reason}: say which family it is, --family {' or '.join(families)}")
    family = FAMILIES[guess.family]
    return (family,), [f"Family {family}, because {guess.reason}."]


#: the mark of a card of an additive model
KIND = "additive"


class FormulaOptions(NamedTuple):
    """How a formula is fitted."""

    engine: str = "auto"
    graph: Path | None = None
    draws: int = USUAL_DRAWS
    hyperparameters: str = "auto"

    def neighbours(self) -> list[tuple[Any, Any]] | None:
        """Pairs of neighbours from the table of a graph."""
        if self.graph is None:
            return None
        edges = read_table(self.graph)
        if edges.shape[1] != 2:
            raise ValueError(f"{self.graph} must have two columns, a pair of neighbours per row, got {edges.shape[1]}")
        return list(edges.itertuples(index=False, name=None))


class Additive(NamedTuple):
    """A model of a formula, what is said of it, and how its table was read."""

    estimator: AdditiveModel
    facts: AdditiveFacts
    read: TableOptions = TableOptions()


def fit_formula(
    table: Frame,
    formula: str,
    stated: TableOptions,
    how: FormulaOptions,
    out: Path,
    console: Console,
    quiet: bool = False,
) -> None:
    """Fit, print what was found, and write the model."""
    with show_steps("Fitting", 2, quiet) as advance:
        ready = prepare_formulas(table, [formula], stated)
        model, chosen = _fitted(ready.frame, ready.formulas[0], ready.families, how)
        advance("Describing the model")
        facts = describe_additive(model, ready.frame, how.draws)
        advance()
    console.print(mask_lines("\n".join([f"{len(ready.frame)} rows.", *ready.notes, *chosen, *facts.conclusion(), ""])))
    table_of_effects = repr(model.summary())
    console.print(mask_lines(table_of_effects))
    if "[T." in table_of_effects and "Levels are compared" not in table_of_effects:
        console.print(mask_lines("column[T.level] is the difference of that level from the first level of its column."))
    console.print(mask_lines(f"leave-one-out: {facts.loo}") if facts.loo else "")
    read = {"numbers": list(stated.numbers), "decimal": stated.decimal}
    save_with_card(out, model, {"kind": KIND, **facts.to_card(), **read})
    saved = mask_controls(out)
    console.print(f"Saved {saved}. Next: latlin report {saved}, or latlin predict {saved} new.csv")


def compare_formulas(
    table: Frame, formulas: list[str], stated: TableOptions, how: FormulaOptions, console: Console, quiet: bool = False
) -> list[dict[str, Any]]:
    """One line per formula, best first: leave-one-out, the paired difference from the best with its error, evidence."""
    if len(formulas) < 2:
        raise ValueError("compare needs two formulas or more: --formula '…' --formula '…'")
    tried: list[tuple[str, AdditiveModel, Any, float]] = []
    notes: list[str] = []
    with show_steps("Comparing", len(formulas), quiet) as advance:
        ready = prepare_formulas(table, formulas, stated)
        for formula in ready.formulas:
            start = time.perf_counter()
            model, chosen = _fitted(ready.frame, formula, ready.families, how)
            notes += [f"{formula}: {note}" for note in chosen]
            tried.append((formula, model, model.loo(), time.perf_counter() - start))
            advance()
    console.print(mask_lines("\n".join([f"{len(ready.frame)} rows.", *ready.notes, *notes])))
    tried.sort(key=lambda one: -one[2].elpd)
    rows = _compared(tried)
    shown = [
        [
            row["formula"],
            format_number(row["leave-one-out"], ".2f"),
            format_number(row["difference"], ".2f"),
            format_number(row["±"], ".2f"),
            row["against the best"],
            format_number(row["log evidence"], ".2f"),
            row["kind"],
            format_number(row["seconds"], ".2g"),
        ]
        for row in rows
    ]
    console.print(screen_table(list(rows[0]), shown))
    console.print(
        "Differences of leave-one-out log densities from the best, in pairs of rows, with their standard error; "
        "within one standard error it is a tie, within two the formulas are not told apart."
    )
    if any(isinstance(term, Group) for formula in ready.formulas for term in read_formula(formula).terms):
        console.print(OF_SEEN_GROUPS)
    return rows


def _compared(tried: list[tuple[str, AdditiveModel, Any, float]]) -> list[dict[str, Any]]:
    """Formulas, models, leave-one-out densities and seconds, best first, as rows of a table."""
    best = tried[0][2]
    rows: list[dict[str, Any]] = []
    for formula, model, loo, took in tried:
        difference, error = loo.compare(best) if loo is not best else (0.0, 0.0)
        place = "best" if loo is best else place_words(difference, error)
        found = {"formula": formula, "leave-one-out": loo.elpd, "difference": difference, "±": error}
        found["against the best"] = place
        kind = {"log evidence": float(model.log_evidence_), "kind": model.evidence_kind_}
        rows.append({**found, **kind, "seconds": took})
    return rows


def load_additive(path: str | os.PathLike[str]) -> Additive | None:
    """The additive model in a file, or None if it holds another kind."""
    try:
        estimator, card = load_with_card(path)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a model written by 'latlin fit': {error}") from error
    if not isinstance(estimator, AdditiveModel):
        return None
    known = card if isinstance(card, dict) and card.get("kind") == KIND else {}
    read = TableOptions(numbers=tuple(map(str, known.get("numbers", ()))), decimal=str(known.get("decimal", ".")))
    return Additive(estimator, AdditiveFacts.from_card(known), read)


def predict_formula(model: Additive, frame: Frame, options: PredictionOptions) -> Frame:
    """Expected responses with intervals, one row per row of the table; of ordered classes their probabilities too."""
    estimator, table = model.estimator, frame
    frame, _ = rename_columns(read_columns(frame, model.read), [])
    terms = str(estimator.formula).partition("~")[2]
    if missed := absent_columns(str(estimator.formula), frame, explaining=True):
        raise ValueError(absent_words(missed, table.columns))
    frame = _without_gaps(frame, terms, options.missing or "error")
    low, high = estimator.predict_interval(frame, check_interval(options.coverage), random_state=0).T
    mean, sd = estimator.predict(frame, return_std=True)
    found = {"prediction": mean, "sd": sd, "low": low, "high": high}
    for label, unseen in estimator.unseen_groups(frame).items():
        alert(_unseen_words(label, unseen), UserWarning)
    if estimator.family == "ordinal":
        labels, p = np.asarray(estimator.classes_), estimator.predict_proba(frame)
        found = {
            "prediction": labels[p.argmax(axis=1)],
            "low": labels[low.astype(int)],
            "high": labels[high.astype(int)],
        }
        found |= {f"P({label})": p[:, k] for k, label in enumerate(labels)}
    return table.loc[frame.index].assign(**found) if options.keep else frame.iloc[:, :0].assign(**found)


def _unseen_words(label: str, unseen: UnseenLabels) -> str:
    """Which rows are of groups that the fit did not see."""
    one = len(unseen.labels) == 1
    meant = ", ".join(f"{new!r} may be {old!r}" for new, old in list(unseen.meant.items())[:NAMED])
    return (
        f"{int(unseen.rows.sum())} of {len(unseen.rows)} rows: {join_names(unseen.labels, NAMED)} of {label} "
        f"{'was' if one else 'were'} not seen in the fit; {'it is' if one else 'they are'} predicted with the variance "
        f"of new groups{f' ({meant})' if meant else ''}"
    )


def _without_gaps(frame: Frame, terms: str, missing: str) -> Frame:
    """Rows whose cells in the columns of a formula are all known; the others are left out if that was asked for."""
    if missing not in ("error", "drop"):
        raise ValueError(f"missing must be error or drop to predict by a formula, got {missing!r}")
    gaps = frame[named_columns(frame, terms)].isna()
    if not gaps.any(axis=None):
        return frame
    if missing == "error":
        counts = ", ".join(f"{count} in {name!r}" for name, count in gaps.sum().items() if count)
        raise ValueError(f"rows to predict have missing cells: {counts}. Leave these rows out with --missing drop")
    return frame[~gaps.any(axis=1)]


def report_formula(model: Additive, title: str | None) -> str:
    """The page of a model."""
    return render_additive(model.estimator, title, model.facts)


def _fitted(
    frame: Frame, formula: str, families: Sequence[str], how: FormulaOptions
) -> tuple[AdditiveModel, list[str]]:
    """The model of a formula, and why its family was chosen where there are several."""
    ways: dict[str, Any] = {"engine": how.engine, "hyperparameters": how.hyperparameters}
    made = [AdditiveModel(formula, family, **ways) for family in families]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MisfitWarning)  # what is found of a family is among the facts
            models = [model.fit(frame, graph=how.neighbours()) for model in made]
    except RefusedSites as error:
        # rows of a table are counted from one
        raise ValueError(error.of_rows(np.arange(1, len(frame) + 1))) from None
    if len(models) == 1:
        return models[0], []
    loos = [model.loo() for model in models]
    left_out = [float(loo.elpd) for loo in loos]
    by_evidence = all(model.evidence_kind_ != "none" for model in models)
    scores = [float(model.log_evidence_) for model in models] if by_evidence else left_out
    best = int(np.argmax(scores))
    what = "log evidence" if by_evidence else "leave-one-out log density"
    said = f"Family {families[best]} was chosen by its {what}: {_ranked(families, scores)}."
    if by_evidence:
        top = int(np.argmax(left_out))
        ahead, spread = (0.0, 0.0) if top == best else loos[top].compare(loos[best])
        agree = (
            "agree"
            if top == best
            else "are too close to decide"
            if ahead <= 2.0 * spread
            else f"favour {families[top]}"
        )
        said += f" Log density of rows left out one by one: {_ranked(families, left_out)}; these {agree}."
    return models[best], [said]


def _ranked(families: Sequence[str], scores: Sequence[float]) -> str:
    """Families with their scores, best first."""
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    return " against ".join(f"{families[k]} {scores[k]:.2f}" for k in order)

"""From a table and options to the rows, the formulas and the family of an additive model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from latlin.additive.formula import read_formula
from latlin.cli.models import refuse_unknown
from latlin.datasets.columns import as_text, in_order, level_counts, listed, read_numbers
from latlin.datasets.gaps import fill_formula
from latlin.datasets.table import Frame, need_pandas
from latlin.datasets.target import EXPOSED, guess_family

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
    **dict.fromkeys(("dates", "levels"), "prepare the column in the table first"),
}


#: options that are always there, and what they are when nobody gave them
USUAL = {"coding": "treatment", "prior_scale": "auto"}


class Stated(NamedTuple):
    """What the options say of the table of a formula."""

    family: str = "auto"
    missing: str = "error"
    exposure: str = ""
    trials: str = ""
    event: str = ""
    numbers: tuple[str, ...] = ()
    references: Mapping[str, str] = {}
    decimal: str = "."


class Ready(NamedTuple):
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


def make_ready(table: Frame, formulas: list[str], stated: Stated) -> Ready:
    """Everything that prevents a fit is said in one message."""
    refuse_unknown(table.columns, tuple(filter(None, (stated.exposure, stated.trials, stated.event))))
    problems: list[str] = []
    table = _told(problems, lambda: with_read_columns(table, stated), table)
    written = [with_row_columns(formula, stated) for formula in formulas]
    table, written = with_writable_names(table, written)
    families, why = _told(problems, lambda: _families(table, written[0], stated), ((), []))
    # one table for all formulas, so that their rows are the same
    names = written[0] + "".join(f" + {formula.partition('~')[2]}" for formula in written[1:])
    frame, notes = _told(problems, lambda: fill_formula(table, names, stated.missing), (table, []))
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return Ready(frame, written, families, [*why, *notes])


def _told(problems: list[str], make: Callable[[], Any], otherwise: Any) -> Any:
    """What a function makes; or something else, and its sentence among the problems."""
    try:
        return make()
    except ValueError as error:
        problems.append(str(error))
        return otherwise


def with_read_columns(table: Frame, stated: Stated) -> Frame:
    """Numbers written for people as numbers, and the reference as the first of a column's levels."""
    refuse_unknown(table.columns, (*stated.numbers, *stated.references))
    problems: list[str] = []
    made = {
        **{name: partial(read_numbers, table[name], stated.decimal) for name in stated.numbers},
        **{name: partial(_from_reference, table[name], level) for name, level in stated.references.items()},
    }
    read = {name: _told(problems, make, None) for name, make in made.items()}
    if problems:
        raise ValueError("; ".join(problems))
    return table.assign(**read)


def _from_reference(series: Any, reference: str) -> Any:
    levels = in_order(level_counts(series.dropna()))
    if reference not in levels:
        raise ValueError(
            f"reference: the column {str(series.name)!r} has no level {reference!r}; it has {listed(levels)}"
        )
    order = [reference, *(level for level in levels if level != reference)]
    return need_pandas().Categorical(series.map(as_text, na_action="ignore"), categories=order)


def with_row_columns(formula: str, stated: Stated) -> str:
    """A formula with the columns of exposures, trials and events that the options name.

    Examples
    --------
    >>> with_row_columns("falls ~ age + (1 | ward)", Stated(exposure="days"))
    'falls ~ age + (1 | ward) + offset(log(days))'
    >>> with_row_columns("cured ~ dose", Stated(trials="number treated"))
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


def with_writable_names(frame: Frame, formulas: list[str]) -> tuple[Frame, list[str]]:
    """Columns such as "pain before" under names that a formula can hold, pain_before, in the table and in formulas."""
    names = {name: re.sub(r"\W", "_", name) for name in frame.columns if re.search(r"\W", name)}
    names = {old: new for old, new in names.items() if new.isidentifier() and new not in frame.columns}
    if len(set(names.values())) < len(names):
        return frame, formulas
    for old in sorted(names, key=len, reverse=True):
        # a sign between words may be arithmetic: only blanks, or backquotes, make a name of them
        written = rf"`{re.escape(old)}`" + (rf"|(?<!\w){re.escape(old)}(?!\w)" if re.fullmatch(r"[\w ]+", old) else "")
        formulas = [re.sub(written, names[old], formula) for formula in formulas]
    return frame.rename(columns=names), formulas


def _families(table: Frame, formula: str, stated: Stated) -> tuple[tuple[str, ...], list[str]]:
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
    refuse_unknown(table.columns, (response.y,))
    guess = guess_family(table[response.y])
    if guess.family == "poisson" or (is_exposed and "poisson" in guess.choices):
        return OF_COUNTS, []
    if guess.family is None:
        # several classes without an order are no response of a formula
        families = [name for name in guess.choices if name != "logistic"]
        raise ValueError(f"{guess.reason}: say which family it is, --family {' or '.join(families)}")
    family = FAMILIES[guess.family]
    return (family,), [f"Family {family}, because {guess.reason}."]

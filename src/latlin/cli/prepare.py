"""From a table and a few words to rows ready to fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.cli.screen import show_steps
from latlin.datasets.columns import Levelling, join_names, read_numbers, refuse_nearly_numbers
from latlin.datasets.encoding import (
    Encoding,
    describe_columns,
    describe_gaps,
    learn_encoding,
    refuse_gaps,
)
from latlin.datasets.problems import refuse_all, refuse_unknown, try_collecting
from latlin.datasets.table import Frame
from latlin.datasets.target import (
    BESIDE,
    EXPOSED,
    FAMILIES,
    KINDS,
    LABELLED,
    OF_TEXTS,
    Guess,
    Target,
    guess_family,
    kind_of,
    learn_target,
)
from latlin.numerics.options import check_number

#: what became of missing values, by policy
FILLED = {
    "mean": "became the mean or the most frequent level of their column",
    "indicator": "became the mean or the most frequent level of their column, with one more feature that marks them",
    "model": "were predicted from the other columns of their rows, by mixed factors; the intervals do not contain the "
    "uncertainty of these predictions",
}


class Choices(NamedTuple):
    """What the user said about the table."""

    target: str
    family: str = "auto"
    missing: str = "error"
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    levelling: Levelling = Levelling()
    exposure: str = ""
    trials: str = ""
    event: str = ""
    quantile: float | None = None
    dates: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    decimal: str = "."

    @property
    def others(self) -> tuple[str, ...]:
        """Columns that belong to the target."""
        return tuple(filter(None, (self.exposure, self.trials, self.event)))


class Prepared(NamedTuple):
    """Rows ready to fit, how they came about, and what to say about it; `guessed` if the family was."""

    X: Frame
    y: NDArray[Any]
    encoding: Encoding
    target: Target
    columns: list[dict[str, Any]]
    notes: list[str]
    offset: NDArray[np.float64] | None = None
    guessed: bool = False

    @property
    def spread(self) -> dict[str, float]:
        """Standard deviation by feature."""
        return {str(name): float(value) for name, value in self.X.std(ddof=0).items()}


def refuse_guess(guess: Guess) -> str:
    """Without anybody to ask: a sentence."""
    raise ValueError(_question(guess))


def _question(guess: Guess) -> str:
    order = "; ordered levels need --levels too, the lowest first" if guess.choices == OF_TEXTS else ""
    return f"{guess.reason}: say which family it is, --family {' or '.join(guess.choices)}{order}"


def prepare(frame: Frame, choices: Choices, ask: Callable[[Guess], str] = refuse_guess, quiet: bool = True) -> Prepared:
    """Encode a table; `ask` is called when the target does not show the family."""
    if choices.family not in ("auto", *FAMILIES):
        raise ValueError(f"family must be one of {join_names(('auto', *FAMILIES))}, got {choices.family!r}")
    refuse_unknown(frame.columns, (choices.target, *choices.others))
    if choices.target in choices.numbers:
        frame = frame.assign(**{choices.target: read_numbers(frame[choices.target], choices.decimal)})
    family, notes = _family(frame, choices, ask)
    # a bar after the question, which it would garble
    # numbers that are too large are refused by name, not noted
    with show_steps("Encoding", 1, quiet), np.errstate(over="ignore", invalid="ignore"):
        return _prepared(frame, choices, family, notes)


def _prepared(frame: Frame, choices: Choices, family: str, notes: list[str]) -> Prepared:
    encoding = _encoding(frame, choices)
    columns = describe_columns(frame[[*_used(frame, choices)]], choices.categorical)
    kept, more = _with_target(frame, choices)
    encoded = encoding.encode(kept)
    target = add_columns(learn_target(frame[choices.target], family, choices.levels), choices)
    rows = kept[encoded.kept]
    y = target.encode(rows[choices.target])
    if target.beside:
        y = np.column_stack([y, target.numbers(rows, target.beside)])
    if kind_of(target.family) in BESIDE:
        target.refuse_impossible(y)
    offset = log_exposure(target, rows)
    guessed = bool(notes)
    notes = [
        *notes,
        *more,
        *describe_quantile(target),
        *describe_encoding(encoding, encoded.gaps, int(np.sum(~encoded.kept))),
        *describe_counting(encoded.matrix),
    ]
    if len(y) < 2:
        raise ValueError(f"only {len(y)} rows are left to fit")
    return Prepared(encoded.matrix, y, encoding, target, columns, notes, offset, guessed)


def _encoding(frame: Frame, choices: Choices) -> Encoding:
    """How the table becomes numbers; all that prevents it is said in one message."""
    problems: list[str] = []
    encoding = try_collecting(problems, lambda: _learnt_encoding(frame, choices), None)
    try_collecting(problems, lambda: _with_target(frame, choices), None)
    refuse_all(problems)
    assert encoding is not None
    return encoding


def _learnt_encoding(frame: Frame, choices: Choices) -> Encoding:
    encoding = learn_encoding(
        frame,
        choices.target,
        missing=choices.missing,
        drop=(*choices.drop, *choices.others),
        categorical=choices.categorical,
        dates=choices.dates,
        numbers=tuple(name for name in choices.numbers if name != choices.target),
        decimal=choices.decimal,
        coding=choices.levelling.coding,
        reference=choices.levelling.references,
    )
    if encoding.missing == "error":
        refuse_gaps(frame, encoding)
    return encoding


def add_columns(target: Target, choices: Choices) -> Target:
    """The target with the columns that belong to it, if its family has such."""
    kind = kind_of(target.family)
    for wanted, name in (("trials", choices.trials), ("event", choices.event)):
        if name and BESIDE.get(kind) != wanted:
            suits = " or ".join(KINDS[next(k for k, w in BESIDE.items() if w == wanted)])
            raise ValueError(f"--{wanted} is for the family {suits}, not for {target.family!r}")
    if choices.exposure and target.family not in EXPOSED:
        raise ValueError(f"--exposure is for counts and amounts, not for the family {target.family!r}")
    return add_quantile(replace(target, beside=choices.trials or choices.event, exposure=choices.exposure), choices)


def add_quantile(target: Target, choices: Choices) -> Target:
    """The target with the quantile to explain, the median unless given."""
    if choices.quantile is None:
        return target
    if target.family != "quantile":
        raise ValueError(f"--quantile is for the family quantile, not for {target.family!r}")
    return replace(target, quantile=check_number("quantile", choices.quantile, above=0.0, below=1.0))


def describe_quantile(target: Target) -> list[str]:
    """What a quantile regression explains, in a sentence."""
    if target.family != "quantile":
        return []
    share = f"{100 * target.quantile:g} %"
    return [f"Explained is the {share} quantile of {target.name}: {share} of new rows lie below it."]


def log_exposure(target: Target, rows: Frame) -> NDArray[np.float64] | None:
    """Logarithms of the exposures of rows, if there are any."""
    if not target.exposure:
        return None
    exposure = target.numbers(rows, target.exposure)
    if np.any(bad := ~(exposure > 0.0)):
        where = f"in {np.count_nonzero(bad)} rows, first in row {np.flatnonzero(bad)[0] + 1}"
        raise ValueError(f"the exposure {target.exposure!r} must be positive, got {exposure[bad][0]:g} {where}")
    return np.asarray(np.log(exposure))


def _family(frame: Frame, choices: Choices, ask: Callable[[Guess], str]) -> tuple[str, list[str]]:
    """The family and a note on it; what is wrong with the target is said together with what is wrong elsewhere."""
    problems: list[str] = []
    guess = try_collecting(problems, lambda: _stated_or_guessed(frame[choices.target], choices), None)
    if guess is not None and guess.family is not None:
        return guess.family, [f"Family {guess.family}, because {guess.reason}."] if guess.reason else []
    question = [] if guess is None else [_question(guess)]
    try_collecting(problems, lambda: _learnt_encoding(frame, choices), None)
    if guess is None or problems:
        refuse_all([*question, *problems])
    assert guess is not None
    return ask(guess), []


def _stated_or_guessed(goal: Any, choices: Choices) -> Guess:
    if choices.family == "auto":
        return _guess(goal, choices)
    if choices.family not in LABELLED:
        refuse_nearly_numbers(goal, is_target=True, mark=choices.decimal)
    return Guess(choices.family, "")


def _guess(goal: Any, choices: Choices) -> Guess:
    """The family that suits the target, by the columns that belong to it and by its values."""
    if choices.trials:
        return Guess("binomial", f"{choices.target!r} holds successes among {choices.trials!r} trials")
    if choices.event:
        return Guess("weibull", f"{choices.target!r} holds times with events in {choices.event!r}")
    guess = guess_family(goal, choices.decimal)
    if choices.exposure and "poisson" in guess.choices:
        return Guess("poisson", f"{guess.reason} with an exposure")
    if choices.exposure and guess.family == "linear":
        return Guess("gamma", f"{guess.reason} with an exposure")
    return guess


def _used(frame: Frame, choices: Choices) -> list[str]:
    return [name for name in frame.columns if name not in choices.drop]


def _with_target(frame: Frame, choices: Choices) -> tuple[Frame, list[str]]:
    """Rows whose target is known."""
    unknown = frame[choices.target].isna()
    count = int(unknown.sum())
    if not count:
        return frame, []
    if choices.missing == "error":
        raise ValueError(
            f"the target {choices.target!r} is missing in {count} of {len(frame)} rows; --missing drop leaves them out"
        )
    return frame[~unknown], [f"{count} rows without a target were left out."]


#: rows from the first one on that a column must count to be taken for a number of the row
COUNTED = 20


def describe_counting(columns: Any) -> list[str]:
    """Columns that count the rows from 0 or 1 on, perhaps anew in each group: they are seldom a measurement.

    Examples
    --------
    >>> describe_counting({"id": np.arange(1, 31), "age": np.arange(30) % 7})
    ["'id' counts the rows: unless it measures something, leave it out with --drop id."]
    """
    found = []
    for name, column in columns.items():
        values = np.asarray(column, float)
        start = values[:COUNTED]
        if len(start) < COUNTED or start[0] not in (0.0, 1.0) or np.any(np.diff(start) != 1.0):
            continue
        if np.all((np.diff(values) == 1.0) | (values[1:] == values[0])):
            found.append(str(name))
    if not found:
        return []
    verb, it, measures = ("counts", "it", "measures") if len(found) == 1 else ("count", "they", "measure")
    them = "it" if len(found) == 1 else "them"
    return [
        f"{join_names(found)} {verb} the rows: unless {it} {measures} something, leave {them} out with --drop "
        f"{','.join(found)}."
    ]


def describe_encoding(encoding: Encoding, gaps: dict[str, int], dropped: int) -> list[str]:
    """What became of missing values and of columns that say nothing."""
    notes = []
    if gaps and encoding.missing == "drop":
        notes.append(
            f"{dropped} rows with missing values were left out ({describe_gaps(gaps)}). Row numbers count the others."
        )
    if gaps and encoding.missing in FILLED:
        notes.append(f"Missing values {FILLED[encoding.missing]}: {describe_gaps(gaps)}.")
    if encoding.left_out:
        notes.append(f"Left out, because they are the same in every row: {join_names(encoding.left_out)}.")
    if not notes:
        notes.append("No values are missing.")
    compared = {name: part["baseline"] for name, part in encoding.factors.items() if part["coding"] != "one-hot"}
    if compared:
        notes.append(f"Levels are compared: {', '.join(f'{name} with {to}' for name, to in compared.items())}.")
    return notes

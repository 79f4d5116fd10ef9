"""The column to explain: which family suits it, and its values as the estimator wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.columns import (
    Series,
    column_of_numbers,
    encode_texts,
    join_names,
    level_counts,
    looks_written,
    refuse_nearly_numbers,
    sort_levels,
)
from latlin.potentials.checks import RefusedSites
from latlin.potentials.families import AMOUNTS, COUNTS, SUCCESSES, TIMES
from latlin.potentials.families import FAMILIES as DECLARED

FEW = 10
#: families whose target is one of a few labels
LABELLED = ("logistic", "probit", "softmax", "multinomial-probit", "ordinal")
#: what several texts can be
OF_TEXTS = ("logistic", "ordinal")
#: what a target holds → the families that suit it
KINDS: dict[str, tuple[str, ...]] = {
    "numbers": ("linear", "robust", "sparse"),
    "quantiles": ("quantile",),
    "counts": COUNTS,
    "amounts": AMOUNTS,
    "times": TIMES,
    "shares": ("beta",),
    "successes": SUCCESSES,
    "labels": LABELLED,
}
FAMILIES = tuple(family for families in KINDS.values() for family in families)
#: families whose size is e^x, so that an exposure multiplies it
EXPOSED = (*KINDS["counts"], *KINDS["amounts"])
#: kinds of targets that not every number can be
POSSIBLE = ("counts", "amounts", "times", "shares", "successes")
#: kinds of targets with a second column, and what it holds
BESIDE = {"successes": "trials", "times": "event"}


def kind_of(family: str) -> str:
    """What a target of a family holds."""
    return next(kind for kind, families in KINDS.items() if family in families)


class Guess(NamedTuple):
    """A family and why; or None, why not, and what to choose from."""

    family: str | None
    reason: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """The target of a fit: its name, its family, and its levels in order where it has levels.

    `beside` is the column of trials or of events, `exposure` that of exposures, where there are any; `quantile` is the
    share of new values below what a quantile regression predicts.
    """

    name: str
    family: str
    levels: tuple[str, ...] = ()
    beside: str = ""
    exposure: str = ""
    quantile: float = 0.5

    @property
    def others(self) -> tuple[str, ...]:
        """Columns that belong to the target and are no features."""
        return tuple(filter(None, (self.beside, self.exposure)))

    def numbers(self, frame: Any, name: str) -> NDArray[np.float64]:
        """One of the other columns."""
        if name not in frame.columns:
            raise ValueError(f"the table has no column {name!r}, which belongs to the target {self.name!r}")
        found = column_of_numbers(frame[name])
        if found is None or not np.all(np.isfinite(found)):
            raise ValueError(f"the column {name!r}, which belongs to the target {self.name!r}, must hold numbers")
        return np.asarray(found, dtype=float)

    @property
    def labels(self) -> list[Any]:
        """The levels as the estimator sees them: whole numbers where all are, else texts."""
        is_whole = all(level.lstrip("-").isdigit() for level in self.levels)
        return [int(level) for level in self.levels] if is_whole else list(self.levels)

    def encode(self, series: Series) -> NDArray[Any]:
        """Labels for families of labels, numbers for the others."""
        if series.isna().any():
            raise ValueError(f"the target {self.name!r} has {int(series.isna().sum())} missing values")
        if self.family in LABELLED:
            return self._labelled(series)
        numbers = column_of_numbers(series)
        if numbers is None or not np.all(np.isfinite(numbers)):
            raise ValueError(f"the target {self.name!r} must hold finite numbers for the family {self.family!r}")
        if kind_of(self.family) not in BESIDE:
            self.refuse_impossible(np.asarray(numbers, dtype=float))
        return numbers

    def refuse_impossible(self, y: NDArray[Any]) -> None:
        """Numbers that the family cannot produce, with trials or events as a second column, by their rows from 1 on."""
        if kind_of(self.family) not in POSSIBLE:
            return
        declared = DECLARED[self.family]
        try:
            declared.template.replace(**dict(zip(declared.columns, y.T if y.ndim == 2 else [y], strict=False)))
        except RefusedSites as error:
            said = error.of_rows(np.arange(1, len(y) + 1))
            raise ValueError(f"the target {self.name!r} (family {self.family}): {said}") from None

    def _labelled(self, series: Series) -> NDArray[Any]:
        label_of = dict(zip(self.levels, self.labels, strict=True))
        place, texts = encode_texts(series)
        unknown = sorted(set(texts) - label_of.keys())
        if unknown:
            raise ValueError(
                f"the target {self.name!r} has {join_names(unknown)}, not among its levels {join_names(self.levels)}"
            )
        return np.array([label_of[text] for text in texts])[place]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Target:
        """Back from a JSON object."""
        beside, exposure = (str(stored.get(name, "")) for name in ("beside", "exposure"))
        levels, quantile = tuple(map(str, stored["levels"])), float(stored.get("quantile", 0.5))
        return cls(str(stored["name"]), str(stored["family"]), levels, beside, exposure, quantile)


def guess_family(series: Series, mark: str = ".") -> Guess:
    """The family that suits a target, by its values.

    Two values are labels; whole numbers from 0 or 1 on, of which there are many, are counts; other numbers are
    measured. A few whole numbers or several texts can be grades, counts or classes: that is asked, not guessed.

    Examples
    --------
    >>> import pandas
    >>> guess_family(pandas.Series(["yes", "no", "no"])).family
    'logistic'
    >>> guess_family(pandas.Series([3, 1, 2])).choices
    ('ordinal', 'poisson', 'linear')
    """
    present = series.dropna()
    distinct, numbers = present.nunique(), column_of_numbers(present)
    if distinct < 2:
        raise ValueError(f"the target {series.name!r} must have at least two different values, and has {distinct}")
    if distinct == 2:
        return Guess("logistic", f"{series.name!r} has two values, {join_names(sort_levels(level_counts(present)))}")
    if numbers is None:
        refuse_nearly_numbers(series, is_target=True, mark=mark)
        if distinct > FEW:
            read = f": read them with numbers (--numbers {quote(str(series.name))})" if looks_written(series) else ""
            raise ValueError(f"the target {series.name!r} holds {distinct} different texts; it must hold numbers{read}")
        return Guess(None, f"{series.name!r} has {distinct} different texts", OF_TEXTS)
    if np.any(numbers != np.round(numbers)):
        return Guess("linear", f"{series.name!r} holds measured numbers")
    if distinct <= FEW:
        choices = ("ordinal", "poisson", "linear") if numbers.min() >= 0 else ("ordinal", "linear")
        return Guess(None, f"{series.name!r} has only {distinct} different whole numbers", choices)
    if 0 <= numbers.min() <= 1:
        return Guess("poisson", f"{series.name!r} holds counts from {numbers.min():.0f} to {numbers.max():.0f}")
    return Guess("linear", f"{series.name!r} holds whole numbers from {numbers.min():.0f} to {numbers.max():.0f}")


def learn_target(series: Series, family: str, levels: Sequence[str] = ()) -> Target:
    """The target for a family; texts that are ordered need their `levels`, lowest first."""
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {join_names(FAMILIES)}, got {family!r}")
    name, present = str(series.name), series.dropna()
    found = sort_levels(level_counts(present)) if family in LABELLED else []
    if family == "ordinal" and not levels and column_of_numbers(present) is None:
        raise ValueError(
            f"the levels of {name!r} are texts, {join_names(found)}: say their order with levels (--levels)"
        )
    if family == "ordinal" and len(found) > 2 * FEW:
        raise ValueError(f"the target {name!r} has {len(found)} different values, too many to be ordered levels")
    return Target(name, family, tuple(levels) or tuple(found))

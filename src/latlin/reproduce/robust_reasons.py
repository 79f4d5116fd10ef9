"""What could explain the numbers of Table 5.1 of Challis (2013), read off the fits of `robust_regression`.

The document does not say which scales it chose from, whether its potentials are normalised (`vgai` needs no constants
to climb), in which units the errors are, when the search for the kernel was stopped, nor where its generated outliers
lie. Each of these is a row here; a row with a scale of its own counts only if the test score of the same fits agrees
with the printed one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from latlin.reproduce.page import Measured, compared
from latlin.reproduce.reasons import Trial
from latlin.reproduce.robust_regression import (
    EARLY,
    Fit,
    Part,
    Sizes,
    clean_part_of,
    fits,
    part_of,
    round_kernel_of,
    unit_width_fits,
    unsearched_fits,
)

Array = NDArray[np.float64]


class Variant(NamedTuple):
    """Fits made anew, with other data or in another way: what they suppose, and for which numbers.

    `by_scale` shows every scale apart, where the chosen ones vary much.
    """

    reason: str
    sets: tuple[str, ...]
    part: Callable[[str, int, Sizes, Path | None], Part] = part_of
    run: Callable[[Part, str, str, Sizes], Array] = fits
    columns: tuple[tuple[str, str], ...] = ()
    partitions: int = 3
    by_scale: bool = False

    def concerns(self, name: str, likelihood: str, label: str) -> bool:
        return name in self.sets and (not self.columns or (likelihood, label) in self.columns)


PLAIN = Variant("", ("Slump", "Boston", "Friedman", "Neal"))
#: fits that are made anew, by the name of their row
VARIANTS: dict[str, Variant] = {
    "widths of 1": Variant(
        "the widths of the local bounds were left at 1",
        PLAIN.sets,
        run=unit_width_fits,
        columns=(("Student t", "LVB"),),
        partitions=10,
        by_scale=True,
    ),
    "kernel as it started": Variant("the kernel was not searched for", PLAIN.sets, run=unsearched_fits, partitions=10),
    "one length": Variant(
        "all columns have one length scale", PLAIN.sets[:3], run=partial(fits, kernel=round_kernel_of)
    ),
    "no outliers at all": Variant("the generated set has no outliers", PLAIN.sets[2:], part=clean_part_of),
}


class Runs(NamedTuple):
    """The fits of one column, (partitions, scales, fields), one unit of y a partition, and the rows of training."""

    fits: Array
    units: Array
    train: int
    likelihood: str

    def field(self, name: str) -> Array:
        """(partitions, scales)."""
        return self.fits[:, :, Fit._fields.index(name)]

    def chosen(self, name: str, by: str = "validated") -> Array:
        """A field at the scale that has the largest other field, by partition."""
        return self.at(self.field(name), by)

    def at(self, values: Array, by: str = "validated") -> Array:
        """Values, (partitions, scales), at the scale that has the largest field, by partition."""
        scores = np.where(np.isfinite(self.field(by)), self.field(by), -np.inf)
        return np.take_along_axis(values, scores.argmax(axis=1)[:, None], axis=1)[:, 0]

    def number(self, quantity: str) -> Array:
        """What the table prints, by partition: "LML", "MSE" in the units of y, or "TLP"."""
        if quantity == "MSE":
            return self.chosen("error") * self.units**2
        return self.chosen({"LML": "evidence", "TLP": "log_probability"}[quantity])

    @property
    def scales(self) -> Array:
        return self.fits[0, :, Fit._fields.index("scale")]


def mean_of(values: Array) -> Measured:
    """Mean and standard error of the runs that could be fitted."""
    kept = values[np.isfinite(values)]
    error = kept.std(ddof=1) / np.sqrt(len(kept)) if len(kept) > 1 else 0.0
    return Measured(float(kept.mean()) if len(kept) else np.nan, float(error))


def log_constant(likelihood: str, scale: Array) -> Array:
    """The log of the density at its mode: of a Gaussian, of a Student t with df = 3, of a Laplace."""
    student = gammaln(2.0) - gammaln(1.5) - 0.5 * np.log(3.0 * np.pi)
    constants = {"Gauss": -0.5 * np.log(2.0 * np.pi), "Student t": student, "Laplace": -np.log(2.0)}
    return constants[likelihood] - np.log(scale)


def reasons_for(quantity: str, name: str, label: str, runs: Runs, score: Measured) -> list[Trial]:
    """The rows that test a number of a set and an engine; `score` is the printed TLP of its column."""
    if quantity == "LML":
        return _of_evidence(name, label, runs, score)
    return _of_error(name, runs, score) if quantity == "MSE" else _of_score(name, runs)


def variants_for(quantity: str, name: str, others: Mapping[str, Runs], score: Measured) -> list[Trial]:
    """The rows of fits made anew; one whose test score is not the printed one explains neither evidence nor error."""
    trials = []
    for row, runs in others.items():
        reason = VARIANTS[row].reason
        against = "" if quantity == "TLP" else _contradiction(score, _readings(name, runs, "validated"))
        trials.append(Trial(row, reason, mean_of(runs.number(quantity)), against))
        if quantity == "LML" and VARIANTS[row].by_scale:
            trials += _by_scale(row, reason, runs.field("evidence"), name, runs, score)
    return trials


#: of the generated sets: the name of a row with other targets, and what it supposes
OTHER = {
    "Neal": ("clean test part", "validation and test part have no outliers"),
    "Friedman": ("spoiled test part", "validation and test part have outliers too"),
}


def _readings(name: str, runs: Runs, by: str) -> list[Array]:
    """Test scores as they may have been printed: ours, and of a generated set with other targets, also in its units."""
    held = runs.chosen("log_probability", by)
    if name not in OTHER:
        return [held]
    other = runs.chosen("other_log_probability", f"other_{by}")
    return [held, other, other - np.log(runs.units)]


def _contradiction(score: Measured, readings: list[Array]) -> str:
    """That no reading of the test score is the printed one, if it is so."""
    claims = [compared("TLP", score, mean_of(values), "") for values in readings]
    return "" if any(claim.agrees for claim in claims) else f"its TLP is {claims[0].ours}, not {claims[0].theirs}"


def _of_evidence(name: str, label: str, runs: Runs, score: Measured) -> list[Trial]:
    lml, n, plain = runs.chosen("evidence"), runs.train, runs.field("evidence")
    if label == "exact":
        tests = [Trial("other sign", "theirs have the wrong sign", mean_of(-lml))]
    else:
        bare = plain - n * log_constant(runs.likelihood, runs.field("scale"))
        row, reason = "no constants", "theirs are potentials without their constants"
        value = mean_of(runs.at(bare))
        tests = [Trial(row, reason, value), *_by_scale(row, reason, bare, name, runs, score)]
    if label == "G-KL":
        reason = "theirs lack the constant N/2, as the bound of B.5 does"
        tests.append(Trial("without N/2", reason, mean_of(lml - 0.5 * n)))
    tests += [
        Trial("scale by evidence", "the scale was chosen by evidence", mean_of(runs.chosen("evidence", "evidence"))),
        Trial("density of y", "theirs are those of y in its own units", mean_of(lml - n * np.log(runs.units))),
    ]
    if name in OTHER:
        tests.append(Trial(*OTHER[name], mean_of(runs.chosen("evidence", "other_validated"))))
    for count in EARLY:
        early = mean_of(runs.chosen(f"after_{count}"))
        tests.append(Trial(f"search stopped at {count}", "the search for the kernel was stopped early", early))
    return [*tests, *_by_scale("", "", plain, name, runs, score)]


def _by_scale(row: str, reason: str, values: Array, name: str, runs: Runs, score: Measured) -> list[Trial]:
    """One row a scale, and one between each two; it contradicts the document if its test score is not the printed one.

    Between two scales the means of evidence and scores are taken as linear in the logarithm of the scale.
    """
    comma, both = ", " if row else "", ", and " if row else ""
    reason = f"{reason}{both}the scale was chosen otherwise"
    readings = [runs.field("log_probability")]
    if name in OTHER:
        other = runs.field("other_log_probability")
        readings += [other, other - np.log(runs.units)[:, None]]
    trials = []
    for j, scale in enumerate(runs.scales):
        against = _contradiction(score, [held[:, j] for held in readings])
        trials.append(Trial(f"{row}{comma}scale {scale:g}", reason, mean_of(values[:, j]), against))
    for j, (low, high) in enumerate(pairwise(runs.scales)):
        middle = [0.5 * (held[:, j] + held[:, j + 1]) for held in readings]
        own = mean_of(0.5 * (values[:, j] + values[:, j + 1]))
        named = f"{row}{comma}scale {np.sqrt(low * high):.2g}, between"
        trials.append(Trial(named, reason, own, _contradiction(score, middle)))
    return trials


def _of_error(name: str, runs: Runs, score: Measured) -> list[Trial]:
    squares = runs.units**2
    by_evidence = mean_of(runs.chosen("error", "evidence") * squares)
    tests = [
        Trial("standardised", "theirs are in standard deviations of y", mean_of(runs.chosen("error"))),
        Trial("scale by evidence", "the scale was chosen by evidence", by_evidence),
        Trial("in hundredths", "theirs are printed in hundredths", mean_of(100.0 * runs.number("MSE"))),
    ]
    if name in OTHER:
        row, reason = OTHER[name]
        other = runs.chosen("other_error", "other_validated") * squares
        hundredths = f"{reason}, and theirs are printed in hundredths"
        tests += [
            Trial(row, reason, mean_of(other)),
            Trial(f"{row}, in hundredths", hundredths, mean_of(100.0 * other)),
        ]
    by_scale = _by_scale("", "", runs.field("error") * squares[:, None], name, runs, score)
    return [*tests, *by_scale[: len(runs.scales)]]


def _of_score(name: str, runs: Runs) -> list[Trial]:
    held = "log_probability"
    tests = [
        Trial("scale by evidence", "the scale was chosen by evidence", mean_of(runs.chosen(held, "evidence"))),
        Trial("scale by test score", "the scale was chosen on the test part", mean_of(runs.chosen(held, held))),
        Trial("no white noise", "γ² is left out at new inputs", mean_of(runs.chosen("without_noise"))),
        Trial(
            "density of y", "theirs are those of y in its own units", mean_of(runs.chosen(held) - np.log(runs.units))
        ),
    ]
    if name in OTHER:
        row, reason = OTHER[name]
        _, other, density = _readings(name, runs, "validated")
        units = f"{reason}, and theirs are those of y in its own units"
        tests += [Trial(row, reason, mean_of(other)), Trial(f"{row}, density of y", units, mean_of(density))]
    for scale, values in zip(runs.scales, runs.field(held).T, strict=True):
        tests.append(Trial(f"scale {scale:g}", "the scale was chosen otherwise", mean_of(values)))
    return tests

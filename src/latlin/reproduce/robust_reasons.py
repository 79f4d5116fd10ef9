"""What could explain the numbers of Table 5.1 of 002_71af9439e55c646f, read off the fits of `robust_regression`.

The document does not say which scales it chose from, whether its potentials are normalised (`vgai` needs no constants
to climb), in which units the errors are, when the search for the kernel was stopped, nor where its generated outliers
lie. Each of these is a row here; a row with a scale of its own counts only if the test score of the same fits agrees
with the printed one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from latlin.reproduce.page import Claim, Measured, compared
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
    """Fits made anew, with other data or in another way: what they suppose, of which sets, columns and partitions."""

    reason: str
    sets: tuple[str, ...]
    part: Callable[[str, int, Sizes, Path | None], Part] = part_of
    run: Callable[[Part, str, str, Sizes], Array] = fits
    columns: tuple[tuple[str, str], ...] = ()
    partitions: int = 3

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
    ),
    "kernel as it started": Variant("the kernel was not searched for", PLAIN.sets, run=unsearched_fits, partitions=10),
    "one length": Variant(
        "all columns have one length scale", PLAIN.sets[:3], run=partial(fits, kernel=round_kernel_of)
    ),
    "no outliers at all": Variant("the generated set has none", PLAIN.sets[2:], part=clean_part_of),
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
        scores = np.where(np.isfinite(self.field(by)), self.field(by), -np.inf)
        return np.take_along_axis(self.field(name), scores.argmax(axis=1)[:, None], axis=1)[:, 0]

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


def reasons_for(quantity: str, runs: Runs, label: str, generated: bool, score: Measured) -> list[Trial]:
    """The rows that test a number; `score` is the printed TLP of its column."""
    if quantity == "LML":
        return _of_evidence(runs, label, generated, score)
    return _of_error(runs, generated, score) if quantity == "MSE" else _of_score(runs, generated)


def variants_for(quantity: str, others: Mapping[str, Runs], score: Measured) -> list[Trial]:
    """The rows of fits made anew; one whose test score is not the printed one explains neither evidence nor error."""
    trials = []
    for row, runs in others.items():
        held = compared("TLP", score, mean_of(runs.chosen("log_probability")), "")
        against = "" if held.agrees or quantity == "TLP" else _contradiction(held)
        trials.append(Trial(row, VARIANTS[row].reason, mean_of(runs.number(quantity)), against))
    return trials


def _contradiction(held: Claim) -> str:
    return f"its TLP is {held.ours}, not {held.theirs}"


def _of_evidence(runs: Runs, label: str, generated: bool, score: Measured) -> list[Trial]:
    lml, n = runs.chosen("evidence"), runs.train
    tests = (
        [Trial("other sign", "theirs have the wrong sign", mean_of(-lml))] if label == "exact" else _bare(runs, score)
    )
    if label == "G-KL":
        reason = "theirs lack the constant N/2, as the bound of B.5 does"
        tests.append(Trial("without N/2", reason, mean_of(lml - 0.5 * n)))
    tests += [
        Trial("scale by evidence", "the scale was chosen by evidence", mean_of(runs.chosen("evidence", "evidence"))),
        Trial("density of y", "theirs are those of y in its own units", mean_of(lml - n * np.log(runs.units))),
    ]
    if generated:
        other = mean_of(runs.chosen("evidence", "other_validated"))
        tests.append(Trial("outliers elsewhere", ELSEWHERE, other))
    for count in EARLY:
        early = mean_of(runs.chosen(f"after_{count}"))
        tests.append(Trial(f"search stopped at {count}", "the search for the kernel was stopped early", early))
    values = runs.field("evidence").T
    return [*tests, *_by_scale("scale", "the scale was chosen otherwise", values, runs, score)]


def _bare(runs: Runs, score: Measured) -> list[Trial]:
    """Potentials without their constants, which move the evidence and nothing else."""
    reason, row = "theirs are potentials without their constant", "potentials without their constant"
    constants = runs.train * log_constant(runs.likelihood, runs.field("scale"))
    bare = runs._replace(fits=runs.fits.copy())
    bare.field("evidence")[:] -= constants
    values = bare.field("evidence").T
    more = _by_scale(f"{row}, scale", f"{reason}, and the scale was chosen otherwise", values, runs, score)
    return [Trial(row, reason, mean_of(bare.chosen("evidence"))), *more]


def _by_scale(row: str, reason: str, values: Array, runs: Runs, score: Measured) -> list[Trial]:
    """One row a scale; it contradicts the document if its test score is not the printed one."""
    trials = []
    for scale, own, held in zip(runs.scales, values, runs.field("log_probability").T, strict=True):
        claim = compared("TLP", score, mean_of(held), "")
        trials.append(Trial(f"{row} {scale:g}", reason, mean_of(own), "" if claim.agrees else _contradiction(claim)))
    return trials


ELSEWHERE = "validation and test part have outliers where ours have none, or none where ours have some"


def _of_error(runs: Runs, generated: bool, score: Measured) -> list[Trial]:
    squares = runs.units**2
    by_evidence = mean_of(runs.chosen("error", "evidence") * squares)
    tests = [
        Trial("standardised", "theirs are in standard deviations of y", mean_of(runs.chosen("error"))),
        Trial("scale by evidence", "the scale was chosen by evidence", by_evidence),
        Trial("in hundredths", "theirs are printed in hundredths", mean_of(100.0 * runs.number("MSE"))),
    ]
    if generated:
        other = runs.chosen("other_error", "other_validated") * squares
        hundredths = f"{ELSEWHERE}, and theirs are printed in hundredths"
        tests += [
            Trial("outliers elsewhere", ELSEWHERE, mean_of(other)),
            Trial("outliers elsewhere, in hundredths", hundredths, mean_of(100.0 * other)),
        ]
    values = (runs.field("error") * squares[:, None]).T
    return [*tests, *_by_scale("scale", "the scale was chosen otherwise", values, runs, score)]


def _of_score(runs: Runs, generated: bool) -> list[Trial]:
    held, logs = "log_probability", np.log(runs.units)
    tests = [
        Trial("scale by evidence", "the scale was chosen by evidence", mean_of(runs.chosen(held, "evidence"))),
        Trial("scale by test score", "the scale was chosen on the test part", mean_of(runs.chosen(held, held))),
        Trial("no white noise", "γ² is left out at new inputs", mean_of(runs.chosen("without_noise"))),
        Trial("density of y", "theirs are those of y in its own units", mean_of(runs.chosen(held) - logs)),
    ]
    if generated:
        other = runs.chosen("other_log_probability", "other_validated")
        units = f"{ELSEWHERE}, and theirs are those of y in its own units"
        tests += [
            Trial("outliers elsewhere", ELSEWHERE, mean_of(other)),
            Trial("outliers elsewhere, density of y", units, mean_of(other - logs)),
        ]
    for scale, values in zip(runs.scales, runs.field(held).T, strict=True):
        tests.append(Trial(f"scale {scale:g}", "the scale was chosen otherwise", mean_of(values)))
    return tests

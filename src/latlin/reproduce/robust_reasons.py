"""What could explain the numbers of Table 5.1 of 002_71af9439e55c646f, read off the fits of `robust_regression`.

The document does not say which scales it chose from, whether its potentials are normalised (`vgai` needs no constants
to climb), in which units the errors are, when the search for the kernel was stopped, nor where its generated outliers
lie. Each of these is a row here; a row with a scale of its own counts only if the test score of the same fits agrees
with the printed one too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from latlin.reproduce.page import Measured, compared
from latlin.reproduce.reasons import Trial
from latlin.reproduce.robust_regression import EARLY, Fit

Array = NDArray[np.float64]


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


def _of_evidence(runs: Runs, label: str, generated: bool, score: Measured) -> list[Trial]:
    lml, n = runs.chosen("evidence"), runs.train
    bare = lml - n * log_constant(runs.likelihood, runs.chosen("scale"))
    tests = [
        Trial("potentials without their constant", "theirs are not normalised", mean_of(bare)),
        Trial("density of y", "theirs are those of targets in their own units", mean_of(lml - n * np.log(runs.units))),
        Trial("scale by evidence", "the scale was chosen so", mean_of(runs.chosen("evidence", "evidence"))),
    ]
    if label == "exact":
        tests.insert(0, Trial("other sign", "theirs have the wrong sign", mean_of(-lml)))
    if label == "G-KL":
        tests.append(
            Trial("without N/2", "theirs lack that constant, as the bound of B.5 does", mean_of(lml - 0.5 * n))
        )
    for count in EARLY:
        early = mean_of(runs.chosen(f"after_{count}"))
        tests.append(Trial(f"{count} evaluations", "the search for the kernel was stopped early", early))
    if generated:
        other = mean_of(runs.chosen("evidence", "other_validated"))
        tests.append(Trial("outliers elsewhere", "the validation part has them, or has none", other))
    constants = log_constant(runs.likelihood, runs.scales)
    whole, without = runs.field("evidence"), runs.field("evidence") - n * constants
    against = _contradictions(runs, score)
    for j, scale in enumerate(runs.scales):
        tests.append(Trial(f"scale {scale:g}", "the scale was chosen otherwise", mean_of(whole[:, j]), against[j]))
        reason = "theirs are not normalised, and the scale was chosen otherwise"
        name = f"scale {scale:g}, potentials without their constant"
        tests.append(Trial(name, reason, mean_of(without[:, j]), against[j]))
    return tests


def _contradictions(runs: Runs, score: Measured) -> list[str]:
    """For every scale, what is wrong with its test score."""
    said = []
    for values in runs.field("log_probability").T:
        claim = compared("TLP", score, mean_of(values), "")
        said.append("" if claim.agrees else f"its TLP is {claim.ours}, not {claim.theirs}")
    return said


def _of_error(runs: Runs, generated: bool, score: Measured) -> list[Trial]:
    squares = runs.units**2
    tests = [
        Trial("units of y", "theirs are in the units of y", mean_of(runs.chosen("error") * squares)),
        Trial(
            "units of y, scale by evidence",
            "in the units of y, and the scale was chosen so",
            mean_of(runs.chosen("error", "evidence") * squares),
        ),
        Trial(
            "hundredths, units of y",
            "theirs are printed in hundredths of the units of y",
            mean_of(100.0 * runs.chosen("error") * squares),
        ),
    ]
    if generated:
        other = runs.chosen("other_error", "other_validated")
        tests += [
            Trial("outliers elsewhere", "the test part has them, or has none", mean_of(other)),
            Trial("outliers elsewhere, units of y", "so too, in the units of y", mean_of(other * squares)),
            Trial("outliers elsewhere, hundredths", "so too, in hundredths", mean_of(100.0 * other * squares)),
        ]
    against = _contradictions(runs, score)
    for j, scale in enumerate(runs.scales):
        error = mean_of(runs.field("error")[:, j] * squares)
        reason = "in the units of y, and the scale was chosen otherwise"
        tests.append(Trial(f"units of y, scale {scale:g}", reason, error, against[j]))
    return tests


def _of_score(runs: Runs, generated: bool) -> list[Trial]:
    logs = np.log(runs.units)
    density = mean_of(runs.chosen("log_probability") - logs)
    tests = [
        Trial("density of y", "theirs are those of targets in their own units", density),
        Trial("scale by evidence", "the scale was chosen so", mean_of(runs.chosen("log_probability", "evidence"))),
        Trial(
            "scale by test score",
            "the scale was chosen on the test part",
            mean_of(runs.chosen("log_probability", "log_probability")),
        ),
        Trial(
            "no white noise in new values",
            "γ² is left out at new inputs",
            mean_of(runs.chosen("without_noise")),
        ),
    ]
    if generated:
        other = runs.chosen("other_log_probability", "other_validated")
        tests += [
            Trial("outliers elsewhere", "the test part has them, or has none", mean_of(other)),
            Trial("outliers elsewhere, density of y", "so too, in the units of y", mean_of(other - logs)),
        ]
    for j, scale in enumerate(runs.scales):
        held = mean_of(runs.field("log_probability")[:, j])
        tests.append(Trial(f"scale {scale:g}", "the scale was chosen otherwise", held))
    return tests

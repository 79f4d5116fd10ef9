"""Evidence maximisation (ML-II): the hyperparameters that make the data most probable.

Challis (2013), §2.2.3 and B.6. The gradient of the log evidence is analytic, every fit starts from the one before,
and positive numbers are sought by their logarithms.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.linear._problem import Problem
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.arrays import Array
from latlin.numerics.progress import SILENT, Progress, progress
from latlin.numerics.stored import storable
from latlin.potentials.ranges import Positive, Range

MAX_FITS = 100


class Accuracy(NamedTuple):
    """How far a search goes.

    Parameters
    ----------
    gradient : float
        Largest derivative of the log evidence in a log hyperparameter at the end, in nat.
    gain : float
        Least relative gain in log evidence that is worth another fit.
    """

    gradient: float = 1e-2
    gain: float = 1e-10


PLAIN = Accuracy()


@storable
class Fit(NamedTuple):
    """A posterior and the hyperparameters it belongs to."""

    posterior: Posterior
    values: dict[str, Any]
    n_fits: int = 1


def ranges_of(problem: Problem) -> dict[str, Range]:
    """Where each hyperparameter is sought."""
    unit = problem.unit
    return {
        "prior_scale": Positive(unit, 1e-4 * unit, 1e3 * unit),
        **problem.family.ranges(unit),
        **problem.prior.ranges(),
    }


def _packed(span: Range, value: Any) -> Array:
    """Free coordinates as a vector, within the ends of a search."""
    theta = np.atleast_1d(span.to_free(value))
    return np.clip(theta, *np.array(span.bounds(len(theta))).T)


def _unpacked(span: Range, theta: Array, single: bool) -> Any:
    value = span.from_free(theta)
    return float(value[0]) if single else value


def _chained(span: Range, value: Any, slope: Any) -> Array:
    """Derivatives in the free coordinates; one number for all sites takes the sum of theirs."""
    return np.atleast_1d(span.chain(value, slope if np.ndim(value) else np.sum(slope)))


class _Search:
    """Minus the log evidence as a function of unconstrained numbers; each fit starts from the one before."""

    def __init__(
        self,
        problem: Problem,
        engine: Engine,
        values: Mapping[str, Any],
        free: Sequence[str],
        start: Posterior | None,
        checkpoint: str | os.PathLike[str] | None = None,
        bar: Progress = SILENT,
    ) -> None:
        self.checkpoint, self.bar = checkpoint, bar
        self.problem, self.engine, self.values, self.start = problem, engine, dict(values), start
        known = ranges_of(problem)
        self.ranges = {name: known[name] for name in free}
        self.parts = [_packed(span, values[name]) for name, span in self.ranges.items()]
        self.ends = np.cumsum([len(part) for part in self.parts])[:-1]
        self.best: Fit | None = None
        self.last: tuple[Array, tuple[float, Array]] | None = None
        self.n_fits = 0

    def bounds(self) -> list[tuple[float, float]]:
        each = zip(self.ranges.values(), self.parts, strict=True)
        return [pair for span, part in each for pair in span.bounds(len(part))]

    def __call__(self, theta: Array) -> tuple[float, Array]:
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = (theta.copy(), self._evaluate(theta))
        return self.last[1]

    def _evaluate(self, theta: Array) -> tuple[float, Array]:
        pieces = dict(zip(self.ranges, np.split(theta, self.ends), strict=True))
        single = {name: np.ndim(self.values[name]) == 0 for name in pieces}
        values = self.values | {n: _unpacked(self.ranges[n], piece, single[n]) for n, piece in pieces.items()}
        file = None if self.checkpoint is None else f"{os.fspath(self.checkpoint)}.{self.n_fits}"
        posterior = self.engine.run(self.problem.model(values), start=self.start, checkpoint=file)
        self.start, self.n_fits = posterior, self.n_fits + 1
        self.bar.advance(f"log evidence {posterior.log_evidence:.6g}")
        if self.best is None or posterior.log_evidence > self.best.posterior.log_evidence:
            self.best = Fit(posterior, values)
        slopes = self.problem.gradient(posterior, values)
        gradient = [_chained(span, values[name], slopes[name]) for name, span in self.ranges.items()]
        return -posterior.log_evidence, -np.concatenate(gradient)


def maximise_evidence(
    problem: Problem,
    engine: Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None = None,
    accuracy: Accuracy = PLAIN,
    checkpoint: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Fit:
    """The fit at the hyperparameters `free` of largest log evidence, from those in `values`.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    values : dict
        Every hyperparameter; those in `free` are where the search starts, a vector for one number per feature.
    free : list of str
    start : Posterior, optional
    accuracy : Accuracy
    checkpoint : path, optional
        Where the fits keep their states: this name and ".0", ".1", … for one after the other.
    verbose : bool
        Show a bar, one step per fit.
    """
    with progress("evidence of hyperparameters", MAX_FITS, verbose) as bar, warnings.catch_warnings():
        search = _Search(problem, engine, values, free, start, checkpoint, bar)
        first = np.concatenate(search.parts)
        warnings.simplefilter("ignore", ConvergenceWarning)
        # a first step of at most one in the logarithms
        unit = max(1.0, float(np.abs(search(first)[1]).max()))
        result = minimize(
            lambda theta: tuple(part / unit for part in search(theta)),
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=search.bounds(),
            options={"maxfun": MAX_FITS, "gtol": accuracy.gradient / unit, "ftol": accuracy.gain},
        )
    assert search.best is not None  # the search evaluates its start
    if search.n_fits >= MAX_FITS:
        alert(
            f"evidence maximisation stopped after {search.n_fits} fits with a gradient of "
            f"{unit * np.abs(result.jac).max():.2g}; give some of {', '.join(free)} a number",
            ConvergenceWarning,
        )
    return search.best._replace(n_fits=search.n_fits)

"""Evidence maximisation (ML-II): the hyperparameters that make the data most probable.

Challis (2013), §2.2.3 and B.6. The gradient of the log evidence is analytic, every fit starts from the one before,
and positive numbers are sought by their logarithms.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize

from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.linear._problem import Learnable
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.arrays import Array
from latlin.numerics.progress import SILENT, Progress, progress

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


class Fit(NamedTuple):
    """A posterior and the hyperparameters it belongs to."""

    posterior: Posterior
    values: dict[str, Any]
    n_fits: int = 1


class Coordinate(Protocol):
    """How a hyperparameter becomes unconstrained numbers."""

    def pack(self, value: Any) -> Array: ...

    def unpack(self, theta: Array) -> Any: ...

    def pull(self, theta: Array, slope: Any) -> Array:
        """Derivatives in the numbers from those in the value."""
        ...

    def bounds(self, count: int) -> list[tuple[float, float]]: ...


class Logarithm(NamedTuple):
    """A positive number or a vector of them, between two ends."""

    low: float
    high: float

    def pack(self, value: Any) -> Array:
        return np.log(np.clip(np.atleast_1d(np.asarray(value, float)), self.low, self.high))

    def unpack(self, theta: Array) -> Any:
        return float(np.exp(theta[0])) if len(theta) == 1 else np.exp(theta)

    def pull(self, theta: Array, slope: Any) -> Array:
        scaled = np.exp(theta) * slope
        return scaled if len(theta) > 1 else np.atleast_1d(np.sum(scaled))

    def bounds(self, count: int) -> list[tuple[float, float]]:
        return [(float(np.log(self.low)), float(np.log(self.high)))] * count


class Increasing(NamedTuple):
    """Cut points: the first, and the logarithms of the gaps."""

    reach: float = 50.0

    def pack(self, value: Any) -> Array:
        cuts = np.asarray(value, float)
        return np.concatenate([cuts[:1], np.log(np.diff(cuts))])

    def unpack(self, theta: Array) -> Any:
        return np.cumsum(np.concatenate([theta[:1], np.exp(theta[1:])]))

    def pull(self, theta: Array, slope: Any) -> Array:
        # cut k moves with the first and with every gap before it
        after = np.cumsum(np.asarray(slope)[::-1])[::-1]
        return np.concatenate([after[:1], np.exp(theta[1:]) * after[1:]])

    def bounds(self, count: int) -> list[tuple[float, float]]:
        return [(-self.reach, self.reach), *[(-12.0, float(np.log(self.reach)))] * (count - 1)]


def coordinates(problem: Learnable) -> dict[str, Coordinate]:
    """How each hyperparameter is sought, and between which ends."""
    unit = problem.unit
    return {
        "prior_scale": Logarithm(1e-4 * unit, 1e3 * unit),
        "scale": Logarithm(1e-4 * unit, 1e2 * unit),
        "df": Logarithm(0.5, 200.0),
        "prior_df": Logarithm(0.5, 200.0),
        "prior_shape": Logarithm(0.3, 4.0),
        "cuts": Increasing(),
    }


class _Search:
    """Minus the log evidence as a function of unconstrained numbers; each fit starts from the one before."""

    def __init__(
        self,
        problem: Learnable,
        engine: Engine,
        values: Mapping[str, Any],
        free: Sequence[str],
        start: Posterior | None,
        checkpoint: str | os.PathLike[str] | None = None,
        bar: Progress = SILENT,
    ) -> None:
        self.checkpoint, self.bar = checkpoint, bar
        self.problem, self.engine, self.values, self.start = problem, engine, dict(values), start
        known = coordinates(problem)
        self.coordinates = {name: known[name] for name in free}
        self.parts = [coordinate.pack(values[name]) for name, coordinate in self.coordinates.items()]
        self.ends = np.cumsum([len(part) for part in self.parts])[:-1]
        self.best: Fit | None = None
        self.last: tuple[Array, tuple[float, Array]] | None = None
        self.n_fits = 0

    def bounds(self) -> list[tuple[float, float]]:
        each = zip(self.coordinates.values(), self.parts, strict=True)
        return [pair for coordinate, part in each for pair in coordinate.bounds(len(part))]

    def __call__(self, theta: Array) -> tuple[float, Array]:
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = (theta.copy(), self._evaluate(theta))
        return self.last[1]

    def _evaluate(self, theta: Array) -> tuple[float, Array]:
        pieces = dict(zip(self.coordinates, np.split(theta, self.ends), strict=True))
        values = self.values | {name: self.coordinates[name].unpack(piece) for name, piece in pieces.items()}
        file = None if self.checkpoint is None else f"{os.fspath(self.checkpoint)}.{self.n_fits}"
        posterior = self.engine.run(self.problem.model(values), start=self.start, checkpoint=file)
        self.start, self.n_fits = posterior, self.n_fits + 1
        self.bar.advance(f"log evidence {posterior.log_evidence:.6g}")
        if self.best is None or posterior.log_evidence > self.best.posterior.log_evidence:
            self.best = Fit(posterior, values)
        slopes = self.problem.gradient(posterior, values)
        gradient = [self.coordinates[name].pull(piece, slopes[name]) for name, piece in pieces.items()]
        return -posterior.log_evidence, -np.concatenate(gradient)


def maximise_evidence(
    problem: Learnable,
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
    problem : Problem or BlockProblem
    engine : Engine
    values : dict
        Every hyperparameter; those in `free` are where the search starts, a vector for one number a feature.
    free : list of str
    start : Posterior, optional
    accuracy : Accuracy
    checkpoint : path, optional
        Where the fits keep their states: this name and ".0", ".1", … for one after the other.
    verbose : bool
        Show a bar, a step a fit.
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

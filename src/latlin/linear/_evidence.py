"""Evidence maximisation (ML-II): the hyperparameters that make the data most probable.

002_71af9439e55c646f §2.2.3 and B.6. The gradient of the log evidence is analytic, every fit starts from the one before,
and positive numbers are sought by their logarithms.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.linear._problem import Problem
from latlin.numerics.alerts import ConvergenceWarning, alert

Array = NDArray[np.float64]
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

    gradient: float = 1e-3
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


def coordinates(problem: Problem) -> dict[str, Coordinate]:
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
    """The log evidence as a function of unconstrained numbers; keeps the best fit so far as the next start."""

    def __init__(self, problem: Problem, engine: Engine, values: Mapping[str, Any], free: Sequence[str]) -> None:
        self.problem, self.engine, self.values, self.free = problem, engine, dict(values), list(free)
        self.coordinates = coordinates(problem)
        self.parts = [self.coordinates[name].pack(values[name]) for name in self.free]
        self.ends = np.cumsum([len(part) for part in self.parts])[:-1]
        self.best: Fit | None = None
        self.start: Posterior | None = None
        self.n_fits = 0

    def unpacked(self, theta: Array) -> dict[str, Any]:
        pieces = np.split(theta, self.ends)
        found = {name: self.coordinates[name].unpack(piece) for name, piece in zip(self.free, pieces, strict=True)}
        return self.values | found

    def __call__(self, theta: Array) -> tuple[float, Array]:
        values = self.unpacked(theta)
        posterior = self.engine.run(self.problem.model(values), start=self.start)
        self.n_fits += 1
        slopes = self.problem.gradient(posterior, values)
        pieces = np.split(theta, self.ends)
        gradient = np.concatenate(
            [self.coordinates[n].pull(piece, slopes[n]) for n, piece in zip(self.free, pieces, strict=True)]
        )
        self.start = posterior
        if self.best is None or posterior.log_evidence > self.best.posterior.log_evidence:
            self.best = Fit(posterior, values)
        return -posterior.log_evidence, -gradient


def maximise_evidence(
    problem: Problem,
    engine: Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None = None,
    accuracy: Accuracy = PLAIN,
) -> Fit:
    """The fit at the hyperparameters `free` of largest log evidence, from those in `values`.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    values : dict
        Every hyperparameter; those in `free` are where the search starts, a vector for one number a feature.
    free : list of str
    start : Posterior, optional
    accuracy : Accuracy
    """
    search = _Search(problem, engine, values, free)
    search.start = start
    bounds = [
        pair for n, part in zip(free, search.parts, strict=True) for pair in search.coordinates[n].bounds(len(part))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        options = {"maxfun": MAX_FITS, "gtol": accuracy.gradient, "ftol": accuracy.gain}
        result = minimize(
            search, np.concatenate(search.parts), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    assert search.best is not None  # the search evaluates its start
    if search.n_fits >= MAX_FITS:
        alert(
            f"evidence maximisation stopped after {search.n_fits} fits with a gradient of "
            f"{np.abs(result.jac).max():.2g}; give some of {', '.join(free)} a number",
            ConvergenceWarning,
        )
    best = search.best
    return Fit(best.posterior, best.values, search.n_fits)

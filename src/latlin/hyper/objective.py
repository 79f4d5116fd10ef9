"""Log evidence plus log prior in unconstrained coordinates; each fit starts from the nearest before it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from latlin.hyper.space import Space
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array
from latlin.numerics.progress import SILENT, Progress

#: largest distance in coordinates over which a fit is taken as a start
NEAR = 2.0
#: step of differences of the evidence where nobody gives its gradient
STEP = 1e-3
#: least curvature, in nat, that a held fit may say
LEAST = 1e-3


class Evaluation(NamedTuple):
    """What is found at some values of the hyperparameters.

    Attributes
    ----------
    log_evidence : float
    gradient : mapping or None
        Name → derivative of the log evidence in the number itself; None where there is none, and then differences of
        the evidence serve.
    fit : object
        What was fitted there, such as a `Posterior`; a later evaluation may start from it.
    held : callable or None
        Values by name → the gradient there with this fit held, which costs no fit; it gives a search its curvature.
    """

    log_evidence: float
    gradient: Mapping[str, float] | None
    fit: Any
    held: Callable[[dict[str, float]], Mapping[str, float]] | None = None


#: (values by name, a fit to start from or None, whether the gradient is wanted) → Evaluation
Evaluate = Callable[[dict[str, float], Any, bool], Evaluation]


class Point(NamedTuple):
    """A point with everything found there; `log_density` is log evidence + log prior, of u where volumes count."""

    u: Array
    log_density: float
    log_evidence: float
    fit: Any
    held: Any = None


@dataclass
class Objective:
    """What is maximised or integrated.

    Parameters
    ----------
    space : Space
    evaluate : callable
        See `Evaluate`. A ValueError after the first point is a wall: the density is zero there.
    volume : bool
        Whether the density is that of the coordinates (for integrals) or of the numbers (for optima).
    bar : Progress
    """

    space: Space
    evaluate: Evaluate
    volume: bool
    bar: Progress = SILENT
    points: list[Point] = field(default_factory=list)
    n_fits: int = 0
    #: whether fits are kept for mixtures
    keep: bool = False

    @property
    def best(self) -> Point:
        return max(self.points, key=lambda point: point.log_density)

    def at(self, u: Array) -> Point:
        """The point, without a gradient."""
        return self._evaluated(u, False)[0]

    def with_gradient(self, u: Array) -> tuple[Point, Array]:
        """The point and the gradient of its log density in u."""
        point, slopes = self._evaluated(u, True)
        prior = self.space.log_prior(u, volume=self.volume)[1]
        if not np.isfinite(point.log_density):
            return point, np.zeros(len(u))
        if slopes is None:
            return point, self._differences(u) + prior
        return point, self.space.pull(u, slopes) + prior

    def held_gradient(self, point: Point, u: Array) -> Array:
        """The gradient of the log density at u with the fit of a point held."""
        prior = self.space.log_prior(u, volume=self.volume)[1]
        return self.space.pull(u, point.held(self.space.values(u))) + prior

    def held_curvature(self, point: Point, u: Array, slope: Array) -> Array:
        """Minus the Hessian at u, where the gradient is `slope`, with the fit of a point held; made definite."""
        rows = np.stack([(slope - self.held_gradient(point, u + step)) / STEP for step in STEP * np.eye(len(u))])
        values, vectors = np.linalg.eigh(0.5 * (rows + rows.T))
        return np.asarray((vectors * np.maximum(np.abs(values), LEAST)) @ vectors.T)

    def _differences(self, u: Array) -> Array:
        """Central differences of the log evidence."""
        found = np.empty(len(u))
        for j, step in enumerate(STEP * np.eye(len(u))):
            ahead, behind = (self._evaluated(v, False)[0].log_evidence for v in (u + step, u - step))
            found[j] = (ahead - behind) / (2.0 * STEP)
        return found

    def _evaluated(self, u: Array, slopes: bool) -> tuple[Point, Mapping[str, float] | None]:
        log_prior = self.space.log_prior(u, volume=self.volume)[0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                value, gradient, fit, held = self.evaluate(self.space.values(u), self._nearby(u), slopes)
        except ValueError:
            if not self.points:
                raise
            return Point(np.array(u), -np.inf, -np.inf, None), None
        self.n_fits += 1
        self.bar.advance(f"log evidence {value:.6g}")
        total = float(value) + log_prior
        point = Point(np.array(u), total if np.isfinite(total) else -np.inf, float(value), fit, held)
        self._remember(point)
        return point, gradient

    def _remember(self, point: Point) -> None:
        """All points where they become a mixture; else the best and the last."""
        if self.keep or len(self.points) < 2:
            self.points.append(point)
        else:
            self.points = [self.best, point]

    def _nearby(self, u: Array) -> Any:
        known = [point for point in self.points if point.fit is not None]
        if not known:
            return None
        apart = [float(np.abs(point.u - u).max()) for point in known]
        nearest = int(np.argmin(apart))
        return known[nearest].fit if apart[nearest] <= NEAR else None

"""The ways to climb the bound: natural-gradient and Euclidean, whole data, mini-batches and Monte Carlo.

Each climb has a state (all the next step needs), a step for `latlin.numerics.ascent.ascend`, and a belief. Source:
Gutteridge (2021), Algorithms 1–4, §5. Natural gradients are steps towards the moments of the new responsibilities,
η ← (1 − ρ)η + ρη* (4.12); with ρ = 1 that is coordinate ascent (Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from latlin.mixture.fixed import FreeVector, Gradient, RootBelief, require_known_covariance
from latlin.mixture.model import Belief, Data, Mixture, MixtureEvaluation, Walkable
from latlin.mixture.moments import ComponentMoments, combine
from latlin.mixture.monte_carlo import (
    draw,
    exact_gradient,
    importance_gradient,
    in_root,
    path_gradient,
    relaxed_moments,
    score_gradient,
)
from latlin.mixture.schedules import StepRule
from latlin.mixture.sweep import CompleteRows
from latlin.numerics.ascent import Measure
from latlin.numerics.linalg import Array

WINDOW = 50  # evaluations of the bound
LARGEST_MOVE = 1.0  # of a free coordinate: a factor e, or one standard deviation of Σ


@dataclass(frozen=True)
class Options:
    """Settings of a climb; each reads what it needs."""

    step: StepRule
    batch_size: int
    n_draws: int
    control_variate: str | None
    labels: str
    temperature: float
    updates: int  # between two evaluations of the bound


class NaturalState(NamedTuple):
    """q by its moments, and the moments of the responsibilities it implies."""

    moments: ComponentMoments
    target: ComponentMoments
    bound: float
    t: int
    recent: Array = np.zeros(0)  # the last bounds, of a noisy climb


class EuclideanState(NamedTuple):
    """q by its free vector, the step rule's memory, and the moments of the responsibilities it implies."""

    flat: Array
    memory: Array
    target: ComponentMoments
    bound: float
    t: int
    recent: Array = np.zeros(0)  # the last bounds, of a noisy climb


State = TypeVar("State", NaturalState, EuclideanState)


class Climb(Protocol[State]):
    """A way to climb the bound, as fits and moves see it; its state is nobody else's business."""

    @property
    def mixture(self) -> Mixture: ...

    @property
    def rng(self) -> np.random.Generator: ...

    def start(self, moments: ComponentMoments) -> State:
        """The state whose q is the best one for some moments."""

    def belief(self, state: State) -> Belief:
        """The q of a state."""

    def step(self, state: State) -> tuple[State, Measure]:
        """The following state, with its bound."""

    def with_rng(self, rng: np.random.Generator) -> Self:
        """The same climb with other random numbers."""


def drift(recent: Array) -> float:
    """How far the mean bound of the last window lies from that of the window before, relatively."""
    if len(recent) < 2 * WINDOW:
        return np.inf
    change = recent[-WINDOW:].mean() - recent[:WINDOW].mean()
    return float(abs(change) / (1.0 + abs(recent[-1])))


def _remember(recent: Array, bound: float) -> Array:
    return np.append(recent, bound)[-2 * WINDOW :]


@dataclass(frozen=True)
class NaturalStep:
    """One step along the natural gradient of a mini-batch; called where the rows are."""

    mixture: Mixture
    rule: StepRule

    def __call__(self, state: NaturalState, batch: CompleteRows) -> NaturalState:
        target = self.mixture.evaluate(batch, self.mixture.belief(state.moments)).moments
        return state._replace(moments=self.towards(state, target), t=state.t + 1)

    def towards(self, state: NaturalState, target: ComponentMoments) -> ComponentMoments:
        """(1 − ρ)η + ρη*."""
        rho = min(self.rule.length(state.t), 1.0)  # type: ignore[attr-defined]
        return combine(self.mixture.components, state.moments, 1.0 - rho, target, rho)


@dataclass(frozen=True)
class NaturalClimb:
    """Natural gradients on all the data, for every covariance."""

    mixture: Mixture
    data: Data
    options: Options
    rng: np.random.Generator

    def with_rng(self, rng: np.random.Generator) -> Self:
        return replace(self, rng=rng)

    def start(self, moments: ComponentMoments) -> NaturalState:
        bound, target = self.mixture.evaluate(self.data, self.mixture.belief(moments))
        return NaturalState(moments, target, bound, 0)

    def belief(self, state: NaturalState) -> Belief:
        return self.mixture.belief(state.moments)

    def step(self, state: NaturalState) -> tuple[NaturalState, Measure]:
        moments = NaturalStep(self.mixture, self.options.step).towards(state, state.target)
        return self._evaluated(moments, state.t + 1)

    def _evaluated(self, moments: ComponentMoments, t: int) -> tuple[NaturalState, Measure]:
        bound, target = self.mixture.evaluate(self.data, self.mixture.belief(moments))
        change = np.abs(target.counts - moments.counts).max() / self.data.total
        return NaturalState(moments, target, bound, t), Measure(bound, float(change))


@dataclass(frozen=True)
class StochasticNaturalClimb(NaturalClimb):
    """Natural gradients on mini-batches (Algorithm 4)."""

    data: Walkable

    def step(self, state: NaturalState) -> tuple[NaturalState, Measure]:
        options, advance = self.options, NaturalStep(self.mixture, self.options.step)
        moved = self.data.walk(advance, state, options.updates, options.batch_size, self.rng)
        following, measure = self._evaluated(moved.moments, moved.t)
        recent = _remember(state.recent, measure.objective)
        return following._replace(recent=recent), measure._replace(gradient=drift(recent))


@dataclass(frozen=True)
class EuclideanClimb:
    """Ascent in (log α, m, log-Cholesky of C) along an exact or estimated gradient; fixed covariance."""

    mixture: Mixture
    data: CompleteRows
    options: Options
    rng: np.random.Generator
    estimate: Callable[[EuclideanClimb, RootBelief, ComponentMoments], Gradient]
    noisy: bool

    @cached_property
    def coordinates(self) -> FreeVector:
        return FreeVector.of(require_known_covariance(self.mixture), self.mixture.weights.components)  # type: ignore[attr-defined]

    def with_rng(self, rng: np.random.Generator) -> Self:
        return replace(self, rng=rng)

    def start(self, moments: ComponentMoments) -> EuclideanState:
        flat = self.coordinates.flatten(RootBelief.of(self.mixture.belief(moments)))
        bound, target = self.mixture.evaluate(self.data, self.mixture.belief(moments))
        return EuclideanState(flat, self.options.step.start(len(flat)), target, bound, 0)

    def point(self, state: EuclideanState) -> RootBelief:
        return self.coordinates.unflatten(state.flat)

    def belief(self, state: EuclideanState) -> Belief:
        return self.point(state).belief()

    def step(self, state: EuclideanState) -> tuple[EuclideanState, Measure]:
        coordinates = self.coordinates
        base = coordinates.base_steps(self.data.total)
        for _ in range(self.options.updates):
            point = coordinates.unflatten(state.flat)
            gradient = coordinates.pull_back(point, self.estimate(self, point, state.target))
            move, memory = self.options.step.move(base * gradient, state.t, state.memory)
            flat = state.flat + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
            state = state._replace(flat=flat, memory=memory, t=state.t + 1)
        belief = self.belief(state)
        bound, target = self.mixture.evaluate(self.data, belief)
        recent = _remember(state.recent, bound)
        short = target.counts + self.mixture.weights.concentration - belief.weights  # type: ignore[attr-defined]
        size = drift(recent) if self.noisy else float(np.abs(short).max() / self.data.total)
        return state._replace(target=target, bound=bound, recent=recent), Measure(bound, size)


def _exact(climb: EuclideanClimb, point: RootBelief, target: ComponentMoments) -> Gradient:
    return in_root(exact_gradient(climb.mixture, point, target), point)


def _mini_batch(climb: EuclideanClimb, point: RootBelief, target: ComponentMoments) -> Gradient:
    """(4.1)–(4.3), corrected as (3.41)."""
    batch = climb.data.batch(climb.options.batch_size, climb.rng)
    evaluation: MixtureEvaluation = climb.mixture.evaluate(batch, point.belief())
    return in_root(exact_gradient(climb.mixture, point, evaluation.moments), point)


def _score(climb: EuclideanClimb, point: RootBelief, target: ComponentMoments) -> Gradient:
    draws = draw(point, climb.options.n_draws, climb.rng)
    return score_gradient(climb.mixture, point, draws, target, climb.options.control_variate).average()


def _pathwise(climb: EuclideanClimb, point: RootBelief, target: ComponentMoments) -> Gradient:
    options = climb.options
    if options.labels == "gumbel":
        target = relaxed_moments(climb.mixture, climb.data, point.belief(), options.temperature, climb.rng)
    draws = draw(point, options.n_draws, climb.rng)
    return path_gradient(climb.mixture, point, draws, target.counts, target.mean).average()


def _importance(climb: EuclideanClimb, point: RootBelief, target: ComponentMoments) -> Gradient:
    draws = draw(point, climb.options.n_draws, climb.rng)
    return importance_gradient(climb.mixture, climb.data, point, draws)


ESTIMATES = {
    "gradient": _exact,
    "sgd": _mini_batch,
    "score": _score,
    "pathwise": _pathwise,
    "iwae": _importance,
}


def make_climb(algorithm: str, mixture: Mixture, data: Any, options: Options, rng: np.random.Generator) -> Climb[Any]:
    """The climb of an algorithm's name; which kind of rows each can read, the estimator's settings have checked."""
    if algorithm in ESTIMATES:
        return EuclideanClimb(mixture, data, options, rng, ESTIMATES[algorithm], algorithm != "gradient")
    if algorithm == "stochastic-natural":
        return StochasticNaturalClimb(mixture, data, options, rng)
    return NaturalClimb(mixture, data, options, rng)

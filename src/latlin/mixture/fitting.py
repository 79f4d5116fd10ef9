"""One fit: restarts, the climb with its moves, and a record of how it went."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from latlin.distributed.checkpoints import CheckpointFiles
from latlin.mixture.climbs import Climb, NaturalClimb, NaturalState, State
from latlin.mixture.kernels import full_joint
from latlin.mixture.model import Belief, Mixture
from latlin.mixture.moments import ComponentMoments, inverse
from latlin.mixture.moments import root as root_of
from latlin.mixture.moves import try_moves
from latlin.mixture.priors import SampledRows, seed_labels
from latlin.mixture.sweep import slices, widen
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable

SHORT_RUN = 10
#: rounds of a few steps in which the scale of the prior covariance is learnt, and the change of its log that ends them
ROUNDS, ROUND_STEPS, STILL = 30, 2, 0.02
FIRST_STEPS = 200
#: factors of the default covariance that are learnt; duplicate rows would drive it to zero
FACTORS = (1e-3, 1e3)


@storable
class MixtureTrace(NamedTuple):
    """How a fit went, one entry per evaluation of the bound."""

    bound: Array
    log_likelihood_error: Array  # ln p(X | truth) − ln p(X | E[π], E[μ]); NaN without a truth
    seconds: Array
    iterations: NDArray[np.intp]


class MixtureFit(NamedTuple):
    """Where a fit ended."""

    belief: Belief
    moments: ComponentMoments
    bound: float
    counts: Array
    converged: bool
    n_iter: int
    trace: MixtureTrace
    message: str


class Truth(NamedTuple):
    """The mixture the data came from, to measure a fit against."""

    weights: Array  # (K,)
    means: Array  # (K, D)
    covariances: Array  # (K, D, D), or (D, D) shared


def check_truth(truth: tuple[ArrayLike, ...] | None, mixture: Mixture) -> Truth | None:
    """The truth as arrays, its shapes checked."""
    if truth is None:
        return None
    parts = [np.asarray(part, dtype=np.float64) for part in truth]
    if len(parts) == 2 and hasattr(mixture.components, "covariance"):
        parts.append(mixture.components.covariance)
    dim = mixture.components.dim
    if len(parts) != 3 or parts[1].shape != (len(parts[0]), dim) or parts[2].shape[-2:] != (dim, dim):
        raise ValueError(
            "truth must be (weights, means, covariances) of shapes (K,), (K, D) and (K, D, D) or (D, D); "
            f"covariances may be left out for covariance='fixed'; got shapes {[part.shape for part in parts]}"
        )
    return Truth(*parts)


def log_likelihood(values: Array, weights: Array, means: Array, precisions: Array) -> float:
    """Σ_n ln Σ_k π_k N(x_n | μ_k, Λ_k⁻¹)."""
    whitener = root_of(precisions[:, ::-1, ::-1])[:, ::-1, ::-1].transpose(0, 2, 1)
    log_det = np.log(np.diagonal(whitener, axis1=1, axis2=2)).sum(axis=1)
    with np.errstate(divide="ignore"):
        offset = np.log(weights) + log_det - 0.5 * means.shape[1] * LOG_2PI
    factor = np.ascontiguousarray(whitener)
    parts = (full_joint(widen(values[part]), offset, means, factor) for part in slices(len(values)))
    return float(sum(logsumexp(part, axis=1).sum() for part in parts))


@dataclass
class Recorder:
    """Writes the trace of a fit while it runs."""

    mixture: Mixture
    values: Any
    updates: int
    truth: Truth | None = None
    started: float = field(default_factory=time.perf_counter)
    rows: list[tuple[float, float, float]] = field(default_factory=list)
    truth_value: float = np.nan

    def __post_init__(self) -> None:
        if self.truth is not None:
            weights, means, covariances = self.truth
            precisions = np.broadcast_to(inverse(covariances), (len(means), *covariances.shape[-2:]))
            self.truth_value = log_likelihood(self.values, weights, means, precisions)

    def record(self, bound: float, belief: Belief) -> None:
        seconds = time.perf_counter() - self.started
        error = self.truth_value - self._fitted(belief) if self.truth is not None else np.nan
        self.rows.append((bound, error, seconds))

    def remember(self, bounds: Array, before: int) -> None:
        """Put in, after the first `before` rows, what a climb did before it was resumed."""
        earlier = bounds[: len(bounds) - (len(self.rows) - before)]
        self.rows[before:before] = [(float(bound), np.nan, 0.0) for bound in earlier]

    def _fitted(self, belief: Belief) -> float:
        weights = self.mixture.weights.mean(belief.weights)
        precisions = self.mixture.components.precisions(belief.components)
        return log_likelihood(self.values, weights, belief.components.mean, precisions)

    def trace(self) -> MixtureTrace:
        bound, error, seconds = np.array(self.rows).T
        return MixtureTrace(bound, error, seconds, self.updates * np.arange(1, len(bound) + 1))


class MixtureStart(NamedTuple, Generic[State]):
    """Where a fit may begin, where a short run led from there, and its own random numbers."""

    begin: State
    tried: State
    rng: np.random.Generator


def record_starts(climb: Climb[State], sample: SampledRows, components: int, n_init: int) -> list[MixtureStart[State]]:
    """Of `n_init` k-means++ starts, each after a short run of the same algorithm, those better than all before.

    A fit from each of them never ends lower with more starts: the records of a few are the first of many.
    """
    records: list[MixtureStart[State]] = []
    for rng in climb.rng.spawn(n_init):
        labels = seed_labels(sample, components, climb.rng)
        begin = climb.start(sample.moments(climb.mixture, labels, components))
        state = begin
        if n_init > 1:
            for _ in range(SHORT_RUN):
                state, _ = climb.step(state)
        if not records or state.bound > records[-1].tried.bound:
            records.append(MixtureStart(begin, state, rng))
    return records


def learn_scale(
    climb: NaturalClimb, state: NaturalState, factor: float, files: CheckpointFiles
) -> tuple[NaturalClimb, NaturalState, float]:
    """The climb and its state under the prior covariance that a few rounds find best, and its factor.

    It begins at the optimum of the prior as it is. A step that maximises the bound over the factor stands between short
    climbs, so that the bound never falls. The first climb is kept in a file, the rounds are done again on resuming.
    """
    rough = Rules(gradient_tol=1e-3, objective_tol=1e-5, max_iter=FIRST_STEPS)
    state = ascend(climb.step, state, rough, warn=False, checkpoint=files.following()).state
    for _ in range(ROUNDS):
        change = climb.mixture.best_factor(climb.belief(state), state.moments.counts)
        change = float(np.clip(change * factor, *FACTORS)) / factor
        if abs(np.log(change)) < STILL:
            break
        factor *= change
        climb = replace(climb, mixture=climb.mixture.with_factor(change))
        state = climb.start(state.moments)
        for _ in range(ROUND_STEPS):
            state, _ = climb.step(state)
    return climb, state, factor


def fit_mixture(
    climb: Climb[State],
    state: State,
    rules: Rules,
    recorder: Recorder,
    *,
    sample: SampledRows,
    moves: int,
    label: str,
    verbose: bool,
    files: CheckpointFiles,
) -> MixtureFit:
    """Climb from `state` to convergence, then split and merge until `moves` have failed."""

    def settle(start: State, steps: int | None = None) -> Ascent[State]:
        kept, before = files.following(), len(recorder.rows)
        fresh = kept is None or not os.path.exists(kept.path)
        step, limits = _recorded(climb, recorder, fresh), rules
        if steps is not None:
            limits = replace(rules, max_iter=min(steps, rules.max_iter))
        ascent = ascend(step, start, limits, label=label, verbose=verbose, checkpoint=kept, warn=steps is None)
        recorder.remember(ascent.trace, before)
        return ascent

    ascent = try_moves(climb, sample, settle(state), moves, settle)
    final, trace = ascent.state, recorder.trace()
    n_iter = int(trace.iterations[-1])
    belief = climb.belief(final)
    return MixtureFit(
        belief, final.target, final.bound, final.target.counts, ascent.converged, n_iter, trace, ascent.message
    )


def _recorded(climb: Climb[State], recorder: Recorder, fresh: bool) -> Callable[[State], tuple[State, Measure]]:
    """The climb's step, recorded; the first of a fresh climb cannot end it: there is no change of the bound yet."""
    steps = count(0 if fresh else 1)

    def step(state: State) -> tuple[State, Measure]:
        following, measure = climb.step(state)
        recorder.record(measure.objective, climb.belief(following))
        return following, measure if next(steps) else measure._replace(gradient=np.inf)

    return step

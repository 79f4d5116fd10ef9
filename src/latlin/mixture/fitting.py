"""One fit: restarts, the climb with its moves, and a record of how it went."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from typing import Any, Generic, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, softmax

from latlin.distributed.checkpoints import CheckpointFiles
from latlin.mixture.climbs import Climb, NaturalClimb, NaturalState, State
from latlin.mixture.kernels import full_joint
from latlin.mixture.model import Belief, Mixture
from latlin.mixture.moments import ComponentMoments, inverse
from latlin.mixture.moments import root as root_of
from latlin.mixture.priors import SampledRows, seed_labels
from latlin.mixture.sweep import CompleteRows, CovarianceStructure, Params, slices, widen
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable

# --- Split and merge moves: ways out of a local optimum of the bound.
#
# A move joins the moments of two components, or parts those of one into an empty place. What it promises is known
# before any pass over the data: with responsibilities R held and q(π) q(θ) at its best for their moments, the bound
# is `evidence` plus the entropy of R. Moves are tried in the order of their promises, those without hope are not. A
# trial climbs a few steps with all components, and the move is kept only if the bound is higher.

#: steps at most until a trial must have caught up
TRIAL_STEPS = 10
#: a trial ends when even so many times its last gain, for every step that is left, would not do
HOPE = 2.0
#: steps at most between one move and the next
ROUGH_STEPS = 20
#: pairs of components whose merge is weighed
PAIRS = 20
#: seeds and steps by which a component is parted, and rows it is judged by
HALVINGS, HALVING_STEPS, HALVING_ROWS = 2, 5, 4000
#: rows that a component has less than this of do not count when it is parted
TRACE = 0.01
#: a move that promises a loss of more than this per row that it moves, and this much besides, is not tried
LOSS, SLACK = 0.3, 10.0


class Move(NamedTuple):
    """Moments after a move, and by how much it promises to change the bound."""

    promise: float
    moments: ComponentMoments


class Climbing(Protocol[State]):
    """Climbs from a state, to convergence or for so many steps at most."""

    def __call__(self, start: State, steps: int | None = None) -> Ascent[State]: ...


def try_moves(
    climb: Climb[State], sample: SampledRows, ascent: Ascent[State], failures: int, settle: Climbing[State]
) -> Ascent[State]:
    """Make moves until so many have failed or none is left to try; returns the best ascent, settled."""
    settled = True
    while True:
        better, failures = _first_success(climb, sample, ascent.state, failures)
        if better is not None:
            ascent = settle(better, ROUGH_STEPS)
            settled = ascent.converged
        elif settled:
            return ascent
        else:
            ascent, settled = settle(ascent.state), True


def _first_success(climb: Climb[State], sample: SampledRows, state: State, failures: int) -> tuple[State | None, int]:
    """The state after the first move that helps, and how many more may fail."""
    if failures == 0:
        return None, 0
    for move in rank_moves(climb, sample, state)[:failures]:
        better = _trial(climb, move.moments, state.bound)
        if better is not None:
            return better, failures
        failures -= 1
    return None, failures


def _trial(climb: Climb[State], moments: ComponentMoments, bound: float) -> State | None:
    """A few steps from other moments; the state as soon as it is better than `bound`."""
    goal = bound + 1e-6 * (1.0 + abs(bound))
    state = climb.start(moments)
    for left in range(TRIAL_STEPS, 0, -1):
        if state.bound > goal:
            return state
        before = state.bound
        state, _ = climb.step(state)
        if state.bound + HOPE * (left - 1) * (state.bound - before) < goal:
            break
    return state if state.bound > goal else None


def rank_moves(climb: Climb[State], sample: SampledRows, state: State) -> list[Move]:
    """Merges and splits of the components of a state in turn, the largest promises first."""
    mixture = climb.mixture
    r = softmax(mixture.log_joint(sample.rows, climb.belief(state)), axis=1)
    merges, splits = _merges(mixture, sample, state.target, r), _splits(mixture, sample, state.target, r, climb.rng)
    turns = zip_longest(*(sorted(moves, key=lambda move: -move.promise) for moves in (merges, splits)))
    return [move for turn in turns for move in turn if move is not None]


def _merges(mixture: Mixture, sample: SampledRows, moments: ComponentMoments, r: Array) -> list[Move]:
    """The pairs that share most responsibility, by the cosine."""
    weights = sample.weights * sample.scale
    products = (r * weights[:, None]).T @ r
    size = np.sqrt(np.diagonal(products))
    overlap = products / np.maximum(np.outer(size, size), 1e-300)
    first, second = np.triu_indices(len(size), 1)
    active = (size[first] > 1e-3) & (size[second] > 1e-3)
    pairs = np.argsort(-overlap[first, second], kind="stable")
    structure, before = mixture.components, evidence(mixture, moments)
    moves = []
    for i, j in zip(first[pairs[active[pairs]]][:PAIRS], second[pairs[active[pairs]]][:PAIRS], strict=True):
        merged = structure.split_merge.merged(structure, moments, i, j)
        floor = _least(min(moments.counts[i], moments.counts[j]))
        change = evidence(mixture, merged) - before
        if change > floor:
            change -= entropy_between(r[:, [i, j]], weights)
        if change > floor:
            moves.append(Move(change, merged))
    return moves


def _least(rows: float) -> float:
    """The smallest promise with hope, of a move of so many rows."""
    return -LOSS * rows - SLACK


def _splits(
    mixture: Mixture, sample: SampledRows, moments: ComponentMoments, r: Array, rng: np.random.Generator
) -> list[Move]:
    """Every component parted into the first empty place, if there is one."""
    sizes = np.bincount(r.argmax(axis=1), sample.weights, minlength=r.shape[1])
    empty = np.flatnonzero(sizes == 0.0)
    if len(empty) == 0:
        return []
    moves = []
    for k in np.flatnonzero(sizes > 0.0):
        own = np.flatnonzero(r[:, k] > TRACE)
        if len(own) < 2:
            continue
        own = own[:: -(-len(own) // HALVING_ROWS)]
        share = sample.weights[own] * r[own, k]
        part = SampledRows(sample.rows[own], share, sample.units[own], float(moments.counts[k] / share.sum()))
        halved = [_halved(mixture, part, moments, int(k), int(empty[0]), rng) for _ in range(HALVINGS)]
        best = max(halved, key=lambda move: move.promise)
        if best.promise > _least(min(best.moments.counts[[k, empty[0]]])):
            moves.append(best)
    return moves


def _halved(
    mixture: Mixture, part: SampledRows, moments: ComponentMoments, old: int, new: int, rng: np.random.Generator
) -> Move:
    """One component parted by coordinate ascent on its own rows, what others answer for held."""
    structure, both = mixture.components, np.array([old, new])
    rows = CompleteRows(part.rows, part.weights * part.scale)
    parts = part.moments(mixture, seed_labels(part, 2, rng), 2)
    single = structure.split_merge.merged(
        structure, structure.split_merge.parted(structure, moments, old, new, parts), old, new
    )
    entropy = 0.0
    for _ in range(HALVING_STEPS):
        belief = mixture.belief(structure.split_merge.parted(structure, moments, old, new, parts))
        params = structure.split_merge.few(belief.components, both)
        log_weights = mixture.weights.expected_log(belief.weights)[both]
        value, parts = structure.collect(rows, params, log_weights)
        entropy = value - expected(structure, parts, params, log_weights)
    parted = structure.split_merge.parted(structure, moments, old, new, parts)
    return Move(evidence(mixture, parted) + entropy - evidence(mixture, single), parted)


def evidence(mixture: Mixture, moments: ComponentMoments) -> float:
    """The bound without the entropy of the responsibilities, with q at its best for these moments."""
    belief = mixture.belief(moments)
    log_weights = mixture.weights.expected_log(belief.weights)
    return expected(mixture.components, moments, belief.components, log_weights) - mixture.kl(belief)


def expected(
    structure: CovarianceStructure[Params], moments: ComponentMoments, params: Params, log_weights: Array
) -> float:
    """Σ_nk w_n r_nk ln ρ_nk from the moments."""
    # Σ_n r(x − m)(x − m)ᵀ = scatter + N(x̄ − m)(x̄ − m)ᵀ
    second = moments.scatter + structure.spread(moments.mean - params.mean, moments.counts)
    return float(moments.counts @ (structure.offsets(params) + log_weights)) - 0.5 * structure.squares(params, second)


def entropy_between(r: Array, weights: Array) -> float:
    """−Σ_nk w_n r_nk ln(r_nk / Σ_j r_nj): what responsibilities lose in entropy when their components are joined."""
    share = r / np.maximum(r.sum(axis=1, keepdims=True), 1e-300)
    return -float(weights @ (r * np.log(np.maximum(share, 1e-300))).sum(axis=1))


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

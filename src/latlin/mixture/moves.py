"""Split and merge moves: ways out of a local optimum of the bound.

A move joins the moments of two components, or parts those of one into an empty place. What it promises is known before
any pass over the data: with responsibilities R held and q(π) q(θ) at its best for their moments, the bound is
`evidence` plus the entropy of R. Moves are tried in the order of their promises, those without hope are not. A trial
climbs a few steps with all components, and the move is kept only if the bound is higher.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import softmax

from latlin.mixture.climbs import Climb, State
from latlin.mixture.model import Mixture
from latlin.mixture.moments import ComponentMoments
from latlin.mixture.priors import SampledRows, seed_labels
from latlin.mixture.sweep import CompleteRows, CovarianceStructure, Params
from latlin.numerics.ascent import Ascent
from latlin.numerics.linalg import Array

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
        merged = structure.surgery.merged(structure, moments, i, j)
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
    single = structure.surgery.merged(
        structure, structure.surgery.parted(structure, moments, old, new, parts), old, new
    )
    entropy = 0.0
    for _ in range(HALVING_STEPS):
        belief = mixture.belief(structure.surgery.parted(structure, moments, old, new, parts))
        params = structure.surgery.few(belief.components, both)
        log_weights = mixture.weights.expected_log(belief.weights)[both]
        value, parts = structure.collect(rows, params, log_weights)
        entropy = value - expected(structure, parts, params, log_weights)
    parted = structure.surgery.parted(structure, moments, old, new, parts)
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

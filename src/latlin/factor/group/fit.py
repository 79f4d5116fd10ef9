"""Fit group factor analysis: starts, sweeps with rotations, factors that die, the best of several climbs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from latlin.distributed.checkpoints import CheckpointFiles
from latlin.factor.group.kernels import weighted_sums
from latlin.factor.group.rotation import rotate
from latlin.factor.group.rows import LatentSums, upright
from latlin.factor.group.updates import (
    GroupModel,
    GroupState,
    bound,
    bound_parts,
    energies,
    update_latents,
    update_loadings,
    update_noise,
    update_relevance,
    with_latents,
)
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend, rounding
from latlin.numerics.linalg import Array

#: sweeps that rotate every time, and how often later ones do
ALWAYS, EVERY = 5, 5
#: a factor is dead when no view has more than this share of its variance from it
DEAD = 1e-7
#: signal above which a factor is not doubted
CLEAR = 20.0


@dataclass(frozen=True)
class Sweep:
    """One update of every factor of q, then a rotation when one is due, then the removal of dead factors."""

    model: GroupModel
    rotating: bool
    pruning: bool

    def __call__(self, state: GroupState) -> tuple[GroupState, Measure]:
        new = state
        for update in (update_latents, update_loadings, update_relevance, update_noise):
            new = update(self.model, new)
        full = state.sweep < ALWAYS or state.sweep % EVERY == 0
        value = bound(self.model, new)
        if full:
            new, value = self._leave_the_coordinates(new, value)
        moved = change(state, new)
        new = new._replace(sweep=state.sweep + 1, moved=moved if full else state.moved)
        return new, Measure(value, max(moved, new.moved))

    def _leave_the_coordinates(self, state: GroupState, value: float) -> tuple[GroupState, float]:
        """What moves several factors of q together: rotation, leaps, pruning; each only if the bound rises."""
        if self.rotating and state.loading.shape[1] > 1:
            state = rotate(self.model, state)
            value = bound(self.model, state)
        state, value = leap(self.model, state, value)
        return prune(self.model, state, value) if self.pruning else (state, value)


def leap(model: GroupModel, state: GroupState, value: float) -> tuple[GroupState, float]:
    """Jump ahead where a view's loadings on a factor are fading, if that raises the bound.

    There the best precision is infinite and every update only adds Nτ to it.
    """
    faint = signals(model, state) < 1.0
    theta = model.relevance.leap(state.theta, faint)
    if theta is state.theta or not faint.any():
        return state, value
    ahead = update_relevance(model, update_loadings(model, state._replace(theta=theta)))
    higher = bound(model, ahead)
    return (ahead, higher) if higher > value + rounding(value) else (state, value)


def prune(model: GroupModel, state: GroupState, value: float) -> tuple[GroupState, float]:
    """The state without its dead factors and its bound, unless that would be lower."""
    alive = strengths(model, state).max(axis=0) > DEAD
    if alive.all() or not alive.any():
        return state, value
    fewer = select(model, state, np.flatnonzero(alive))
    lower = bound(model, fewer)
    return (fewer, lower) if lower >= value else (state, value)


def strengths(model: GroupModel, state: GroupState) -> Array:
    """The share of each view's variance that each factor explains, ⟨z_k²⟩ Σ_{d∈m}⟨w_dk⟩² over Σx², views × factors."""
    data = model.data
    square = np.einsum("nk,nk->k", state.latent, state.latent)
    square = square + data.patterns.rows_per @ np.einsum("rkk->rk", state.latent_cov)
    observed = np.bincount(data.view, data.counts) / (data.n_rows * data.sizes)
    return mean_energies(model, state) * square * observed[:, None] / np.bincount(data.view, data.squares)[:, None]


def select(model: GroupModel, state: GroupState, kept: NDArray[np.intp]) -> GroupState:
    """The state of some factors only; loadings keep their marginal covariances of these factors."""
    second = state.second[:, kept[:, None], kept]
    alpha = model.relevance.select(state.theta, kept)
    few = state._replace(
        latent=np.ascontiguousarray(state.latent[:, kept]),
        latent_cov=state.latent_cov[:, kept[:, None], kept],
        cross=np.ascontiguousarray(state.cross[:, kept]),
        second=second,
        theta=alpha,
    )
    return update_loadings(model, few)


def ordered(model: GroupModel, state: GroupState) -> GroupState:
    """Strongest factor first, the largest loading of each positive."""
    order = np.argsort(-strengths(model, state).sum(axis=0), kind="stable")
    sign = upright(state.loading)
    turned = state._replace(
        latent=state.latent * sign,
        latent_cov=state.latent_cov * np.outer(sign, sign),
        cross=state.cross * sign,
        second=state.second * np.outer(sign, sign),
    )
    return select(model, turned, order)


def change(old: GroupState, new: GroupState) -> float:
    """The largest change of a log noise level, and the relative change of the loadings."""
    if old.loading.shape != new.loading.shape:
        return np.inf
    noise = float(np.abs(np.log(new.noise_rate / old.noise_rate)).max())
    size = float(np.square(new.loading).sum())
    return max(noise, np.sqrt(float(np.square(new.loading - old.loading).sum()) / max(size, 1e-300)))


def begin(model: GroupModel, guess: LatentSums) -> GroupState:
    """q from a first guess of the latents."""
    data, k = model.data, guess.latent.shape[1]
    c, d = data.patterns.n_classes, len(data.view)
    patterns, relevance = len(data.patterns.rows_per), model.relevance
    empty = GroupState(
        latent=guess.latent,
        latent_cov=np.zeros((patterns, k, k)),
        cross=np.zeros((d, k)),
        second=np.zeros((c, k, k)),
        loading=np.zeros((d, k)),
        basis=np.broadcast_to(np.eye(k), (c, k, k)).copy(),
        spread=np.ones((d, k)),
        # half of every variance is noise
        noise_rate=model.noise_shape * 0.5 * _mean_squares(model),
        theta=relevance.start(np.broadcast_to(data.sizes[:, None], (len(data.sizes), k)) * 1.0),
    )
    state = with_latents(model, empty, guess, np.broadcast_to(0.1 * np.eye(k), (patterns, k, k)).copy())
    state = update_loadings(model, state)
    state = state._replace(theta=relevance.start(energies(data, state)))
    return update_noise(model, state)


def _mean_squares(model: GroupModel) -> Array:
    data = model.data
    return np.bincount(data.noise_group, data.squares) / np.bincount(data.noise_group, data.counts)


def climb(
    model: GroupModel,
    rank: int,
    n_init: int,
    n_jobs: int | None,
    step: Sweep,
    rules: Rules,
    rng: np.random.Generator,
    verbose: bool,
    files: CheckpointFiles,
) -> Ascent[GroupState]:
    """The best of several climbs: the first from principal components, the others from random latents."""
    rows = model.data.rows
    guesses = [rows.random(rank, rng) if number else rows.principal(rank, rng) for number in range(n_init)]
    climbs = Parallel(n_jobs=n_jobs)(
        delayed(ascend)(
            step,
            begin(model, guess),
            rules,
            label=f"group factor analysis, start {number + 1} of {n_init}",
            verbose=verbose,
            warn=False,
            checkpoint=files.following(),
        )
        for number, guess in enumerate(guesses)
    )
    best = max(climbs, key=lambda ascent: ascent.trace[-1])
    if step.pruning:
        best = without_weak(step, best, rules, files)
    if not best.converged:
        alert(best.message, ConvergenceWarning)
    return best


def without_weak(step: Sweep, best: Ascent[GroupState], rules: Rules, files: CheckpointFiles) -> Ascent[GroupState]:
    """Doubt the weakest factor: climb on without it, and go on so while the evidence given α does not fall.

    The largest directions of pure noise can hold a factor at a local optimum. The divergence of q(α), whose size is
    that of a vague prior's constant, is left out of the comparison: with it every weak factor would have to go.
    """
    while best.state.loading.shape[1] > 1:
        share = strengths(step.model, best.state).max(axis=0)
        if signals(step.model, best.state).max(axis=0)[share.argmin()] > CLEAR:
            return best
        kept = np.delete(np.arange(len(share)), share.argmin())
        start = select(step.model, best.state, kept)
        label = "group factor analysis, one factor less"
        fewer = ascend(step, start, rules, label=label, warn=False, checkpoint=files.following())
        if _given_relevance(step.model, fewer.state) < _given_relevance(step.model, best.state):
            return best
        trace = np.concatenate([best.trace, fewer.trace])
        best = replace(fewer, trace=trace, n_iter=len(trace), elapsed=best.elapsed + fewer.elapsed)
    return best


def signals(model: GroupModel, state: GroupState) -> Array:
    """Σ_{d∈m}⟨w_dk⟩² over Σ_{d∈m} var w_dk, views × factors: far below 1 where a view has no use for a factor."""
    mean = mean_energies(model, state)
    return mean / (energies(model.data, state) - mean)


def mean_energies(model: GroupModel, state: GroupState) -> Array:
    """Σ_{d∈m}⟨w_dk⟩², views × factors."""
    return weighted_sums(state.loading**2, np.ones(len(state.loading)), model.data.view, len(model.data.sizes))


def _given_relevance(model: GroupModel, state: GroupState) -> float:
    parts = bound_parts(model, state)
    return sum(parts) - parts.relevance

"""Fit group factor analysis: starts, sweeps with rotations, factors that die, the best of several climbs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.linalg import expm, inv

from latlin.distributed.checkpoints import CheckpointFiles
from latlin.factor.group.rows import LatentSums, outer_sums, positive_signs, product, truncated_step, weighted_sums
from latlin.factor.group.updates import (
    GroupModel,
    GroupState,
    Relevance,
    bound,
    bound_parts,
    energies,
    loading_moments,
    replace_latents,
    update_latents,
    update_loadings,
    update_noise,
    update_relevance,
)
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend, rounding
from latlin.numerics.linalg import Array
from latlin.numerics.progress import watch

# --- The rotation that group factor analysis is blind to in its likelihood, chosen to raise the bound.
#
# ⟨w⟩ᵀz stays when w ← Rᵀw and z ← R⁻¹z, but the priors' terms of the bound change by
#
# L(R) = −½ tr(R⁻¹SR⁻ᵀ) + (D − N) log|det R| + profile(e(R)),   e_mk = r_kᵀC_m r_k,
#
# with S = Σ_n⟨z zᵀ⟩ over all rows, C_m = Σ_{d∈m}⟨w wᵀ⟩ and the bound's dependence on the energies with q(α) at its best
# (or U, V, μ held). Climbing L jumps along the ridge that coordinate updates only creep along.
#
# The climb goes on to where the gradient is rounding: the R found is then a function of S and C_m that changes as
# little as they do. One that stops on its way multiplies rounding errors, sweep by sweep, and blocks of rows give
# other numbers than memory. Newton's method in R ← R exp(X) with a trust region takes few steps for that; conjugate
# gradients see the curvature through products of K×K matrices.

#: Newton steps, and conjugate gradients in one of them, at most
STEPS, PRODUCTS = 100, 300
#: the climb ends at a gradient of this size, relative to that of S
GOAL = 1e-14
#: below it the gradient may be rounding, and must halve with every step
SMALL = 1e-7


@dataclass(frozen=True)
class Rotation:
    """L(R) about R = I: S, C_m, D − N, and how the bound depends on energies."""

    latent: Array
    loadings: Array
    surplus: float
    relevance: Relevance
    theta: Array

    def value(self) -> float:
        """L(I)."""
        return -0.5 * float(np.trace(self.latent)) + self.relevance.profile(self.theta, self._energy).value

    def turned(self, r: Array) -> Rotation:
        """The same about another R; L differs by (D − N) log|det R|."""
        back, pushed = inv(r), self.loadings @ r
        latent, loadings = back @ self.latent @ back.T, r.T @ pushed
        symmetric = 0.5 * (loadings + loadings.transpose(0, 2, 1))
        return replace(self, latent=0.5 * (latent + latent.T), loadings=symmetric)

    def slopes(self) -> LoadingSlopes:
        """First and second derivatives in X at R = exp(X), X = 0."""
        k, energy = len(self.latent), self._energy
        _, slope, bend = self.relevance.profile(self.theta, energy)
        # S + (D − N)I + 2 Σ_m C_m ∘ ∂profile/∂e_m, column by column
        gradient = self.latent + self.surplus * np.eye(k) + 2.0 * (self.loadings * slope[:, None, :]).sum(axis=0)
        # Σ_m 2 slope_mk C_m + 4 bend_mk c_mk c_mkᵀ
        columns = 2.0 * product(np.ascontiguousarray(slope.T), self.loadings.reshape(-1, k * k)).reshape(k, k, k)
        across = 2.0 * (self.loadings * np.sqrt(bend)[:, None, :]).transpose(2, 1, 0)
        columns += across @ across.transpose(0, 2, 1)
        # S_kk + Σ_m 2 |slope_mk| e_mi: the curvature without what can be negative
        size = np.diagonal(self.latent) - 2.0 * energy.T @ slope
        return LoadingSlopes(gradient, self.latent - 0.5 * gradient, columns, np.sqrt(size))

    @property
    def _energy(self) -> Array:
        return np.ascontiguousarray(np.diagonal(self.loadings, axis1=1, axis2=2))


class LoadingSlopes(NamedTuple):
    """∂L/∂X = G, the parts of the curvature E = S − ½G and A_k, and a scale for each entry of X."""

    gradient: Array
    left: Array
    columns: Array
    scale: Array


def rotate(model: GroupModel, state: GroupState) -> GroupState:
    """The state turned by the best R found, or the same state if none raises the bound."""
    surplus = len(state.loading) - model.data.n_rows
    start = Rotation(
        _latent_moment(model, state), loading_moments(model.data, state), surplus, model.relevance, state.theta
    )
    r, rise = best_rotation(start)
    return turn_factors(model, state, r) if rise > 0.0 else state


def best_rotation(rotation: Rotation) -> tuple[Array, float]:
    """R at a local maximum of L, reached from I, and the rise of L."""
    k = len(rotation.latent)
    r, rise, last = np.eye(k), 0.0, np.inf
    slopes = rotation.slopes()
    radius = float(np.linalg.norm(slopes.gradient / slopes.scale))
    for _ in range(STEPS):
        scaled = slopes.gradient / slopes.scale
        norm = float(np.linalg.norm(scaled))
        if norm <= GOAL * np.sqrt(np.trace(rotation.latent)) or (norm < SMALL and norm > 0.5 * last):
            break
        step = _step(rotation, slopes, scaled, norm, radius)
        turn = expm(step.x)
        ahead = rotation.turned(turn)
        value = rotation.value()
        gain = ahead.value() + rotation.surplus * float(np.trace(step.x)) - value
        radius = _next_radius(step, gain, value)
        if gain > 1e-4 * step.promised - _rounding(value):
            rotation, r, rise, last = ahead, product(r, turn), rise + gain, norm
            slopes = rotation.slopes()
    return r, rise


class LoadingStep(NamedTuple):
    """X, the rise of L it promises, its length, the radius, and whether it reaches it."""

    x: Array
    promised: float
    length: float
    radius: float
    at_edge: bool


def _step(rotation: Rotation, slopes: LoadingSlopes, scaled: Array, norm: float, radius: float) -> LoadingStep:
    right = slopes.left + rotation.surplus * np.eye(len(scaled))
    turned_scale = np.ascontiguousarray(slopes.scale.T)
    y, promised, at_edge = truncated_step(
        np.ascontiguousarray(scaled.T),
        turned_scale,
        rotation.latent,
        np.ascontiguousarray(slopes.left),
        right,
        slopes.columns,
        radius,
        norm * min(0.1, norm),
        PRODUCTS,
    )
    return LoadingStep((y / turned_scale).T, promised, float(np.linalg.norm(y)), radius, at_edge)


def _next_radius(step: LoadingStep, gain: float, value: float) -> float:
    if step.promised <= _rounding(value):
        return step.radius
    share = gain / step.promised
    if share < 0.25:
        return 0.25 * step.length
    return 2.0 * step.radius if step.at_edge and share > 0.75 else step.radius


def _rounding(value: float) -> float:
    """What a difference of L may be wrong by."""
    return 1e-11 * (1.0 + abs(value))


def turn_factors(model: GroupModel, state: GroupState, r: Array) -> GroupState:
    """W ← WR, Z ← ZR⁻ᵀ with their covariances and sums; then α at its best."""
    inverse = np.linalg.inv(r)
    new = state._replace(
        latent=product(state.latent, inverse.T),
        latent_cov=inverse @ state.latent_cov @ inverse.T,
        cross=product(state.cross, inverse.T),
        second=inverse @ state.second @ inverse.T,
        loading=product(state.loading, r),
        basis=r.T @ state.basis,
    )
    return new._replace(theta=model.relevance.update(new.theta, energies(model.data, new)))


def _latent_moment(model: GroupModel, state: GroupState) -> Array:
    spread = (model.data.patterns.rows_per[:, None, None] * state.latent_cov).sum(axis=0)
    n = len(state.latent)
    return outer_sums(state.latent, np.ones(n), np.zeros(n, dtype=np.int64), 1)[0] + spread


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
        moved = measure_change(state, new)
        new = new._replace(sweep=state.sweep + 1, moved=moved if full else state.moved)
        return new, Measure(value, max(moved, new.moved))

    def _leave_the_coordinates(self, state: GroupState, value: float) -> tuple[GroupState, float]:
        """What moves several factors of q together: rotation, leaps, pruning; each only if the bound rises."""
        if self.rotating and state.loading.shape[1] > 1:
            state = rotate(self.model, state)
            value = bound(self.model, state)
        state, value = jump_ahead(self.model, state, value)
        return prune(self.model, state, value) if self.pruning else (state, value)


def jump_ahead(model: GroupModel, state: GroupState, value: float) -> tuple[GroupState, float]:
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


def match_factors(model: GroupModel, state: GroupState, stored: GroupState) -> GroupState:
    """A state with the shapes of `stored`, if that is one of `state` with some of its factors left out."""
    kept, rows = np.arange(stored.loading.shape[1]), len(stored.latent)
    fewer = select(model, state, kept)
    # what stands for the latents of blocks has a row per factor, those left out since the last sweep among them
    if len(kept) <= rows <= len(fewer.latent):
        fewer = fewer._replace(latent=fewer.latent[:rows])
    return fewer


def order_factors(model: GroupModel, state: GroupState) -> GroupState:
    """Strongest factor first, the largest loading of each positive."""
    order = np.argsort(-strengths(model, state).sum(axis=0), kind="stable")
    sign = positive_signs(state.loading)
    turned = state._replace(
        latent=state.latent * sign,
        latent_cov=state.latent_cov * np.outer(sign, sign),
        cross=state.cross * sign,
        second=state.second * np.outer(sign, sign),
    )
    return select(model, turned, order)


def measure_change(old: GroupState, new: GroupState) -> float:
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
    state = replace_latents(model, empty, guess, np.broadcast_to(0.1 * np.eye(k), (patterns, k, k)).copy())
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
    numbers = watch(range(n_init), "group factor analysis, starts", n_init, verbose)
    guesses = [rows.random(rank, rng) if number else rows.principal(rank, rng) for number in numbers]
    starts = [begin(model, guess) for guess in guesses]
    climbs = Parallel(n_jobs=n_jobs)(
        delayed(ascend)(
            step,
            start,
            rules,
            label=f"group factor analysis, start {number + 1} of {n_init}",
            verbose=verbose,
            warn=False,
            checkpoint=files.following(),
            shaped=partial(match_factors, model, start),
        )
        for number, start in enumerate(starts)
    )
    best = max(climbs, key=lambda ascent: ascent.trace[-1])
    if step.pruning:
        best = drop_weak(step, best, rules, files, verbose)
    if not best.converged:
        alert(best.message, ConvergenceWarning)
    return best


def drop_weak(
    step: Sweep, best: Ascent[GroupState], rules: Rules, files: CheckpointFiles, verbose: bool = False
) -> Ascent[GroupState]:
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
        fewer = ascend(
            *(step, start, rules),
            label=label,
            verbose=verbose,
            warn=False,
            checkpoint=files.following(),
            shaped=partial(match_factors, step.model, start),
        )
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

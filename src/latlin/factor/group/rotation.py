"""The rotation that group factor analysis is blind to in its likelihood, chosen to raise the bound.

⟨w⟩ᵀz stays when w ← Rᵀw and z ← R⁻¹z, but the priors' terms of the bound change by

    L(R) = −½ tr(R⁻¹SR⁻ᵀ) + (D − N) log|det R| + profile(e(R)),   e_mk = r_kᵀC_m r_k,

with S = Σ_n⟨z zᵀ⟩ over all rows, C_m = Σ_{d∈m}⟨w wᵀ⟩ and the bound's dependence on the energies with q(α) at its best
(or U, V, μ held). Climbing L jumps along the ridge that coordinate updates only creep along.

The climb goes on to where the gradient is rounding: the R found is then a function of S and C_m that changes as little
as they do. One that stops on its way multiplies rounding errors, sweep by sweep, and blocks of rows give other numbers
than memory. Newton's method in R ← R exp(X) with a trust region takes few steps for that; conjugate gradients see the
curvature through products of K×K matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import expm, inv

from latlin.factor.group.kernels import outer_sums
from latlin.factor.group.relevance import Relevance
from latlin.factor.group.rotation_kernels import truncated_step
from latlin.factor.group.rows import product
from latlin.factor.group.updates import GroupModel, GroupState, energies, loading_moments
from latlin.numerics.linalg import Array

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

    def slopes(self) -> Slopes:
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
        return Slopes(gradient, self.latent - 0.5 * gradient, columns, np.sqrt(size))

    @property
    def _energy(self) -> Array:
        return np.ascontiguousarray(np.diagonal(self.loadings, axis1=1, axis2=2))


class Slopes(NamedTuple):
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
    return turned(model, state, r) if rise > 0.0 else state


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


class Step(NamedTuple):
    """X, the rise of L it promises, its length, the radius, and whether it reaches it."""

    x: Array
    promised: float
    length: float
    radius: float
    at_edge: bool


def _step(rotation: Rotation, slopes: Slopes, scaled: Array, norm: float, radius: float) -> Step:
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
    return Step((y / turned_scale).T, promised, float(np.linalg.norm(y)), radius, at_edge)


def _next_radius(step: Step, gain: float, value: float) -> float:
    if step.promised <= _rounding(value):
        return step.radius
    share = gain / step.promised
    if share < 0.25:
        return 0.25 * step.length
    return 2.0 * step.radius if step.at_edge and share > 0.75 else step.radius


def _rounding(value: float) -> float:
    """What a difference of L may be wrong by."""
    return 1e-11 * (1.0 + abs(value))


def turned(model: GroupModel, state: GroupState, r: Array) -> GroupState:
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

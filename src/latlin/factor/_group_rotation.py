"""The rotation that group factor analysis is blind to in its likelihood, chosen to raise the bound.

⟨w⟩ᵀz stays when w ← Rᵀw and z ← R⁻¹z, but the priors' terms of the bound change by

    L(R) = −½ tr(R⁻¹SR⁻ᵀ) + (D − N) log|det R| + profile(e(R)),   e_mk = r_kᵀC_m r_k,

with S = Σ_n⟨z zᵀ⟩ over all rows, C_m = Σ_{d∈m}⟨w wᵀ⟩ and the bound's dependence on the energies with q(α) at its best
(or U, V, μ held). Climbing L jumps along the ridge that coordinate updates only creep along.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from latlin.factor._group_rows import product
from latlin.factor._group_updates import GroupModel, GroupState, energies, loading_moments
from latlin.numerics.group_kernels import outer_sums
from latlin.numerics.linalg import Array


def rotate(model: GroupModel, state: GroupState, max_iter: int = 30) -> GroupState:
    """The state turned by the best R found, or the same state if none raises the bound."""
    rank = state.loading.shape[1]
    latent, loadings = _latent_moment(model, state), loading_moments(model.data, state)
    surplus = len(state.loading) - model.data.n_rows

    def objective(flat: Array) -> tuple[float, Array]:
        value, slope = rotation_objective(flat.reshape(rank, rank), latent, loadings, surplus, model, state.theta)
        return -value, -slope.ravel()

    start = np.eye(rank).ravel()
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iter})
    if not found.fun < objective(start)[0]:
        return state
    return turned(model, state, found.x.reshape(rank, rank))


def rotation_objective(
    r: Array, latent: Array, loadings: Array, surplus: float, model: GroupModel, theta: Array
) -> tuple[float, Array]:
    """L(R) and its gradient; −∞ at a singular R."""
    factors, pivots, singular = lapack.dgetrf(r)
    if singular:
        return -np.inf, np.zeros_like(r)
    inverse = np.ascontiguousarray(lapack.dgetri(factors, pivots)[0])
    log_det = float(np.log(np.abs(np.diagonal(factors))).sum())
    middle = product(product(inverse, latent), inverse.T)
    pushed = product(loadings.reshape(-1, len(r)), r).reshape(loadings.shape)
    energy = (r * pushed).sum(axis=1)
    value, slope = model.relevance.profile(theta, energy)
    # ∂/∂R: R⁻ᵀ(R⁻¹SR⁻ᵀ) + (D − N)R⁻ᵀ + 2 Σ_m C_m R ∘ ∂profile/∂e_m
    pull = (pushed * slope[:, None, :]).sum(axis=0)
    gradient = product(inverse.T, middle) + surplus * inverse.T + 2.0 * pull
    return -0.5 * float(np.trace(middle)) + surplus * log_det + value, gradient


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

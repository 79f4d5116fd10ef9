"""Variational updates of group factor analysis, each a function of the whole state that raises the bound.

x_nd = w_dᵀz_n + ε, ε ~ N(0, 1/τ), z_n ~ N(0, I), w_dk ~ N(0, 1/α_mk) for d in view m;
q = ∏_n q(z_n) ∏_d q(w_d) ∏ q(τ) q(α). Source: Mancevo (2016), corrected: q(z_n) sums over the views, the rate of
q(τ) takes half the squared error, and the bound has every term and constant.

The state keeps with q(Z) the sums over rows that the loadings need (`cross`, `second`), so that a sweep costs two
products with the data: XWᵀ-like for the latents, XᵀZ for the loadings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from latlin.densities.conjugate import gamma_kl
from latlin.factor.group.data import GroupData, Labels
from latlin.factor.group.relevance import Relevance
from latlin.factor.group.rows import (
    LatentSums,
    loading_step,
    outer_sums,
    product,
    squared_errors,
    weighted_sums,
)
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array


class GroupState(NamedTuple):
    """q(Z), q(W), q(τ), q(α) and the sums over rows that belong to this q(Z).

    Patterns r of rows, classes c of features (see `latlin.factor.group.data`), K factors.
    """

    latent: Array  # ⟨z_n⟩, N×K, or what stands for them (see `LatentSums`)
    latent_cov: Array  # cov z_n of the rows of pattern r, (r, K, K)
    cross: Array  # Σ_n x_nd ⟨z_n⟩, D×K
    second: Array  # Σ_n ⟨z_n z_nᵀ⟩ over the rows that observe class c, (c, K, K)
    loading: Array  # ⟨w_d⟩, D×K
    basis: Array  # cov w_d = B_c diag(spread_d) B_cᵀ, (c, K, K)
    spread: Array  # D×K
    noise_rate: Array  # q(τ) = Gamma(a + ½ count, rate), one per noise group
    theta: Array  # of q(α), see `latlin.factor.group.relevance`
    sweep: int = 0  # sweeps so far
    moved: float = np.inf  # change in the last sweep with a rotation


@dataclass(frozen=True)
class GroupModel:
    """The data and the priors: what stays fixed while q moves."""

    data: GroupData
    relevance: Relevance
    noise_a: float
    noise_b: float

    @cached_property
    def noise_shape(self) -> Array:
        return self.noise_a + 0.5 * self.noise_counts

    @cached_property
    def noise_counts(self) -> Array:
        """Entries of every noise group."""
        return np.bincount(self.data.noise_group, self.data.counts).astype(np.float64)

    def noise_precision(self, state: GroupState) -> Array:
        """⟨τ⟩ of every column."""
        return (self.noise_shape / state.noise_rate)[self.data.noise_group]


def update_latents(model: GroupModel, state: GroupState) -> GroupState:
    """q(z_n): precision I + Σ_d τ_d⟨w_d w_dᵀ⟩ and mean cov Σ_d τ_d⟨w_d⟩x_nd over the observed d, of all views."""
    data, tau = model.data, model.noise_precision(state)
    labels, k = data.patterns.column, state.loading.shape[1]
    precision = row_precisions(class_moments(state, tau, labels), data.patterns.seen)
    covariance = np.linalg.inv(precision)
    covariance = 0.5 * (covariance + covariance.transpose(0, 2, 1))
    sums = data.rows.latents(state.loading * tau[:, None], covariance)
    return with_latents(model, state, sums, covariance.reshape(-1, k, k))


def class_moments(state: GroupState, tau: Array, labels: Labels) -> Array:
    """Σ_{d∈c} τ_d⟨w_d w_dᵀ⟩ for every class of features that `basis` belongs to."""
    # Σ τ_d B diag(s_d) Bᵀ = B diag(Σ τ_d s_d) Bᵀ within a class
    n_classes = len(state.basis)
    width = weighted_sums(state.spread, tau, labels, n_classes)
    spread = (state.basis * width[:, None, :]) @ state.basis.transpose(0, 2, 1)
    return spread + outer_sums(state.loading, tau, labels, n_classes)


def row_precisions(moments: Array, seen: Array) -> Array:
    """I + Σ_c seen_rc moments_c for every pattern r of rows."""
    k = moments.shape[-1]
    return np.eye(k) + product(seen, moments.reshape(len(moments), -1)).reshape(-1, k, k)


def with_latents(model: GroupModel, state: GroupState, sums: LatentSums, covariance: Array) -> GroupState:
    """The state with another q(Z), and the sums that go with it."""
    patterns, k = model.data.patterns, covariance.shape[-1]
    moments = sums.moments + patterns.rows_per[:, None, None] * covariance
    second = product(patterns.seen.T, moments.reshape(len(moments), -1)).reshape(-1, k, k)
    return state._replace(latent=sums.latent, latent_cov=covariance, cross=sums.cross, second=second)


def update_loadings(model: GroupModel, state: GroupState) -> GroupState:
    """q(w_d): precision τ_d Σ⟨z zᵀ⟩ + diag⟨α_m⟩ and mean cov τ_d Σ x⟨z⟩, by one eigendecomposition a class."""
    data, labels = model.data, model.data.patterns.column
    root = 1.0 / np.sqrt(model.relevance.moments(state.theta).mean)[data.class_view]
    # A^{−½}SA^{−½} = QΛQᵀ, B = A^{−½}Q
    values, vectors = np.linalg.eigh(state.second * root[:, :, None] * root[:, None, :])
    basis = root[:, :, None] * vectors
    loading, spread = np.empty_like(state.cross), np.empty_like(state.cross)
    tau = model.noise_precision(state)
    loading_step(state.cross, tau, basis, np.maximum(values, 0.0), labels, loading, spread)
    return state._replace(loading=loading, basis=basis, spread=spread)


def update_relevance(model: GroupModel, state: GroupState) -> GroupState:
    """q(α), or the points U, V, μ."""
    return state._replace(theta=model.relevance.update(state.theta, energies(model.data, state)))


def update_noise(model: GroupModel, state: GroupState) -> GroupState:
    """q(τ): rate b + ½ Σ⟨(x − wᵀz)²⟩."""
    errors = np.bincount(model.data.noise_group, expected_errors(model.data, state))
    return state._replace(noise_rate=np.asarray(model.noise_b + 0.5 * errors))


def energies(data: GroupData, state: GroupState) -> Array:
    """Σ_{d∈m} ⟨w_dk²⟩, views × factors."""
    ones = np.ones(len(data.view))
    classes = weighted_sums(state.spread, ones, data.patterns.column, data.patterns.n_classes)
    spread = np.einsum("ckl,cl->ck", state.basis * state.basis, classes)
    energy = np.zeros((len(data.sizes), state.loading.shape[1]))
    np.add.at(energy, data.class_view, spread)
    return energy + weighted_sums(state.loading * state.loading, ones, data.view, len(data.sizes))


def loading_moments(data: GroupData, state: GroupState) -> Array:
    """Σ_{d∈m} ⟨w_d w_dᵀ⟩, (views, K, K)."""
    ones = np.ones(len(data.view))
    classes = weighted_sums(state.spread, ones, data.patterns.column, data.patterns.n_classes)
    total = outer_sums(state.loading, ones, data.view, len(data.sizes))
    np.add.at(total, data.class_view, (state.basis * classes[:, None, :]) @ state.basis.transpose(0, 2, 1))
    return total


def expected_errors(data: GroupData, state: GroupState) -> Array:
    """Σ_n ⟨(x_nd − w_dᵀz_n)²⟩ over the observed rows of every column."""
    turned = (state.basis * (state.second @ state.basis)).sum(axis=1)
    return squared_errors(
        data.squares, state.cross, state.loading, state.spread, state.second, turned, data.patterns.column
    )


def bound(model: GroupModel, state: GroupState) -> float:
    """⟨log p(X, Z, W, τ, α)⟩ + entropies, every constant included, for the data in the user's units."""
    parts = bound_parts(model, state)
    return float(sum(parts)) - model.data.log_scale


class BoundParts(NamedTuple):
    """⟨log p(X|Z, W, τ)⟩ of the scaled data, and minus the divergences of q(Z), q(W), q(τ), q(α)."""

    likelihood: float
    latents: float
    loadings: float
    noise: float
    relevance: float


def bound_parts(model: GroupModel, state: GroupState) -> BoundParts:
    """The terms of the bound."""
    data = model.data
    shape, rate = model.noise_shape, state.noise_rate
    count = model.noise_counts
    errors = np.bincount(data.noise_group, expected_errors(data, state))
    # Σ ½N_d(⟨log τ⟩ − log 2π) − ½⟨τ⟩⟨error⟩
    log_tau = digamma(shape) - np.log(rate)
    likelihood = 0.5 * float((count * (log_tau - LOG_2PI) - shape / rate * errors).sum())
    noise = -float(gamma_kl(shape, rate, model.noise_a, model.noise_b).sum())
    relevance = model.relevance.value(state.theta)
    return BoundParts(likelihood, _latent_part(data, state), _loading_part(model, state), noise, relevance)


def _latent_part(data: GroupData, state: GroupState) -> float:
    # −KL(q(z)‖N(0, I)) = ½(K + log det S − tr S − mᵀm)
    n, k = data.n_rows, state.loading.shape[1]
    log_det = np.linalg.slogdet(state.latent_cov)[1]
    trace = np.einsum("rkk->r", state.latent_cov)
    squares = float(np.einsum("nk,nk->", state.latent, state.latent))
    return 0.5 * (n * k + float((data.patterns.rows_per * (log_det - trace)).sum()) - squares)


def _loading_part(model: GroupModel, state: GroupState) -> float:
    # ½ Σ_d (K + log det S_d + Σ_k ⟨log α⟩) − ½ Σ_mk ⟨α_mk⟩ e_mk
    data, alpha = model.data, model.relevance.moments(state.theta)
    log_det = 2.0 * np.linalg.slogdet(state.basis)[1][data.patterns.column].sum() + np.log(state.spread).sum()
    prior = float((data.sizes[:, None] * alpha.log_mean - alpha.mean * energies(data, state)).sum())
    return 0.5 * (state.loading.size + float(log_det) + prior)

"""Mean-field updates for binary factors as Lau (2020) has them, one at a time, with the bound after each.

    x = Σ s_i μ_i + noise,  s_i ~ Bernoulli(π_i),  μ_i ~ N(0, α_i⁻¹ I),  q(s) = ∏ Bernoulli(λ_ni),  q(μ) = N(M, S)

`latlin.factor.BinaryFactorAnalysis` moves the relevances α at once to where the bound is largest; (24) moves them
slowly, which is what the figures of the document show. α = 0 stands for features that are points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, xlogy

from reproduction.arrays import Array

#: π stays this far from 0 and 1
MARGIN = 1e-10


class State(NamedTuple):
    """Λ (N, K), M (K, D), S (K, K), α (K,), π (K,) and σ²."""

    means: Array
    features: Array
    covariance: Array
    relevance: Array
    probability: Array
    noise: float

    @property
    def latent_second(self) -> Array:
        """E = Σ_n ⟨ssᵀ⟩; s² = s."""
        second = self.means.T @ self.means
        second[np.diag_indices_from(second)] = self.means.sum(axis=0)
        return second

    @property
    def feature_second(self) -> Array:
        """Q = MMᵀ + DS."""
        return self.features @ self.features.T + self.features.shape[1] * self.covariance


def begin(x: Array, means: Array) -> State:
    """Least-squares features, and noise, probabilities and relevances to match."""
    k, dim = means.shape[1], x.shape[1]
    state = State(means, np.zeros((k, dim)), np.zeros((k, k)), np.zeros(k), np.full(k, 0.5), 1.0)
    features = np.asarray(np.linalg.lstsq(state.latent_second, means.T @ x, rcond=1e-13)[0], dtype=np.float64)
    state = with_noise(x, with_probability(state._replace(features=features)))
    least = 0.01 * float(x.var(axis=0).mean())
    return state._replace(relevance=np.full(k, x.size / np.square(x).sum()), noise=max(state.noise, least))


def with_features(x: Array, state: State) -> State:
    """S = (E/σ² + diag α)⁻¹ and M = SΛᵀX/σ², (31) and (32), jointly over the factors."""
    precision = state.latent_second / state.noise + np.diag(state.relevance)
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return state._replace(covariance=covariance, features=covariance @ (state.means.T @ x) / state.noise)


def with_noise(x: Array, state: State) -> State:
    """σ² = ⟨‖X − Sμ‖²⟩/ND, (36)."""
    return state._replace(noise=square_error(x, state) / x.size)


def with_probability(state: State) -> State:
    """π_i = Σ_n λ_ni/N."""
    return state._replace(probability=np.clip(state.means.mean(axis=0), MARGIN, 1.0 - MARGIN))


def with_relevance(state: State) -> State:
    """α_i = D/⟨μ_iᵀμ_i⟩, (24)."""
    return state._replace(relevance=state.features.shape[1] / np.diagonal(state.feature_second))


def swept(x: Array, state: State, sweeps: int, tol: float = 0.0) -> State:
    """Sweeps of (10) and (35) over the factors: logit λ_i = logit π_i + (xᵀM_i − ½Q_ii − Σ_{j≠i} λ_j Q_ij)/σ²."""
    second, field, means = state.feature_second, x @ state.features.T, state.means.copy()
    odds = logit(state.probability)
    for _ in range(sweeps):
        before = means.copy()
        for i in range(means.shape[1]):
            others = means @ second[i] - means[:, i] * second[i, i]
            means[:, i] = expit(odds[i] + (field[:, i] - 0.5 * second[i, i] - others) / state.noise)
        if np.abs(means - before).max() <= tol:
            break
    return state._replace(means=means)


def square_error(x: Array, state: State) -> float:
    """⟨‖X − Sμ‖²⟩ = ‖X‖² − 2⟨ΛᵀX, M⟩ + ⟨E, Q⟩."""
    fit = np.vdot(state.means.T @ x, state.features)
    return float(np.square(x).sum() - 2.0 * fit + np.vdot(state.latent_second, state.feature_second))


def bound(x: Array, state: State) -> float:
    """The bound (8), corrected, with every constant."""
    means, active = state.means, state.means.sum(axis=0)
    entropy = -float((xlogy(means, means) + xlogy(1.0 - means, 1.0 - means)).sum())
    latent = active @ np.log(state.probability) + (len(x) - active) @ np.log1p(-state.probability)
    likelihood = -0.5 * x.size * np.log(2.0 * np.pi * state.noise) - 0.5 * square_error(x, state) / state.noise
    return float(entropy + latent + likelihood - _divergence(state))


def _divergence(state: State) -> float:
    """KL(q(μ) ‖ p(μ)); nothing for points."""
    if not state.relevance.any():
        return 0.0
    dim = state.features.shape[1]
    log_det = float(np.log(state.relevance).sum() + np.linalg.slogdet(state.covariance)[1])
    square = np.diagonal(state.feature_second)
    return float(0.5 * (state.relevance @ square - dim * (log_det + len(square))))

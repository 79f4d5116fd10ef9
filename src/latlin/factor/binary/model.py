"""Binary latent factors: x = Σ s_i μ_i + noise, s_i in {0, 1}; the bound and every update that raises it.

    s_i ~ Bernoulli(π_i),  x | s ~ N(Σ s_i μ_i, σ²I),  and with relevances  μ_i ~ N(0, α_i⁻¹ I)

Lau (2020), eqs. 1–2, 23. There q(μ) has one variance per factor; here it is N(M, S) with one K×K covariance S
shared by all features, which holds that form as a special case: it is as cheap, and its bound is tighter. With moments
of q(s)

    T = ΛᵀX,  E = Σ_n ⟨ssᵀ⟩ = ΛᵀΛ + diag Σ(λ − λ²),  ⟨μ_iᵀμ_j⟩ = M_iᵀM_j + D S_ij = Q_ij

the bound is (8), corrected, every constant included:

    F = H(q(s)) + Σ_i [n_i log π_i + (N − n_i) log(1 − π_i)] − ½ND log 2πσ²
        − (‖X‖² − 2⟨T, M⟩ + ⟨E, Q⟩)/2σ² + ½[D Σ log α_i + D log det S + KD − Σ α_i Q_ii],

the last bracket, −KL(q(μ) ‖ p(μ | α)), being absent when μ is a point (maximum likelihood).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from latlin.factor.binary.latents import BinaryLatents, LatentEngine, RowProblem, independent_entropy
from latlin.numerics.linalg import Array, cholesky
from latlin.numerics.special import LOG_SQRT_2PI

#: π stays this far from 0 and 1
MARGIN = 1e-10


class Data(NamedTuple):
    """The rows, Fortran-ordered once for BLAS as well, their sum of squares and the least noise variance."""

    rows: Array
    square: float
    floor: float


class BinaryState(NamedTuple):
    """q(s) by its moments, q(μ), and the parameters."""

    means: Array  # Λ, N×K
    second: Array  # E, K×K
    entropy: float  # H(q(s))
    product: Array  # T, K×D
    features: Array  # M, K×D
    covariance: Array  # S, K×K; zero when μ is a point
    relevance: Array  # α, K; zero when μ is a point
    probability: Array  # π, K
    noise: float  # σ²

    @property
    def feature_second(self) -> Array:
        """Q = MMᵀ + DS."""
        outer = blas.dgemm(1.0, self.features.T, self.features.T, trans_a=1)
        return outer + self.features.shape[1] * self.covariance


def make_data(rows: Array, noise_floor: float) -> Data:
    """`noise_floor` is a share of the mean variance of the features."""
    variance = float(rows.var(axis=0).mean()) if len(rows) > 1 else 0.0
    return Data(rows, float(np.einsum("nd,nd->", rows, rows)), max(noise_floor * variance, 1e-300))


def row_problem(rows: Array, state: BinaryState) -> RowProblem:
    """The energies of rows given q(μ), π and σ²."""
    second = state.feature_second / state.noise
    field = blas.dgemm(1.0 / state.noise, state.features.T, rows.T, trans_a=1).T
    odds = np.log(state.probability) - np.log1p(-state.probability)
    none = float(np.log1p(-state.probability).sum())
    return RowProblem(field, second, odds - 0.5 * np.diagonal(second), none)


def with_latents(rows: Array, state: BinaryState, latents: BinaryLatents) -> BinaryState:
    """The state with another q(s)."""
    product = blas.dgemm(1.0, rows.T, latents.means.T, trans_b=1).T
    return state._replace(means=latents.means, second=latents.second, entropy=latents.entropy, product=product)


def infer_latents(data: Data, state: BinaryState, engine: LatentEngine) -> BinaryState:
    """q(s) ← the engine's best: (10), (35)."""
    return with_latents(data.rows, state, engine.infer(row_problem(data.rows, state), state.means))


def update_probability(state: BinaryState) -> BinaryState:
    """π_i ← Σ_n λ_ni / N."""
    return state._replace(probability=np.clip(state.means.mean(axis=0), MARGIN, 1.0 - MARGIN))


def square_error(data: Data, state: BinaryState) -> float:
    """⟨‖X − Sμ‖²⟩ = ‖X‖² − 2⟨T, M⟩ + ⟨E, Q⟩."""
    fit = np.vdot(state.product, state.features)
    return float(data.square - 2.0 * fit + np.vdot(state.second, state.feature_second))


def update_noise(data: Data, state: BinaryState) -> BinaryState:
    """σ² ← ⟨‖X − Sμ‖²⟩ / ND, (36) corrected; at least the floor."""
    return state._replace(noise=max(square_error(data, state) / data.rows.size, data.floor))


class FeaturePrior(Protocol):
    """How the features are learnt: as points, or with relevances."""

    def update(self, state: BinaryState) -> BinaryState:
        """Features (and relevances) that maximise the bound; factors found useless may be gone."""

    def divergence(self, state: BinaryState) -> float:
        """KL(q(μ) ‖ p(μ))."""


class PointFeatures:
    """Maximum likelihood: M = E⁻¹T; a factor that is never on keeps no weight."""

    def update(self, state: BinaryState) -> BinaryState:
        values, vectors = np.linalg.eigh(state.second)
        kept = values > 1e-13 * max(values[-1], 1e-300)
        basis = vectors[:, kept]
        features = (basis / values[kept]) @ (basis.T @ state.product)
        k = len(features)
        return state._replace(features=features, covariance=np.zeros((k, k)), relevance=np.zeros(k))

    def divergence(self, state: BinaryState) -> float:
        return 0.0


class RelevantFeatures:
    """q(μ) = N(M, S) with S = (E/σ² + diag α)⁻¹, M = ST/σ², and α_i at its best, one after the other.

    Given the others, with cavity precision h = 1/S_ii − α_i and a = M_i/S_ii, the bound maximised over q(μ) is largest
    at α_i = Dh²/(‖a‖² − Dh) when ‖a‖² > Dh and at ∞ otherwise. (24) and (34) move towards the same point, only slowly:
    a useless α_i then grows by h an iteration for ever. A factor with α_i = ∞ has μ_i = 0 and is removed.
    """

    def update(self, state: BinaryState) -> BinaryState:
        state = self.posterior(state)
        for i in range(len(state.relevance)):
            if np.isfinite(np.delete(state.relevance, i)).any():
                state = self.relevance(state, i)
        return drop(state, np.flatnonzero(~np.isfinite(state.relevance)))

    @staticmethod
    def posterior(state: BinaryState) -> BinaryState:
        """q(μ) for given α: (31)–(32), corrected and jointly over the factors."""
        precision = state.second / state.noise + np.diag(state.relevance)
        covariance = cholesky(precision, name="E/σ² + diag α", max_jitter=1e-10).inverse()
        features = blas.dgemm(1.0 / state.noise, state.product.T, covariance).T
        return state._replace(features=features, covariance=covariance)

    @staticmethod
    def relevance(state: BinaryState, i: int) -> BinaryState:
        """α_i and q(μ) jointly; S and M follow by one rank-one update."""
        column, feature = state.covariance[:, i].copy(), state.features[i].copy()
        dim, own, old = len(feature), column[i], state.relevance[i]
        h = 1.0 / own - old
        excess = float(feature @ feature) / own**2 - dim * h
        new = dim * h * h / excess if excess > 0.0 and h > 1e-10 / own else np.inf
        # S ← S − S_i S_iᵀ δ/(1 + δS_ii) and M ← M − S_i M_iᵀ δ/(1 + δS_ii), δ = α_new − α_old
        share = (new - old) / (1.0 + (new - old) * own) if np.isfinite(new) else 1.0 / own
        relevance = state.relevance.copy()
        relevance[i] = new
        return state._replace(
            relevance=relevance,
            covariance=state.covariance - share * np.outer(column, column),
            features=state.features - share * np.outer(column, feature),
        )

    def divergence(self, state: BinaryState) -> float:
        alive = np.isfinite(state.relevance)
        alpha, dim = state.relevance[alive], state.features.shape[1]
        if not len(alpha):
            return 0.0
        log_det = cholesky(state.covariance[np.ix_(alive, alive)], name="S").log_det
        square = np.diagonal(state.feature_second)[alive]
        return float(-0.5 * (dim * (np.log(alpha).sum() + log_det + len(alpha)) - alpha @ square))


def drop(state: BinaryState, factors: NDArray[np.intp]) -> BinaryState:
    """The state without some factors: q(s) and q(μ) of the others stay. The entropy is that of independent latents."""
    if not len(factors):
        return state
    keep = np.setdiff1d(np.arange(len(state.probability)), factors)
    block = np.ix_(keep, keep)
    means = np.ascontiguousarray(state.means[:, keep])
    return BinaryState(
        means,
        state.second[block],
        independent_entropy(means),
        state.product[keep],
        state.features[keep],
        state.covariance[block],
        state.relevance[keep],
        state.probability[keep],
        state.noise,
    )


def bound(data: Data, state: BinaryState, prior: FeaturePrior) -> float:
    """F, every constant included."""
    n, size = len(data.rows), data.rows.size
    active = state.means.sum(axis=0)
    latent = active @ np.log(state.probability) + (n - active) @ np.log1p(-state.probability) + state.entropy
    likelihood = -size * (LOG_SQRT_2PI + 0.5 * np.log(state.noise)) - 0.5 * square_error(data, state) / state.noise
    return float(latent + likelihood - prior.divergence(state))

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
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import digamma

from latlin.densities.conjugate import gamma_kl
from latlin.factor.group.data import GroupData, Labels
from latlin.factor.group.rows import (
    LatentSums,
    loading_step,
    outer_sums,
    product,
    squared_errors,
    weighted_sums,
)
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import rounding
from latlin.numerics.linalg import Array

# --- How strongly each factor may load on each view: the precisions α of p(w_dk) = N(0, 1/α_mk), d in view m.
#
# `GammaRelevance`: independent gamma priors and posteriors. `LowRankRelevance`: views that share
# factors share strength. Both answer from the energies e_mk = Σ_{d∈m} ⟨w_dk²⟩ and the sizes D_m of the views.


#: factor by which a leap shrinks the variances of faint loadings
LEAP = 1e-3


class Precisions(NamedTuple):
    """⟨α⟩ and ⟨log α⟩, each views × factors."""

    mean: Array
    log_mean: Array


class EnergyProfile(NamedTuple):
    """The bound as a function of the energies, up to a constant, and its first two derivatives in each of them."""

    value: float
    slope: Array
    bend: Array


class Relevance(Protocol):
    """A model of α with the parameters `theta` of its posterior."""

    @property
    def kind(self) -> str: ...

    def start(self, energy: Array) -> Array:
        """Parameters fitted to energies, without any before them."""

    def update(self, theta: Array, energy: Array) -> Array:
        """Parameters that maximise the bound given the loadings."""

    def moments(self, theta: Array) -> Precisions: ...

    def value(self, theta: Array) -> float:
        """⟨log p(α)⟩ and the entropy of q(α), or log p(U, V)."""

    def leap(self, theta: Array, faint: NDArray[np.bool_]) -> Array:
        """A guess of where the precisions of faint loadings, which grow without end, are going."""

    def profile(self, theta: Array, energy: Array) -> EnergyProfile:
        """How the bound depends on energies: for a rotation of the loadings."""

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        """The parameters of some factors."""


@dataclass(frozen=True)
class GammaRelevance:
    """α_mk ~ Gamma(a, b); q(α_mk) = Gamma(a + D_m/2, b + e_mk/2); theta holds the rates."""

    sizes: Array
    a: float
    b: float
    kind: str = "lower bound"

    @property
    def shape(self) -> Array:
        return (self.a + 0.5 * self.sizes)[:, None]

    def start(self, energy: Array) -> Array:
        return self.b + 0.5 * energy

    def update(self, theta: Array, energy: Array) -> Array:
        return self.b + 0.5 * energy

    def moments(self, theta: Array) -> Precisions:
        return Precisions(self.shape / theta, digamma(self.shape) - np.log(theta))

    def value(self, theta: Array) -> float:
        return -float(gamma_kl(np.broadcast_to(self.shape, theta.shape), theta, self.a, self.b).sum())

    def leap(self, theta: Array, faint: NDArray[np.bool_]) -> Array:
        # near b the prior itself holds α back
        floor = np.minimum(theta, 1e6 * self.shape * self.b)
        return np.where(faint, np.maximum(LEAP * theta, floor), theta)

    def profile(self, theta: Array, energy: Array) -> EnergyProfile:
        # with its best rate the bound depends on e through −(a + D_m/2) log(b + e/2)
        rate = self.b + 0.5 * energy
        slope = -0.5 * self.shape / rate
        return EnergyProfile(-float((self.shape * np.log(rate)).sum()), slope, -0.5 * slope / rate)

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        return theta[:, kept]


# --- Precisions of low rank: log α = UVᵀ + μ_u1ᵀ + 1μ_vᵀ with priors N(0, 1/λ) on U and V and points for all.
#
# Source: Mancevo (2016). Views that share factors share strength. The bound is penalised by log p(U, V) and is called
# so. U, V and μ are found by Newton's method, to where their gradient is rounding: see `latlin.factor.group.fit` for
# why.

#: Newton steps at most
STEPS = 100
#: the climb ends at a gradient of this size, relative to the number of loadings
GOAL = 1e-14
#: below it, relative to the same, the gradient may be rounding and must halve with every step
SMALL = 1e-8


@dataclass(frozen=True)
class LowRankRelevance:
    """log α = UVᵀ + μ_u1ᵀ + 1μ_vᵀ; theta is [U μ_u; V μ_v], of shape (views + factors, R + 1)."""

    sizes: Array
    rank: int
    penalty: float
    kind: str = "penalised lower bound"

    def start(self, energy: Array) -> Array:
        # μ's from row and column means of log(D_m/e_mk), U and V from the leading directions of the rest
        target = np.log(self.sizes)[:, None] - np.log(energy)
        level = target.mean(axis=1)
        shift = (target - level[:, None]).mean(axis=0)
        left, gains, right = np.linalg.svd(target - level[:, None] - shift, full_matrices=False)
        u, v = np.zeros((len(level), self.rank)), np.zeros((len(shift), self.rank))
        r = min(self.rank, len(gains))
        u[:, :r], v[:, :r] = left[:, :r] * np.sqrt(gains[:r]), right[:r].T * np.sqrt(gains[:r])
        packed = np.concatenate([np.column_stack([u, level]), np.column_stack([v, shift])])
        return self.update(packed, energy)

    def update(self, theta: Array, energy: Array) -> Array:
        (value, slope), last = self.objective(theta, energy), np.inf
        total, damping = float(self.sizes.sum() * energy.shape[1]), 0.0
        for _ in range(STEPS):
            norm = float(np.abs(slope).max())
            if norm <= GOAL * total or (norm < SMALL * total and norm > 0.5 * last):
                break
            curvature = self.curvature(theta, energy)
            floor = 1e-3 * float(np.trace(curvature)) / len(curvature)
            factor, failed = lapack.dpotrf(curvature + damping * np.eye(len(curvature)), lower=1)
            if not failed:
                ahead = theta + lapack.dpotrs(factor, slope.ravel(), lower=1)[0].reshape(theta.shape)
                higher, new = self.objective(ahead, energy)
                if higher >= value - 0.1 * rounding(value):
                    theta, value, slope, last = ahead, higher, new, norm
                    damping = 0.1 * damping if damping > floor else 0.0
                    continue
            damping = max(10.0 * damping, floor)
        return theta

    def curvature(self, theta: Array, energy: Array) -> Array:
        """Minus the second derivatives of `objective`, and a wall along the directions in which α stands still."""
        u, v = self._parts(theta)
        pull = 0.5 * self.moments(theta).mean * energy
        beside_u, beside_v = _with_one(u), _with_one(v)
        views, factors, r = len(u), len(v), self.rank + 1
        second = np.zeros((views + factors, r, views + factors, r))
        rows, columns = np.arange(views), views + np.arange(factors)
        second[rows, :, rows, :] = np.einsum("mk,kp,kq->mpq", pull, beside_v, beside_v)
        second[columns, :, columns, :] = np.einsum("mk,mp,mq->kpq", pull, beside_u, beside_u)
        both = np.einsum("mk,kp,mq->mpkq", pull, beside_v, beside_u)
        shared = np.diag([1.0] * self.rank + [0.0])
        both -= np.einsum("mk,pq->mpkq", 0.5 * self.sizes[:, None] - pull, shared)
        second[:views, :, views:, :], second[views:, :, :views, :] = both, both.transpose(2, 3, 0, 1)
        flat = second.reshape(theta.size, theta.size)
        flat[np.diag_indices(theta.size)] += np.tile(self.penalty * np.diag(shared), views + factors)
        still = _standing(u, v)
        return flat + still.T @ still

    def objective(self, theta: Array, energy: Array) -> tuple[float, Array]:
        """Σ_mk ½(D_m log α_mk − α_mk e_mk) + log p(U, V), and its gradient in theta."""
        u, v = self._parts(theta)
        log_alpha = self._log_alpha(theta)
        pull = np.exp(np.minimum(log_alpha, 600.0)) * energy
        value = 0.5 * float((self.sizes[:, None] * log_alpha - pull).sum()) + self.value(theta)
        slope = 0.5 * (self.sizes[:, None] - pull)
        d_u = np.column_stack([slope @ v - self.penalty * u, slope.sum(axis=1)])
        d_v = np.column_stack([slope.T @ u - self.penalty * v, slope.sum(axis=0)])
        return value, np.concatenate([d_u, d_v])

    def moments(self, theta: Array) -> Precisions:
        log_alpha = self._log_alpha(theta)
        return Precisions(np.exp(np.minimum(log_alpha, 600.0)), log_alpha)

    def value(self, theta: Array) -> float:
        # log p(U, V) = ½ Σ (log λ − log 2π − λu²)
        u, v = self._parts(theta)
        count = u.size + v.size
        squares = float((u * u).sum() + (v * v).sum())
        return 0.5 * (count * (np.log(self.penalty) - LOG_2PI) - self.penalty * squares)

    def leap(self, theta: Array, faint: NDArray[np.bool_]) -> Array:
        return theta

    def profile(self, theta: Array, energy: Array) -> EnergyProfile:
        alpha = self.moments(theta).mean
        return EnergyProfile(-0.5 * float((alpha * energy).sum()), -0.5 * alpha, np.zeros_like(alpha))

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        views = len(self.sizes)
        return np.concatenate([theta[:views], theta[views:][kept]])

    def _parts(self, theta: Array) -> tuple[Array, Array]:
        views = len(self.sizes)
        return theta[:views, :-1], theta[views:, :-1]

    def _log_alpha(self, theta: Array) -> Array:
        u, v = self._parts(theta)
        views = len(self.sizes)
        # μ_u is set against the views, μ_v against the factors
        return u @ v.T + theta[:views, -1][:, None] + theta[views:, -1]


def _with_one(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))])


def _standing(u: Array, v: Array) -> Array:
    """Directions of theta along which log α stands still: μ_u against μ_v, and U, V turned together."""
    (views, rank), factors = u.shape, len(v)
    shift = np.zeros((views + factors, rank + 1))
    shift[:, -1] = np.repeat([1.0, -1.0], [views, factors])
    found, stacked = [shift], np.concatenate([u, v])
    for p in range(rank):
        for q in range(p):
            turn = np.zeros_like(shift)
            turn[:, p], turn[:, q] = stacked[:, q], -stacked[:, p]
            found.append(turn)
    return np.array([one.ravel() for one in found])


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
    theta: Array  # of q(α), see the relevances above
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
    return replace_latents(model, state, sums, covariance.reshape(-1, k, k))


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


def replace_latents(model: GroupModel, state: GroupState, sums: LatentSums, covariance: Array) -> GroupState:
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

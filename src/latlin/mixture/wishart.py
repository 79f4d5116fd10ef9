"""Components with full covariance: normal-Wishart priors, one precision per component or one for all ("tied").

    Λ_k ~ W(Ψ₀⁻¹, ν₀),   μ_k | Λ_k ~ N(m₀, (β₀Λ_k)⁻¹),   and the posterior is of the same family:

    β_k = β₀ + N_k,  ν_k = ν₀ + N_k,  m_k = (β₀m₀ + N_k x̄_k)/β_k,
    Ψ_k = Ψ₀ + N_k S_k + (β₀N_k/β_k)(x̄_k − m₀)(x̄_k − m₀)ᵀ.

Extends Gutteridge (2021), §3 beyond its fixed covariance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from latlin.densities.conjugate import precision_weighted_kl, wishart_expected_log_det, wishart_kl
from latlin.mixture.kernels import diagonal_joint, full_joint, full_pass, pooled_pass
from latlin.mixture.moments import (
    ComponentMoments,
    Pooled,
    Separate,
    centre_moments,
    find_centres,
    inverse,
    log_det_of_root,
)
from latlin.mixture.moments import root as root_of
from latlin.mixture.sweep import ReducibleRows, map_rows, widen
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable


@storable
class WishartParams(NamedTuple):
    """q(μ_k, Λ_k): `root` is lower triangular, Ψ = root rootᵀ; one matrix per component or one for all."""

    mean: Array  # (K, D)
    strength: Array  # (K,)  β
    dof: Array  # (K,) or ()  ν
    root: Array  # (K, D, D) or (D, D)


def _whitener(params: WishartParams) -> Array:
    """F = √ν root⁻¹, lower triangular: E[Λ] = FᵀF."""
    return np.sqrt(params.dof)[..., None, None] * inverse(params.root)


@dataclass(frozen=True)
class _WishartPrior:
    prior_mean: Array  # (D,)
    prior_strength: float
    prior_dof: float
    prior_scale: Array  # (D, D)  Ψ₀

    @property
    def dim(self) -> int:
        return len(self.prior_mean)

    def scatter_of(self, delta: Array, weight: Array) -> Array:
        return (delta * weight[:, None]).T @ delta

    def offsets(self, params: WishartParams) -> Array:
        """E[ln N(x|μ_k, Λ_k)] without the square: ½E[ln|Λ|] − ½D ln 2π − D/(2β)."""
        expected = wishart_expected_log_det(params.dof, log_det_of_root(params.root), self.dim)
        return 0.5 * (expected - self.dim * LOG_2PI - self.dim / params.strength)

    def mean_kl(self, params: WishartParams) -> float:
        """Σ_k E[KL(q(μ_k|Λ) ‖ p(μ_k|Λ))]."""
        away = _whitener(params) @ (params.mean - self.prior_mean)[..., None]
        square = np.square(away[..., 0]).sum(axis=-1)
        return float(precision_weighted_kl(params.strength, self.prior_strength, square, self.dim).sum())

    def precision_kl(self, params: WishartParams) -> float:
        """Σ KL(q(Λ) ‖ p(Λ))."""
        prior_root = root_of(self.prior_scale)
        trace = np.square(inverse(params.root) @ prior_root).sum(axis=(-2, -1))
        log_det = log_det_of_root(params.root)
        prior_log_det = float(log_det_of_root(prior_root))
        kl = wishart_kl(params.dof, log_det, self.prior_dof, prior_log_det, trace, self.dim)
        return float(np.sum(kl))

    def best_factor(self, params: WishartParams, used: NDArray[np.bool_]) -> float:
        """The t that gives the prior tΨ₀ the highest bound at q: ν₀D = t tr Ψ₀E[Λ], averaged over the matrices used."""
        whitened = inverse(params.root) @ root_of(self.prior_scale)
        trace = params.dof * np.square(whitened).sum(axis=(-2, -1))
        return float(self.prior_dof * self.dim / np.mean(trace[used] if trace.ndim else trace))

    def with_factor(self, factor: float) -> Self:
        """The same with so many times the prior covariance."""
        return replace(self, prior_scale=factor * self.prior_scale)

    def kl(self, params: WishartParams) -> float:
        """KL(q(μ, Λ) ‖ p(μ, Λ))."""
        return self.mean_kl(params) + self.precision_kl(params)

    def _student_root(self, params: WishartParams) -> tuple[Array, Array]:
        """Degrees of freedom ν − D + 1 and the factor of (β+1)/(β(ν−D+1)) Ψ, one per component."""
        dof = np.broadcast_to(params.dof - self.dim + 1.0, params.strength.shape)
        scale = np.sqrt((params.strength + 1.0) / (params.strength * dof))
        return dof, scale[:, None, None] * params.root

    def squares(self, params: WishartParams, second: Array) -> float:
        """Σ_k tr E[Λ_k]·second_k."""
        whitener = _whitener(params)
        return float(((whitener @ second) * whitener).sum())

    def predictive(self, rows: Array, params: WishartParams) -> Array:
        """ln p(x_n | z_n = k): Student's t, exact under q; shape (N, K)."""
        n, root = self._student_root(params)
        square = -2.0 * full_joint(widen(rows), np.zeros(len(n)), params.mean, inverse(root))
        log_norm = gammaln(0.5 * (n + self.dim)) - gammaln(0.5 * n) - 0.5 * self.dim * np.log(n * np.pi)
        return log_norm - 0.5 * log_det_of_root(root) - 0.5 * (n + self.dim) * np.log1p(square / n)

    def draw(self, params: WishartParams, labels: Array, rng: np.random.Generator) -> Array:
        """One draw of the predictive per label."""
        dof, root = self._student_root(params)
        normal = (root[labels] @ rng.standard_normal((len(labels), self.dim, 1)))[..., 0]
        return params.mean[labels] + normal * np.sqrt(dof[labels] / rng.chisquare(dof[labels]))[:, None]

    def draw_parameters(self, params: WishartParams, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of μ_k and Λ_k⁻¹: Λ = R⁻ᵀAAᵀR⁻¹ with Ψ = RRᵀ and Bartlett's A, μ = m + RA⁻ᵀε/√β."""
        d = self.dim
        bartlett = np.tril(rng.standard_normal((count, *params.root.shape)), -1)
        dof = np.asarray(params.dof)[..., None] - np.arange(d)
        bartlett[..., np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(dof, (count, *dof.shape)))
        root = params.root @ np.linalg.inv(bartlett).swapaxes(-1, -2)
        noise = rng.standard_normal((count, *params.mean.shape, 1)) / np.sqrt(params.strength)[:, None, None]
        each = root if params.root.ndim == 3 else root[:, None]
        return params.mean + (each @ noise)[..., 0], root @ root.swapaxes(-1, -2)


@storable
@dataclass(frozen=True)
class WishartPrecision(_WishartPrior):
    """One Wishart precision per component."""

    def spread(self, delta: Array, weight: Array) -> Array:
        return weight[:, None, None] * delta[:, :, None] * delta[:, None, :]

    @property
    def split_merge(self) -> Separate:
        return Separate()

    def gather(self, parts: list[Array]) -> Array:
        return np.stack(parts)

    def posterior(self, moments: ComponentMoments) -> WishartParams:
        """The optimal q given the moments."""
        beta, mean, pull = find_centres(self.prior_mean, self.prior_strength, moments)
        scale = self.prior_scale + moments.scatter + self.spread(moments.mean - self.prior_mean, pull)
        return WishartParams(mean, beta, self.prior_dof + moments.counts, root_of(scale))

    def collect(self, rows: ReducibleRows, params: WishartParams, log_weights: Array) -> tuple[float, ComponentMoments]:
        kernel_parameters = (self.offsets(params) + log_weights, params.mean, _whitener(params))
        sum_log, count, first, second = rows.reduce(full_pass, kernel_parameters)
        return sum_log, centre_moments(self, params.mean, count, first, second)

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        return centre_moments(self, reference, count, first, second)

    def precisions(self, params: WishartParams) -> Array:
        """E[Λ_k], shape (K, D, D)."""
        whitener = _whitener(params)
        return whitener.transpose(0, 2, 1) @ whitener

    def covariances(self, params: WishartParams) -> Array:
        """E[Λ_k]⁻¹, shape (K, D, D)."""
        return params.root @ params.root.transpose(0, 2, 1) / params.dof[:, None, None]

    def joint(self, rows: Array, params: WishartParams, log_weights: Array) -> Array:
        """ln ρ_nk, shape (N, K)."""
        return full_joint(widen(rows), self.offsets(params) + log_weights, params.mean, _whitener(params))

    def restrict(self, params: WishartParams, kept: NDArray[np.bool_]) -> tuple[WishartPrecision, WishartParams]:
        """The same components of some of the features."""
        prior, lost = _restricted(self, kept)
        scale = (params.root @ params.root.transpose(0, 2, 1))[:, kept][:, :, kept]
        smaller = WishartParams(params.mean[:, kept], params.strength, params.dof - lost, root_of(scale))
        return prior, smaller


@storable
@dataclass(frozen=True)
class Tied(_WishartPrior):
    """One Wishart precision shared by all components; its scatter is pooled, shape (D, D)."""

    def spread(self, delta: Array, weight: Array) -> Array:
        return self.scatter_of(delta, weight)

    @property
    def split_merge(self) -> Pooled:
        return Pooled()

    def gather(self, parts: list[Array]) -> Array:
        return np.sum(parts, axis=0)

    def posterior(self, moments: ComponentMoments) -> WishartParams:
        """The optimal q given the moments."""
        beta, mean, pull = find_centres(self.prior_mean, self.prior_strength, moments)
        scale = self.prior_scale + moments.scatter + self.spread(moments.mean - self.prior_mean, pull)
        dof = np.asarray(self.prior_dof + moments.counts.sum())
        return WishartParams(mean, beta, dof, root_of(scale))

    def collect(self, rows: ReducibleRows, params: WishartParams, log_weights: Array) -> tuple[float, ComponentMoments]:
        """In coordinates F x, where every component is spherical."""
        whitener = _whitener(params)
        centres = (params.mean - self.prior_mean) @ whitener.T
        kernel_parameters = (self.offsets(params) + log_weights, centres, np.ones_like(centres))
        sum_log, count, first, second = rows.reduce(pooled_pass, kernel_parameters, (whitener, self.prior_mean))
        back = inverse(whitener)
        return sum_log, centre_moments(self, params.mean, count, first @ back.T, back @ second @ back.T)

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        return centre_moments(self, reference, count, first, second.sum(axis=0))

    def precisions(self, params: WishartParams) -> Array:
        """E[Λ] once per component, shape (K, D, D)."""
        whitener = _whitener(params)
        return np.repeat((whitener.T @ whitener)[None], len(params.mean), axis=0)

    def covariances(self, params: WishartParams) -> Array:
        """E[Λ]⁻¹, shape (D, D)."""
        return params.root @ params.root.T / params.dof

    def joint(self, rows: Array, params: WishartParams, log_weights: Array) -> Array:
        """ln ρ_nk, shape (N, K)."""
        whitener = _whitener(params)
        centres = (params.mean - self.prior_mean) @ whitener.T
        offset = self.offsets(params) + log_weights
        return diagonal_joint(map_rows(rows, whitener, self.prior_mean), offset, centres, np.ones_like(centres))

    def restrict(self, params: WishartParams, kept: NDArray[np.bool_]) -> tuple[Tied, WishartParams]:
        """The same components of some of the features."""
        prior, lost = _restricted(self, kept)
        scale = (params.root @ params.root.T)[kept][:, kept]
        smaller = WishartParams(params.mean[:, kept], params.strength, params.dof - lost, root_of(scale))
        return prior, smaller


def _restricted(prior: _WishartPrior, kept: NDArray[np.bool_]) -> tuple[Any, int]:
    lost = prior.dim - int(kept.sum())
    smaller = replace(
        prior,
        prior_mean=prior.prior_mean[kept],
        prior_dof=prior.prior_dof - lost,
        prior_scale=prior.prior_scale[kept][:, kept],
    )
    return smaller, lost

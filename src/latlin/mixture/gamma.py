"""Components with diagonal or spherical covariance: normal-gamma priors.

    λ ~ Gamma(ν₀/2, Ψ₀/2),   μ_k | λ ~ N(m₀, 1/(β₀λ)),

one λ per component and feature ("diagonal") or one per component ("spherical"). ν and Ψ are those of a Wishart in
one dimension, so that the words of the prior mean the same for every structure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from latlin.densities.conjugate import gamma_expected_log, gamma_kl, precision_weighted_kl
from latlin.mixture.kernels import diagonal_joint, diagonal_pass
from latlin.mixture.moments import ComponentMoments, Separate, centre_moments, find_centres
from latlin.mixture.sweep import ReducibleRows, widen
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable


@storable
class GammaParams(NamedTuple):
    """q(μ_k, λ_k)."""

    mean: Array  # (K, D)
    strength: Array  # (K,)  β
    dof: Array  # (K,)  ν
    scale: Array  # (K, D) or (K,)  Ψ


@dataclass(frozen=True)
class _GammaPrior:
    prior_mean: Array  # (D,)
    prior_strength: float
    prior_dof: float
    prior_scale: Array | float  # (D,), or one number

    @property
    def dim(self) -> int:
        return len(self.prior_mean)

    @property
    def split_merge(self) -> Separate:
        return Separate()

    def gather(self, parts: list[Array]) -> Array:
        return np.stack(parts)

    def squares(self, params: GammaParams, second: Array) -> float:
        """Σ_k E[λ_k]·second_k."""
        return float((params.dof * (second / params.scale).T).sum())

    def best_factor(self, params: GammaParams, used: NDArray[np.bool_]) -> float:
        """The t that gives the prior tΨ₀ the highest bound at q: ν₀ = tΨ₀E[λ], averaged over the precisions used."""
        return float(self.prior_dof / np.mean((self.prior_scale * (params.dof / params.scale.T).T)[used]))

    def with_factor(self, factor: float) -> Self:
        """The same with so many times the prior covariance."""
        return replace(self, prior_scale=factor * self.prior_scale)

    def draw_parameters(self, params: GammaParams, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of μ_k and 1/λ_k: λ ~ Gamma(ν/2, Ψ/2), μ ~ N(m, 1/(βλ))."""
        shape = np.broadcast_to(0.5 * params.dof.reshape(-1, *[1] * (params.scale.ndim - 1)), params.scale.shape)
        variance = 0.5 * params.scale / rng.gamma(shape, size=(count, *shape.shape))
        wide = variance if variance.ndim == 3 else variance[..., None]
        noise = rng.standard_normal((count, *params.mean.shape))
        return params.mean + np.sqrt(wide / params.strength[:, None]) * noise, variance

    def precisions(self, params: GammaParams) -> Array:
        """E[Λ_k], shape (K, D, D)."""
        return self._precision(params)[:, :, None] * np.eye(self.dim)

    def joint(self, rows: Array, params: GammaParams, log_weights: Array) -> Array:
        """ln ρ_nk, shape (N, K)."""
        offset = self.offsets(params) + log_weights
        return diagonal_joint(widen(rows), offset, params.mean, self._precision(params))

    def offsets(self, params: GammaParams) -> Array:
        """What ln ρ_nk has beside the weights and the squares, shape (K,)."""
        raise NotImplementedError

    def _precision(self, params: GammaParams) -> Array:
        """E[λ_k] of every feature, shape (K, D)."""
        raise NotImplementedError


def _student(square: Array, dof: Array, dim: int, log_scale: Array) -> Array:
    """ln of Student's t in `dim` dimensions from the scaled square and ln|S|^½."""
    log_norm = gammaln(0.5 * (dof + dim)) - gammaln(0.5 * dof) - 0.5 * dim * np.log(dof * np.pi)
    return log_norm - log_scale - 0.5 * (dof + dim) * np.log1p(square / dof)


@storable
@dataclass(frozen=True)
class DiagonalPrecision(_GammaPrior):
    """One precision per component and feature."""

    def spread(self, delta: Array, weight: Array) -> Array:
        return weight[:, None] * np.square(delta)

    def scatter_of(self, delta: Array, weight: Array) -> Array:
        return weight @ np.square(delta)

    def posterior(self, moments: ComponentMoments) -> GammaParams:
        """The optimal q given the moments."""
        beta, mean, pull = find_centres(self.prior_mean, self.prior_strength, moments)
        scatter = np.maximum(moments.scatter, 0.0)
        scale = self.prior_scale + scatter + self.spread(moments.mean - self.prior_mean, pull)
        return GammaParams(mean, beta, self.prior_dof + moments.counts, scale)

    def offsets(self, params: GammaParams) -> Array:
        """½ΣE[ln λ] − ½D ln 2π − D/(2β)."""
        expected = gamma_expected_log(0.5 * params.dof[:, None], 0.5 * params.scale).sum(axis=1)
        return 0.5 * (expected - self.dim * LOG_2PI - self.dim / params.strength)

    def _precision(self, params: GammaParams) -> Array:
        return params.dof[:, None] / params.scale

    def kl(self, params: GammaParams) -> float:
        """KL(q(μ, λ) ‖ p(μ, λ))."""
        square = (self._precision(params) * np.square(params.mean - self.prior_mean)).sum(axis=1)
        means = precision_weighted_kl(params.strength, self.prior_strength, square, self.dim)
        shape, prior_shape = 0.5 * params.dof[:, None], 0.5 * self.prior_dof
        precisions = gamma_kl(shape, 0.5 * params.scale, prior_shape, 0.5 * self.prior_scale)
        return float(means.sum() + precisions.sum())

    def collect(self, rows: ReducibleRows, params: GammaParams, log_weights: Array) -> tuple[float, ComponentMoments]:
        kernel_parameters = (self.offsets(params) + log_weights, params.mean, self._precision(params))
        sum_log, count, first, second = rows.reduce(diagonal_pass, kernel_parameters)
        return sum_log, centre_moments(self, params.mean, count, first, second)

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        return centre_moments(self, reference, count, first, np.diagonal(second, axis1=1, axis2=2))

    def covariances(self, params: GammaParams) -> Array:
        """1/E[λ], shape (K, D)."""
        return 1.0 / self._precision(params)

    def _student_scale(self, params: GammaParams) -> Array:
        """Squares of the scales of the predictive, ((β+1)/(βν)) Ψ."""
        return ((params.strength + 1.0) / (params.strength * params.dof))[:, None] * params.scale

    def predictive(self, rows: Array, params: GammaParams) -> Array:
        """ln p(x_n | z_n = k): a product of Student's t over features, exact under q; shape (N, K)."""
        scale = self._student_scale(params)
        density = np.empty((len(rows), len(scale)))
        for k, (mean, square_scale, dof) in enumerate(zip(params.mean, scale, params.dof, strict=True)):
            square = np.square(rows - mean) / square_scale
            density[:, k] = _student(square, dof, 1, 0.5 * np.log(square_scale)).sum(axis=1)
        return density

    def draw(self, params: GammaParams, labels: Array, rng: np.random.Generator) -> Array:
        """One draw of the predictive per label."""
        scale = np.sqrt(self._student_scale(params))[labels]
        return params.mean[labels] + scale * rng.standard_t(params.dof[labels][:, None], scale.shape)

    def restrict(self, params: GammaParams, kept: NDArray[np.bool_]) -> tuple[DiagonalPrecision, GammaParams]:
        """The same components of some of the features."""
        prior = replace(self, prior_mean=self.prior_mean[kept], prior_scale=np.asarray(self.prior_scale)[kept])
        smaller = GammaParams(params.mean[:, kept], params.strength, params.dof, params.scale[:, kept])
        return prior, smaller


@storable
@dataclass(frozen=True)
class Spherical(_GammaPrior):
    """One precision per component; each row counts D times for it."""

    def spread(self, delta: Array, weight: Array) -> Array:
        return weight * np.square(delta).sum(axis=1)

    def scatter_of(self, delta: Array, weight: Array) -> Array:
        return np.asarray((weight @ np.square(delta)).sum())

    def posterior(self, moments: ComponentMoments) -> GammaParams:
        """The optimal q given the moments: ν = ν₀ + D N_k."""
        beta, mean, pull = find_centres(self.prior_mean, self.prior_strength, moments)
        scatter = np.maximum(moments.scatter, 0.0)
        scale = self.prior_scale + scatter + self.spread(moments.mean - self.prior_mean, pull)
        return GammaParams(mean, beta, self.prior_dof + self.dim * moments.counts, scale)

    def offsets(self, params: GammaParams) -> Array:
        """½D E[ln λ] − ½D ln 2π − D/(2β)."""
        expected = gamma_expected_log(0.5 * params.dof, 0.5 * params.scale)
        return 0.5 * self.dim * (expected - LOG_2PI - 1.0 / params.strength)

    def _precision(self, params: GammaParams) -> Array:
        return np.repeat((params.dof / params.scale)[:, None], self.dim, axis=1)

    def kl(self, params: GammaParams) -> float:
        """KL(q(μ, λ) ‖ p(μ, λ))."""
        square = (self._precision(params) * np.square(params.mean - self.prior_mean)).sum(axis=1)
        means = precision_weighted_kl(params.strength, self.prior_strength, square, self.dim)
        prior_shape, prior_rate = 0.5 * self.prior_dof, 0.5 * self.prior_scale
        precisions = gamma_kl(0.5 * params.dof, 0.5 * params.scale, prior_shape, prior_rate)
        return float(means.sum() + precisions.sum())

    def collect(self, rows: ReducibleRows, params: GammaParams, log_weights: Array) -> tuple[float, ComponentMoments]:
        kernel_parameters = (self.offsets(params) + log_weights, params.mean, self._precision(params))
        sum_log, count, first, second = rows.reduce(diagonal_pass, kernel_parameters)
        return sum_log, centre_moments(self, params.mean, count, first, second.sum(axis=1))

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        return centre_moments(self, reference, count, first, np.trace(second, axis1=1, axis2=2))

    def covariances(self, params: GammaParams) -> Array:
        """1/E[λ], shape (K,)."""
        return params.scale / params.dof

    def _student_scale(self, params: GammaParams) -> Array:
        """Square of the scale of the predictive, ((β+1)/(βν)) Ψ."""
        return (params.strength + 1.0) / (params.strength * params.dof) * params.scale

    def predictive(self, rows: Array, params: GammaParams) -> Array:
        """ln p(x_n | z_n = k): Student's t, exact under q; shape (N, K)."""
        scale = self._student_scale(params)
        inverse = np.repeat(1.0 / scale[:, None], self.dim, axis=1)
        square = -2.0 * diagonal_joint(widen(rows), np.zeros(len(scale)), params.mean, inverse)
        return _student(square, params.dof, self.dim, 0.5 * self.dim * np.log(scale))

    def draw(self, params: GammaParams, labels: Array, rng: np.random.Generator) -> Array:
        """One draw of the predictive per label."""
        dof = params.dof[labels]
        stretch = np.sqrt(self._student_scale(params)[labels] * dof / rng.chisquare(dof))
        return params.mean[labels] + stretch[:, None] * rng.standard_normal((len(labels), self.dim))

    def restrict(self, params: GammaParams, kept: NDArray[np.bool_]) -> tuple[Spherical, GammaParams]:
        """The same components of some of the features; the precision is shared, so nothing is lost."""
        return replace(self, prior_mean=self.prior_mean[kept]), params._replace(mean=params.mean[:, kept])

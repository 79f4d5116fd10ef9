"""Components with a known covariance Σ shared by all: p(μ_k) = N(m₀, C₀), q(μ_k) = N(m_k, C_k).

Source: Gutteridge (2021), §3, (3.6), (3.22)–(3.26), (3.28), (3.31), (3.37)–(3.40, corrected: N_k tr(Σ⁻¹S_k)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from latlin.densities.conjugate import gaussian_kl
from latlin.mixture.kernels import diagonal_joint, diagonal_pass, full_joint
from latlin.mixture.moments import ComponentMoments, from_reference, inverse
from latlin.mixture.moments import root as root_of
from latlin.mixture.sweep import CompleteRows, Separate, mapped, widen
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable


@storable
class FixedParams(NamedTuple):
    """q(μ_k) = N(m_k, C_k)."""

    mean: Array  # (K, D)
    covariance: Array  # (K, D, D)


@storable
@dataclass(frozen=True)
class KnownCovariance:
    """Known Σ; `scatter` is N_k tr(Σ⁻¹S_k), shape (K,)."""

    prior_mean: Array  # (D,)  m₀
    prior_covariance: Array  # (D, D)  C₀
    covariance: Array  # (D, D)  Σ

    @property
    def dim(self) -> int:
        return len(self.prior_mean)

    @cached_property
    def whitener(self) -> Array:
        """F lower triangular with Σ⁻¹ = FᵀF."""
        return inverse(root_of(self.covariance))

    @cached_property
    def precision(self) -> Array:
        """Σ⁻¹."""
        whitener = self.whitener
        return whitener.T @ whitener

    @cached_property
    def prior_precision(self) -> Array:
        """C₀⁻¹."""
        return inverse(self.prior_covariance)

    def spread(self, delta: Array, weight: Array) -> Array:
        return weight * np.square(delta @ self.whitener.T).sum(axis=1)

    def scatter_of(self, delta: Array, weight: Array) -> Array:
        return np.asarray(weight @ np.square(delta @ self.whitener.T).sum(axis=1))

    @property
    def surgery(self) -> Separate:
        return Separate()

    def gather(self, parts: list[Array]) -> Array:
        return np.stack(parts)

    def squares(self, params: FixedParams, second: Array) -> float:
        """Σ_k of `second`, which is in units of Σ already."""
        return float(second.sum())

    def posterior(self, moments: ComponentMoments) -> FixedParams:
        """C_k = (N_kΣ⁻¹ + C₀⁻¹)⁻¹, m_k = C_k(N_kΣ⁻¹x̄_k + C₀⁻¹m₀) (3.25), (3.26)."""
        precision, prior_precision = self.precision, self.prior_precision
        covariance = inverse(moments.counts[:, None, None] * precision + prior_precision)
        pull = moments.counts[:, None] * (moments.mean - self.prior_mean) @ precision
        return FixedParams(self.prior_mean + np.einsum("kde,ke->kd", covariance, pull), covariance)

    def offsets(self, params: FixedParams) -> Array:
        """E[ln N(x|μ_k, Σ)] without the square: −½ ln|2πΣ| − ½ tr(Σ⁻¹C_k)."""
        whitener = self.whitener
        log_det = np.log(np.diagonal(whitener)).sum() - 0.5 * self.dim * LOG_2PI
        return log_det - 0.5 * np.einsum("de,ked->k", whitener.T @ whitener, params.covariance)

    def kl(self, params: FixedParams) -> float:
        """Σ_k KL(q(μ_k) ‖ p(μ_k))."""
        kl = gaussian_kl(params.mean, params.covariance, self.prior_mean, self.prior_precision)
        return float(kl.sum())

    def collect_at(self, rows: CompleteRows, offset: Array, mean: Array) -> tuple[float, ComponentMoments]:
        """Pass with log ρ_nk = offset_k − ½(x_n − mean_k)ᵀΣ⁻¹(x_n − mean_k)."""
        whitener = self.whitener
        centres = (mean - self.prior_mean) @ whitener.T
        totals = rows.reduce(diagonal_pass, (offset, centres, np.ones_like(centres)), (whitener, self.prior_mean))
        sum_log, count, first, second = totals
        back = inverse(whitener)
        return sum_log, from_reference(self, mean, count, first @ back.T, second.sum(axis=1))

    def collect(self, rows: CompleteRows, params: FixedParams, log_weights: Array) -> tuple[float, ComponentMoments]:
        return self.collect_at(rows, self.offsets(params) + log_weights, params.mean)

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        squares = np.einsum("de,ked->k", self.precision, second)
        return from_reference(self, reference, count, first, squares)

    def precisions(self, params: FixedParams) -> Array:
        """Σ⁻¹ once per component, shape (K, D, D)."""
        return np.repeat(self.precision[None], len(params.mean), axis=0)

    def covariances(self, params: FixedParams) -> Array:
        """Σ, shape (D, D)."""
        return self.covariance

    def joint(self, rows: Array, params: FixedParams, log_weights: Array) -> Array:
        """ln ρ_nk, shape (N, K)."""
        whitener = self.whitener
        centres = (params.mean - self.prior_mean) @ whitener.T
        offset = self.offsets(params) + log_weights
        return diagonal_joint(mapped(rows, whitener, self.prior_mean), offset, centres, np.ones_like(centres))

    def predictive(self, rows: Array, params: FixedParams) -> Array:
        """ln N(x_n | m_k, Σ + C_k), exact under q; shape (N, K)."""
        whitener = inverse(root_of(self.covariance + params.covariance))
        log_det = np.log(np.diagonal(whitener, axis1=1, axis2=2)).sum(axis=1)
        return full_joint(widen(rows), log_det - 0.5 * self.dim * LOG_2PI, params.mean, whitener)

    def draw(self, params: FixedParams, labels: Array, rng: np.random.Generator) -> Array:
        """One draw of the predictive per label."""
        root = root_of(self.covariance + params.covariance)
        return params.mean[labels] + (root[labels] @ rng.standard_normal((len(labels), self.dim, 1)))[..., 0]

    def draw_parameters(self, params: FixedParams, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of μ_k, and Σ, which is known."""
        noise = rng.standard_normal((count, *params.mean.shape, 1))
        known = np.broadcast_to(self.covariance, (count, *self.covariance.shape))
        return params.mean + (root_of(params.covariance) @ noise)[..., 0], known

    def restrict(self, params: FixedParams, kept: Array) -> tuple[KnownCovariance, FixedParams]:
        """The same components of some of the features."""
        prior = replace(
            self,
            prior_mean=self.prior_mean[kept],
            prior_covariance=self.prior_covariance[kept][:, kept],
            covariance=self.covariance[kept][:, kept],
        )
        return prior, FixedParams(params.mean[:, kept], params.covariance[:, kept][:, :, kept])

"""Components with a known covariance Σ shared by all, p(μ_k) = N(m₀, C₀), q(μ_k) = N(m_k, C_k); free coordinates.

Source: Gutteridge (2021), §3, (3.6), (3.22)–(3.26), (3.28), (3.31), (3.37)–(3.40, corrected: N_k tr(Σ⁻¹S_k)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latlin.densities.conjugate import gaussian_kl
from latlin.mixture.kernels import diagonal_joint, diagonal_pass, full_joint
from latlin.mixture.model import Belief, Mixture
from latlin.mixture.moments import ComponentMoments, Separate, centre_moments, inverse
from latlin.mixture.moments import root as root_of
from latlin.mixture.sweep import ReducibleRows, map_rows, widen
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
    def split_merge(self) -> Separate:
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

    def best_factor(self, params: FixedParams, used: NDArray[np.bool_]) -> float:
        """A known covariance has no scale to learn."""
        return 1.0

    def with_factor(self, factor: float) -> Self:
        """A known covariance stays as it is."""
        return self

    def kl(self, params: FixedParams) -> float:
        """Σ_k KL(q(μ_k) ‖ p(μ_k))."""
        kl = gaussian_kl(params.mean, params.covariance, self.prior_mean, self.prior_precision)
        return float(kl.sum())

    def collect_at(self, rows: ReducibleRows, offset: Array, mean: Array) -> tuple[float, ComponentMoments]:
        """Pass with log ρ_nk = offset_k − ½(x_n − mean_k)ᵀΣ⁻¹(x_n − mean_k)."""
        whitener = self.whitener
        centres = (mean - self.prior_mean) @ whitener.T
        totals = rows.reduce(diagonal_pass, (offset, centres, np.ones_like(centres)), (whitener, self.prior_mean))
        sum_log, count, first, second = totals
        back = inverse(whitener)
        return sum_log, centre_moments(self, mean, count, first @ back.T, second.sum(axis=1))

    def collect(self, rows: ReducibleRows, params: FixedParams, log_weights: Array) -> tuple[float, ComponentMoments]:
        return self.collect_at(rows, self.offsets(params) + log_weights, params.mean)

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        squares = np.einsum("de,ked->k", self.precision, second)
        return centre_moments(self, reference, count, first, squares)

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
        return diagonal_joint(map_rows(rows, whitener, self.prior_mean), offset, centres, np.ones_like(centres))

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

    def restrict(self, params: FixedParams, kept: NDArray[np.bool_]) -> tuple[KnownCovariance, FixedParams]:
        """The same components of some of the features."""
        prior = replace(
            self,
            prior_mean=self.prior_mean[kept],
            prior_covariance=self.prior_covariance[kept][:, kept],
            covariance=self.covariance[kept][:, kept],
        )
        return prior, FixedParams(params.mean[:, kept], params.covariance[:, kept][:, :, kept])


# --- Free coordinates of q(π) q(μ) for gradient steps: log α, means, and log-Cholesky factors of C_k.
#
# Steps on α and C themselves can leave α > 0 and C ≻ 0 (Gutteridge (2021), Algorithms 2 and 3), so the chain rule
# carries gradients to coordinates without borders. Means and factors are taken in units where Σ = I, so that one
# step length serves every feature.


def require_known_covariance(mixture: Mixture) -> KnownCovariance:
    """The structure of a mixture whose covariance is given: gradients by draws and by parts are written for it."""
    if not isinstance(mixture.components, KnownCovariance):
        raise TypeError(f"the covariance has to be known, got a {type(mixture.components).__name__} prior of it")
    return mixture.components


class RootBelief(NamedTuple):
    """q(π) = Dir(α), q(μ_k) = N(m_k, L_kL_kᵀ)."""

    alpha: Array  # (K,)
    mean: Array  # (K, D)
    root: Array  # (K, D, D) lower triangular

    @classmethod
    def of(cls, belief: Belief) -> RootBelief:
        """The root form of a belief about a mixture of known covariance with Dirichlet weights."""
        params: FixedParams = belief.components
        return cls(belief.weights, params.mean, root_of(params.covariance))

    def belief(self) -> Belief:
        """Back to the parameters the bound is computed from."""
        return Belief(self.alpha, FixedParams(self.mean, self.root @ self.root.transpose(0, 2, 1)))


class Gradient(NamedTuple):
    """Derivatives in α, m_k and L_k (its lower triangle); a leading axis of draws may come first."""

    alpha: Array
    mean: Array
    root: Array

    def average(self) -> Gradient:
        """The mean over the axis of draws."""
        return Gradient(self.alpha.mean(axis=0), self.mean.mean(axis=0), self.root.mean(axis=0))


@dataclass(frozen=True)
class FreeVector:
    """The map between a `RootBelief` and one free vector [log α, m, (log diagonal, lower part) of L]."""

    components: int
    whitener: Array  # F, Σ⁻¹ = FᵀF

    @classmethod
    def of(cls, structure: KnownCovariance, components: int) -> FreeVector:
        return cls(components, structure.whitener)

    @property
    def dim(self) -> int:
        return len(self.whitener)

    @cached_property
    def _back(self) -> Array:
        return inverse(self.whitener)

    @cached_property
    def _lower(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.tril_indices(self.dim)

    def flatten(self, point: RootBelief) -> Array:
        """RootBelief → free vector."""
        root = self.whitener @ point.root
        diagonal = np.arange(self.dim)
        root[:, diagonal, diagonal] = np.log(root[:, diagonal, diagonal])
        rows, columns = self._lower
        mean = point.mean @ self.whitener.T
        return np.concatenate([np.log(point.alpha), mean.ravel(), root[:, rows, columns].ravel()])

    def unflatten(self, flat: Array) -> RootBelief:
        """Free vector → point."""
        log_alpha, mean, lower = self.split(flat)
        root = np.zeros((self.components, self.dim, self.dim))
        rows, columns = self._lower
        root[:, rows, columns] = lower
        diagonal = np.arange(self.dim)
        root[:, diagonal, diagonal] = np.exp(root[:, diagonal, diagonal])
        back = self._back
        return RootBelief(np.exp(log_alpha), mean @ back.T, back @ root)

    def split(self, flat: Array) -> tuple[Array, Array, Array]:
        """The blocks of a free vector: (K,), (K, D), (K, D(D+1)/2)."""
        first = self.components
        second = first + self.components * self.dim
        mean = flat[first:second].reshape(self.components, self.dim)
        return flat[:first], mean, flat[second:].reshape(self.components, -1)

    def pull_back(self, point: RootBelief, gradient: Gradient) -> Array:
        """Gradient in the free vector, by the chain rule."""
        back = self._back
        root_gradient = back.T @ gradient.root
        diagonal = np.arange(self.dim)
        root_gradient[:, diagonal, diagonal] *= (self.whitener @ point.root)[:, diagonal, diagonal]
        rows, columns = self._lower
        return np.concatenate(
            [
                point.alpha * gradient.alpha,
                (gradient.mean @ back).ravel(),
                root_gradient[:, rows, columns].ravel(),
            ]
        )

    def base_steps(self, total: float) -> Array:
        """One base step per block: K/N for log α and the means, ½ for the factors (their curvature is 2)."""
        share = self.components / total
        sizes = [self.components, self.components * self.dim]
        factors = self.components * self.dim * (self.dim + 1) // 2
        return np.concatenate([np.full(sizes[0], share), np.full(sizes[1], share), np.full(factors, 0.5)])

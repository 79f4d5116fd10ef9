"""Free coordinates of q(π) q(μ) for gradient steps: log α, means, and log-Cholesky factors of C_k.

Steps on α and C themselves can leave α > 0 and C ≻ 0 (Gutteridge (2021), Algorithms 2 and 3), so the chain rule
carries gradients to coordinates without borders. Means and factors are taken in units where Σ = I, so that one
step length serves every feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.mixture.fixed import FixedParams, KnownCovariance
from latlin.mixture.model import Belief
from latlin.mixture.moments import inverse
from latlin.mixture.moments import root as root_of
from latlin.numerics.linalg import Array


class Point(NamedTuple):
    """q(π) = Dir(α), q(μ_k) = N(m_k, L_kL_kᵀ)."""

    alpha: Array  # (K,)
    mean: Array  # (K, D)
    root: Array  # (K, D, D) lower triangular

    @classmethod
    def of(cls, belief: Belief) -> Point:
        """The point of a belief about a fixed-covariance mixture with Dirichlet weights."""
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
class Coordinates:
    """The map between a `Point` and one free vector [log α, m, (log diagonal, lower part) of L]."""

    components: int
    whitener: Array  # F, Σ⁻¹ = FᵀF

    @classmethod
    def of(cls, structure: KnownCovariance, components: int) -> Coordinates:
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

    def flatten(self, point: Point) -> Array:
        """Point → free vector."""
        root = self.whitener @ point.root
        diagonal = np.arange(self.dim)
        root[:, diagonal, diagonal] = np.log(root[:, diagonal, diagonal])
        rows, columns = self._lower
        mean = point.mean @ self.whitener.T
        return np.concatenate([np.log(point.alpha), mean.ravel(), root[:, rows, columns].ravel()])

    def unflatten(self, flat: Array) -> Point:
        """Free vector → point."""
        log_alpha, mean, lower = self.split(flat)
        root = np.zeros((self.components, self.dim, self.dim))
        rows, columns = self._lower
        root[:, rows, columns] = lower
        diagonal = np.arange(self.dim)
        root[:, diagonal, diagonal] = np.exp(root[:, diagonal, diagonal])
        back = self._back
        return Point(np.exp(log_alpha), mean @ back.T, back @ root)

    def split(self, flat: Array) -> tuple[Array, Array, Array]:
        """The blocks of a free vector: (K,), (K, D), (K, D(D+1)/2)."""
        first = self.components
        second = first + self.components * self.dim
        mean = flat[first:second].reshape(self.components, self.dim)
        return flat[:first], mean, flat[second:].reshape(self.components, -1)

    def pull_back(self, point: Point, gradient: Gradient) -> Array:
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

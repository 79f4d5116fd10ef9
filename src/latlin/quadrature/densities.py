"""Mixtures of Gaussians as posterior densities, in their own coordinates or through a change of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState
from latlin.quadrature.measures import GaussianMixture, as_points

DRAWS = 100_000  # for moments that have no closed form


class Mixture(NamedTuple):
    """A mixture of Gaussians with the questions a posterior answers."""

    components: GaussianMixture

    @property
    def mean(self) -> Array:
        """Σ w m."""
        return self.components.weights @ self.components.means

    def covariance(self) -> Array:
        """Σ w (S + (m − m̄)(m − m̄)ᵀ)."""
        away = self.components.means - self.mean
        within = np.einsum("a,aij->ij", self.components.weights, self.components.covs)
        return within + (away.T * self.components.weights) @ away

    @property
    def variance(self) -> Array:
        """Marginal variances."""
        return np.diagonal(self.covariance()).copy()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one a row."""
        return self.components.sample(count, random_state)

    def logpdf(self, x: ArrayLike) -> Array:
        """Log density at the rows of x."""
        return self.components.logpdf(x)

    def affine(self, factor: Array, offset: Array) -> Mixture:
        """The density of factor·x + offset."""
        means = self.components.means @ factor.T + offset
        covs = factor @ self.components.covs @ factor.T
        covs = 0.5 * (covs + np.swapaxes(covs, 1, 2))
        return Mixture(GaussianMixture(self.components.weights, means, covs))

    def project(self, H: ArrayLike) -> Mixture:
        """The density of Hx."""
        rows = as_points(H, self.components.dim, "H")
        return self.affine(rows, np.zeros(len(rows)))


class Mapped(NamedTuple):
    """The density of x whose image u = inward(x) is a mixture of Gaussians; moments are those of draws."""

    inner: Mixture
    inward: Callable[[Array], Array]
    outward: Callable[[Array], Array]
    log_volume: Callable[[Array], Array]  # log |∂x/∂u| at u

    @property
    def mean(self) -> Array:
        """Mean of 100,000 draws."""
        return self.sample(DRAWS, 0).mean(axis=0)

    def covariance(self) -> Array:
        """Covariance of 100,000 draws."""
        return np.atleast_2d(np.cov(self.sample(DRAWS, 0).T))

    @property
    def variance(self) -> Array:
        """Marginal variances of 100,000 draws."""
        return np.diagonal(self.covariance()).copy()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one a row."""
        return self.outward(self.inner.sample(count, random_state))

    def logpdf(self, x: ArrayLike) -> Array:
        """Log density at the rows of x."""
        u = self.inward(as_points(x, self.inner.components.dim, "x"))
        return self.inner.logpdf(u) - np.ravel(self.log_volume(u))

    def project(self, H: ArrayLike) -> Mixture:
        """Not a mixture any more: says so."""
        raise ValueError("project(H) needs a posterior without bounds: use draws, post.sample(n) @ H.T")

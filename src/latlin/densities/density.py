"""What every density over w answers, whatever its shape, and its one-dimensional normal marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState


class Density(Protocol):
    """A density over w."""

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    def covariance(self) -> Array: ...

    def sample(self, count: int, random_state: RandomState = None) -> Array: ...

    def logpdf(self, w: ArrayLike) -> Array: ...

    def project(self, rows: Any) -> Any: ...


@dataclass(frozen=True)
class NormalMarginals:
    """Densities of N projections hᵀw under a Gaussian.

    Attributes
    ----------
    mean, variance : ndarray of shape (n,)
    """

    mean: Array
    variance: Array

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    def logpdf(self, x: ArrayLike) -> Array:
        """log N(x | mean, variance); x broadcasts against the projections."""
        z = (np.asarray(x, float) - self.mean) / self.std
        return -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi * self.variance)

    def pdf(self, x: ArrayLike) -> Array:
        return np.exp(self.logpdf(x))

    def cdf(self, x: ArrayLike) -> Array:
        return ndtr((np.asarray(x, float) - self.mean) / self.std)

    def logcdf(self, x: ArrayLike) -> Array:
        return log_ndtr((np.asarray(x, float) - self.mean) / self.std)

    def quantile(self, q: ArrayLike) -> Array:
        """The q-quantiles; q broadcasts against the projections."""
        return self.mean + self.std * ndtri(np.asarray(q, float))

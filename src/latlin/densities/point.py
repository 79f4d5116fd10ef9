"""A point: what is left of a posterior when only its mode is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latlin.densities.density import NormalMarginals
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState
from latlin.numerics.stored import storable


@storable
@dataclass(frozen=True)
class PointMass:
    """All mass at `mean`: variance 0 everywhere, every draw the same, no density."""

    mean: Array

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> Array:
        return np.zeros(self.dim)

    @property
    def entropy(self) -> float:
        return -np.inf

    def covariance(self) -> Array:
        return np.zeros((self.dim, self.dim))

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        return np.tile(self.mean, (count, 1))

    def logpdf(self, w: ArrayLike) -> Array:
        raise ValueError("a point estimate has no density; choose an engine with a posterior, such as 'laplace'")

    def project(self, rows: Any) -> NormalMarginals:
        mean = np.asarray(rows @ self.mean)
        return NormalMarginals(mean, np.zeros_like(mean))

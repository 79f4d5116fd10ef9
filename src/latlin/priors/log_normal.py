"""The log-normal density: a normal on the logarithm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, number, positive


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class LogNormal(Prior):
    """log x ~ N(mean, sd²), x > 0: `mean` and `sd` are those of the logarithm."""

    mean: float
    sd: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", number("LogNormal mean", self.mean))
        object.__setattr__(self, "sd", positive("LogNormal sd", self.sd))

    def _log_density(self, x: Array) -> Array:
        z = (np.log(x) - self.mean) / self.sd
        return -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - np.log(self.sd) - np.log(x)

    def _slope(self, x: Array) -> Array:
        return -((np.log(x) - self.mean) / self.sd**2 + 1.0) / x

    def _quantile(self, p: Array) -> Array:
        return np.exp(self.mean + self.sd * ndtri(p))

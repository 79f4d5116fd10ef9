"""The gamma density and that of the inverse of a gamma number.

The inverse gamma keeps a scale or a length away from zero, and in its square is conjugate to a normal variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainccinv, gammaincinv, gammaln

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, positive


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Gamma(Prior):
    """p(x) = rate^shape x^{shape − 1} exp(−rate x)/Γ(shape), x > 0."""

    shape: float
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positive("Gamma shape", self.shape))
        object.__setattr__(self, "rate", positive("Gamma rate", self.rate))

    def _log_density(self, x: Array) -> Array:
        return self.shape * np.log(self.rate) - gammaln(self.shape) + (self.shape - 1.0) * np.log(x) - self.rate * x

    def _slope(self, x: Array) -> Array:
        return (self.shape - 1.0) / x - self.rate

    def _quantile(self, p: Array) -> Array:
        return gammaincinv(self.shape, p) / self.rate


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class InverseGamma(Prior):
    """p(x) = scale^shape x^{−shape − 1} exp(−scale/x)/Γ(shape), x > 0."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positive("InverseGamma shape", self.shape))
        object.__setattr__(self, "scale", positive("InverseGamma scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        constant = self.shape * np.log(self.scale) - gammaln(self.shape)
        with np.errstate(over="ignore"):  # next to zero there is no mass at all
            return constant - (self.shape + 1.0) * np.log(x) - self.scale / x

    def _slope(self, x: Array) -> Array:
        return (self.scale / x - self.shape - 1.0) / x

    def _quantile(self, p: Array) -> Array:
        return self.scale / gammainccinv(self.shape, p)

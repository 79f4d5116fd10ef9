"""The beta density, for probabilities and shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, betaln

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, positive


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Beta(Prior):
    """p(x) = x^{a − 1}(1 − x)^{b − 1}/B(a, b), 0 < x < 1."""

    a: float
    b: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", positive("Beta a", self.a))
        object.__setattr__(self, "b", positive("Beta b", self.b))

    @property
    def support(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def _log_density(self, x: Array) -> Array:
        return (self.a - 1.0) * np.log(x) + (self.b - 1.0) * np.log1p(-x) - betaln(self.a, self.b)

    def _slope(self, x: Array) -> Array:
        return (self.a - 1.0) / x - (self.b - 1.0) / (1.0 - x)

    def _quantile(self, p: Array) -> Array:
        return betaincinv(self.a, self.b, p)

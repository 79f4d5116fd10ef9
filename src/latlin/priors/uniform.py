"""The uniform density on an interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, number


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Uniform(Prior):
    """p(x) = 1/(high − low), low < x < high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = number("Uniform low", self.low), number("Uniform high", self.high)
        if not low < high:
            raise ValueError(f"Uniform low must lie below high, got {low:g} and {high:g}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def support(self) -> tuple[float, float]:
        return (self.low, self.high)

    def _log_density(self, x: Array) -> Array:
        return np.full_like(x, -np.log(self.high - self.low))

    def _slope(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _quantile(self, p: Array) -> Array:
        return self.low + (self.high - self.low) * p

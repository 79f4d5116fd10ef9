"""The exponential density, and the same by a statement of what is unlikely.

On a standard deviation it is the prior that penalises the distance from a simpler model at a constant rate (Simpson,
Rue, Riebler, Martins and Sørbye, 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, positive


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Exponential(Prior):
    """p(x) = exp(−x/scale)/scale, x > 0; its mean is `scale`."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("Exponential scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        return -np.log(self.scale) - x / self.scale

    def _slope(self, x: Array) -> Array:
        return np.full_like(x, -1.0 / self.scale)

    def _quantile(self, p: Array) -> Array:
        return -self.scale * np.log1p(-p)


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class PenalisedComplexity(Prior):
    """The exponential density with P(x > upper) = probability.

    Examples
    --------
    >>> prior = PenalisedComplexity(upper=1.0, probability=0.01)
    >>> prior.quantile(0.99).round(6)
    np.float64(1.0)
    """

    upper: float
    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "upper", positive("PenalisedComplexity upper", self.upper))
        share = positive("PenalisedComplexity probability", self.probability)
        if share >= 1.0:
            raise ValueError(f"PenalisedComplexity probability must lie strictly between 0 and 1, got {share:g}")
        object.__setattr__(self, "probability", share)

    @property
    def rate(self) -> float:
        """λ with exp(−λ upper) = probability."""
        return float(-np.log(self.probability) / self.upper)

    def _log_density(self, x: Array) -> Array:
        return np.log(self.rate) - self.rate * x

    def _slope(self, x: Array) -> Array:
        return np.full_like(x, -self.rate)

    def _quantile(self, p: Array) -> Array:
        return -np.log1p(-p) / self.rate

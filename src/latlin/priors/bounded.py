"""Densities on an interval: uniform, beta, and that of a correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, betaln

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, number, positive


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


@dataclass(frozen=True, repr=False)
class Correlation(Prior):
    """p(r) ∝ (1 − r²)^{shape − 1}, −1 < r < 1: uniform for shape 1, and near zero for larger shapes.

    For one pair of numbers this is the prior that Lewandowski, Kurowicka and Joe give to correlation matrices.

    Examples
    --------
    >>> Correlation(1.0).log_density(0.3).round(4).tolist()
    -0.6931
    """

    shape: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positive("Correlation shape", self.shape))

    @property
    def support(self) -> tuple[float, float]:
        return (-1.0, 1.0)

    def _log_density(self, x: Array) -> Array:
        # u = ½(1 + r) is Beta(shape, shape), and du/dr = ½
        a = self.shape
        return (a - 1.0) * (np.log1p(x) + np.log1p(-x) - 2.0 * np.log(2.0)) - betaln(a, a) - np.log(2.0)

    def _slope(self, x: Array) -> Array:
        return -2.0 * (self.shape - 1.0) * x / ((1.0 - x) * (1.0 + x))

    def _quantile(self, p: Array) -> Array:
        return 2.0 * betaincinv(self.shape, self.shape, p) - 1.0

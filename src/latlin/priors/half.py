"""Densities on the positive half of a line that falls from zero on: normal, Student t and Cauchy, cut in half.

For standard deviations (Gelman, 2006): a half density of the size that the scale may have lets it be nothing at all and
does not let it run away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, ndtri, stdtrit

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior, positive


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class HalfNormal(Prior):
    """p(x) = 2 N(x | 0, scale²), x > 0.

    Examples
    --------
    >>> HalfNormal(2.0).quantile(0.5).round(3)
    np.float64(1.349)
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("HalfNormal scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        return 0.5 * np.log(2.0 / np.pi) - np.log(self.scale) - 0.5 * (x / self.scale) ** 2

    def _slope(self, x: Array) -> Array:
        return -x / self.scale**2

    def _quantile(self, p: Array) -> Array:
        return self.scale * ndtri(0.5 * (1.0 + p))


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class HalfStudentT(Prior):
    """p(x) ∝ (1 + x²/(df scale²))^{−(df + 1)/2}, x > 0: like `HalfNormal` with a heavier tail."""

    df: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", positive("HalfStudentT df", self.df))
        object.__setattr__(self, "scale", positive("HalfStudentT scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        constant = gammaln(0.5 * (self.df + 1.0)) - gammaln(0.5 * self.df) - 0.5 * np.log(0.25 * np.pi * self.df)
        return constant - np.log(self.scale) - 0.5 * (self.df + 1.0) * np.log1p((x / self.scale) ** 2 / self.df)

    def _slope(self, x: Array) -> Array:
        z = x / self.scale
        return -(self.df + 1.0) * z / (self.df + z**2) / self.scale

    def _quantile(self, p: Array) -> Array:
        return self.scale * stdtrit(self.df, 0.5 * (1.0 + p))


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class HalfCauchy(Prior):
    """p(x) = 2 / (π scale (1 + x²/scale²)), x > 0; it has no mean."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("HalfCauchy scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        return np.log(2.0 / np.pi) - np.log(self.scale) - np.log1p((x / self.scale) ** 2)

    def _slope(self, x: Array) -> Array:
        z = x / self.scale
        return -2.0 * z / (1.0 + z**2) / self.scale

    def _quantile(self, p: Array) -> Array:
        return self.scale * np.tan(0.5 * np.pi * p)

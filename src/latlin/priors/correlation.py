"""The prior of a correlation, symmetric about zero (Lewandowski, Kurowicka and Joe 2009)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, betaln

from latlin.numerics.arrays import Array
from latlin.priors.base import Prior, positive


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

"""No preference at all: a constant, which is no density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments
from latlin.priors.base import Prior


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Flat(Prior):
    """p(x) = 1 everywhere: not normalised, so an evidence integrated over it has no absolute value.

    The penalised optimum is then that of the evidence itself.
    """

    normalised: ClassVar[bool] = False

    @property
    def support(self) -> tuple[float, float]:
        return (-np.inf, np.inf)

    def _log_density(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _slope(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _quantile(self, p: Array) -> Array:
        raise ValueError("Flat is not normalised, so it has no quantiles and no draws; choose another prior for those")

"""The families of the linear estimators, and what was observed of the rows in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.potentials import families
from latlin.potentials.checks import finite
from latlin.potentials.families import FAMILIES, Family
from latlin.potentials.poisson import Poisson


class Targets(NamedTuple):
    """What was observed: y in the family's own coding, (n,) or (n, columns), exponents and offsets of the sites."""

    y: Array
    weight: Array | None
    offset: Array | None

    @property
    def response(self) -> Array:
        """The observation itself, without what stands beside it."""
        return self.y if self.y.ndim == 1 else self.y[:, 0]

    def average(self, values: Array) -> float:
        """The weighted mean."""
        return float(np.average(values, weights=self.weight))

    def residual(self) -> Array:
        """y less its offset."""
        return self.response if self.offset is None else self.response - self.offset

    def mean(self) -> float:
        return self.average(self.response)

    def residual_moments(self) -> tuple[float, float]:
        residual = self.residual()
        mean = self.average(residual)
        return mean, float(np.sqrt(self.average((residual - mean) ** 2)))

    def log_exposure(self) -> float | None:
        if self.offset is None:
            return None
        # the exposures themselves may overflow
        top = self.offset.max()
        return float(top + np.log(self.average(np.exp(self.offset - top))))

    def class_weights(self, count: int) -> Array:
        weight = np.ones_like(self.y) if self.weight is None else self.weight
        return np.bincount(self.y.astype(int), weights=weight, minlength=count).astype(float)


class Rate(Poisson):
    """Poisson sites that also take non-integer y ≥ 0, such as averaged counts: y! becomes Γ(y + 1)."""

    def __init__(self, y: ArrayLike) -> None:
        values = finite("y", y)
        if np.any(values < 0):
            raise ValueError(f"y must not be negative, got {values.min():g}")
        self._store(y=values)


AVERAGED_COUNTS = replace(FAMILIES["poisson"], template=Rate(0.0))


def _chosen(*names: str) -> dict[str, Family]:
    return {name: FAMILIES[name] for name in names if name in FAMILIES}


#: noise about the linear predictor
LOCATION = _chosen("gaussian", "student-t", "laplace", "cauchy", "logistic")
COUNTS = {**_chosen(*families.COUNTS), "poisson": AVERAGED_COUNTS}
SURVIVAL = _chosen(*families.TIMES)
AMOUNTS = _chosen(*families.AMOUNTS)

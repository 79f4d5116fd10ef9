"""Likelihood families: a potential from observations and parameters, and what can be said before any fit.

Each is a small object without state. Parameters go by the names of the potential's own arguments ("scale", "df",
"cuts"), so that the derivatives of the log evidence find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin import potentials
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.checks import finite

Values = Mapping[str, Any]


class Targets(NamedTuple):
    """What was observed: y in the family's own coding, exponents and offsets of the sites."""

    y: Array
    weight: Array | None
    offset: Array | None

    def average(self, values: Array) -> float:
        """The weighted mean."""
        return float(np.average(values, weights=self.weight))

    def residual(self) -> Array:
        """y less its offset."""
        return self.y if self.offset is None else self.y - self.offset

    def mean(self) -> float:
        return self.average(self.y)

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


class Described(Protocol):
    """What families ask of targets, wherever they are."""

    def mean(self) -> float:
        """The weighted mean of y."""
        ...

    def residual_moments(self) -> tuple[float, float]:
        """Weighted mean and standard deviation of y less its offset."""
        ...

    def log_exposure(self) -> float | None:
        """Logarithm of the weighted mean of exp(offset); None without offsets."""
        ...

    def class_weights(self, count: int) -> Array:
        """Total weight of each class."""
        ...


class Family(Protocol):
    """A likelihood."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        ...

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        """The sites of observations y."""
        ...

    def first(self, targets: Described) -> dict[str, Any]:
        """Parameters to start a search from."""
        ...

    def unit(self, targets: Described) -> float:
        """The natural size of a coefficient of a standardised feature."""
        ...

    def intercept(self, targets: Described) -> tuple[float, float]:
        """Mean and standard deviation of a wide prior for the intercept."""
        ...


@dataclass(frozen=True)
class Location:
    """y = xᵀw + noise; the intercept is within ten standard deviations of the mean of y."""

    build: Callable[..., Potential]
    parameters: tuple[str, ...] = ("scale",)

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return self.build(loc=y, **{name: values[name] for name in self.parameters})

    def first(self, targets: Described) -> dict[str, Any]:
        return {"scale": 0.5 * self.unit(targets), "df": 4.0}

    def unit(self, targets: Described) -> float:
        mean, sd = targets.residual_moments()
        # constant observations: their own size, or one
        return sd if sd > 1e-10 * abs(mean) else abs(mean) or 1.0

    def intercept(self, targets: Described) -> tuple[float, float]:
        return targets.residual_moments()[0], 10.0 * self.unit(targets)


@dataclass(frozen=True)
class Binary:
    """y in {0, 1} with P(y = 1) = F(xᵀw)."""

    build: Callable[[ArrayLike], Potential]
    parameters: tuple[str, ...] = ()

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return self.build(y)

    def first(self, targets: Described) -> dict[str, Any]:
        return {}

    def unit(self, targets: Described) -> float:
        return 1.0

    def intercept(self, targets: Described) -> tuple[float, float]:
        return 0.0, 10.0


class Rate(potentials.Poisson):
    """Poisson sites that also take non-integer y ≥ 0, such as averaged counts: y! becomes Γ(y + 1)."""

    def __init__(self, y: ArrayLike) -> None:
        values = finite("y", y)
        if np.any(values < 0):
            raise ValueError(f"y must not be negative, got {values.min():g}")
        self._store(y=values)


@dataclass(frozen=True)
class Count:
    """Counts with mean exp(xᵀw)."""

    parameters: tuple[str, ...] = ()

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return Rate(y)

    def first(self, targets: Described) -> dict[str, Any]:
        return {}

    def unit(self, targets: Described) -> float:
        return 1.0

    def intercept(self, targets: Described) -> tuple[float, float]:
        exposure = targets.log_exposure()
        rate = np.log(max(targets.mean(), 1e-3))
        return float(rate if exposure is None else rate - exposure), 5.0


@dataclass(frozen=True)
class Ordered:
    """Ordered classes 0 … K−1 between cut points; shifts belong to these, so there is no intercept."""

    link: str
    n_classes: int
    parameters: tuple[str, ...] = ("cuts",)

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return potentials.Ordinal(y, values["cuts"], self.link)

    def first(self, targets: Described) -> dict[str, Any]:
        """Cuts that give the classes their shares at xᵀw = 0."""
        shares = targets.class_weights(self.n_classes) + 0.5
        below = np.cumsum(shares)[:-1] / shares.sum()
        return {"cuts": ndtri(below) if self.link == "probit" else np.log(below / (1.0 - below))}

    def unit(self, targets: Described) -> float:
        return 1.0

    def intercept(self, targets: Described) -> tuple[float, float]:
        return 0.0, 10.0


LOCATION = {
    "gaussian": Location(potentials.Gaussian),
    "student-t": Location(potentials.StudentT, ("scale", "df")),
    "laplace": Location(potentials.Laplace),
    "cauchy": Location(potentials.Cauchy),
    "logistic": Location(potentials.Logistic),
}

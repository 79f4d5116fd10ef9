"""Likelihood families: a potential from observations and parameters, and what can be said before any fit.

Each is a small object without state. Parameters go by the names of the potential's own arguments ("scale", "df",
"cuts"), so that the derivatives of the log evidence find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from latlin import potentials
from latlin.potentials.base import Potential
from latlin.potentials.checks import finite

Array = NDArray[np.float64]
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


class Family(Protocol):
    """A likelihood."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        ...

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        """The sites of observations y."""
        ...

    def first(self, targets: Targets) -> dict[str, Any]:
        """Parameters to start a search from."""
        ...

    def unit(self, targets: Targets) -> float:
        """The natural size of a coefficient of a standardised feature."""
        ...

    def intercept(self, targets: Targets) -> tuple[float, float]:
        """Mean and standard deviation of a wide prior for the intercept."""
        ...


@dataclass(frozen=True)
class Location:
    """y = xᵀw + noise; the intercept is within ten standard deviations of the mean of y."""

    build: Callable[..., Potential]
    parameters: tuple[str, ...] = ("scale",)

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return self.build(loc=y, **{name: values[name] for name in self.parameters})

    def first(self, targets: Targets) -> dict[str, Any]:
        return {"scale": 0.5 * self.unit(targets), "df": 4.0}

    def unit(self, targets: Targets) -> float:
        residual = targets.residual()
        mean = targets.average(residual)
        sd = np.sqrt(targets.average((residual - mean) ** 2))
        # constant observations: their own size, or one
        return float(sd) if sd > 1e-10 * abs(mean) else abs(mean) or 1.0

    def intercept(self, targets: Targets) -> tuple[float, float]:
        return targets.average(targets.residual()), 10.0 * self.unit(targets)


@dataclass(frozen=True)
class Binary:
    """y in {0, 1} with P(y = 1) = F(xᵀw)."""

    build: Callable[[ArrayLike], Potential]
    parameters: tuple[str, ...] = ()

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return self.build(y)

    def first(self, targets: Targets) -> dict[str, Any]:
        return {}

    def unit(self, targets: Targets) -> float:
        return 1.0

    def intercept(self, targets: Targets) -> tuple[float, float]:
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

    def first(self, targets: Targets) -> dict[str, Any]:
        return {}

    def unit(self, targets: Targets) -> float:
        return 1.0

    def intercept(self, targets: Targets) -> tuple[float, float]:
        rate = np.log(max(targets.average(targets.y), 1e-3))
        if targets.offset is None:
            return float(rate), 5.0
        # log of the mean exposure; the exposures themselves may overflow
        top = targets.offset.max()
        return float(rate - top - np.log(targets.average(np.exp(targets.offset - top)))), 5.0


@dataclass(frozen=True)
class Ordered:
    """Ordered classes 0 … K−1 between cut points; shifts belong to these, so there is no intercept."""

    link: str
    n_classes: int
    parameters: tuple[str, ...] = ("cuts",)

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        return potentials.Ordinal(y, values["cuts"], self.link)

    def first(self, targets: Targets) -> dict[str, Any]:
        """Cuts that give the classes their shares at xᵀw = 0."""
        weight = np.ones_like(targets.y) if targets.weight is None else targets.weight
        shares = np.bincount(targets.y.astype(int), weights=weight, minlength=self.n_classes) + 0.5
        below = np.cumsum(shares)[:-1] / shares.sum()
        return {"cuts": ndtri(below) if self.link == "probit" else np.log(below / (1.0 - below))}

    def unit(self, targets: Targets) -> float:
        return 1.0

    def intercept(self, targets: Targets) -> tuple[float, float]:
        return 0.0, 10.0


LOCATION = {
    "gaussian": Location(potentials.Gaussian),
    "student-t": Location(potentials.StudentT, ("scale", "df")),
    "laplace": Location(potentials.Laplace),
    "cauchy": Location(potentials.Cauchy),
    "logistic": Location(potentials.Logistic),
}

"""Named hyperparameters: where each may lie, its prior, and the unconstrained numbers in which a search moves.

A number above an end is sought by the logarithm of its distance from it, one between two ends by its logit, any other
by itself. A density in the number becomes one in the coordinate by the factor |dx/du|.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.priors.base import Prior
from latlin.priors.flat import Flat

#: how far a search goes from its start when no bounds are given, as a factor and as a share of an interval
FAR, MARGIN = 1e6, 1e-6


@storable
@dataclass(frozen=True)
class Hyperparameter:
    """One number to learn.

    Parameters
    ----------
    name : str
    start : float
        Where a search begins.
    prior : Prior
        Of the number itself; `Flat` has no opinion.
    support : (float, float), optional
        Where the number may lie at all, ends excluded, such as (0, ∞) for scales and (−1, 1) for correlations: where
        the prior lives unless given, and above zero if that is flat.
    bounds : (float, float), optional
        Ends of the search, within the support: a factor of a million from the start unless given.
    """

    name: str
    start: float
    prior: Prior = field(default_factory=Flat)
    support: tuple[float, float] | None = None
    bounds: tuple[float, float] | None = None
    _ends: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ValueError(f"prior of {self.name!r} must be one of latlin.priors, got {self.prior!r:.80}")
        given = self.support or ((0.0, np.inf) if isinstance(self.prior, Flat) else self.prior.support)
        low, high = max(given[0], self.prior.support[0]), min(given[1], self.prior.support[1])
        if not low < high:
            raise ValueError(f"{self.name!r} lies in {given}, but its prior {self.prior!r} has no mass there")
        object.__setattr__(self, "_ends", (float(low), float(high)))
        object.__setattr__(self, "support", self._ends)
        if isinstance(self.start, bool) or not isinstance(self.start, Real) or not low < self.start < high:
            raise ValueError(f"{self.name!r} must start between {low:g} and {high:g}, got {self.start!r:.80}")
        object.__setattr__(self, "start", float(self.start))
        object.__setattr__(self, "bounds", self._checked_bounds())

    def _checked_bounds(self) -> tuple[float, float]:
        low, high = self._ends
        if self.bounds is None:
            return self._distant_ends()
        least, most = (float(end) for end in self.bounds)
        if not least < most:
            raise ValueError(f"bounds of {self.name!r} must rise, got {self.bounds!r}")
        near, far = self._distant_ends()
        # an end of the support itself is never reached
        least, most = near if least <= low else least, far if most >= high else most
        if not least <= self.start <= most:
            raise ValueError(f"{self.name!r} must start within its bounds [{least:g}, {most:g}], got {self.start:g}")
        return least, most

    def _distant_ends(self) -> tuple[float, float]:
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return low + MARGIN * (high - low), high - MARGIN * (high - low)
        if np.isfinite(low):
            return low + (self.start - low) / FAR, low + (self.start - low) * FAR
        if np.isfinite(high):
            return high - (high - self.start) * FAR, high - (high - self.start) / FAR
        return -np.inf, np.inf

    def coordinate(self, x: float) -> float:
        """u, unconstrained."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return float(np.log(x - low) - np.log(high - x))
        if np.isfinite(low):
            return float(np.log(x - low))
        return float(-np.log(high - x)) if np.isfinite(high) else float(x)

    def value(self, u: Any) -> Any:
        """x at coordinate u, for numbers and arrays."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return low + (high - low) * 0.5 * (1.0 + np.tanh(0.5 * u))
        if np.isfinite(low):
            return low + np.exp(u)
        return high - np.exp(-u) if np.isfinite(high) else u + 0.0

    def slope(self, u: float) -> float:
        """dx/du."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return float((high - low) * 0.25 / np.cosh(0.5 * u) ** 2)
        if np.isfinite(low):
            return float(np.exp(u))
        return float(np.exp(-u)) if np.isfinite(high) else 1.0

    def bend(self, u: float) -> float:
        """d log|dx/du| / du."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return float(-np.tanh(0.5 * u))
        return 1.0 if np.isfinite(low) else -1.0 if np.isfinite(high) else 0.0


@dataclass(frozen=True)
class Space:
    """Several hyperparameters together; a point u has one coordinate for each, in their order."""

    members: Sequence[Hyperparameter]

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        names = [member.name for member in self.members]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"hyperparameters must have different names, and there must be some, got {names}")

    def __len__(self) -> int:
        return len(self.members)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def normalised(self) -> bool:
        """Whether every prior is a density."""
        return all(member.prior.normalised for member in self.members)

    @property
    def start(self) -> Array:
        return np.array([member.coordinate(member.start) for member in self.members])

    @property
    def box(self) -> Array:
        """Ends of the coordinates, one row for each."""
        ends = [[m.coordinate(end) if np.isfinite(end) else end for end in m.bounds or ()] for m in self.members]
        return np.array(ends)

    def values(self, u: Array) -> dict[str, float]:
        """The numbers at a point, within their bounds to the last digit."""
        found = {}
        for member, t in zip(self.members, u, strict=True):
            low, high = member.bounds or (-np.inf, np.inf)
            found[member.name] = float(min(max(member.value(float(t)), low), high))
        return found

    def natural(self, points: Array) -> Array:
        """The numbers at many points, one per row."""
        return np.stack([m.value(points[:, j]) for j, m in enumerate(self.members)], axis=1)

    def log_prior(self, u: Array, *, volume: bool) -> tuple[float, Array]:
        """Σ log p(x), with Σ log|dx/du| for the density of u where `volume`, and the derivatives in u."""
        total, gradient = 0.0, np.empty(len(self))
        for j, (member, t) in enumerate(zip(self.members, map(float, u), strict=True)):
            x, slope = float(member.value(t)), member.slope(t)
            total += float(member.prior.log_density(x))
            gradient[j] = float(member.prior.slope(x)) * slope
            if volume:
                total += float(np.log(slope))
                gradient[j] += member.bend(t)
        return total, gradient

    def pull(self, u: Array, slopes: Mapping[str, float]) -> Array:
        """Derivatives in u from those in the numbers."""
        return np.array([slopes[m.name] * m.slope(float(t)) for m, t in zip(self.members, u, strict=True)])

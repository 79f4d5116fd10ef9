"""What a family declares of a parameter that can be learnt: where it lives, where to start, and free coordinates.

A search moves in unconstrained numbers t. A range turns values into them and back and knows the slope, so that a
gradient in the value becomes one in t. A value is a number, one number per site, or (cut points) one vector for all
sites; t has the shape of the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.potentials.checks import refuse

#: largest cut between ordered classes, in units of the latent noise
FARTHEST = 1e12


class Range(Protocol):
    """Where a parameter may lie and how a search walks there."""

    @property
    def start(self) -> float | None:
        """A value to start from; None where the data have to say."""
        ...

    def to_free(self, value: ArrayLike) -> Array:
        """The free coordinates t of a value."""
        ...

    def from_free(self, t: ArrayLike) -> Array:
        """The value at free coordinates t."""
        ...

    def slope(self, value: ArrayLike) -> Array:
        """d value / d t, elementwise; for a vector of cut points the matrix ∂ value_i / ∂ t_j."""
        ...

    def chain(self, value: ArrayLike, gradient: ArrayLike) -> Array:
        """The gradient in t from the gradient in the value."""
        ...

    def bounds(self, size: int) -> list[tuple[float, float]]:
        """Ends of a search for `size` free coordinates."""
        ...

    def check(self, name: str, value: ArrayLike) -> Array:
        """The value as an array, or a ValueError in one sentence."""
        ...


@storable
@dataclass(frozen=True)
class Above:
    """Numbers above `low`, through t = log(value − low).

    Parameters
    ----------
    low : float
        The end that is never reached.
    start : float
        Where a search begins.
    least, most : float
        Ends of a search, as distances from `low`.

    Examples
    --------
    >>> df = Above(2.0, start=4.0)
    >>> float(df.from_free(df.to_free(5.0)).round(12)), float(df.slope(5.0))
    (5.0, 3.0)
    """

    low: float
    start: float
    least: float = 1e-6
    most: float = 1e6

    def to_free(self, value: ArrayLike) -> Array:
        return np.log(np.asarray(value, dtype=float) - self.low)

    def from_free(self, t: ArrayLike) -> Array:
        return np.asarray(self.low + np.exp(np.asarray(t, dtype=float)))

    def slope(self, value: ArrayLike) -> Array:
        return np.asarray(value, dtype=float) - self.low

    def chain(self, value: ArrayLike, gradient: ArrayLike) -> Array:
        return np.asarray(self.slope(value) * np.asarray(gradient))

    def bounds(self, size: int) -> list[tuple[float, float]]:
        return [(float(np.log(self.least)), float(np.log(self.most)))] * size

    def check(self, name: str, value: ArrayLike) -> Array:
        array = np.asarray(value, dtype=float)
        refuse(name, array, ~(np.isfinite(array) & (array > self.low)), f"numbers above {self.low:g}")
        return array


@storable
class Positive(Above):
    """Positive numbers, through their logarithm, sought between `low` and `high`.

    Examples
    --------
    >>> Positive().to_free([1.0, 10.0]).round(4).tolist()
    [0.0, 2.3026]
    """

    def __init__(self, start: float = 1.0, low: float = 1e-6, high: float = 1e6) -> None:
        super().__init__(0.0, start, low, high)


@storable
@dataclass(frozen=True)
class Between:
    """Numbers between two ends, through t = log((value − low)/(high − value)).

    Parameters
    ----------
    low, high : float
        The ends, which are never reached.
    start : float
        Where a search begins.
    margin : float
        How near to an end a search goes, as a share of the length.

    Examples
    --------
    >>> power = Between(1.0, 2.0, start=1.5)
    >>> float(power.to_free(1.5)), float(power.slope(1.5))
    (0.0, 0.25)
    """

    low: float
    high: float
    start: float
    margin: float = 1e-6

    def _share(self, value: ArrayLike) -> Array:
        return (np.asarray(value, dtype=float) - self.low) / (self.high - self.low)

    def to_free(self, value: ArrayLike) -> Array:
        share = self._share(value)
        return np.asarray(np.log(share) - np.log1p(-share))

    def from_free(self, t: ArrayLike) -> Array:
        # ½(1 + tanh ½t) is the logistic function and does not overflow
        share = 0.5 * (1.0 + np.tanh(0.5 * np.asarray(t, dtype=float)))
        return np.asarray(self.low + (self.high - self.low) * share)

    def slope(self, value: ArrayLike) -> Array:
        share = self._share(value)
        return np.asarray((self.high - self.low) * share * (1.0 - share))

    def chain(self, value: ArrayLike, gradient: ArrayLike) -> Array:
        return np.asarray(self.slope(value) * np.asarray(gradient))

    def bounds(self, size: int) -> list[tuple[float, float]]:
        end = float(np.log1p(-self.margin) - np.log(self.margin))
        return [(-end, end)] * size

    def check(self, name: str, value: ArrayLike) -> Array:
        array = np.asarray(value, dtype=float)
        outside = ~((array > self.low) & (array < self.high))
        refuse(name, array, outside, f"numbers between {self.low:g} and {self.high:g}, the ends excluded")
        return array


@storable
class UnitInterval(Between):
    """Probabilities strictly between zero and one, through their logit.

    Examples
    --------
    >>> UnitInterval().from_free([0.0, 800.0]).tolist()
    [0.5, 1.0]
    """

    def __init__(self, start: float = 0.5, margin: float = 1e-6) -> None:
        super().__init__(0.0, 1.0, start, margin)


@storable
@dataclass(frozen=True)
class Increasing:
    """Cut points c_1 < c_2 < …: the first, and the logarithms of the gaps.

    Parameters
    ----------
    reach : float
        Largest size of the first cut and of a gap in a search.

    Examples
    --------
    >>> cuts = Increasing()
    >>> cuts.from_free(cuts.to_free([-1.0, 0.5, 4.0])).round(12).tolist()
    [-1.0, 0.5, 4.0]
    >>> cuts.slope([-1.0, 0.5, 4.0]).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.5, 0.0], [1.0, 1.5, 3.5]]
    """

    reach: float = 50.0
    start: None = None

    def to_free(self, value: ArrayLike) -> Array:
        cuts = np.asarray(value, dtype=float)
        return np.concatenate([cuts[:1], np.log(np.diff(cuts))])

    def from_free(self, t: ArrayLike) -> Array:
        t = np.asarray(t, dtype=float)
        return np.cumsum(np.concatenate([t[:1], np.exp(t[1:])]))

    def slope(self, value: ArrayLike) -> Array:
        cuts = np.asarray(value, dtype=float)
        # cut i moves with the first cut and with every gap before it
        return np.asarray(np.tril(np.broadcast_to(_gaps(cuts), (cuts.size, cuts.size))))

    def chain(self, value: ArrayLike, gradient: ArrayLike) -> Array:
        after = np.cumsum(np.asarray(gradient, dtype=float)[::-1])[::-1]
        return np.asarray(_gaps(np.asarray(value, dtype=float)) * after)

    def bounds(self, size: int) -> list[tuple[float, float]]:
        return [(-self.reach, self.reach), *[(-12.0, float(np.log(self.reach)))] * (size - 1)]

    def check(self, name: str, value: ArrayLike) -> Array:
        cuts = np.atleast_1d(np.asarray(value, dtype=float))
        if cuts.ndim != 1 or not np.all(np.isfinite(cuts)) or np.any(np.diff(cuts) <= 0):
            raise ValueError(f"{name} must be strictly increasing, got {cuts}")
        if np.abs(cuts).max(initial=0.0) > FARTHEST:
            raise ValueError(f"{name} must be at most {FARTHEST:g} in size, got {cuts}: change the units")
        return cuts


def _gaps(cuts: Array) -> Array:
    """∂ cut / ∂ t of every cut from that coordinate on: one for the first, then the gaps."""
    return np.concatenate([np.ones(1), np.diff(cuts)])

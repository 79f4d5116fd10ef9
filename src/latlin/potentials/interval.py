"""A box: x lies between two ends, and nothing else is known of it."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.options import float_array
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import refuse
from latlin.potentials.kernels.truncated import normal_interval


class Interval(Potential):
    """φ(x) = 1 for low ≤ x ≤ high, 0 elsewhere.

    The expected log under a Gaussian is −∞: expectation propagation serves such sites, bounds do not.

    Parameters
    ----------
    low, high : float or array_like of shape (sites,)
        The ends, low < high; one of them may be infinite.

    Examples
    --------
    >>> Interval(0.0, 1.0).tilted_moments([0.0, 3.0], 1.0).mean.round(4).tolist()
    [0.4599, 0.6842]
    """

    parameters = ("low", "high")
    arrays = ("low", "high")
    log_concave = True
    smooth = False

    low: Array
    high: Array

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        low, high = end_of("low", low), end_of("high", high)
        self._store(low=low, high=high)
        refuse("high", high, ~(low < high), "numbers above low")
        refuse("low", low, np.isinf(low) & np.isinf(high), "a finite number where high is infinite")

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        return np.where((x >= self.low) & (x <= self.high), 0.0, -np.inf)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        """Zero everywhere: the jumps at the ends have no derivative."""
        zero = np.zeros(np.broadcast_shapes(np.shape(x), self.low.shape, self.high.shape))
        return Derivatives(zero, zero, zero)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        low, high = (
            np.where(np.isinf(self.low), self.high, self.low),
            np.where(np.isinf(self.high), self.low, self.high),
        )
        width = np.where(high > low, high - low, 1.0)
        return ((0.5 * (low + high), 0.5 * width), (low, width), (high, width))

    def typical_precision(self, count: int) -> Array:
        """What the box adds to the precision of a Gaussian of its own centre and width."""
        centre, width = (np.broadcast_to(value, count) for value in self.regions()[0])
        return 1.0 / self.tilted_moments(centre, width**2).variance - 1.0 / width**2

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        raise ValueError(
            "a box has no expected log (it is −∞ under every Gaussian); use the engine 'ep', which needs none"
        )

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        s = np.maximum(np.sqrt(v), 1e-150 * np.maximum(np.abs(m), 1))
        cut = normal_interval((self.low - m) / s, (self.high - m) / s, (self.high - self.low) / s)
        log_z, mean, variance = cut.log_mass, m - s * cut.first, v * cut.rest
        # N·φ⁰ is the Gaussian itself, and a point is inside or not
        none, point = power == 0, v == 0
        log_z = np.where(none, 0.0, np.where(point, self.log_density(m), log_z))
        inside = np.clip(mean, self.low, self.high)
        return TiltedMoments(
            log_z, np.where(none | point, m, inside), np.where(none, v, np.where(point, 0.0, variance))
        )

    def observe(self, y: ArrayLike) -> NoReturn:
        raise ValueError("Interval does not describe observations: it has no predictive distribution")


def end_of(name: str, value: ArrayLike) -> Array:
    """An end of an interval, infinite or not."""
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers, got {value!r:.80}") from error
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"{name} must hold a number or one number per site, got shape {array.shape}")
    refuse(name, array, np.isnan(array), "numbers, finite or not")
    array.flags.writeable = False
    return array

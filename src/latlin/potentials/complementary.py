"""What the complementary log-log link and censored Weibull times share: log(1 − exp(−e^t)).

C(t) = log(1 − exp(−e^t)) is concave, goes like t on the left and to zero on the right, and is analytic in |Im t| < ½π.
With e = e^t and u = e/(e^e − 1) its derivatives are C′ = u, C″ = u(1 − e − u) and so on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array
from latlin.numerics.special import log1mexp
from latlin.potentials import strip
from latlin.potentials.base import Derivatives, ExpectedLog, Potential

STRIP = 0.5 * np.pi


class LogComplement(Potential):
    """φ(x) = (1 − exp(−e^t))^count, t = rate·x + shift: each time at least one event at the rate e^t.

    Parameters
    ----------
    count, shift, rate : ndarray
        Scalars or one number per site.
    """

    parameters = ("count", "shift", "rate")
    arrays = ("count", "shift", "rate")
    log_concave = True

    count: Array
    shift: Array
    rate: Array

    def __init__(self, count: Array, shift: Array, rate: Array) -> None:
        self._store(count=count, shift=shift, rate=rate)

    @property
    def strip(self) -> Array:
        return np.asarray(STRIP / np.abs(self.rate))

    def log_density(self, x: ArrayLike) -> Array:
        return np.where(self.count > 0, self.count * log_event(self._place(x)), 0.0)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        # where t is large e^e is beyond all numbers and u is zero
        e = np.exp(np.minimum(self._place(x), 6.5))
        u, left = _ratio(e), _gap(e)
        second = u * left
        n, r = self.count, self.rate
        return Derivatives(n * r * u, n * r**2 * second, n * r**3 * (second * left - u * (e + second)))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((-self.shift / self.rate, 1.0 / np.abs(self.rate)),)

    def _place(self, x: ArrayLike) -> Array:
        return np.asarray(self.rate * float_array("x", x) + self.shift)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return strip.expected_log(self, m, v, strip=np.broadcast_to(self.strip, m.shape))


def log_event(t: Array) -> Array:
    """log(1 − exp(−e^t)); t − ½e^t + … on the left, where e^t loses its digits.

    >>> log_event(np.array([-800.0, 0.0, 800.0])).round(4).tolist()
    [-800.0, -0.4587, -0.0]
    """
    return np.where(t < -20.0, t - 0.5 * np.exp(np.minimum(t, 0.0)), log1mexp(np.exp(np.clip(t, -40.0, 700.0))))


def _ratio(e: Array) -> Array:
    """e/(e^e − 1)."""
    return np.where(e < 1e-8, 1.0 - 0.5 * e, e / np.expm1(np.maximum(e, 1e-8)))


def _gap(e: Array) -> Array:
    """1 − e − e/(e^e − 1) without cancellation: −e/2 − e²/12 + e⁴/720 − … near zero."""
    q = e * e
    series = -0.5 * e - q / 12.0 * (1.0 - q / 60.0 * (1.0 - q / 42.0 * (1.0 - q / 40.0 * (1.0 - q * (10.0 / 396.0)))))
    return np.where(e < 0.5, series, 1.0 - e - _ratio(e))

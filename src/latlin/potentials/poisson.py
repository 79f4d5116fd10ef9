"""Counts with rate e^x: the likelihood of Poisson regression with its exponential link."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammaln

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential
from latlin.potentials.checks import counts
from latlin.potentials.predictive import CountPredictive, Predictive

#: largest log of a finite number
LOG_MAX = float(np.log(np.finfo(float).max))


class Poisson(Potential):
    """φ(x) = e^{y x − e^x} / y!

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Counts 0, 1, 2, …

    Examples
    --------
    >>> Poisson([0, 3]).expected_log([0.0, 1.0], [0.5, 0.5]).value.round(4).tolist()
    [-1.284, -2.2821]
    """

    parameters = ("y",)
    arrays = ("y",)
    observation = ("y", 0.0)
    log_concave = True

    y: Array

    def __init__(self, y: ArrayLike) -> None:
        self._store(y=counts("y", y))

    def log_density(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=float)
        with np.errstate(over="ignore"):
            return np.asarray(self.y * x - np.exp(x) - gammaln(self.y + 1))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = np.asarray(x, dtype=float)
        with np.errstate(over="ignore"):
            rate = np.exp(x)
        curvature = np.broadcast_to(-rate, np.broadcast_shapes(x.shape, self.y.shape))
        return Derivatives(self.y - rate, curvature, curvature)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.log(self.y + 1), np.ones(())),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        rate = expected_rate(m, v)
        return ExpectedLog(self.y * m - rate - gammaln(self.y + 1), self.y - rate, -0.5 * rate)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        rate = expected_rate(m, v)
        # var y = ⟨e^x⟩ + var e^x = ⟨e^x⟩ + ⟨e^x⟩²(e^v − 1)
        with np.errstate(over="ignore"):
            variance = rate + rate * rate * np.expm1(v)
        return CountPredictive(self, m, v, shape, rate, variance)

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ y | x), the regularised gamma function Q(y + 1, e^x)."""
        with np.errstate(over="ignore"):
            return np.asarray(gammaincc(self.y + 1, np.exp(x)))


def expected_rate(m: Array, v: Array) -> Array:
    """⟨e^x⟩ = e^{m + v/2} under N(x|m, v), or a ValueError where it is too large for a number."""
    exponent = m + 0.5 * v
    if np.any(exponent > LOG_MAX):
        worst = int(np.argmax(exponent))
        raise ValueError(
            f"the expected Poisson rate exp(mean + var/2) overflows at mean {m[worst]:g}, var {v[worst]:g}; "
            "start nearer to the data or use a narrower prior"
        )
    return np.asarray(np.exp(exponent))

"""Counts with rate e^x: the likelihood of Poisson regression with its exponential link."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammaln, xlogy

from latlin.numerics.arrays import LOG_2PI, all_finite
from latlin.numerics.options import float_array
from latlin.numerics.special import LONG, map_counts
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import counts
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, expected_rate
from latlin.potentials.predictive import CountPredictive, Predictive

#: the rate from which counts are drawn as normal ones
MANY = 1e15
RATE = ExponentialTerm(np.zeros(()), np.ones(()))


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
    natural = True

    y: Array

    def __init__(self, y: ArrayLike) -> None:
        self._store(y=counts("y", y))

    @cached_property
    def _made(self) -> Exponentials:
        with np.errstate(divide="ignore"):
            top = np.log(self.y)
        log_factorial, peak = (map_counts(f, self.y) for f in (lambda y: gammaln(y + 1), log_most_probable))
        return Exponentials(-log_factorial, self.y, (RATE,), peak, top)

    def _form(self) -> Exponentials:
        return self._made

    def _expected_counts(self, m: Array, v: Array | None) -> tuple[Array, ...] | None:
        """⟨ψ⟩, y − ⟨e^x⟩ and ⟨e^x⟩ by a compiled loop; None where that is not worth its start or has no answer."""
        if m.size < LONG or m.shape != self.y.shape or not all_finite(m):
            return None
        from latlin.potentials.kernels.counts import expected_counts  # loads the compiler: when first needed

        form: Any = self._made
        spread = np.zeros(1) if v is None else np.ascontiguousarray(v)
        return expected_counts(self.y, form.top, form.constant, form.peak, np.ascontiguousarray(m), spread)

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        found = self._expected_counts(x, None)
        return self._form().log_density(x) if found is None else found[0]

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(float_array("x", x))

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        found = self._expected_counts(x, None)
        return super()._expansion(x) if found is None else (found[0], found[1], np.negative(found[2], out=found[2]))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.log(self.y + 1), np.ones(())),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        found = self._expected_counts(m, v)
        if found is None or not all_finite(found[2]):
            return self._form().expected_log(m, v)
        value, slope, rate = found
        return ExpectedLog(value, slope, np.multiply(rate, -0.5, out=rate))

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._form().tilted_moments(m, v, power)

    def _remainder(self, x: Array, d: Array) -> Array:
        return self._form().rest(x, d)

    def _mode_start(self, m: Array, v: Array, power: Array) -> Array:
        return self._form()._mode(m, v, power)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        rate = expected_rate(m, v, RATE)
        # var y = ⟨e^x⟩ + var e^x = ⟨e^x⟩ + ⟨e^x⟩²(e^v − 1)
        with np.errstate(over="ignore"):
            variance = rate + rate * rate * np.expm1(v)
        return CountPredictive(self, m, v, shape, rate, variance)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return draw_counts(np.exp(np.minimum(x, LOG_MOST)), rng)

    def _conditional_moments(self, x: Array) -> tuple[Array, Array]:
        rate = np.exp(np.minimum(x, LOG_MOST))
        return rate, rate + rate * rate

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ y | x), the regularised gamma function Q(y + 1, e^x)."""
        with np.errstate(over="ignore"):
            return np.asarray(gammaincc(self.y + 1, np.exp(x)))


def log_most_probable(y: Array) -> Array:
    """y log y − y − log y!, the largest log probability of y; beyond 1000 by Stirling's series, without cancellation.

    >>> log_most_probable(np.array([0.0, 1.0, 1e9])).round(4).tolist()
    [0.0, -1.0, -11.2806]
    """
    many = np.maximum(y, 1.0)
    series = -0.5 * (LOG_2PI + np.log(many)) - 1.0 / (12.0 * many) + 1.0 / (360.0 * many**3)
    return np.where(y > 1000.0, series, xlogy(y, y) - y - gammaln(y + 1))


def draw_counts(rate: Array, rng: np.random.Generator) -> Array:
    """Poisson counts; beyond 1e15 their distribution is normal to the last digit of a count."""
    few = rng.poisson(np.minimum(rate, MANY)).astype(float)
    many = np.floor(rate + np.sqrt(rate) * rng.standard_normal(rate.shape))
    return np.where(rate < MANY, few, many)

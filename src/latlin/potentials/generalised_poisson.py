"""Counts that vary more than Poisson's by clustering: generalised Poisson counts with mean e^x."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.options import float_array
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import counts, fractions
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, Walled, expected_rate
from latlin.potentials.poisson import RATE, draw_counts
from latlin.potentials.predictive import CountPredictive, Predictive
from latlin.potentials.ranges import UnitInterval
from latlin.potentials.sigmoids import Sigmoids

#: counts from which on Stirling's series has all digits, and variances of x about which nodes have them
MANY, NARROW = 1e4, 1e-2


class GeneralisedPoisson(Potential):
    """φ(x) = θ(θ + λy)^{y−1} e^{−θ−λy}/y! with θ = (1 − λ)e^x: mean e^x, variance e^x/(1 − λ)².

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Counts 0, 1, 2, …
    clustering : float or array_like of shape (sites,)
        λ, strictly between 0 (Poisson) and 1: the expected number of further counts that each one brings.

    Examples
    --------
    >>> GeneralisedPoisson([0, 3], 0.25).log_density([0.0, 1.0]).round(4).tolist()
    [-0.75, -1.817]
    """

    parameters = ("y", "clustering")
    arrays = ("y", "clustering")
    observation = ("y", 0.0)
    free = MappingProxyType({"clustering": UnitInterval(start=0.3)})
    strip = np.pi

    y: Array
    clustering: Array

    def __init__(self, y: ArrayLike, clustering: ArrayLike) -> None:
        y = counts("y", y)
        self._store(y=y, clustering=fractions("clustering", clustering), log_concave=bool(np.all(y <= 1)))

    def _form(self) -> Walled:
        """−θ, a line, and (y − 1) log(θ + λy) = (y − 1)(log λy − log σ(−t)), t = x + log((1 − λ)/(λy))."""
        y, lam = self.y, self.clustering
        some, log_theta = y > 0, np.log1p(-self.clustering)
        log_load = np.log(lam * np.maximum(y, 1.0))
        constant = np.where(some, log_theta - lam * y + (y - 1) * log_load, 0.0) - gammaln(y + 1)
        wall = Exponentials(constant, np.where(some, 1.0, 0.0), (ExponentialTerm(log_theta, np.ones(())),))
        return Walled(wall, Growth(np.maximum(y - 1, 0.0), log_theta - log_load))

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        if not np.any(self.y > MANY):
            return self._form().log_density(x)
        y, lam = np.maximum(self.y, 1.0), self.clustering
        delta = self._excess(x)
        rest = -1.5 * np.log(y) - 0.5 * LOG_2PI - (1.0 / 12.0 - 1.0 / (360.0 * y * y)) / y
        centred = np.log1p(-lam) + x - np.log1p(delta) + y * (np.log1p(delta) - delta) + rest
        return np.where(self.y > MANY, centred, self._form().log_density(x))

    def _excess(self, x: Array) -> Array:
        """δ of θ + λy = y(1 + δ): with it, terms of the size of y cancel by hand."""
        with np.errstate(over="ignore"):
            away = np.expm1(np.minimum(x - np.log(np.maximum(self.y, 1.0)), LOG_MOST))
        return np.asarray((1.0 - self.clustering) * away)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
        first, second, third = self._form().derivatives(x)
        if np.any(self.y > MANY):
            # with r = θ/(θ + λy), r′ = λr/(1 + δ) and δ′ = r(1 + δ): ψ′ = 1 − r − yrδ
            delta, lam = self._excess(x), self.clustering
            r = (delta + 1.0 - lam) / (1.0 + delta)
            bend = lam * r / (1.0 + delta)
            first = np.where(self.y > MANY, 1.0 - r - self.y * r * delta, first)
            centred = -bend - self.y * (bend * delta + r * r * (1.0 + delta))
            second = np.where(self.y > MANY, centred, second)
        return Derivatives(first, second, third)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.log(self.y + 1), np.ones(())), *self._form().rest.regions())

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        found = np.array(self._form().expected_log(m, v))
        # of many counts: by nodes, whose terms are not of the size of y
        some = np.flatnonzero((self.y > MANY) & (v < NARROW))
        if some.size:
            found[:, some] = strip.expected_log(self.select(some), m[some], v[some], np.pi)
        return ExpectedLog(*found)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._form().tilted_moments(self, m, v, power)

    def _remainder(self, x: Array, d: Array) -> Array:
        return self._form().remainder(x, d)

    def _mode_start(self, m: Array, v: Array, power: Array) -> Array:
        return self._form().wall._mode(m, v, power)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        mean = expected_rate(m, v, RATE)
        with np.errstate(over="ignore"):
            return CountPredictive(self, m, v, shape, mean, mean / (1 - self.clustering) ** 2 + mean**2 * np.expm1(v))

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        # each count of a Poisson number brings Poisson(λ) more, and so on until there are no more
        newest = draw_counts((1 - self.clustering) * np.exp(np.minimum(x, LOG_MOST)), rng)
        total = newest
        while np.any(newest > 0):
            newest = draw_counts(self.clustering * newest, rng)
            total = total + newest
        return total

    def _conditional_moments(self, x: Array) -> tuple[Array, Array]:
        mean = np.exp(np.minimum(x, LOG_MOST))
        return mean, mean / (1 - self.clustering) ** 2 + mean * mean

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ y | x), summed count by count."""
        from latlin.potentials.kernels.counts import generalised_poisson_cdf  # loads the compiler: as above

        return generalised_poisson_cdf(self.y, np.log1p(-self.clustering) + x, self.clustering)


class Growth(Potential):
    """φ(x) = (1 + e^t)^count, t = x + shift."""

    parameters = ("count", "shift")
    arrays = ("count", "shift")

    count: Array
    shift: Array

    def __init__(self, count: Array, shift: Array) -> None:
        self._store(count=count, shift=shift)

    def _form(self) -> Sigmoids:
        zero = np.zeros(())
        return Sigmoids(zero, zero, -self.count, self.shift, np.ones(()))

    def log_density(self, x: ArrayLike) -> Array:
        return self._form().log_density(np.asarray(x, dtype=float))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(np.asarray(x, dtype=float))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((-self.shift, np.ones(())),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._form().expected_log(m, v)

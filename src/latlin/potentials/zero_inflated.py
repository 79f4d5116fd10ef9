"""Counts with more zeros than their family has: some sites can only give zero."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.predictive import Predictive
from latlin.potentials.zero_counts import AroundCounts, chain

#: share of the estimated distance to the nearest singularity that quadrature relies on
CAUTION = 0.7


class ZeroInflated(AroundCounts):
    """φ(x) = probability·[y = 0] + (1 − probability)·base(y | x).

    Parameters
    ----------
    base : Potential
        A count family with its counts, such as `Poisson(y)` or `NegativeBinomial(y, dispersion)`.
    probability : float or array_like of shape (sites,)
        Chance of a zero that is not the base's, strictly between 0 and 1.

    Examples
    --------
    >>> from latlin.potentials import Poisson
    >>> ZeroInflated(Poisson([0, 2]), 0.5).log_density([0.0, 0.0]).round(4).tolist()
    [-0.3799, -2.3863]
    """

    def __init__(self, base: Potential, probability: ArrayLike) -> None:
        super().__init__(base, probability)
        concave = base.log_concave and bool(np.all(self.counts > 0))
        centre, width = self._bend() if np.any(self.counts == 0) else (np.zeros(()), np.ones(()))
        self._store(
            arrays=("probability", "centre", "width"),
            base=self.base,
            probability=self.probability,
            log_concave=concave,
            centre=centre,
            width=width,
        )

    centre: Array
    width: Array

    def observe(self, y: ArrayLike) -> Self:
        if not np.any(self.counts == 0):
            return super().observe(y)
        # where zeros bend does not depend on the counts
        block, base = copy.copy(self), self.base.observe(y)
        object.__setattr__(block, "base", base)
        object.__setattr__(block, "log_concave", base.log_concave and bool(np.all(block.counts > 0)))
        return block

    def _bend(self) -> tuple[Array, Array]:
        """Where the base's zero and the other are about as likely, and how far from the line both cancel."""
        # one place for all sites unless their parameters differ
        zero = self.base.observe(np.zeros(()))
        wanted = np.log(self.probability) - np.log1p(-self.probability)
        shape = np.broadcast_shapes((zero.size,) if zero.size else (), self.probability.shape)
        target = np.broadcast_to(np.minimum(wanted, -0.5), shape)
        low, high = np.full(shape, -200.0), np.full(shape, 200.0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = zero.log_density(middle) > target
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        x = 0.5 * (low + high)
        slope = np.abs(zero.derivatives(x).first)
        apart = np.hypot(wanted - zero.log_density(x), np.pi)
        return x, np.minimum(apart / np.maximum(slope, 1e-3), 1.0)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        # zeros bend where both kinds are as likely; other counts are the base's
        own, zero = self.base.regions(), self.counts == 0
        first = (np.where(zero, self.centre, own[0][0]), np.where(zero, self.width, own[0][1]))
        return (first, *own)

    def _logs(self, x: Array) -> tuple[Array, Array]:
        """ψ at a count of zero, and the share that the base has in it."""
        own = np.log1p(-self.probability) + self._zero().log_density(x)
        value = np.logaddexp(np.log(self.probability), own)
        return value, np.exp(own - value)

    def log_density(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=float)
        rest = np.log1p(-self.probability) + self.base.log_density(x)
        return np.where(self.counts == 0, self._logs(x)[0], rest)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = np.asarray(x, dtype=float)
        share = self._logs(x)[1]
        other = 1 - share
        with np.errstate(invalid="ignore", over="ignore"):
            mixed = chain(self._zero().derivatives(x), share, share * other, share * other * (other - share))
        gone = share < 1e-200
        return Derivatives(
            *(
                np.where(self.counts == 0, np.where(gone, 0.0, one), two)
                for one, two in zip(mixed, self.base.derivatives(x), strict=True)
            )
        )

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        def rest(some: Array) -> tuple[Array, Array, Array]:
            block = self.select(some)
            value, d_mean, d_var = block.base._expected_log(m[some], v[some])
            return value + np.log1p(-block.probability), d_mean, d_var

        def zero(some: Array) -> ExpectedLog:
            block = self.select(some)
            return strip.expected_log(block, m[some], v[some], np.broadcast_to(CAUTION * block.width, some.shape))

        return ExpectedLog(*self._split(m, zero, rest))

    def _parameter_derivative(self, name: str, x: Array) -> Array:
        """∂ψ/∂probability is (1 − e^b)/φ at a zero, b the base's ψ, else −1/(1 − probability); its own by its share."""
        value, share = self._logs(x)
        if name == "probability":
            own, rest = -np.expm1(self._zero().log_density(x)) * np.exp(-value), -1.0 / (1.0 - self.probability)
        else:
            own, rest = share * self._zero().parameter_derivative(name, x), self.base.parameter_derivative(name, x)
        return np.where(self.counts == 0, own, rest)

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array:
        def rest(some: Array) -> Array:
            block = self.select(some)
            if name == "probability":
                return np.broadcast_to(-1.0 / (1.0 - block.probability), some.shape)
            return block.base.expected_parameter_derivative(name, m[some], v[some])

        def zero(some: Array) -> Array:
            block, (m_, v_) = self.select(some), (m[some], v[some])
            found = strip.expectation(
                block, lambda part, x: part.parameter_derivative(name, x), m_, v_, CAUTION * block.width
            )
            left = np.flatnonzero(np.isnan(found))
            if left.size:
                other, at = block.select(left), (m_[left], v_[left])
                found[left] = other._difference(name, lambda each: each._expected_log(*at).value)
            return found

        return self._split(m, zero, rest)[0]

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        def rest(some: Array) -> tuple[Array, Array, Array]:
            block, p = self.select(some), power[some]
            log_z, mean, variance = block.base._tilted_moments(m[some], v[some], p)
            return log_z + p * np.log1p(-block.probability), mean, variance

        def zero(some: Array) -> TiltedMoments:
            return Potential._tilted_moments(self.select(some), m[some], v[some], power[some])

        return TiltedMoments(*self._split(m, zero, rest))

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._base_moments(m, v)
        return self._described(m, v, shape, (1 - self.probability) * first, (1 - self.probability) * second)

    def _conditional_cdf(self, x: Array) -> Array:
        return self.probability + (1 - self.probability) * self.base._conditional_cdf(x)  # type: ignore[attr-defined]

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return np.where(rng.random(x.shape) < self.probability, 0.0, self.base._sample(x, rng))

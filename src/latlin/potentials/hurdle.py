"""Counts in two steps: is there any at all, and if so, how many."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics import quadrature
from latlin.potentials import about_mode, strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.complementary import STRIP
from latlin.potentials.predictive import Predictive
from latlin.potentials.zero_counts import FAR_LEFT, AroundCounts


class Hurdle(AroundCounts):
    """φ(x) = probability for y = 0, (1 − probability)·base(y | x)/(1 − base(0 | x)) for y > 0.

    A zero says nothing of x.

    Parameters
    ----------
    base : Potential
        A count family with its counts, such as `Poisson(y)` or `NegativeBinomial(y, dispersion)`.
    probability : float or array_like of shape (sites,)
        Chance of a zero, strictly between 0 and 1.

    Examples
    --------
    >>> from latlin.potentials import Poisson
    >>> Hurdle(Poisson([0, 2]), 0.5).log_density([0.0, 0.0]).round(4).tolist()
    [-0.6931, -1.9276]
    """

    def __init__(self, base: Potential, probability: ArrayLike) -> None:
        super().__init__(base, probability)
        # a base whose natural parameter is x stays one of those when it is cut
        object.__setattr__(self, "log_concave", bool(base.natural or np.all(self.counts == 0)))

    def log_density(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=float)
        positive = np.log1p(-self.probability) + self.base.log_density(x) + PositivePart(self._zero()).log_density(x)
        return np.where(self.counts == 0, np.log(self.probability), positive)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = np.asarray(x, dtype=float)
        parts = zip(self.base.derivatives(x), PositivePart(self._zero()).derivatives(x), strict=True)
        return Derivatives(*(np.where(self.counts == 0, 0.0, base + cut) for base, cut in parts))

    def _remainder(self, x: Array, d: Array) -> Array:
        both = self.base._remainder(x, d) + PositivePart(self._zero())._remainder(x, d)
        return np.where(self.counts == 0, 0.0, both)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        def positive(some: Array) -> tuple[Array, Array, Array]:
            block = self.select(some)
            value, d_mean, d_var = block.base._expected_log(m[some], v[some])
            cut = PositivePart(block._zero())._expected_log(m[some], v[some])
            return value + cut.value + np.log1p(-block.probability), d_mean + cut.d_mean, d_var + cut.d_var

        def zero(some: Array) -> tuple[Array, Array, Array]:
            none = np.zeros(some.size)
            return none + np.log(self.select(some).probability), none, none

        return ExpectedLog(*self._split(m, zero, positive))

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        def positive(some: Array) -> TiltedMoments:
            block, sites = self.select(some), (m[some], v[some], power[some])
            return about_mode.tilted_moments(block, *sites, block.base._mode_start(*sites))

        def zero(some: Array) -> tuple[Array, Array, Array]:
            return power[some] * np.log(self.select(some).probability), m[some], v[some]

        return TiltedMoments(*self._split(m, zero, positive))

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        # 1/(1 − base(0)) = 1 + (e^T − 1): the base's own moments, and a part that vanishes where counts are large
        first, second = self._base_moments(m, v)
        more, more_second = self._in_blocks(_cut_moments, m, v)
        share = 1 - self.probability
        return self._described(m, v, shape, share * (first + more), share * (second + more_second))

    def _conditional_cdf(self, x: Array) -> Array:
        # P(y ≤ k | y > 0) = (F(k) − F(0))/(1 − F(0))
        none = np.exp(self._zero().log_density(x))
        some = np.maximum(-np.expm1(self._zero().log_density(x)), 1e-300)
        inside = np.clip((self.base._conditional_cdf(x) - none) / some, 0.0, 1.0)  # type: ignore[attr-defined]
        return np.asarray(self.probability + (1 - self.probability) * inside)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        draws = self._positive_sample(x, rng)
        return np.where(rng.random(x.shape) < self.probability, 0.0, draws)

    def _positive_sample(self, x: Array, rng: np.random.Generator) -> Array:
        """Counts of the base that are not zero: draw again while they are; the few that stay so are counted up."""
        draws = self.base._sample(x, rng)
        for _ in range(20):
            if not np.any(draws == 0):
                return draws
            draws = np.where(draws == 0, self.base._sample(x, rng), draws)
        left, u = draws == 0, rng.random(x.shape)
        k = 1.0
        while np.any(left):
            # zero is rare no more: such counts are small
            block = self.base.observe(np.full(self.base.size or (), k))
            none = self._zero().log_density(x)
            done = left & (block._conditional_cdf(x) - np.exp(none) >= u * -np.expm1(none))  # type: ignore[attr-defined]
            draws, left, k = np.where(done, k, draws), left & ~done & (k < 1e4), k + 1.0
        return draws


def _cut_moments(block: Hurdle, m: Array, v: Array) -> tuple[Array, Array]:
    x, _, w = quadrature.gaussian_nodes(m, np.sqrt(v), block.regions())
    more = np.expm1(np.minimum(PositivePart(block._zero()).log_density(x), 600.0))
    first, second = block.base._conditional_moments(x)  # type: ignore[attr-defined]
    return np.einsum("ks,ks->s", w, more * first), np.einsum("ks,ks->s", w, more * second)


class PositivePart(Potential):
    """φ(x) = 1/(1 − base(0 | x)): what a base that gave no zero is divided by.

    With b = log base(0 | x) and h = 1/(e^{−b} − 1): ψ = −log(1 − e^b), ∂ψ/∂b = h. Far on the left base(0) is one but
    for a multiple of e^x, so that ψ is a line there.
    """

    parameters = ("zero",)

    zero: Potential

    def __init__(self, zero: Potential) -> None:
        self._store(zero=zero)

    @property
    def size(self) -> int | None:
        return self.zero.size

    def select(self, index: ArrayLike | slice) -> PositivePart:
        return PositivePart(self.zero.select(index))

    def log_density(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=float)
        near = np.maximum(x, FAR_LEFT)
        return np.asarray(-np.log(-np.expm1(self.zero.log_density(near))) + (near - x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        near = np.maximum(np.asarray(x, dtype=float), FAR_LEFT)
        b, (b1, b2, b3) = self.zero.log_density(near), self.zero.derivatives(near)
        gone = b < -500.0
        h = 1.0 / np.expm1(np.minimum(-b, 500.0))
        with np.errstate(invalid="ignore", over="ignore"):
            # h, h(1 + h) and h(1 + h)(1 + 2h) times powers of b′, which h may be as large as the inverse of
            u = h * b1
            second = h * b2 + u * (b1 + u)
            third = h * b3 + 3 * h * b2 * (b1 + u) + u * (b1 + u) * (b1 + 2 * u)
        return Derivatives(*(np.where(gone, 0.0, part) for part in (u, second, third)))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return self.zero.regions()

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        # 1 − base(0) has no zero within ½π of the line where base(0) is a power of e^{−e^x} or of σ(−x)
        if getattr(self.zero, "link", "logit") == "probit" or hasattr(self.zero, "precision"):
            return super()._expected_log(m, v)
        return strip.expected_log(self, m, v, strip=STRIP)

"""What families around a count family share: the base, its chance of a zero, and its parameters.

The count family is Poisson, NegativeBinomial, Binomial or BetaBinomial. Its free parameters are free here too, and
`replace` hands them on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics import quadrature
from latlin.numerics.options import float_array
from latlin.potentials import about_mode, strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import common_length, fractions
from latlin.potentials.complementary import STRIP
from latlin.potentials.predictive import CountPredictive, Predictive
from latlin.potentials.ranges import Range, UnitInterval

#: x below which the chance of a positive count is a line in x on the log scale
FAR_LEFT = -600.0


class AroundCounts(Potential):
    """A count family with a chance of zero of its own."""

    parameters = ("base", "probability")
    arrays = ("probability",)

    base: Potential
    probability: Array

    def __init__(self, base: Potential, probability: ArrayLike) -> None:
        if not hasattr(base, "_conditional_cdf") or not hasattr(base, "_conditional_moments"):
            raise ValueError(f"base must be a family of counts, such as Poisson(y), got {base!r:.80}")
        self._store(base=base, probability=fractions("probability", probability))
        common_length(probability=self.probability, base=np.empty(base.size) if base.size else np.empty(()))
        object.__setattr__(self, "observation", base.observation)

    @property
    def counts(self) -> Array:
        """The stored counts."""
        return np.asarray(getattr(self.base, self.base.observation[0]))

    @property
    def free(self) -> Mapping[str, Range]:  # type: ignore[override]
        return MappingProxyType({"probability": UnitInterval(), **self.base.free})

    @property
    def size(self) -> int | None:
        return self.base.size or super().size

    def select(self, index: ArrayLike | slice) -> Self:
        block = super().select(index)
        object.__setattr__(block, "base", self.base.select(index))
        return block

    def replace(self, **values: Any) -> Self:
        own = {name: values.pop(name) for name in list(values) if name in self.parameters}
        base = own.get("base", self.base)
        return type(self)(base.replace(**values) if values else base, own.get("probability", self.probability))

    def value_of(self, name: str) -> Any:
        return self.probability if name == "probability" else self.base.value_of(name)

    def _zero(self) -> Potential:
        """The base with a count of zero at every site."""
        return self.base.observe(np.zeros(self.base.size or ()))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return self.base.regions()

    def _split(self, m: Array, one: Callable[[Any], Any], other: Callable[[Any], Any]) -> Array:
        """Three arrays over sites: `one` of the sites with a count of zero, `other` of the rest."""
        zero = np.broadcast_to(self.counts == 0, m.shape)
        out = np.empty((3, m.size))
        for some, ask in ((np.flatnonzero(zero), one), (np.flatnonzero(~zero), other)):
            if some.size:
                out[:, some] = ask(some)
        return out

    def _sharpness(self) -> Array:
        return self.base._sharpness()

    def _base_moments(self, m: Array, v: Array) -> tuple[Array, Array]:
        """⟨y⟩ and ⟨y²⟩ of the base under N(x|m, v)."""
        described = self.base._predictive(m, v, m.shape)
        with np.errstate(over="ignore"):
            return described.mean, described.variance + described.mean**2

    def _described(self, m: Array, v: Array, shape: tuple[int, ...], first: Array, second: Array) -> Predictive:
        """New counts with these two moments."""
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.where(np.isinf(second), np.inf, np.maximum(second - first * first, 0.0))
        return CountPredictive(self, m, v, shape, first, spread, getattr(self.base, "trials", np.inf))


def chain(derivatives: Derivatives, one: Array, two: Array, three: Array) -> Derivatives:
    """Derivatives of f(b(x)) from those of b and f′, f″, f‴ at b."""
    b1, b2, b3 = derivatives
    return Derivatives(one * b1, one * b2 + two * b1**2, one * b3 + 3 * two * b1 * b2 + three * b1**3)


# --- Counts with more zeros than their family has: some sites can only give zero.


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
        x = float_array("x", x)
        rest = np.log1p(-self.probability) + self.base.log_density(x)
        return np.where(self.counts == 0, self._logs(x)[0], rest)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
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


# --- Counts in two steps: is there any at all, and if so, how many.


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
        x = float_array("x", x)
        positive = np.log1p(-self.probability) + self.base.log_density(x) + PositivePart(self._zero()).log_density(x)
        return np.where(self.counts == 0, np.log(self.probability), positive)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
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
        x = float_array("x", x)
        near = np.maximum(x, FAR_LEFT)
        return np.asarray(-np.log(-np.expm1(self.zero.log_density(near))) + (near - x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        near = np.maximum(float_array("x", x), FAR_LEFT)
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

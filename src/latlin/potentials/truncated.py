"""What lies between two ends: a box of which nothing else is known, and observations recorded only inside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from latlin.numerics import quadrature
from latlin.numerics.arrays import check_visible
from latlin.numerics.options import float_array
from latlin.potentials import about_mode, strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import common_length, refuse
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.kernels.truncated import normal_interval
from latlin.potentials.predictive import ContinuousPredictive, Predictive, Support
from latlin.potentials.ranges import Range

#: distance beyond an end, in scales, from which the tail of the normal is its leading term
FAR = 1e8


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
        low, high = check_end("low", low), check_end("high", high)
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


def check_end(name: str, value: ArrayLike) -> Array:
    """An end of an interval, infinite or not."""
    check_visible(name, value)
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers, got {value!r:.80}") from error
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"{name} must hold a number or one number per site, got shape {array.shape}")
    refuse(name, array, np.isnan(array), "numbers, finite or not")
    array.flags.writeable = False
    return array


class Truncated(Potential):
    """φ(x) = N(loc | x, scale²)/P(low ≤ y ≤ high | x): Gaussian observations that would not be seen outside.

    Log-concave, as x is the natural parameter with and without the cut. For counts that are never zero use `Hurdle`,
    whose positive part is the truncated family.

    Parameters
    ----------
    base : Gaussian
        The observations before the cut, `Gaussian(y, scale)`.
    low, high : float or array_like of shape (sites,), default −∞ and ∞
        What is not between them is not recorded; at least one is finite.

    Examples
    --------
    >>> from latlin.potentials import Gaussian
    >>> Truncated(Gaussian([0.5, 2.0]), low=0.0).log_density([0.0, 0.0]).round(4).tolist()
    [-0.3508, -2.2258]
    """

    parameters = ("base", "low", "high")
    arrays = ("low", "high")
    log_concave = True

    base: Gaussian
    low: Array
    high: Array

    def __init__(self, base: Gaussian, low: ArrayLike = -np.inf, high: ArrayLike = np.inf) -> None:
        if type(base) is not Gaussian:
            raise ValueError(f"base must be Gaussian(y, scale), got {base!r:.80}")
        low, high, y = check_end("low", low), check_end("high", high), base.loc
        refuse("high", high, ~(low < high), "numbers above low")
        refuse("low", low, np.isinf(low) & np.isinf(high), "a finite number where high is infinite")
        self._store(base=base, low=low, high=high)
        common_length(low=low, high=high, base=np.empty(base.size) if base.size else np.empty(()))
        refuse("base", y, (y < low) | (y > high), "observations between low and high")
        object.__setattr__(self, "observation", ("loc", float(np.ravel(self._some_inside())[0])))

    def _some_inside(self) -> Array:
        """A value between the ends of every site, if there is one."""
        low, high = float(np.max(self.low)), float(np.min(self.high))
        if np.isinf(low) or np.isinf(high):
            return np.asarray(high - 1.0 if np.isinf(low) else low + 1.0)
        return np.asarray(0.5 * (low + high))

    @property
    def free(self) -> Mapping[str, Range]:  # type: ignore[override]
        return self.base.free

    @property
    def size(self) -> int | None:
        return self.base.size or super().size

    def select(self, index: ArrayLike | slice) -> Self:
        block = super().select(index)
        object.__setattr__(block, "base", self.base.select(index))
        return block

    def replace(self, **values: Any) -> Self:
        own = {name: values.pop(name, getattr(self, name)) for name in self.parameters}
        return type(self)(own["base"].replace(**values) if values else own["base"], own["low"], own["high"])

    def value_of(self, name: str) -> Any:
        return self.base.value_of(name)

    def _recorded(self) -> Recorded:
        return Recorded(self.low, self.high, self.base.scale)

    def log_density(self, x: ArrayLike) -> Array:
        x, s, y = float_array("x", x), self.base.scale, self.base.loc
        near = self.base.log_density(x) - self._recorded().log_density(x)
        # far beyond an end, squares cancelled by hand: −½((y − x)² − (end − x)²)/s² + log |end − x| − 2 log s
        end = np.where(x < self.low, self.low, self.high)
        end = np.where(np.isinf(end), y, end)
        away = np.abs(end - x) / s
        line = (end - y) / s * (0.5 * (y + end) / s - x / s) + np.log(np.maximum(away, 1.0)) - np.log(s)
        return np.where((away > FAR) & ((x < self.low) | (x > self.high)), line, near)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        parts = zip(self.base.derivatives(x), self._recorded().derivatives(x), strict=True)
        return Derivatives(*(base - cut for base, cut in parts))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((self.base.loc, self.base.scale), *self._recorded().regions())

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        parts = zip(self.base._expected_log(m, v), self._recorded()._expected_log(m, v), strict=True)
        return ExpectedLog(*(base - cut for base, cut in parts))

    def _remainder(self, x: Array, d: Array) -> Array:
        return -0.5 * (d / self.base.scale) ** 2 - self._recorded()._remainder(x, d)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return about_mode.tilted_moments(self, m, v, power, m)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._in_blocks(_recorded_moments, m, v)
        low, high = float(np.max(self.low)), float(np.min(self.high))
        if np.any(self.low != low) or np.any(self.high != high):
            raise ValueError("low and high must be the same at every site for a predictive distribution")
        support = _support(low, high)
        return ContinuousPredictive(self, m, v, shape, first, np.maximum(second - first * first, 0.0), support)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        s = self.base.scale
        a, b = (self.low - x) / s, (self.high - x) / s
        # on the side where the distribution function is small
        flip = a > 0
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        z = ndtri(ndtr(a) + rng.random(x.shape) * (ndtr(b) - ndtr(a)))
        draws = x + s * np.where(flip, -z, z)
        return np.clip(draws, self.low, self.high)

    def _conditional_cdf(self, x: Array) -> Array:
        s, y = self.base.scale, self.base.loc
        below = normal_interval((self.low - x) / s, np.maximum((y - x) / s, (self.low - x) / s + 1e-12))
        whole = normal_interval((self.low - x) / s, (self.high - x) / s)
        return np.asarray(np.exp(np.minimum(below.log_mass - whole.log_mass, 0.0)))


class Recorded(Potential):
    """φ(x) = P(low ≤ x + scale·z ≤ high), z standard normal."""

    parameters = ("low", "high", "scale")
    arrays = ("low", "high", "scale")
    log_concave = True

    low: Array
    high: Array
    scale: Array

    def __init__(self, low: Array, high: Array, scale: Array) -> None:
        self._store(low=low, high=high, scale=scale)

    def _ends(self, x: ArrayLike) -> tuple[Array, Array]:
        x = float_array("x", x)
        return (self.low - x) / self.scale, (self.high - x) / self.scale

    def log_density(self, x: ArrayLike) -> Array:
        a, b = np.broadcast_arrays(*self._ends(x))
        return normal_interval(a, b, (self.high - self.low) / self.scale).log_mass.reshape(a.shape)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        a, b = np.broadcast_arrays(*self._ends(x))
        mass, s = normal_interval(a, b, (self.high - self.low) / self.scale), self.scale
        # the ends move against x
        first, second, third = (part.reshape(a.shape) for part in mass[1:4])
        return Derivatives(-first / s, second / s**2, -third / s**3)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        low = np.where(np.isinf(self.low), self.high, self.low)
        return ((low, self.scale), (np.where(np.isinf(self.high), low, self.high), self.scale))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        # in units of the scale; zeros of Φ(b + t) − Φ(a + t) are at least two of them away from the line
        s, one = self.scale, np.ones(())
        unit = Recorded(self.low / s, self.high / s, one)
        value, d_mean, d_var = strip.expected_log_mass(unit, m / s, v / s**2, unit.low, unit.high, 2.0)
        return ExpectedLog(value, d_mean / s, d_var / s**2)


def _recorded_moments(block: Truncated, m: Array, v: Array) -> tuple[Array, Array]:
    """⟨y⟩ and ⟨y²⟩: given x, the mean and variance of a normal cut to the interval."""
    x, _, w = quadrature.gaussian_nodes(m, np.sqrt(v), block.regions())
    s = block.base.scale
    cut = normal_interval((block.low - x) / s, (block.high - x) / s)
    mean = x - s * cut.first
    return np.einsum("ks,ks->s", w, mean), np.einsum("ks,ks->s", w, mean * mean + s * s * cut.rest)


def _support(low: float, high: float) -> Support:
    """The part of the line between two ends, as an image of the line near which it is the identity."""

    def place(t: Array) -> Array:
        return np.clip(t, np.nextafter(low, np.inf), np.nextafter(high, -np.inf))

    return Support(low, high, place, np.zeros_like)

"""Distributions of a new observation y, given that its projection x is N(mean, var).

The density of y is ∫ N(x|mean, var) φ_y(x) dx, the log Z of the tilted moments with y as the observation; the
distribution function integrates that of y given x in the same way. Everything has the shape (..., sites) of
mean and var.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri

from latlin.numerics import quadrature
from latlin.numerics.arrays import LARGEST, Array
from latlin.numerics.options import float_array
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.special import log_sigmoid

#: counts beyond which whole numbers are no longer all numbers
LARGEST_COUNT = 2.0**53
LOG_LARGEST = float(np.log(LARGEST)) - 1e-9
#: reach of the nodes for distribution functions of counts and their distance, in standard deviations, and most of them
CDF_REACH, CDF_STEP, CDF_NODES = 7.5, 0.5, 100
#: doublings after which a bracket of a quantile is given up
MOST_DOUBLINGS = 1000
#: difference of probabilities that is none
SAME = 1e-9
#: the highest level of a quantile that is sought: distribution functions are no more accurate
ALMOST_ONE = 1.0 - 1e-12
#: a potential; the families are built on this file, so it does not name them
Block = Any


class Predictive(ABC):
    """Distribution of new observations, one per site.

    Attributes
    ----------
    mean, variance : ndarray of shape (..., sites)
        Infinite (variance) or NaN (mean) where the family has none.
    whole : bool
        Whether observations are whole numbers.
    least : float
        The lowest observation, where it has a probability of its own; else −∞.
    """

    mean: Array
    variance: Array
    whole: bool = False
    least: float = -np.inf

    def __init__(self, potential: Block, m: Array, v: Array, shape: tuple[int, ...]) -> None:
        self._potential, self._m, self._v, self._shape = potential, m, v, shape

    def __repr__(self) -> str:
        return f"<predictive distribution of {self._m.size} new {type(self._potential).__name__} observations>"

    def log_density(self, y: ArrayLike) -> Array:
        """Log density (or log probability) of y, of shape (..., sites), in nat."""
        block, m, v, shape = self._at(y)
        return block.tilted_moments(m, v).log_z.reshape(shape)

    @abstractmethod
    def cdf(self, y: ArrayLike) -> Array:
        """P(new observation ≤ y), for y of shape (..., sites)."""

    @abstractmethod
    def quantile(self, q: ArrayLike) -> Array:
        """The smallest y with cdf(y) ≥ q, for q in (0, 1) of shape (..., sites)."""

    def interval(self, coverage: float) -> Array:
        """Ends of intervals that hold a new observation with probability `coverage`, shape (2, ..., sites).

        Whole numbers seldom allow exactly that: `nearest_interval` says what they get.
        """
        return nearest_interval(self.quantile, self.cdf, coverage, self._shape, self.whole, self.least)

    def pit(self, y: ArrayLike, random_state: RandomState = None) -> Array:
        """Probability integral transforms: even on (0, 1) for y of this distribution (Dunn and Smyth, 1996).

        Drawn evenly between P(new < y) and P(new ≤ y), which for numbers with a density are the same.
        """
        y = float_array("y", y)
        below, upto = self.cdf(np.nextafter(y, -np.inf)), self.cdf(y)
        return np.asarray(below + generator(random_state).random(upto.shape) * (upto - below))

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Independent draws, shape (n, ..., sites)."""
        rng = generator(random_state)
        x = self._m + np.sqrt(self._v) * rng.standard_normal((n, self._m.size))
        return np.asarray(self._potential.sample(x, rng)).reshape((n, *self._shape))

    def _at(self, y: ArrayLike) -> tuple[Block, Array, Array, tuple[int, ...]]:
        """The potentials of observations y with their means and variances, flat, and the shape to return."""
        y = float_array("y", y)
        shape = np.broadcast_shapes(y.shape, self._shape)
        sites = np.broadcast_to(np.arange(self._m.size).reshape(self._shape), shape).ravel()
        block = self._potential.select(sites).observe(np.broadcast_to(y, shape).ravel())
        return block, self._m[sites], self._v[sites], shape


def class_pit(probabilities: Array, place: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """Transforms of classes, at `place` among the columns: drawn evenly between P(before it) and P(up to it)."""
    row = np.arange(len(probabilities))
    table = np.cumsum(probabilities, axis=1)
    upto, below = table[row, place], np.where(place > 0, table[row, np.maximum(place - 1, 0)], 0.0)
    return np.asarray(below + rng.random(len(row)) * (upto - below))


def censored_pit(described: Predictive, times: Array, rng: np.random.Generator) -> Array:
    """Transforms of times with events and upper ends beside them, as far as these are given.

    Of a time that comes later than its row says, drawn evenly above P(new ≤ time); of an earlier one, below it.
    """
    low, high = censored_levels(described, times)
    return np.asarray(low + rng.random(len(times)) * (high - low))


def censored_levels(described: Predictive, times: Array) -> tuple[Array, Array]:
    """Levels P(new ≤ time) between which the times of rows lie; the same two for events that were seen."""
    table = times if times.ndim == 2 else times[:, None]
    event = table[:, 1] if table.shape[1] > 1 else np.ones(len(table))
    upto = described.cdf(table[:, 0])
    above = described.cdf(np.where(event == 3.0, table[:, -1], table[:, 0]))
    return np.where(event == 2.0, 0.0, upto), np.select([event == 0.0, event == 3.0], [1.0, above], upto)


def residuals_of(pit: Array) -> Array:
    """Φ⁻¹ of transforms: standard normal if these are even."""
    return np.asarray(ndtri(np.clip(pit, 1e-15, 1.0 - 1e-15)))


def nearest_interval(
    quantile: Callable[[Array], Array],
    cdf: Callable[[Array], Array],
    coverage: float,
    shape: tuple[int, ...],
    whole: bool,
    least: float = -np.inf,
) -> Array:
    """Ends of the interval [a, b] that holds an observation with a probability as near to `coverage` as can be.

    Of observations with a density this is the central interval. That of whole numbers leaves less out than it may at
    one end or both, often nothing at zero, and so holds more than `coverage`; here one of its ends moves inwards, to
    where P(a ≤ y ≤ b) is nearest to `coverage`: the upper one, or the lower one if that comes nearer. It is more in
    some rows and less in others, and near `coverage` on average over rows that differ.

    Parameters
    ----------
    quantile, cdf : callable
        Of arrays of that shape.
    least : float
        The lowest observation, where it has a probability of its own.

    Examples
    --------
    >>> from latlin.potentials import Binomial, Poisson
    >>> found = Poisson(0).predictive([0.0, 2.0], [0.0, 0.0])  # means 1 and 7.4
    >>> low, high = found.interval(0.9)
    >>> low.tolist(), high.tolist(), (found.cdf(high) - found.cdf(low - 1.0)).round(3).tolist()
    ([0.0, 4.0], [2.0, 12.0], [0.92, 0.898])
    >>> Binomial(0, 15).predictive([4.6], [0.0]).interval(0.9).tolist()  # P(15) = 0.86, P(14) = 0.13
    [[15.0], [15.0]]
    """
    tail = 0.5 * (1.0 - coverage)
    low = quantile(np.full(shape, tail))
    below = np.where(low > least, cdf(low - 1.0) if whole else tail, 0.0)
    high = quantile(np.minimum(coverage + below, ALMOST_ONE))
    if not whole:
        return np.stack([low, high])
    # P(low … high − 1) < coverage ≤ P(low … high)
    more, less = cdf(high) - below - coverage, coverage - (cdf(high - 1.0) - below)
    high = np.where((less < more) & (high > low), high - 1.0, high)
    # the other way: the upper end stays where it is central
    last = quantile(np.full(shape, 1.0 - tail))
    upto = cdf(last)
    first = quantile(upto - coverage)
    longer, shorter = upto - cdf(first - 1.0) - coverage, coverage - (upto - cdf(first))
    first = np.where((shorter < longer) & (first < last), first + 1.0, first)
    apart = [np.abs(cdf(b) - cdf(a - 1.0) - coverage) for a, b in ((low, high), (first, last))]
    other = apart[1] < apart[0] - SAME
    return np.stack([np.where(other, first, low), np.where(other, last, high)])


def _probabilities(q: ArrayLike) -> Array:
    q = np.asarray(q, dtype=float)
    if not np.all((q > 0) & (q < 1)):
        raise ValueError("q must hold probabilities strictly between 0 and 1")
    return q


def _between_zero_and_one(t: Array) -> Array:
    return np.asarray(expit(np.clip(t, -36.0, 36.0)))


def _count_cdf(block: Block, m: Array, v: Array) -> tuple[Array]:
    """⟨P(new count ≤ y | x)⟩ by equidistant nodes, or by panels where these would be many.

    As a function of x that probability is no steeper than Poisson's, whose slope is e^{(y+1)x − e^x}/y!, analytic in
    |Im x| < π/2, with a width of 1/√(y + 1) (a binomial one is no steeper than trials allow).
    """
    s = np.sqrt(v)
    # the width of the slope, seen in standard deviations
    sharp = np.sqrt(1.0 + v * block._sharpness())
    count = int(np.ceil(CDF_REACH / CDF_STEP * sharp.max(initial=1.0)))
    if count > CDF_NODES:
        return (quadrature.gaussian_expectation(block._conditional_cdf, m, s, block.regions()),)
    z = np.linspace(-CDF_REACH, CDF_REACH, 2 * count + 1)[:, None]
    w = np.exp(-0.5 * z[:, 0] ** 2)
    return (w @ np.asarray(block._conditional_cdf(m + s * z)) / w.sum(),)


class Support(NamedTuple):
    """Where observations lie, as the image y(t) of the real line."""

    low: float
    high: float
    place: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]


LINE = Support(-np.inf, np.inf, lambda t: t, np.zeros_like)
POSITIVE = Support(0.0, np.inf, lambda t: np.exp(np.clip(t, -LOG_LARGEST, LOG_LARGEST)), lambda t: t)
UNIT = Support(0.0, 1.0, _between_zero_and_one, lambda t: log_sigmoid(t) + log_sigmoid(-t))


class ContinuousPredictive(Predictive):
    """Real observations whose distribution given x the family knows, on the line, above zero or between zero and one.

    With t the coordinate in which y is any real number, most of the mass lies about t = x.
    """

    def __init__(
        self,
        potential: Block,
        m: Array,
        v: Array,
        shape: tuple[int, ...],
        mean: Array,
        variance: Array,
        support: Support = LINE,
    ) -> None:
        super().__init__(potential, m, v, shape)
        self.mean, self.variance, self._support = mean.reshape(shape), variance.reshape(shape), support

    def _inside(self, y: Array) -> NDArray[np.bool_]:
        return (y > self._support.low) & (y < self._support.high)

    def log_density(self, y: ArrayLike) -> Array:
        y = np.asarray(y, dtype=float)
        inside = self._inside(y)
        value = super().log_density(np.where(inside, y, self._potential.observation[1]))
        return np.where(inside, value, -np.inf)

    def cdf(self, y: ArrayLike) -> Array:
        y = np.asarray(y, dtype=float)
        inside = self._inside(y)
        block, m, v, shape = self._at(np.where(inside, y, self._potential.observation[1]))
        (value,) = block._in_blocks(type(self)._cdf_block, m, v)
        value = np.clip(value, 0.0, 1.0).reshape(shape)
        return np.where(inside, value, np.where(y >= self._support.high, 1.0, 0.0))

    @staticmethod
    def _cdf_block(block: Block, m: Array, v: Array) -> tuple[Array]:
        # P(new ≤ y) = ∫ N(x|m, v) P(new ≤ y | x) dx
        return (quadrature.gaussian_expectation(block._conditional_cdf, m, np.sqrt(v), block.regions()),)

    def quantile(self, q: ArrayLike) -> Array:
        return self._support.place(self.quantile_roots(q))

    def quantile_roots(self, q: ArrayLike) -> Array:
        """The quantiles in the coordinate t."""
        q = np.broadcast_to(_probabilities(q), np.broadcast_shapes(np.shape(q), self._shape))
        m, width, place = self._m.reshape(self._shape), self.width, self._support.place
        low, high = m - width, m + width
        for _ in range(MOST_DOUBLINGS):
            if not np.any(short := self.cdf(place(low)) > q):
                break
            low = np.where(short, m - 2 * (m - low), low) + np.zeros_like(q)
        for _ in range(MOST_DOUBLINGS):
            if not np.any(short := self.cdf(place(high)) < q):
                break
            high = np.where(short, m + 2 * (high - m), high) + np.zeros_like(q)
        site = np.broadcast_to(np.arange(self._m.size).reshape(self._shape), q.shape).ravel()
        low, high = (np.array(np.broadcast_to(end, q.shape)).ravel() for end in (low, high))
        start, reach = 0.5 * (low + high), np.full(q.size, np.inf)
        return quadrature.solve_quantiles(self._value_and_slope, site, q.ravel(), start, low, high, reach).reshape(
            q.shape
        )

    @property
    def width(self) -> Array:
        """A rough width of the distribution of t."""
        region = np.broadcast_to(self._potential.regions()[0][1], self._m.shape)
        return np.asarray((np.sqrt(self._v) + region).reshape(self._shape))

    def _value_and_slope(self, site: NDArray[np.int64], t: Array) -> tuple[Array, Array]:
        """The distribution function and the log of its slope in t, of some sites."""
        m, v = self._m[site], self._v[site]
        block = self._potential.select(site).observe(self._support.place(t))
        (value,) = block._in_blocks(type(self)._cdf_block, m, v)
        log_density = block.tilted_moments(m, v).log_z
        return np.clip(value, 0.0, 1.0), log_density + self._support.log_slope(t)


class LocationPredictive(ContinuousPredictive):
    """y = x + noise, with the noise of the family."""

    def __init__(self, potential: Block, m: Array, v: Array, shape: tuple[int, ...]) -> None:
        centre, spread = potential._noise_moments()
        super().__init__(potential, m, v, shape, m + centre, v + spread)

    @staticmethod
    def _cdf_block(block: Block, m: Array, v: Array) -> tuple[Array]:
        # P(y ≤ t) = ∫ N(x|m, v) P(noise ≤ t − x) dx, with t the observation
        t = getattr(block, block.observation[0])
        return (quadrature.gaussian_expectation(lambda x: block._noise_cdf(t - x), m, np.sqrt(v), block.regions()),)


class ClassPredictive(Predictive):
    """Classes 0 … K−1.

    Attributes
    ----------
    probabilities : ndarray of shape (..., sites, classes)
    """

    probabilities: Array
    whole, least = True, 0.0

    def __init__(self, potential: Block, m: Array, v: Array, shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(potential, m, v, shape)
        tables = [np.exp(potential.observe(k).tilted_moments(m, v).log_z) for k in range(n_classes)]
        table = np.stack(tables, axis=-1)
        self.probabilities = (table / table.sum(axis=-1, keepdims=True)).reshape((*shape, n_classes))
        classes = np.arange(n_classes)
        self.mean = self.probabilities @ classes
        self.variance = np.sum(self.probabilities * (classes - self.mean[..., None]) ** 2, axis=-1)

    def cdf(self, y: ArrayLike) -> Array:
        k = np.floor(np.asarray(y, dtype=float))
        classes = np.arange(self.probabilities.shape[-1])
        return np.asarray(np.sum(self.probabilities * (classes <= k[..., None]), axis=-1))

    def quantile(self, q: ArrayLike) -> Array:
        below = np.cumsum(self.probabilities, axis=-1)[..., :-1] < _probabilities(q)[..., None]
        return np.asarray(np.sum(below, axis=-1), dtype=float)


class CountPredictive(Predictive):
    """Counts 0, 1, 2, …, without an upper end or up to `most`."""

    whole, least = True, 0.0

    def __init__(
        self,
        potential: Block,
        m: Array,
        v: Array,
        shape: tuple[int, ...],
        mean: Array,
        variance: Array,
        most: ArrayLike = np.inf,
    ) -> None:
        super().__init__(potential, m, v, shape)
        self.mean, self.variance = mean.reshape(shape), variance.reshape(shape)
        self._most = np.broadcast_to(np.asarray(most, dtype=float), m.shape).reshape(shape)

    def log_density(self, y: ArrayLike) -> Array:
        y = np.asarray(y, dtype=float)
        return np.where(y <= self._most, super().log_density(np.minimum(y, self._most)), -np.inf)

    def cdf(self, y: ArrayLike) -> Array:
        k = np.asarray(y, dtype=float)
        shape = np.broadcast_shapes(k.shape, self._shape)
        site = np.broadcast_to(np.arange(self._m.size).reshape(self._shape), shape).ravel()
        return self.cdf_at(site, np.broadcast_to(k, shape).ravel()).reshape(shape)

    def cdf_at(self, site: NDArray[np.int64], y: Array) -> Array:
        """P(new observation ≤ y) of some sites, by their numbers."""
        k = np.floor(y)
        block = self._potential.select(site).observe(np.clip(k, 0.0, self._most.ravel()[site]))
        (value,) = block._in_blocks(_count_cdf, self._m[site], self._v[site])
        return np.where(k < 0, 0.0, np.clip(value, 0.0, 1.0))

    def quantile(self, q: ArrayLike) -> Array:
        return quantile_of_counts(q, self._shape, self.mean, self.variance, self._most, self.cdf_at)


def quantile_of_counts(
    q: ArrayLike, shape: tuple[int, ...], mean: Array, variance: Array, most: Array, cdf_at: Callable[..., Array]
) -> Array:
    """The smallest k with cdf(k) ≥ q, sought between the ends that the first two moments leave (Cantelli, 1928).

    Parameters
    ----------
    q : array_like of shape (..., sites)
    shape : tuple of int
        Of mean, variance and most, the largest count: (..., sites).
    cdf_at : callable
        (numbers of sites, counts) → P(new count ≤ count).
    """
    q = np.broadcast_to(_probabilities(q), np.broadcast_shapes(np.shape(q), shape))
    site = np.broadcast_to(np.arange(mean.size).reshape(shape), q.shape).ravel()
    p, centre, top = q.ravel(), mean.ravel()[site], most.ravel()[site]
    with np.errstate(over="ignore", invalid="ignore"):
        sd = np.sqrt(variance.ravel()[site])
        low, high = centre - sd * np.sqrt((1.0 - p) / p), centre + sd * np.sqrt(p / (1.0 - p))
        guess = centre + sd * ndtri(p)
    # the quantile is in (low, high]; moments may be too large for numbers, or rounded
    low = np.clip(np.where(np.isfinite(low), np.ceil(low) - 2.0, -1.0), -1.0, top - 1.0)
    high = np.clip(np.where(np.isfinite(high) & (high < LARGEST_COUNT), np.floor(high) + 1.0, 1.0), low + 1.0, top)
    left = np.flatnonzero((high < top) & ~(np.isfinite(centre + sd) & (centre + sd < LARGEST_COUNT)))
    while left.size:
        short = cdf_at(site[left], high[left]) < p[left]
        left = left[short]
        low[left], high[left] = high[left], np.minimum(2.0 * high[left], top[left])
    left, first = np.flatnonzero(high - low > 1.0), True
    while left.size:
        halves = np.floor(0.5 * (low[left] + high[left]))
        likely = np.nan_to_num(np.floor(guess[left]), nan=0.0, posinf=0.0, neginf=0.0)
        inside = (likely > low[left]) & (likely < high[left])
        k = np.where(inside, likely, halves) if first else halves
        below = cdf_at(site[left], k) < p[left]
        low[left], high[left] = np.where(below, k, low[left]), np.where(below, high[left], k)
        left, first = left[high[left] - low[left] > 1.0], False
    return high.reshape(q.shape)

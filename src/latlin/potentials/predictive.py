"""Distributions of a new observation y, given that its projection x is N(mean, var).

The density of y is ∫ N(x|mean, var) φ_y(x) dx, the log Z of the tilted moments with y as the observation; the
distribution function integrates that of y given x in the same way. Everything has the shape (..., sites) of
mean and var.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics import quadrature
from latlin.numerics.rng import RandomState, generator

Array = NDArray[np.float64]
#: a potential; the families are built on this file, so it does not name them
Block = Any


class Predictive(ABC):
    """Distribution of new observations, one a site.

    Attributes
    ----------
    mean, variance : ndarray of shape (..., sites)
        Infinite (variance) or NaN (mean) where the family has none.
    """

    mean: Array
    variance: Array

    def __init__(self, potential: Block, m: Array, v: Array, shape: tuple[int, ...]) -> None:
        self._potential, self._m, self._v, self._shape = potential, m, v, shape

    def __repr__(self) -> str:
        return f"<predictive distribution of {self._m.size} new {type(self._potential).__name__} observations>"

    def log_density(self, y: ArrayLike) -> Array:
        """Log density (or log probability) of y, of shape (..., sites), in nat."""
        block, m, v, shape = self._at(y)
        return block._tilted_moments(m, v, np.ones_like(m)).log_z.reshape(shape)

    @abstractmethod
    def cdf(self, y: ArrayLike) -> Array:
        """P(new observation ≤ y), for y of shape (..., sites)."""

    @abstractmethod
    def quantile(self, q: ArrayLike) -> Array:
        """The smallest y with cdf(y) ≥ q, for q in (0, 1) of shape (..., sites)."""

    @abstractmethod
    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Independent draws, shape (n, ..., sites)."""

    def _at(self, y: ArrayLike) -> tuple[Block, Array, Array, tuple[int, ...]]:
        """The potentials of observations y with their means and variances, flat, and the shape to return."""
        y = np.asarray(y, dtype=float)
        shape = np.broadcast_shapes(y.shape, self._shape)
        sites = np.broadcast_to(np.arange(self._m.size).reshape(self._shape), shape).ravel()
        block = self._potential.select(sites).observe(np.broadcast_to(y, shape).ravel())
        return block, self._m[sites], self._v[sites], shape

    def _draw_x(self, n: int, rng: np.random.Generator) -> Array:
        return self._m + np.sqrt(self._v) * rng.standard_normal((n, self._m.size))


def _probabilities(q: ArrayLike) -> Array:
    q = np.asarray(q, dtype=float)
    if not np.all((q > 0) & (q < 1)):
        raise ValueError("q must hold probabilities strictly between 0 and 1")
    return q


def _location_cdf(block: Block, m: Array, v: Array, t: Array) -> tuple[Array]:
    # P(y ≤ t) = ∫ N(x|m, v) P(noise ≤ t − x) dx
    return (quadrature.gaussian_expectation(lambda x: block._noise_cdf(t - x), m, np.sqrt(v), block.regions()),)


def _count_cdf(block: Block, m: Array, v: Array) -> tuple[Array]:
    return (quadrature.gaussian_expectation(block._conditional_cdf, m, np.sqrt(v), block.regions()),)


class LocationPredictive(Predictive):
    """y = x + noise, with the noise of the family."""

    def __init__(self, potential: Block, m: Array, v: Array, shape: tuple[int, ...]) -> None:
        super().__init__(potential, m, v, shape)
        centre, spread = potential._noise_moments()
        self.mean, self.variance = (m + centre).reshape(shape), (v + spread).reshape(shape)

    def cdf(self, y: ArrayLike) -> Array:
        block, m, v, shape = self._at(y)
        t = np.broadcast_to(np.asarray(y, dtype=float), shape).ravel()
        (value,) = block._in_blocks(_location_cdf, m, v, t)
        return np.clip(value, 0.0, 1.0).reshape(shape)

    def quantile(self, q: ArrayLike) -> Array:
        q = np.broadcast_to(_probabilities(q), np.broadcast_shapes(np.shape(q), self._shape))
        m, s = self._m.reshape(self._shape), np.sqrt(self._v).reshape(self._shape)
        width = s + np.broadcast_to(self._potential.regions()[0][1], self._m.shape).reshape(self._shape)
        low, high = m - width, m + width
        while np.any(short := self.cdf(low) > q):
            low = np.where(short, m - 2 * (m - low), low) + np.zeros_like(q)
        while np.any(short := self.cdf(high) < q):
            high = np.where(short, m + 2 * (high - m), high) + np.zeros_like(q)
        return self._solve(q, low + np.zeros_like(q), high + np.zeros_like(q))

    def _solve(self, q: Array, low: Array, high: Array) -> Array:
        """Newton's method for cdf(y) = q, kept in a bracket by bisection."""
        y = 0.5 * (low + high)
        for _ in range(80):
            excess = self.cdf(y) - q
            low, high = np.where(excess < 0, y, low), np.where(excess < 0, high, y)
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                new = y - excess * np.exp(-self.log_density(y))
            new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
            if np.all(np.abs(new - y) <= 1e-12 * (np.abs(y) + high - low)):
                return new
            y = new
        return y

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        rng = generator(random_state)
        x = self._draw_x(n, rng)
        return (x + self._potential._noise_sample(x.shape, rng)).reshape((n, *self._shape))


class ClassPredictive(Predictive):
    """Classes 0 … K−1.

    Attributes
    ----------
    probabilities : ndarray of shape (..., sites, classes)
    """

    probabilities: Array

    def __init__(self, potential: Block, m: Array, v: Array, shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(potential, m, v, shape)
        one = np.ones_like(m)
        tables = [np.exp(potential.observe(k)._tilted_moments(m, v, one).log_z) for k in range(n_classes)]
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

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        rng = generator(random_state)
        u = rng.uniform(np.finfo(float).tiny, 1.0, size=(n, *self._shape))
        return self.quantile(u)


class CountPredictive(Predictive):
    """Counts 0, 1, 2, … without an upper end."""

    def __init__(
        self, potential: Block, m: Array, v: Array, shape: tuple[int, ...], mean: Array, variance: Array
    ) -> None:
        super().__init__(potential, m, v, shape)
        self.mean, self.variance = mean.reshape(shape), variance.reshape(shape)

    def cdf(self, y: ArrayLike) -> Array:
        k = np.floor(np.asarray(y, dtype=float))
        block, m, v, shape = self._at(np.maximum(k, 0.0))
        (value,) = block._in_blocks(_count_cdf, m, v)
        return np.where(np.broadcast_to(k, shape) < 0, 0.0, np.clip(value, 0.0, 1.0).reshape(shape))

    def quantile(self, q: ArrayLike) -> Array:
        q = np.broadcast_to(_probabilities(q), np.broadcast_shapes(np.shape(q), self._shape))
        # the smallest k with cdf(k) ≥ q is in (low, high]
        low, high = np.full(q.shape, -1.0), np.ones(q.shape)
        while np.any(short := self.cdf(high) < q):
            low, high = np.where(short, high, low), np.where(short, 2 * high, high)
        while np.any(high - low > 1):
            middle = np.floor(0.5 * (low + high))
            below = self.cdf(middle) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        rng = generator(random_state)
        return rng.poisson(np.exp(self._draw_x(n, rng))).astype(float).reshape((n, *self._shape))

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
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState, generator

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
        site = np.broadcast_to(np.arange(self._m.size).reshape(self._shape), q.shape).ravel()
        ends = (np.array(np.broadcast_to(end, q.shape)).ravel() for end in (low, high))
        return self._solve(site, q.ravel(), *ends).reshape(q.shape)

    def _solve(self, site: NDArray[np.int64], q: Array, low: Array, high: Array) -> Array:
        """Newton's method for cdf(y) = q, kept in a bracket by bisection; what has converged is left alone."""
        y = 0.5 * (low + high)
        left = np.arange(y.size)
        for _ in range(80):
            value, log_density = self._value_and_slope(site[left], y[left])
            excess = value - q[left]
            low[left], high[left] = np.where(excess < 0, y[left], low[left]), np.where(excess < 0, high[left], y[left])
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                new = y[left] - excess * np.exp(-log_density)
            new = np.where((new > low[left]) & (new < high[left]), new, 0.5 * (low[left] + high[left]))
            # no nearer than the distribution function is accurate
            there = np.abs(excess) <= 1e-12
            near = there | (np.abs(new - y[left]) <= 1e-12 * (np.abs(y[left]) + high[left] - low[left]))
            y[left] = np.where(there, y[left], new)
            left = left[~near]
            if not left.size:
                break
        return y

    def _value_and_slope(self, site: NDArray[np.int64], y: Array) -> tuple[Array, Array]:
        """The distribution function and the log density at y of some sites."""
        m, v = self._m[site], self._v[site]
        block = self._potential.select(site).observe(y)
        (value,) = block._in_blocks(_location_cdf, m, v, y)
        return np.clip(value, 0.0, 1.0), block._tilted_moments(m, v, np.ones_like(m)).log_z

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

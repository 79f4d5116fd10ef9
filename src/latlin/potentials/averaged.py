"""Distributions of new observations averaged over several likelihoods, such as those at several noise scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, ndtr, ndtri

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.quadrature import invert, invert_whole
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.predictive import (
    LINE,
    POSITIVE,
    UNIT,
    ClassPredictive,
    ContinuousPredictive,
    CountPredictive,
    Predictive,
    _probabilities,
    quantile_of_counts,
    solve_quantiles,
)


class AveragedPredictive(Predictive):
    """Σ_k weight_k × the k-th distribution.

    Parameters
    ----------
    weights : ndarray of shape (K,)
        They add up to one.
    parts : sequence of Predictive
        Distributions of the same observations.

    Attributes
    ----------
    probabilities : ndarray of shape (..., sites, classes)
        Where the observations are classes.
    """

    def __init__(self, weights: Array, parts: Sequence[Predictive]) -> None:
        self._weights, self._parts = np.asarray(weights, float), tuple(parts)
        first = self._parts[0]
        super().__init__(first._potential, first._m, first._v, first._shape)
        self.whole, self.least = first.whole, first.least
        self.mean = self._average(lambda part: part.mean)
        # where a family has no mean, nothing is known of how the means differ, and the variance is infinite anyway
        self.variance = self._average(lambda part: part.variance + np.nan_to_num((part.mean - self.mean) ** 2))
        if all(isinstance(part, ClassPredictive) for part in parts):
            self.probabilities = self._average(lambda part: part.probabilities)

    def _normals(self) -> tuple[Array, Array] | None:
        """Means and standard deviations of the parts, (K, ..., sites), where all are normal."""
        if not all(type(part._potential) is Gaussian for part in self._parts):
            return None
        return np.stack([part.mean for part in self._parts]), np.sqrt([part.variance for part in self._parts])

    def _weights_of(self, values: Array) -> Array:
        return self._weights.reshape(-1, *[1] * (values.ndim - 1))

    def log_density(self, y: ArrayLike) -> Array:
        if (normals := self._normals()) is not None:
            z = _spread_out(normals, y)
            logs = -0.5 * z**2 - 0.5 * LOG_2PI - np.log(_aligned(normals[1], z))
            return np.asarray(logsumexp(logs, b=self._weights_of(logs), axis=0))
        each = [np.log(weight) + part.log_density(y) for weight, part in self._pairs()]
        return np.asarray(logsumexp(each, axis=0))

    def cdf(self, y: ArrayLike) -> Array:
        if (normals := self._normals()) is not None:
            below = ndtr(_spread_out(normals, y))
            return np.asarray(np.sum(self._weights_of(below) * below, axis=0))
        return self._average(lambda part: part.cdf(y))

    def _cdf_at(self, site: NDArray[np.int64], y: Array) -> Array:
        return self._average(lambda part: part.cdf_at(site, y))

    def quantile(self, q: ArrayLike) -> Array:
        parts = [part for part in self._parts if isinstance(part, CountPredictive)]
        if len(parts) == len(self._parts):
            return quantile_of_counts(q, self._shape, self.mean, self.variance, parts[0]._most, self._cdf_at)
        # the quantile of an average lies between those of its parts
        if (normals := self._normals()) is not None:
            z = ndtri(_probabilities(q))
            ends = _aligned(normals[0], z[None]) + _aligned(normals[1], z[None]) * z
        elif self._is_smooth():
            return self._quantile_by_slopes(q)
        else:
            ends = np.stack([part.quantile(q) for _, part in self._pairs()])
        low, high = ends.min(axis=0), ends.max(axis=0)
        if isinstance(self._parts[0], ClassPredictive):
            return invert_whole(self.cdf, q, low, high)
        return invert(self.cdf, lambda y: np.exp(self.log_density(y)), q, low, high)

    def _is_smooth(self) -> bool:
        """Whether all parts are continuous on the same support."""
        return all(
            isinstance(part, ContinuousPredictive)
            and type(part).quantile is ContinuousPredictive.quantile
            and part._support in (LINE, POSITIVE, UNIT)
            and part._support is self._parts[0]._support  # type: ignore[attr-defined]
            for part in self._parts
        )

    def _quantile_by_slopes(self, q: ArrayLike) -> Array:
        """Newton's method from the quantile of the heaviest part."""
        pairs: list[tuple[float, Any]] = self._pairs()
        heaviest = max(pairs, key=lambda pair: pair[0])[1]
        first = heaviest.quantile_roots(q)
        site = np.broadcast_to(np.arange(self._m.size).reshape(self._shape), first.shape).ravel()
        wanted = np.array(np.broadcast_to(_probabilities(q), first.shape)).ravel()

        def value_and_slope(some: NDArray[np.int64], t: Array) -> tuple[Array, Array]:
            each = [part._value_and_slope(some, t) for _, part in pairs]
            logs = [np.log(weight) + slope for (weight, _), (_, slope) in zip(pairs, each, strict=True)]
            value = sum(weight * below for (weight, _), (below, _) in zip(pairs, each, strict=True))
            return np.asarray(value), np.asarray(logsumexp(logs, axis=0))

        low, high = np.full(first.size, -np.inf), np.full(first.size, np.inf)
        reach = np.broadcast_to(heaviest.width, first.shape).ravel()
        roots = solve_quantiles(value_and_slope, site, wanted, first.ravel(), low, high, reach)
        return np.asarray(heaviest._support.place(roots)).reshape(first.shape)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        rng = generator(random_state)
        label = rng.choice(len(self._weights), size=n, p=self._weights)
        draws = np.empty((n, *self._shape))
        for k in np.unique(label):
            draws[label == k] = self._parts[k].sample(int(np.sum(label == k)), rng)
        return draws

    def _pairs(self) -> list[tuple[float, Predictive]]:
        return [(float(w), part) for w, part in zip(self._weights, self._parts, strict=True) if w > 0.0]

    def _average(self, f: Callable[[Any], Array]) -> Array:
        return np.asarray(sum(weight * f(part) for weight, part in self._pairs()))


def _aligned(values: Array, like: Array) -> Array:
    """(K, sites) with room for the axes between, so that it broadcasts against (K, …, sites)."""
    return values.reshape(values.shape[0], *[1] * (like.ndim - values.ndim), *values.shape[1:])


def _spread_out(normals: tuple[Array, Array], y: ArrayLike) -> Array:
    """Deviations of y from each part, in its standard deviations."""
    y = np.asarray(y, float)[None]
    return np.asarray((y - _aligned(normals[0], y)) / _aligned(normals[1], y))

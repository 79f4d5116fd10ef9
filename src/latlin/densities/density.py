"""What every density over w answers, whatever its shape, and its one-dimensional normal marginals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import log_ndtr, ndtr, ndtri

from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable


class Density(Protocol):
    """A density over w."""

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    def covariance(self) -> Array: ...

    def sample(self, count: int, random_state: RandomState = None) -> Array: ...

    def logpdf(self, w: ArrayLike) -> Array: ...

    def project(self, rows: Any) -> Any: ...


@dataclass(frozen=True)
class NormalMarginals:
    """Densities of N projections hᵀw under a Gaussian.

    Attributes
    ----------
    mean, variance : ndarray of shape (n,)
    """

    mean: Array
    variance: Array

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    def logpdf(self, x: ArrayLike) -> Array:
        """log N(x | mean, variance); x broadcasts against the projections."""
        z = (np.asarray(x, float) - self.mean) / self.std
        return -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi * self.variance)

    def pdf(self, x: ArrayLike) -> Array:
        return np.exp(self.logpdf(x))

    def cdf(self, x: ArrayLike) -> Array:
        return ndtr((np.asarray(x, float) - self.mean) / self.std)

    def logcdf(self, x: ArrayLike) -> Array:
        return log_ndtr((np.asarray(x, float) - self.mean) / self.std)

    def quantile(self, q: ArrayLike) -> Array:
        """The q-quantiles; q broadcasts against the projections."""
        return self.mean + self.std * ndtri(np.asarray(q, float))


# --- A point: what is left of a posterior when only its mode is kept.


@storable
@dataclass(frozen=True)
class PointMass:
    """All mass at `mean`: variance 0 everywhere, every draw the same, no density."""

    mean: Array

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> Array:
        return np.zeros(self.dim)

    @property
    def entropy(self) -> float:
        return -np.inf

    def covariance(self) -> Array:
        return np.zeros((self.dim, self.dim))

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        return np.tile(self.mean, (count, 1))

    def logpdf(self, w: ArrayLike) -> Array:
        raise ValueError("a point estimate has no density; choose an engine with a posterior, such as 'laplace'")

    def project(self, rows: Any) -> NormalMarginals:
        mean = np.asarray(rows @ self.mean)
        return NormalMarginals(mean, np.zeros_like(mean))


# --- A density that factorises over the coordinates, with factors of any shape.


@storable
class FactorTable(NamedTuple):
    """Factors of some coordinates, each as masses at rising points of the line: (coordinates, points)."""

    coordinates: NDArray[np.int64]
    points: Array
    masses: Array


@storable
@dataclass(frozen=True)
class Factorised:
    """q(w) = ∏_d q_d(w_d).

    Parameters
    ----------
    mean, variance : ndarray of shape (dim,)
    log_density : callable
        Rows of w → log q, exact.
    tables : tuple of Table
        The factors for sampling; together they cover every coordinate.
    """

    mean: Array
    variance: Array
    log_density: Callable[[Array], Array] = field(repr=False)
    tables: tuple[FactorTable, ...] = field(repr=False)

    @property
    def dim(self) -> int:
        return len(self.mean)

    def covariance(self) -> Array:
        """The diagonal matrix of the variances."""
        return np.diag(self.variance)

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row, by inverting each factor's distribution function between its tabulated points."""
        rng = generator(random_state)
        draws = np.empty((count, self.dim))
        for coordinates, points, masses in self.tables:
            below = np.cumsum(masses, axis=1) - 0.5 * masses
            # row i of the distribution functions is lifted to [i, i + 1], so that one interpolation serves all
            lift = np.arange(len(coordinates))
            level = rng.random((count, len(coordinates))) + lift
            draws[:, coordinates] = np.interp(level, (below + lift[:, None]).ravel(), points.ravel())
        return draws

    def logpdf(self, w: ArrayLike) -> Array:
        """log q(w) for one vector or each row of a matrix."""
        points = np.asarray(w, float)
        values = self.log_density(np.atleast_2d(points))
        return values if points.ndim == 2 else values[0]

    def project(self, rows: Any) -> NormalMarginals:
        """Mean and variance of Hw, exact; the shape is taken as normal."""
        squares = rows.multiply(rows) if sparse.issparse(rows) else np.asarray(rows) ** 2
        return NormalMarginals(np.asarray(rows @ self.mean), np.asarray(squares @ self.variance))

"""What every density over w answers, whatever its shape, and its one-dimensional normal marginals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from latlin.numerics.arrays import Array
from latlin.numerics.quadrature import invert
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


# --- A weighted average of densities, such as the posteriors at several values of hyperparameters.
#
#     q(w) = Σ_k weight_k q_k(w)
#
# Means and covariances follow from those of the parts, a projection is the average of their projections.


@storable
@dataclass(frozen=True)
class Mixture:
    """Σ_k weight_k q_k(w).

    Parameters
    ----------
    weights : ndarray of shape (K,)
        Positive; they are divided by their sum.
    components : tuple of densities
        K densities over the same w, of any kind.

    Examples
    --------
    >>> from latlin.densities.density import PointMass
    >>> both = Mixture(np.array([1.0, 3.0]), (PointMass(np.array([0.0])), PointMass(np.array([4.0]))))
    >>> both.mean, both.variance
    (array([3.]), array([3.]))
    """

    weights: Array
    components: tuple[Any, ...]

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, float)
        if weights.shape != (len(self.components),) or not len(self.components):
            raise ValueError(
                f"weights must hold one number per component, got shape {weights.shape} for {len(self.components)}"
            )
        if not (np.all(weights >= 0.0) and 0.0 < weights.sum() < np.inf):
            raise ValueError("weights must be finite, not negative, and not all zero")
        if len({component.dim for component in self.components}) > 1:
            raise ValueError("components must be densities over the same w, got several dimensions")
        object.__setattr__(self, "weights", weights / weights.sum())
        object.__setattr__(self, "components", tuple(self.components))

    @property
    def dim(self) -> int:
        return int(self.components[0].dim)

    @cached_property
    def _means(self) -> Array:
        return np.stack([component.mean for component in self.components])

    @property
    def mean(self) -> Array:
        return self.weights @ self._means

    @cached_property
    def variance(self) -> Array:
        """Average variance within the parts, and the variance between their means."""
        within = sum(p * component.variance for p, component in zip(self.weights, self.components, strict=True))
        return np.asarray(within + self.weights @ (self._means - self.mean) ** 2)

    def covariance(self) -> Array:
        """Σ_k weight_k (S_k + (m_k − m)(m_k − m)ᵀ)."""
        apart = self._means - self.mean
        total = (apart.T * self.weights) @ apart
        for p, component in zip(self.weights, self.components, strict=True):
            total += p * component.covariance()
        return total

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row, in random order of the components."""
        return self.sample_labelled(count, random_state)[0]

    def sample_labelled(self, count: int, random_state: RandomState = None) -> tuple[Array, NDArray[np.int64]]:
        """Draws, and the component that each came from."""
        rng = generator(random_state)
        label = rng.choice(len(self.weights), size=count, p=self.weights)
        return self.sample_of(label, rng), label

    def sample_of(self, label: NDArray[np.int64], random_state: RandomState = None) -> Array:
        """A draw of each of these components."""
        rng, draws = generator(random_state), np.empty((len(label), self.dim))
        for k in np.unique(label):
            draws[label == k] = self.components[k].sample(int(np.sum(label == k)), rng)
        return draws

    def logpdf(self, w: ArrayLike) -> Array:
        """log q(w) for one vector or each row of a matrix."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights)
        parts = [
            log + component.logpdf(w) for log, component in zip(logs, self.components, strict=True) if log > -np.inf
        ]
        return np.asarray(logsumexp(np.stack(parts), axis=0))

    def project(self, rows: Any) -> MixtureMarginals:
        """Marginals of Hw, one per row of H (dense or sparse)."""
        return MixtureMarginals(self.weights, tuple(component.project(rows) for component in self.components))


@dataclass(frozen=True)
class MixtureMarginals:
    """Densities of N projections hᵀw under a mixture.

    Attributes
    ----------
    weights : ndarray of shape (K,)
    parts : tuple of marginals
        Those of the components, N each.
    """

    weights: Array
    parts: tuple[Any, ...]

    @cached_property
    def mean(self) -> Array:
        return self._average(lambda part: part.mean)

    @cached_property
    def variance(self) -> Array:
        mean = self.mean
        return self._average(lambda part: part.variance + (part.mean - mean) ** 2)

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    def pdf(self, x: ArrayLike) -> Array:
        """The density at x, which broadcasts against the projections."""
        return self._average(lambda part: part.pdf(x))

    def logpdf(self, x: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights)
        return np.asarray(
            logsumexp(np.stack([log + part.logpdf(x) for log, part in zip(logs, self.parts, strict=True)]), axis=0)
        )

    def cdf(self, x: ArrayLike) -> Array:
        """P(x_n ≤ x)."""
        return self._average(lambda part: part.cdf(x))

    def logcdf(self, x: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights)
        return np.asarray(
            logsumexp(np.stack([log + part.logcdf(x) for log, part in zip(logs, self.parts, strict=True)]), axis=0)
        )

    def quantile(self, q: ArrayLike) -> Array:
        """The q-quantiles; q broadcasts against the projections."""
        q = np.asarray(q, float)
        if not np.all((q > 0.0) & (q < 1.0)):
            raise ValueError("q must hold probabilities strictly between 0 and 1")
        # the quantile of a mixture lies between those of its parts
        ends = np.stack([part.quantile(q) for part, p in zip(self.parts, self.weights, strict=True) if p > 0.0])
        return invert(self.cdf, self.pdf, q, ends.min(axis=0), ends.max(axis=0))

    def _average(self, f: Callable[[Any], Array]) -> Array:
        return np.asarray(sum(p * f(part) for p, part in zip(self.weights, self.parts, strict=True)))

"""What a base density answers: independent scalar densities q(v_d | θ_d), each of mean zero and variance one.

Location and scale of w = Av + b live in A and b (Challis (2013), C.3), so a base keeps only its shape. With the
mean and the variance fixed, ⟨w⟩ = b and cov(w) = AAᵀ for every shape, and the Gaussian factors of a model do not see
the shape at all.

A family holds one row of shape parameters per coordinate, or a single row for all of them. `free` lays the shape
parameters out on the whole real line for an optimiser; every derivative with respect to a shape is with respect to
`free`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from latlin.numerics.arrays import Array, check_visible
from latlin.numerics.stored import storable

ComplexArray = NDArray[np.complex128]


class Characteristic(NamedTuple):
    """φ(s) = ⟨e^{isv}⟩ on a grid of frequencies, one row a shape."""

    value: ComplexArray  # (rows, frequencies)
    slope: ComplexArray  # dφ/ds, the same shape


class Base(ABC):
    """Independent densities of one family, standardised.

    Attributes
    ----------
    rows : int
        Number of shapes: one per coordinate, or 1 for all coordinates.
    free : ndarray of shape (rows, n_free)
        The shapes as unconstrained numbers.
    """

    #: name in `AffineKL(base=…)`
    name: ClassVar[str]
    #: free numbers a shape has
    n_free: ClassVar[int] = 0
    #: the Gaussian is a member
    has_gaussian: ClassVar[bool] = False
    #: tails fall as a power, so that no exponential has an expectation
    polynomial_tails: ClassVar[bool] = False
    #: orders of the cumulants that the shape moves
    cumulants: ClassVar[tuple[int, ...]] = ()

    rows: int = 1
    free: Array

    @abstractmethod
    def logpdf(self, v: ArrayLike) -> Array:
        """log q(v) for v of shape (..., coordinates)."""

    @abstractmethod
    def cdf(self, v: ArrayLike) -> Array:
        """P(v_d ≤ v), for v of shape (..., coordinates)."""

    @abstractmethod
    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws of shape (..., coordinates)."""

    @abstractmethod
    def entropy(self) -> Array:
        """−⟨log q⟩ of each row."""

    @abstractmethod
    def characteristic(self, s: Array) -> Characteristic:
        """φ and dφ/ds at frequencies s ≥ 0."""

    @abstractmethod
    def third_and_fourth(self) -> tuple[Array, Array]:
        """Skewness and excess kurtosis of each row (infinite where they do not exist)."""

    @abstractmethod
    def reach(self) -> Array:
        """Distance from the mean beyond which each row has next to no mass, in standard deviations."""

    def cutoff(self) -> float:
        """A frequency beyond which |φ| < 1e-15 for every row; infinite when it falls more slowly than that."""
        return np.inf

    def entropy_gradient(self) -> Array:
        """∂ entropy / ∂ free, shape (rows, n_free)."""
        return np.zeros((self.rows, self.n_free))

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        """∂φ(s) / ∂ free, shape (rows, n_free, frequencies)."""
        return np.zeros((self.rows, self.n_free, len(s)), complex)

    def with_free(self, free: Array) -> Self:
        """The same family at other shapes, from an array of shape (rows, n_free)."""
        return self

    @classmethod
    def starting(cls, rows: int, third: Array, fourth: Array) -> Self:
        """Shapes to start an ascent from, given the skewness and excess kurtosis that the posterior asks for."""
        return cls()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={self.rows}, free={np.round(self.free, 6).tolist()})"


def shape_rows(name: str, value: ArrayLike) -> Array:
    """A finite scalar or vector of shapes as a vector."""
    check_visible(name, value)
    try:
        array = np.atleast_1d(np.asarray(value, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers, got {value!r:.80}") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a number or one number per coordinate, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


# --- Characteristic functions without a closed form: a Chebyshev series in the shape at every frequency.
#
# A family gives φ and dφ/ds of one shape on a grid of frequencies, by quadrature. That is done once, at the Chebyshev
# points of the shape's range; any number of other shapes, and the derivative with respect to the shape, are then small
# matrix products.


Sampler = Callable[[float, Array], tuple[Array, Array]]


def chebyshev_sum(coefficients: Array, x: Array) -> Array:
    """Σ_k c_k T_k(x) for x of shape (rows,) and c of shape (degree + 1, …): T_k(cos θ) = cos kθ, one product."""
    angle = np.arccos(np.clip(x, -1.0, 1.0))
    return np.cos(angle[:, None] * np.arange(len(coefficients))) @ coefficients


class ShapeSeries(NamedTuple):
    """Coefficients over a shape in [low, high]; each of shape (degree + 1, frequencies)."""

    low: float
    high: float
    value: Array
    slope: Array

    def at(self, shape: Array) -> tuple[Array, Array]:
        """φ and dφ/ds, each of shape (rows, frequencies)."""
        unit = self._unit(shape)
        return chebyshev_sum(self.value, unit), chebyshev_sum(self.slope, unit)

    def derivative(self, shape: Array) -> Array:
        """∂φ/∂shape, of shape (rows, frequencies)."""
        reduced = np.asarray(chebyshev.chebder(self.value, scl=2.0 / (self.high - self.low)), float)
        return chebyshev_sum(reduced, self._unit(shape))

    def _unit(self, shape: Array) -> Array:
        return np.clip((2.0 * shape - self.low - self.high) / (self.high - self.low), -1.0, 1.0)


@lru_cache(maxsize=8)
def _fitted(sampler: Sampler, low: float, high: float, points: int, key: bytes) -> ShapeSeries:
    s = np.frombuffer(key)
    nodes = chebyshev.chebpts1(points)
    pairs = [sampler(0.5 * (low + high) + 0.5 * (high - low) * x, s) for x in nodes]
    # discrete orthogonality of T_k at its own points
    weights = chebyshev.chebvander(nodes, points - 1).T * (2.0 / points)
    weights[0] *= 0.5
    value, slope = (weights @ np.array([pair[i] for pair in pairs]) for i in range(2))
    return ShapeSeries(low, high, value, slope)


def shape_series(sampler: Sampler, low: float, high: float, points: int, s: Array) -> ShapeSeries:
    """The series of `sampler(shape, s)` over shapes in [low, high]; kept for the next call with the same grid."""
    return _fitted(sampler, low, high, points, np.ascontiguousarray(s, float).tobytes())


# --- Different families for different coordinates.


@storable
class Stacked(Base):
    """The first coordinates of one family, the next of another.

    Parameters
    ----------
    parts : sequence of (Base, int)
        Each base with the number of coordinates it serves. Where shapes are learnt, each coordinate gets its own.
    """

    name = "stacked"

    def __init__(self, parts: Sequence[tuple[Base, int]]) -> None:
        for base, count in parts:
            if base.rows not in (1, count):
                raise ValueError(f"a base of {base.rows} shapes cannot serve {count} coordinates")
        self.parts = tuple(parts)
        ends = np.cumsum([0, *(count for _, count in parts)])
        self._spans = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.rows = int(ends[-1])
        self.n_free = max(base.n_free for base, _ in parts)  # type: ignore[misc]
        self.free = self._rows([self._widened(base.free) for base, _ in parts])
        self.has_gaussian = all(base.has_gaussian for base, _ in parts)  # type: ignore[misc]
        self.polynomial_tails = any(base.polynomial_tails for base, _ in parts)  # type: ignore[misc]
        self.cumulants = tuple(sorted({k for base, _ in parts for k in base.cumulants}))  # type: ignore[misc]

    def logpdf(self, v: ArrayLike) -> Array:
        v = np.asarray(v, float)
        return np.concatenate([base.logpdf(v[..., span]) for base, span in self._each()], axis=-1)

    def cdf(self, v: ArrayLike) -> Array:
        v = np.asarray(v, float)
        return np.concatenate([base.cdf(v[..., span]) for base, span in self._each()], axis=-1)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.concatenate([base.sample((*shape[:-1], count), rng) for base, count in self.parts], axis=-1)

    def entropy(self) -> Array:
        return self._rows([base.entropy() for base, _ in self.parts])

    def characteristic(self, s: Array) -> Characteristic:
        found = [base.characteristic(s) for base, _ in self.parts]
        return Characteristic(self._rows([c.value for c in found]), self._rows([c.slope for c in found]))

    def third_and_fourth(self) -> tuple[Array, Array]:
        found = [base.third_and_fourth() for base, _ in self.parts]
        return self._rows([pair[0] for pair in found]), self._rows([pair[1] for pair in found])

    def reach(self) -> Array:
        return self._rows([base.reach() for base, _ in self.parts])

    def cutoff(self) -> float:
        return max(base.cutoff() for base, _ in self.parts)

    def entropy_gradient(self) -> Array:
        return self._rows([self._widened(base.entropy_gradient()) for base, _ in self.parts])

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        return self._rows([self._widened(base.characteristic_gradient(s)) for base, _ in self.parts])

    def with_free(self, free: Array) -> Stacked:
        return Stacked(
            [
                (base.with_free(free[span, : base.n_free]), count)
                for (base, count), span in zip(self.parts, self._spans, strict=True)
            ]
        )

    def arrange(self, gains: Mapping[int, Array]) -> NDArray[np.intp]:
        """The coordinate for each row, so that families serve where their cumulants gain most in all.

        Parameters
        ----------
        gains : mapping
            Order of a cumulant → what it promises to gain at every coordinate.
        """
        promised = [sum((gains[k] for k in base.cumulants), np.zeros(self.rows)) for base, _ in self.parts]
        return np.asarray(linear_sum_assignment(self._rows([row[None] for row in promised]), maximize=True)[1])

    def _widened(self, array: Any) -> Any:
        """Zeros for the shapes that only other parts have, along the second axis."""
        missing = self.n_free - array.shape[1]
        return np.pad(array, [(0, 0), (0, missing), *[(0, 0)] * (array.ndim - 2)])

    def _each(self) -> list[tuple[Base, slice]]:
        return [(base, span) for (base, _), span in zip(self.parts, self._spans, strict=True)]

    def _rows(self, arrays: list[Any]) -> Any:
        """One row per coordinate."""
        spread = [np.broadcast_to(a, (count, *a.shape[1:])) for a, (_, count) in zip(arrays, self.parts, strict=True)]
        return np.concatenate(spread)

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
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics.arrays import Array

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
    try:
        array = np.atleast_1d(np.asarray(value, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers, got {value!r:.80}") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a number or one number per coordinate, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array

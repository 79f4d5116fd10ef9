"""What a prior of one number is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.options import whole
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable_by_arguments


@dataclass(frozen=True, repr=False)
class Prior(ABC):
    """A density of one number x.

    A family gives `_log_density`, `_slope` and `_quantile` on its support; outside of it the log density is −∞.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        storable_by_arguments(cls)

    #: whether the density integrates to one
    normalised: ClassVar[bool] = True

    @property
    def support(self) -> tuple[float, float]:
        """The open interval on which the density lives."""
        return (0.0, np.inf)

    @abstractmethod
    def _log_density(self, x: Array) -> Array: ...

    @abstractmethod
    def _slope(self, x: Array) -> Array: ...

    @abstractmethod
    def _quantile(self, p: Array) -> Array: ...

    def log_density(self, x: ArrayLike) -> Array:
        """log p(x), −∞ outside the support."""
        return self._inside(x, self._log_density, -np.inf)

    def slope(self, x: ArrayLike) -> Array:
        """d log p / dx; zero outside the support."""
        return self._inside(x, self._slope, 0.0)

    def log_density_of_log(self, u: ArrayLike) -> Array:
        """The log density of u = log x, which is log p(eᵘ) + u."""
        u = np.asarray(u, float)
        return self.log_density(np.exp(u)) + u

    def slope_of_log(self, u: ArrayLike) -> Array:
        """The derivative in u of `log_density_of_log`."""
        x = np.exp(np.asarray(u, float))
        return x * self.slope(x) + 1.0

    def quantile(self, p: ArrayLike) -> Array:
        """x with P(below x) = p, for 0 < p < 1."""
        p = np.asarray(p, float)
        if not np.all((p > 0.0) & (p < 1.0)):
            raise ValueError(f"p must hold probabilities strictly between 0 and 1, got {p!r:.80}")
        return np.asarray(self._quantile(p))

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, by the quantiles of uniform numbers."""
        # 1 − U avoids an exact zero
        return np.asarray(self._quantile(1.0 - generator(random_state).random(whole("count", count))))

    def _inside(self, x: ArrayLike, f: Any, elsewhere: float) -> Array:
        x = np.asarray(x, float)
        low, high = self.support
        inside = (x > low) & (x < high)
        # a harmless point stands in for those outside
        harmless = 1.0 if np.isinf(high - low) else 0.5 * (low + high)
        return np.where(inside, f(np.where(inside, x, harmless)), elsewhere)

    def __repr__(self) -> str:
        said = ", ".join(f"{field.name}={getattr(self, field.name):.4g}" for field in fields(self))
        return f"{type(self).__name__}({said})"


def number(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
        raise ValueError(f"{name} must be a finite number, got {value!r:.80}")
    return float(value)


def positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r:.80}")
    return float(value)


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Flat(Prior):
    """p(x) = 1 everywhere: not normalised, so an evidence integrated over it has no absolute value.

    The penalised optimum is then that of the evidence itself.
    """

    normalised: ClassVar[bool] = False

    @property
    def support(self) -> tuple[float, float]:
        return (-np.inf, np.inf)

    def _log_density(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _slope(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _quantile(self, p: Array) -> Array:
        raise ValueError("Flat is not normalised, so it has no quantiles and no draws; choose another prior for those")

"""What a prior of one number is: those of positive numbers, and those on an interval."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, betaln, gammainccinv, gammaincinv, gammaln, ndtri, stdtrit

from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
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
        return np.asarray(self._quantile(1.0 - generator(random_state).random(check_whole("count", count))))

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


def check_number(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
        raise ValueError(f"{name} must be a finite number, got {value!r:.80}")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r:.80}")
    return float(value)


#: one prior for every hyperparameter, or priors by name; None for the usual ones
PriorsLike = Mapping[str, Prior] | Prior | None


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


# --- Densities of positive numbers.
#
# For standard deviations (Gelman, 2006) half densities, which fall from zero on: one of the size that the scale may
# have lets it be nothing at all and does not let it run away. The exponential penalises the distance from a simpler
# model at a constant rate (Simpson, Rue, Riebler, Martins and Sørbye, 2017). The inverse gamma keeps a scale or a
# length away from zero, and in its square is conjugate to a normal variance.


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class HalfNormal(Prior):
    """p(x) = 2 N(x | 0, scale²), x > 0.

    Examples
    --------
    >>> HalfNormal(2.0).quantile(0.5).round(3)
    np.float64(1.349)
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_positive("HalfNormal scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        return 0.5 * np.log(2.0 / np.pi) - np.log(self.scale) - 0.5 * (x / self.scale) ** 2

    def _slope(self, x: Array) -> Array:
        return -x / self.scale**2

    def _quantile(self, p: Array) -> Array:
        return self.scale * ndtri(0.5 * (1.0 + p))


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class HalfStudentT(Prior):
    """p(x) ∝ (1 + x²/(df scale²))^{−(df + 1)/2}, x > 0: like `HalfNormal` with a heavier tail."""

    df: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", check_positive("HalfStudentT df", self.df))
        object.__setattr__(self, "scale", check_positive("HalfStudentT scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        constant = gammaln(0.5 * (self.df + 1.0)) - gammaln(0.5 * self.df) - 0.5 * np.log(0.25 * np.pi * self.df)
        return constant - np.log(self.scale) - 0.5 * (self.df + 1.0) * np.log1p((x / self.scale) ** 2 / self.df)

    def _slope(self, x: Array) -> Array:
        z = x / self.scale
        return -(self.df + 1.0) * z / (self.df + z**2) / self.scale

    def _quantile(self, p: Array) -> Array:
        return self.scale * stdtrit(self.df, 0.5 * (1.0 + p))


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class HalfCauchy(Prior):
    """p(x) = 2 / (π scale (1 + x²/scale²)), x > 0; it has no mean."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_positive("HalfCauchy scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        return np.log(2.0 / np.pi) - np.log(self.scale) - np.log1p((x / self.scale) ** 2)

    def _slope(self, x: Array) -> Array:
        z = x / self.scale
        return -2.0 * z / (1.0 + z**2) / self.scale

    def _quantile(self, p: Array) -> Array:
        return self.scale * np.tan(0.5 * np.pi * p)


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Exponential(Prior):
    """p(x) = exp(−x/scale)/scale, x > 0; its mean is `scale`."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_positive("Exponential scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        return -np.log(self.scale) - x / self.scale

    def _slope(self, x: Array) -> Array:
        return np.full_like(x, -1.0 / self.scale)

    def _quantile(self, p: Array) -> Array:
        return -self.scale * np.log1p(-p)


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class PenalisedComplexity(Prior):
    """The exponential density with P(x > upper) = probability.

    Examples
    --------
    >>> prior = PenalisedComplexity(upper=1.0, probability=0.01)
    >>> prior.quantile(0.99).round(6)
    np.float64(1.0)
    """

    upper: float
    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "upper", check_positive("PenalisedComplexity upper", self.upper))
        share = check_positive("PenalisedComplexity probability", self.probability)
        if share >= 1.0:
            raise ValueError(f"PenalisedComplexity probability must lie strictly between 0 and 1, got {share:g}")
        object.__setattr__(self, "probability", share)

    @property
    def rate(self) -> float:
        """λ with exp(−λ upper) = probability."""
        return float(-np.log(self.probability) / self.upper)

    def _log_density(self, x: Array) -> Array:
        return np.log(self.rate) - self.rate * x

    def _slope(self, x: Array) -> Array:
        return np.full_like(x, -self.rate)

    def _quantile(self, p: Array) -> Array:
        return -np.log1p(-p) / self.rate


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Gamma(Prior):
    """p(x) = rate^shape x^{shape − 1} exp(−rate x)/Γ(shape), x > 0."""

    shape: float
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_positive("Gamma shape", self.shape))
        object.__setattr__(self, "rate", check_positive("Gamma rate", self.rate))

    def _log_density(self, x: Array) -> Array:
        return self.shape * np.log(self.rate) - gammaln(self.shape) + (self.shape - 1.0) * np.log(x) - self.rate * x

    def _slope(self, x: Array) -> Array:
        return (self.shape - 1.0) / x - self.rate

    def _quantile(self, p: Array) -> Array:
        return gammaincinv(self.shape, p) / self.rate


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class InverseGamma(Prior):
    """p(x) = scale^shape x^{−shape − 1} exp(−scale/x)/Γ(shape), x > 0."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_positive("InverseGamma shape", self.shape))
        object.__setattr__(self, "scale", check_positive("InverseGamma scale", self.scale))

    def _log_density(self, x: Array) -> Array:
        constant = self.shape * np.log(self.scale) - gammaln(self.shape)
        with np.errstate(over="ignore"):  # next to zero there is no mass at all
            return constant - (self.shape + 1.0) * np.log(x) - self.scale / x

    def _slope(self, x: Array) -> Array:
        return (self.scale / x - self.shape - 1.0) / x

    def _quantile(self, p: Array) -> Array:
        return self.scale / gammainccinv(self.shape, p)


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class LogNormal(Prior):
    """log x ~ N(mean, sd²), x > 0: `mean` and `sd` are those of the logarithm."""

    mean: float
    sd: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", check_number("LogNormal mean", self.mean))
        object.__setattr__(self, "sd", check_positive("LogNormal sd", self.sd))

    def _log_density(self, x: Array) -> Array:
        z = (np.log(x) - self.mean) / self.sd
        return -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - np.log(self.sd) - np.log(x)

    def _slope(self, x: Array) -> Array:
        return -((np.log(x) - self.mean) / self.sd**2 + 1.0) / x

    def _quantile(self, p: Array) -> Array:
        return np.exp(self.mean + self.sd * ndtri(p))


# --- Densities on an interval: uniform, beta, and that of a correlation.


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Uniform(Prior):
    """p(x) = 1/(high − low), low < x < high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = check_number("Uniform low", self.low), check_number("Uniform high", self.high)
        if not low < high:
            raise ValueError(f"Uniform low must lie below high, got {low:g} and {high:g}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def support(self) -> tuple[float, float]:
        return (self.low, self.high)

    def _log_density(self, x: Array) -> Array:
        return np.full_like(x, -np.log(self.high - self.low))

    def _slope(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _quantile(self, p: Array) -> Array:
        return self.low + (self.high - self.low) * p


@storable_by_arguments
@dataclass(frozen=True, repr=False)
class Beta(Prior):
    """p(x) = x^{a − 1}(1 − x)^{b − 1}/B(a, b), 0 < x < 1."""

    a: float
    b: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", check_positive("Beta a", self.a))
        object.__setattr__(self, "b", check_positive("Beta b", self.b))

    @property
    def support(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def _log_density(self, x: Array) -> Array:
        return (self.a - 1.0) * np.log(x) + (self.b - 1.0) * np.log1p(-x) - betaln(self.a, self.b)

    def _slope(self, x: Array) -> Array:
        return (self.a - 1.0) / x - (self.b - 1.0) / (1.0 - x)

    def _quantile(self, p: Array) -> Array:
        return betaincinv(self.a, self.b, p)


@dataclass(frozen=True, repr=False)
class Correlation(Prior):
    """p(r) ∝ (1 − r²)^{shape − 1}, −1 < r < 1: uniform for shape 1, and near zero for larger shapes.

    For one pair of numbers this is the prior that Lewandowski, Kurowicka and Joe give to correlation matrices.

    Examples
    --------
    >>> Correlation(1.0).log_density(0.3).round(4).tolist()
    -0.6931
    """

    shape: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_positive("Correlation shape", self.shape))

    @property
    def support(self) -> tuple[float, float]:
        return (-1.0, 1.0)

    def _log_density(self, x: Array) -> Array:
        # u = ½(1 + r) is Beta(shape, shape), and du/dr = ½
        a = self.shape
        return (a - 1.0) * (np.log1p(x) + np.log1p(-x) - 2.0 * np.log(2.0)) - betaln(a, a) - np.log(2.0)

    def _slope(self, x: Array) -> Array:
        return -2.0 * (self.shape - 1.0) * x / ((1.0 - x) * (1.0 + x))

    def _quantile(self, p: Array) -> Array:
        return 2.0 * betaincinv(self.shape, self.shape, p) - 1.0

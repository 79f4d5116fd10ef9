"""Student's t, standardised: polynomial tails, the Gaussian only in the limit of many degrees of freedom.

As a scale mixture, v | g ~ N(0, (1 − 2/ν)/g) with g ~ Gamma(ν/2, rate ν/2), its characteristic function is an integral
over log g that the trapezoidal rule does to rounding; it is kept as a Chebyshev series in 1/ν.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, digamma, expit, logit, polygamma, stdtr

from latlin.densities.bases.base import Array, Base, Characteristic, ComplexArray, shape_rows
from latlin.densities.bases.shape_series import ShapeSeries, shape_series
from latlin.numerics.stored import storable

#: fewest degrees of freedom the series covers
FEWEST = 2.25
#: largest 1/ν of the ascent
LARGEST = 0.4
POINTS = 40


@storable
class StudentT(Base):
    """t density with `df` degrees of freedom, scaled to variance one.

    Parameters
    ----------
    df : float or array_like of shape (coordinates,), default 5
        Degrees of freedom, at least 2.25; at 2 the variance is infinite.
    """

    name = "student-t"
    n_free = 1
    polynomial_tails = True
    cumulants = (4,)

    def __init__(self, df: ArrayLike = 5.0) -> None:
        self.df = shape_rows("df", df)
        if np.any(self.df < FEWEST):
            raise ValueError(
                f"df of a Student t base must be at least {FEWEST:g}, got {self.df.min():g}: "
                "with 2 or fewer degrees of freedom there is no finite variance"
            )
        self.rows = len(self.df)
        self.scale = np.sqrt(1.0 - 2.0 / self.df)
        self.free = logit(np.clip(1.0 / self.df / LARGEST, 1e-12, 1.0 - 1e-12))[:, None]

    def with_free(self, free: Array) -> StudentT:
        return StudentT(1.0 / (LARGEST * np.clip(expit(free[:, 0]), 1e-6, 1.0)))

    @classmethod
    def starting(cls, rows: int, third: Array, fourth: Array) -> StudentT:
        # kurtosis 6/(ν − 4)
        k = np.clip(fourth, 0.1, 20.0)
        return cls((4.0 * k + 6.0) / k)

    def logpdf(self, v: ArrayLike) -> Array:
        r = np.asarray(v, float) / self.scale
        constant = -betaln(0.5 * self.df, 0.5) - 0.5 * np.log(self.df) - np.log(self.scale)
        return constant - 0.5 * (self.df + 1.0) * np.log1p(r * r / self.df)

    def cdf(self, v: ArrayLike) -> Array:
        return np.asarray(stdtr(self.df, np.asarray(v, float) / self.scale))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self.scale * rng.standard_t(np.broadcast_to(self.df, shape))

    def entropy(self) -> Array:
        a, b = 0.5 * (self.df + 1.0), 0.5 * self.df
        return a * (digamma(a) - digamma(b)) + 0.5 * np.log(self.df) + betaln(b, 0.5) + np.log(self.scale)

    def entropy_gradient(self) -> Array:
        a, b = 0.5 * (self.df + 1.0), 0.5 * self.df
        d_df = 0.5 * a * (polygamma(1, a) - polygamma(1, b)) + 0.5 / (self.df - 2.0)
        # dν/d(1/ν) = −ν²
        return (-(self.df**2) * d_df * self._d_inverse_d_free())[:, None]

    def characteristic(self, s: Array) -> Characteristic:
        value, slope = _series(s).at(1.0 / self.df)
        return Characteristic(value.astype(complex), slope.astype(complex))

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        d_inverse = _series(s).derivative(1.0 / self.df)
        return (d_inverse * self._d_inverse_d_free()[:, None])[:, None, :].astype(complex)

    def third_and_fourth(self) -> tuple[Array, Array]:
        third = np.where(self.df > 3.0, 0.0, np.inf)
        return third, np.where(self.df > 4.0, 6.0 / np.where(self.df > 4.0, self.df - 4.0, 1.0), np.inf)

    def reach(self) -> Array:
        # P(|v| > R) ≈ R^{−ν}: as far as is affordable, and further with every refinement of the grid
        return np.clip(10.0 ** (12.0 / self.df), 9.0, 60.0)

    def _d_inverse_d_free(self) -> Array:
        share = np.clip(1.0 / self.df / LARGEST, 0.0, 1.0)
        return LARGEST * share * (1.0 - share)


def _series(s: Array) -> ShapeSeries:
    return shape_series(_transform, 0.0, 1.0 / FEWEST, POINTS, s)


def _transform(inverse: float, s: Array) -> tuple[Array, Array]:
    """φ and dφ/ds of one standardised shape."""
    df = 1.0 / inverse
    # x = log g, with density ∝ exp(½ν(x − eˣ))
    left = np.sqrt(148.0 * inverse) + 74.0 * inverse
    right = min(np.sqrt(148.0 * inverse), 1.0 + np.log1p(148.0 * inverse))
    x = np.linspace(-left, right, 500)
    weight = np.exp(0.5 * df * (x - np.expm1(x)))
    weight /= weight.sum()
    variance = (1.0 - 2.0 * inverse) * np.exp(-x)
    parts = np.exp(-0.5 * np.outer(s * s, variance))
    return parts @ weight, -s * (parts @ (weight * variance))

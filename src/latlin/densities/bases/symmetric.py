"""Symmetric base densities: normal, logistic, Student t and generalised normal, all of mean zero and variance one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, digamma, expit, gammainc, gammaln, logit, ndtr, polygamma, stdtr

from latlin.densities.bases.base import Array, Base, Characteristic, ComplexArray, ShapeSeries, shape_rows, shape_series
from latlin.numerics.arrays import LOG_SQRT_2PI
from latlin.numerics.stored import storable

# --- The standard normal: an affine-independent density of it is a Gaussian.


@storable
class Normal(Base):
    """N(v | 0, 1)."""

    name = "normal"
    has_gaussian = True

    def __init__(self) -> None:
        self.free = np.zeros((1, 0))

    def logpdf(self, v: ArrayLike) -> Array:
        return -0.5 * np.square(np.asarray(v, float)) - LOG_SQRT_2PI

    def cdf(self, v: ArrayLike) -> Array:
        return np.asarray(ndtr(np.asarray(v, float)))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.standard_normal(shape)

    def entropy(self) -> Array:
        return np.array([0.5 + LOG_SQRT_2PI])

    def characteristic(self, s: Array) -> Characteristic:
        value = np.exp(-0.5 * s * s)[None].astype(complex)
        return Characteristic(value, -s * value)

    def third_and_fourth(self) -> tuple[Array, Array]:
        return np.zeros(1), np.zeros(1)

    def reach(self) -> Array:
        return np.array([8.0])

    def cutoff(self) -> float:
        return 8.4


# --- The logistic density: exponential tails, no shape to choose, and not a Gaussian for any.


#: scale at which the variance is one
SCALE = np.sqrt(3.0) / np.pi


@storable
class Logistic(Base):
    """q(v) = e^{−r}/(s(1 + e^{−r})²), r = v/s, s = √3/π."""

    name = "logistic"

    def __init__(self) -> None:
        self.free = np.zeros((1, 0))

    def logpdf(self, v: ArrayLike) -> Array:
        r = np.abs(np.asarray(v, float)) / SCALE
        return -r - 2.0 * np.log1p(np.exp(-r)) - np.log(SCALE)

    def cdf(self, v: ArrayLike) -> Array:
        return np.asarray(expit(np.asarray(v, float) / SCALE))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.logistic(scale=SCALE, size=shape)

    def entropy(self) -> Array:
        return np.array([2.0 + np.log(SCALE)])

    def characteristic(self, s: Array) -> Characteristic:
        # φ = x/sinh x with x = πs·SCALE = √3 s; φ′ = √3 (1/sinh x − x cosh x/sinh² x)
        x = np.sqrt(3.0) * s
        small = x < 0.05
        x = np.where(small, 1.0, x)
        e = np.exp(-x)
        inverse_sinh = 2.0 * e / (1.0 - e * e)
        value, slope = x * inverse_sinh, inverse_sinh * (1.0 - x * (1.0 + e * e) / (1.0 - e * e))
        y = 3.0 * s * s
        series = 1.0 - y / 6.0 * (1.0 - 7.0 * y / 60.0 * (1.0 - 31.0 * y / 294.0))
        series_slope = -np.sqrt(y) / 3.0 * (1.0 - 7.0 * y / 30.0 * (1.0 - 31.0 * y / 196.0))
        value, slope = np.where(small, series, value), np.sqrt(3.0) * np.where(small, series_slope, slope)
        return Characteristic(value[None].astype(complex), slope[None].astype(complex))

    def third_and_fourth(self) -> tuple[Array, Array]:
        return np.zeros(1), np.full(1, 1.2)

    def reach(self) -> Array:
        return np.array([18.0])

    def cutoff(self) -> float:
        return 22.5


# --- Student's t, standardised: polynomial tails, the Gaussian only in the limit of many degrees of freedom.
#
# As a scale mixture, v | g ~ N(0, (1 − 2/ν)/g) with g ~ Gamma(ν/2, rate ν/2), its characteristic function is an
# integral over log g that the trapezoidal rule does to rounding; it is kept as a Chebyshev series in 1/ν.


#: fewest degrees of freedom the series covers
FEWEST = 2.25
#: largest 1/ν of the ascent
LARGEST = 0.4
STUDENT_POINTS = 40


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
        value, slope = _student_series(s).at(1.0 / self.df)
        return Characteristic(value.astype(complex), slope.astype(complex))

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        d_inverse = _student_series(s).derivative(1.0 / self.df)
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


def _student_series(s: Array) -> ShapeSeries:
    return shape_series(_transform_student, 0.0, 1.0 / FEWEST, STUDENT_POINTS, s)


def _transform_student(inverse: float, s: Array) -> tuple[Array, Array]:
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


# --- The generalised normal density q(v) ∝ exp(−|v/s|^η): sparse for η < 2, flat for η > 2, standardised.
#
# Challis (2013), C.3.2, its entropy gradient corrected. The characteristic function
#
#     φ(t) = η/Γ(1/η) Re ∫_0^∞ e^{itr − r^η} dr
#
# is integrated along the ray r = ρe^{iπ/(4η)}, on which both factors fall, by the double-exponential rule, and is kept
# as a Chebyshev series in log η.


#: η of the ascent lies between these; the bound is differentiable only above one
LOWEST, HIGHEST = 1.0, 6.0
POWER_POINTS = 32
#: where the free coordinate is zero: η = 2
CENTRE = float(logit((2.0 - LOWEST) / (HIGHEST - LOWEST)))


@storable
class GeneralisedNormal(Base):
    """η/(2sΓ(1/η)) exp(−|v/s|^η) with s = √(Γ(1/η)/Γ(3/η)), so that the variance is one.

    Parameters
    ----------
    shape : float or array_like of shape (coordinates,), default 2
        η in (1, 6]; 2 is the Gaussian, 1 would be the Laplace density.

    Examples
    --------
    >>> GeneralisedNormal(1.5).third_and_fourth()[1].round(3)
    array([0.762])
    """

    name = "generalised-normal"
    n_free = 1
    has_gaussian = True
    cumulants = (4,)

    def __init__(self, shape: ArrayLike = 2.0) -> None:
        self.shape = shape_rows("shape", shape)
        if np.any((self.shape <= LOWEST) | (self.shape > HIGHEST)):
            bad = self.shape[(self.shape <= LOWEST) | (self.shape > HIGHEST)][0]
            raise ValueError(
                f"shape of a generalised normal base must lie in ({LOWEST:g}, {HIGHEST:g}], got {bad:g}: "
                "at 1 and below the bound is not differentiable"
            )
        self.rows = len(self.shape)
        self.scale = _scale(self.shape)
        share = np.clip((self.shape - LOWEST) / (HIGHEST - LOWEST), 1e-12, 1 - 1e-12)
        self.free = (logit(share) - CENTRE)[:, None]

    def with_free(self, free: Array) -> GeneralisedNormal:
        share = np.clip(expit(free[:, 0] + CENTRE), 1e-9, 1.0)
        return GeneralisedNormal(LOWEST + (HIGHEST - LOWEST) * share)

    @classmethod
    def starting(cls, rows: int, third: Array, fourth: Array) -> GeneralisedNormal:
        grid = np.linspace(4.0, 1.15, 200)
        return cls(np.interp(fourth, _kurtosis(grid), grid))

    def logpdf(self, v: ArrayLike) -> Array:
        r = np.abs(np.asarray(v, float)) / self.scale
        return np.log(0.5 * self.shape / self.scale) - gammaln(1.0 / self.shape) - r**self.shape

    def cdf(self, v: ArrayLike) -> Array:
        v = np.asarray(v, float)
        inside = gammainc(1.0 / self.shape, (np.abs(v) / self.scale) ** self.shape)
        return np.asarray(0.5 + 0.5 * np.sign(v) * inside)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        size = rng.gamma(np.broadcast_to(1.0 / self.shape, shape)) ** (1.0 / self.shape)
        return self.scale * size * rng.choice([-1.0, 1.0], size=shape)

    def entropy(self) -> Array:
        # 1/η − log(η/(2sΓ(1/η)))
        eta = self.shape
        return 1.0 / eta - np.log(0.5 * eta / self.scale) + gammaln(1.0 / eta)

    def entropy_gradient(self) -> Array:
        eta = self.shape
        raw = -1.0 / eta**2 - 1.0 / eta - digamma(1.0 / eta) / eta**2
        # d log s/dη with log s = ½(log Γ(1/η) − log Γ(3/η))
        d_scale = 0.5 * (3.0 * digamma(3.0 / eta) - digamma(1.0 / eta)) / eta**2
        return ((raw + d_scale) * self._d_shape_d_free())[:, None]

    def characteristic(self, s: Array) -> Characteristic:
        value, slope = _power_series(s).at(np.log(self.shape))
        return Characteristic(value.astype(complex), slope.astype(complex))

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        d_log = _power_series(s).derivative(np.log(self.shape))
        factor = self._d_shape_d_free() / self.shape
        return (d_log * factor[:, None])[:, None, :].astype(complex)

    def third_and_fourth(self) -> tuple[Array, Array]:
        return np.zeros(self.rows), _kurtosis(self.shape)

    def reach(self) -> Array:
        # exp(−(R/s)^η) = 1e-14
        return np.maximum(self.scale * 32.0 ** (1.0 / self.shape), 5.0)

    def _d_shape_d_free(self) -> Array:
        share = (self.shape - LOWEST) / (HIGHEST - LOWEST)
        return (HIGHEST - LOWEST) * share * (1.0 - share)


def _scale(eta: Array) -> Array:
    return np.exp(0.5 * (gammaln(1.0 / eta) - gammaln(3.0 / eta)))


def _kurtosis(eta: Array) -> Array:
    return np.exp(gammaln(5.0 / eta) + gammaln(1.0 / eta) - 2.0 * gammaln(3.0 / eta)) - 3.0


def _power_series(s: Array) -> ShapeSeries:
    return shape_series(_transform_power, float(np.log(LOWEST)), float(np.log(HIGHEST)), POWER_POINTS, s)


def _transform_power(log_eta: float, s: Array) -> tuple[Array, Array]:
    """φ and dφ/ds of one standardised shape."""
    eta = np.exp(log_eta)
    scale, theta = float(_scale(eta)), np.pi / (4.0 * eta)
    # ρ = exp(y − e^{−y}); the rule's error falls as exp(−2π·strip/step)
    step = 2.0 * np.pi * 0.95 * theta / 58.0
    y = np.arange(-3.7, 2.5 + np.log(60.0) / eta, step)
    rho = np.exp(y - np.exp(-y))
    r = rho * np.exp(1j * theta)
    weight = step * rho * (1.0 + np.exp(-y)) * np.exp(1j * theta - r**eta)
    kept = np.abs(weight) > 1e-18
    r, weight = r[kept], weight[kept] * eta / np.exp(gammaln(1.0 / eta))
    waves = np.exp(1j * np.outer(s * scale, r))
    return (waves @ weight).real, scale * (waves @ (1j * r * weight)).real

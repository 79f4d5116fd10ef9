"""Gaussian sites, of an observation or of its logarithm: everything in closed form, every engine exact."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from latlin.numerics.options import float_array
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.exponentials import LOG_MOST, ExponentialTerm, expected_rate
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive, Predictive
from latlin.potentials.ranges import Positive


class Gaussian(Potential):
    """φ(x) = N(x | loc, scale²).

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        Standard deviation.

    Examples
    --------
    >>> site = Gaussian(loc=1.0, scale=2.0)
    >>> float(site.expected_log(2.0, 4.0).d_mean)
    -0.25
    """

    parameters: ClassVar[tuple[str, ...]] = ("loc", "scale")
    arrays: ClassVar[tuple[str, ...]] = ("loc", "scale")
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    log_concave = True
    super_gaussian = True
    gaussian = True

    loc: Array
    scale: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale))

    def log_density(self, x: ArrayLike) -> Array:
        r = (float_array("x", x) - self.loc) / self.scale
        return self._log_normaliser() - 0.5 * r * r

    def derivatives(self, x: ArrayLike) -> Derivatives:
        r = (float_array("x", x) - self.loc) / self.scale
        return Derivatives(-r / self.scale, np.zeros_like(r) - self.scale**-2.0, np.zeros_like(r))

    def _log_normaliser(self) -> Array:
        return -0.5 * np.log(2 * np.pi) - np.log(self.scale)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        # ⟨ψ⟩ = ψ(m) − v/(2s²)
        first, second, _ = self.derivatives(m)
        return ExpectedLog(self.log_density(m) + 0.5 * second * v, first, 0.5 * second)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        # φ^p is a Gaussian of variance s²/p; t = 1 + pv/s²
        r = (m - self.loc) / self.scale
        pull = power * v / self.scale**2
        t = 1 + pull
        log_z = power * self._log_normaliser() - 0.5 * np.log1p(pull) - 0.5 * power * r * r / t
        return TiltedMoments(log_z, m / t + self.loc * (pull / t), v / t)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        a = np.zeros_like(xi) + self.scale**-2.0
        return QuadraticBound(a, a * self.loc, self._log_normaliser() - 0.5 * a * self.loc**2)

    def _noise_moments(self) -> tuple[Array, Array]:
        return np.zeros_like(self.scale), self.scale**2

    def _noise_cdf(self, r: Array) -> Array:
        return ndtr(r / self.scale)

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self.scale * rng.standard_normal(shape)


class LogNormal(Gaussian):
    """φ(x) = N(log y | x, scale²)/y for positive y, whose median is e^x.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Positive observations.
    scale : float or array_like of shape (sites,), default 1
        Standard deviation of log y.

    Examples
    --------
    >>> LogNormal([1.0, 2.0], 0.5).log_density([0.0, 0.0]).round(4).tolist()
    [-0.2258, -1.8798]
    """

    parameters = ("y", "scale")
    arrays = ("y", "loc", "scale")
    observation = ("y", 1.0)

    y: Array

    def __init__(self, y: ArrayLike, scale: ArrayLike = 1.0) -> None:
        y = positive("y", y)
        self._store(y=y, loc=np.log(y), scale=positive("scale", scale))

    def _log_normaliser(self) -> Array:
        return super()._log_normaliser() - self.loc

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        # log y ~ N(m, v + s²)
        total = v + self.scale**2
        mean = expected_rate(m, total, ExponentialTerm(np.zeros(()), np.ones(())))
        with np.errstate(over="ignore"):
            return ContinuousPredictive(self, m, v, shape, mean, mean * mean * np.expm1(total), POSITIVE)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(np.exp(np.minimum(super()._sample(x, rng), LOG_MOST)))

    def _conditional_cdf(self, x: Array) -> Array:
        return np.asarray(ndtr((self.loc - x) / self.scale))

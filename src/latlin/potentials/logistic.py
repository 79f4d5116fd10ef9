"""Sites with the density of the logistic distribution: a smooth relative of the Laplace density."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from latlin.numerics.options import float_array
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.ranges import Positive


class Logistic(Potential):
    """φ(x) = σ(u)σ(−u)/scale with u = (x − loc)/scale.

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        The standard deviation is π/√3 times that.

    Examples
    --------
    >>> Logistic(loc=1.0, scale=0.5).expected_log([0.0, 2.0], [0.1, 0.1]).value.round(4).tolist()
    [-1.604, -1.604]
    """

    parameters = ("loc", "scale")
    arrays = ("loc", "scale")
    located = True
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    log_concave = True
    super_gaussian = True

    loc: Array
    scale: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale))

    @property
    def strip(self) -> Array:
        return np.pi * self.scale

    def log_density(self, x: ArrayLike) -> Array:
        u = np.abs((float_array("x", x) - self.loc) / self.scale)
        return np.asarray(-u - 2 * np.log1p(np.exp(-u)) - np.log(self.scale))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        u = (float_array("x", x) - self.loc) / self.scale
        # with t = tanh(u/2), 1 − t² = 4σ(u)σ(−u) keeps its digits where t is 1
        t, q = np.tanh(0.5 * u), 4 * expit(u) * expit(-u)
        return Derivatives(-t / self.scale, -0.5 * q / self.scale**2, 0.5 * q * t / self.scale**3)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        from latlin.potentials.kernels.sites import log_sigmoid_expectations  # loads the compiler: when first needed

        # ψ is even, and log σ(u) + log σ(−u) = 2 log σ(u) − u
        u, sign = (m - self.loc) / self.scale, np.where(m < self.loc, -1.0, 1.0)
        value, d_mean, d_var = log_sigmoid_expectations(np.abs(u), v / self.scale**2)
        return ExpectedLog(
            2 * value - np.abs(u) - np.log(self.scale),
            sign * (2 * d_mean - 1) / self.scale,
            2 * d_var / self.scale**2,
        )

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return strip.tilted_moments(self, m, v, power, strip=self.strip, curvature=0.5 / self.scale**2)

    def _noise_moments(self) -> tuple[Array, Array]:
        return np.zeros_like(self.scale), (np.pi * self.scale) ** 2 / 3

    def _noise_cdf(self, r: Array) -> Array:
        return np.asarray(expit(r / self.scale))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self.scale * rng.logistic(size=shape))

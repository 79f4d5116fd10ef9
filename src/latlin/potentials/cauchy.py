"""Cauchy sites, Challis (2013), A.5.4: Student's t with one degree of freedom."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.ranges import Positive
from latlin.potentials.student_t import PowerTail


class Cauchy(Potential):
    """φ(x) = 1 / (π scale (1 + r²)), r = (x − loc)/scale.

    Not log-concave: engines find a stationary point, which may be one of several.

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        Half the width at half the height; the family has no mean and no variance.

    Examples
    --------
    >>> float(Cauchy(scale=2.0).log_density(0.0).round(4))
    -1.8379
    """

    parameters = ("loc", "scale")
    arrays = ("loc", "scale")
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    super_gaussian = True

    loc: Array
    scale: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale))

    def _tail(self) -> PowerTail:
        return PowerTail(self.loc, self.scale, np.ones(()), -np.log(np.pi * self.scale))

    def log_density(self, x: ArrayLike) -> Array:
        return self._tail().log_density(np.asarray(x, dtype=float))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._tail().derivatives(np.asarray(x, dtype=float))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._tail().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._tail().tilted_moments(m, v, power)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        return self._tail().quadratic_bound(xi)

    def _noise_moments(self) -> tuple[Array, Array]:
        return np.full_like(self.scale, np.nan), np.full_like(self.scale, np.inf)

    def _noise_cdf(self, r: Array) -> Array:
        # ½ + arctan(r)/π, which keeps its digits in the left tail
        return np.arctan2(1.0, -r / self.scale) / np.pi

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self.scale * rng.standard_cauchy(shape)

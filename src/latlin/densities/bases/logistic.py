"""The logistic density: exponential tails, no shape to choose, and not a Gaussian for any."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from latlin.densities.bases.base import Array, Base, Characteristic
from latlin.numerics.stored import storable

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

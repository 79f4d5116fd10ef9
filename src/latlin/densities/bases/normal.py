"""The standard normal: an affine-independent density of it is a Gaussian."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from latlin.densities.bases.base import Array, Base, Characteristic
from latlin.numerics.special import LOG_SQRT_2PI
from latlin.numerics.stored import storable


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

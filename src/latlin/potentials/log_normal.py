"""Positive observations whose logarithm is normal about x: Gaussian sites in other units, every engine exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from latlin.potentials.base import Array
from latlin.potentials.checks import positive
from latlin.potentials.exponentials import LOG_MOST, ExponentialTerm, expected_rate
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive, Predictive


class LogNormal(Gaussian):
    """φ(x) = N(log y | x, scale²)/y: the median of y is e^x.

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

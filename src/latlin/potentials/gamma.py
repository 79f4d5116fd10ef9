"""Positive observations with mean e^x and a constant coefficient of variation: gamma regression with a log link."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, gammainc, gammaln

from latlin.numerics.options import float_array
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import positive
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, expected_rate, log_link_predictive
from latlin.potentials.poisson import log_most_probable
from latlin.potentials.predictive import Predictive
from latlin.potentials.ranges import Positive


class Gamma(Potential):
    """φ(x) = (shape/μ)^shape y^{shape−1} e^{−shape·y/μ} / Γ(shape) with mean μ = e^x.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Positive observations.
    shape : float or array_like of shape (sites,)
        The variance is μ²/shape; 1 is the exponential distribution.

    Examples
    --------
    >>> Gamma([1.0, 4.0], 2.0).expected_log([0.0, 1.0], 0.1).value.round(4).tolist()
    [-0.7162, -2.3213]
    """

    parameters = ("y", "shape")
    arrays = ("y", "shape")
    observation = ("y", 1.0)
    free = MappingProxyType({"shape": Positive(low=1e-3, high=1e6)})
    log_concave = True

    y: Array
    shape: Array

    def __init__(self, y: ArrayLike, shape: ArrayLike) -> None:
        self._store(y=positive("y", y), shape=positive("shape", shape))

    def _form(self) -> Exponentials:
        a, log_y = self.shape, np.log(self.y)
        constant = a * np.log(a) - gammaln(a) + (a - 1) * log_y
        # a log a − a − log Γ(a) − log y, at x = log y
        peak = log_most_probable(a) + np.log(a) - log_y
        return Exponentials(constant, -a, (ExponentialTerm(np.log(a) + log_y, -np.ones(())),), peak)

    def log_density(self, x: ArrayLike) -> Array:
        return self._form().log_density(float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(float_array("x", x))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.log(self.y), np.ones(())),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._form().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._form().tilted_moments(m, v, power)

    def _parameter_derivative(self, name: str, x: Array) -> Array:
        return self._by_shape(x, self._form().terms[0].at(x))

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array:
        return self._by_shape(m, expected_rate(m, v, self._form().terms[0]))

    def _by_shape(self, x: Array, fall: Array) -> Array:
        """∂ψ/∂a = log a + 1 − F(a) + log y − x − y e^{−x}, with a y e^{−x} given and F the digamma function."""
        a = self.shape
        return np.asarray(np.log(a) + 1 - digamma(a) + np.log(self.y) - x - fall / a)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        # var(y|x) = μ²/a
        return log_link_predictive(self, m, v, shape, 1.0 / self.shape, 2.0)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(np.exp(np.minimum(x, LOG_MOST)) * rng.standard_gamma(self.shape, x.shape) / self.shape)

    def _conditional_cdf(self, x: Array) -> Array:
        return np.asarray(gammainc(self.shape, np.exp(np.clip(np.log(self.shape * self.y) - x, -700.0, 700.0))))

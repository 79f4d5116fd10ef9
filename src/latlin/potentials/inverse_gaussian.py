"""Positive, skewed observations with mean e^x and a variance that grows like its cube."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.options import float_array
from latlin.numerics.special import log_ndtr
from latlin.potentials.about_mode import exp_minus_linear, tilted_moments
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import positive
from latlin.potentials.exponentials import LOG_MOST, ExponentialTerm, balance, expected_rate, log_link_predictive
from latlin.potentials.predictive import Predictive
from latlin.potentials.ranges import Positive


class InverseGaussian(Potential):
    """φ(x) = √(shape/(2π y³)) exp(−shape (y/μ − 1)²/(2y)) with mean μ = e^x.

    Not log-concave: it does not vanish as x grows.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Positive observations.
    shape : float or array_like of shape (sites,)
        The variance is μ³/shape.

    Examples
    --------
    >>> float(InverseGaussian(2.0, 3.0).log_density(np.log(2.0)).round(4))
    -1.4094
    """

    parameters = ("y", "shape")
    arrays = ("y", "shape")
    observation = ("y", 1.0)
    free = MappingProxyType({"shape": Positive(low=1e-4, high=1e8)})

    y: Array
    shape: Array

    def __init__(self, y: ArrayLike, shape: ArrayLike) -> None:
        self._store(y=positive("y", y), shape=positive("shape", shape))

    def _log_normaliser(self) -> Array:
        return 0.5 * (np.log(self.shape) - LOG_2PI) - 1.5 * np.log(self.y)

    def _ratio(self, x: ArrayLike) -> Array:
        """y/μ, a number whose square may be none."""
        return np.exp(np.minimum(np.log(self.y) - float_array("x", x), 700.0))

    def log_density(self, x: ArrayLike) -> Array:
        with np.errstate(over="ignore"):
            return self._log_normaliser() - 0.5 * self.shape / self.y * (self._ratio(x) - 1) ** 2

    def derivatives(self, x: ArrayLike) -> Derivatives:
        # with t = y e^{−x}, t′ = −t: ψ = −c(t − 1)²/2, ψ′ = c t(t − 1), ψ″ = −c t(2t − 1), ψ‴ = c t(4t − 1)
        t, c = self._ratio(x), self.shape / self.y
        with np.errstate(over="ignore"):
            return Derivatives(c * t * (t - 1), -c * t * (2 * t - 1), c * t * (4 * t - 1))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.log(self.y), np.ones(())),)

    def _squares(self, m: Array, v: Array) -> tuple[Array, Array]:
        """⟨t⟩ and ⟨t²⟩ of t = y e^{−x}."""
        log_y = np.log(self.y)
        return expected_rate(m, v, ExponentialTerm(log_y, np.full((), -1.0))), expected_rate(
            m, v, ExponentialTerm(2 * log_y, np.full((), -2.0))
        )

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        first, second = self._squares(m, v)
        c = self.shape / self.y
        # ⟨(t − 1)²⟩ = (⟨t⟩ − 1)² + ⟨t⟩²(e^v − 1)
        spread = np.where(v > 1, second - first * first, first * first * np.expm1(np.minimum(v, 1.0)))
        value = self._log_normaliser() - 0.5 * c * ((first - 1) ** 2 + spread)
        return ExpectedLog(value, c * (second - first), -0.5 * c * (2 * second - first))

    def _remainder(self, x: Array, d: Array) -> Array:
        # −½c t²(e^{−2d} − 1 + 2d) + c t(e^{−d} − 1 + d)
        t, c = self._ratio(x), self.shape / self.y
        with np.errstate(over="ignore", invalid="ignore"):
            fall = 0.5 * c * t * t * exp_minus_linear(-2 * d) - c * t * exp_minus_linear(-d)
        # far on the left the square outgrows everything
        return np.where(d < -350, -np.inf, -fall)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        # the mode lies above that of the square alone
        square = ExponentialTerm(np.log(0.5 * self.shape * self.y), np.full((), -2.0))
        return tilted_moments(self, m, v, power, balance(m, v, np.zeros_like(m), power, square))

    def _parameter_derivative(self, name: str, x: Array) -> Array:
        # ∂ψ/∂λ = ½/λ − (t − 1)²/(2y)
        return np.asarray(0.5 / self.shape - 0.5 * (self._ratio(x) - 1) ** 2 / self.y)

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array:
        # ψ is log λ/2 less λ times what it is at λ = 1
        return np.asarray(0.5 / self.shape + (self._expected_log(m, v).value - self._log_normaliser()) / self.shape)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        # var(y|x) = μ³/λ
        return log_link_predictive(self, m, v, shape, 1.0 / self.shape, 3.0)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return rng.wald(np.exp(np.clip(x, -LOG_MOST, LOG_MOST)), np.broadcast_to(self.shape, x.shape))

    def _conditional_cdf(self, x: Array) -> Array:
        """Φ(√(λ/y)(y/μ − 1)) + e^{2λ/μ} Φ(−√(λ/y)(y/μ + 1))."""
        t, root = self._ratio(x), np.sqrt(self.shape / self.y)
        other = 2 * self.shape / self.y * t + log_ndtr(-root * (t + 1))
        return np.asarray(ndtr(root * (t - 1)) + np.exp(np.minimum(other, 0.0)))

"""Proportions strictly between zero and one: beta regression with a logistic mean."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, digamma, expit, gammaln

from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.special import log_sigmoid, stirling_rest
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential
from latlin.potentials.checks import fractions, positive
from latlin.potentials.mean_link import (
    BETA,
    expected_log,
    expected_size_slope,
    gamma_slopes,
    mean_moments,
    through_mean,
)
from latlin.potentials.predictive import UNIT, ContinuousPredictive, Predictive
from latlin.potentials.ranges import Positive

#: precisions up to which log Γ of the shapes keeps its digits
MODERATE = 1e3


class Beta(Potential):
    """φ(x) = y^{a−1} (1 − y)^{b−1} / B(a, b) with a = μ·precision, b = (1 − μ)·precision and mean μ = σ(x).

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Proportions strictly between 0 and 1.
    precision : float or array_like of shape (sites,)
        Positive; the variance is μ(1 − μ)/(1 + precision).

    Examples
    --------
    >>> Beta([0.2, 0.9], 5.0).log_density([-1.0, 2.0]).round(4).tolist()
    [0.7692, 1.0237]
    """

    parameters = ("y", "precision")
    arrays = ("y", "precision")
    observation = ("y", 0.5)
    free = MappingProxyType({"precision": Positive(start=5.0, low=1e-2, high=1e6)})
    strip = np.pi

    y: Array
    precision: Array

    def __init__(self, y: ArrayLike, precision: ArrayLike) -> None:
        self._store(y=fractions("y", y), precision=positive("precision", precision))

    def _log_odds(self) -> Array:
        return np.log(self.y) - np.log1p(-self.y)

    def log_density(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=float)
        s, a, b = self.precision, self.precision * expit(x), self.precision * expit(-x)
        log_p, log_q, d = log_sigmoid(x), log_sigmoid(-x), x - self._log_odds()
        # KL(μ‖y) from the smaller of y and 1 − y, and log y = log odds + log(1 − y)
        side = np.where(self.y < 0.5, 1.0, -1.0)
        y, d, odds = np.where(self.y < 0.5, self.y, 1.0 - self.y), side * d, side * self._log_odds()
        far = d + odds + np.log1p(-y)
        ratio = np.where(d < 500.0, np.log1p(y * np.expm1(np.minimum(d, 500.0))), far)
        divergence = s * (expit(side * x) * d - ratio)
        rest = stirling_rest(a, np.log(s) + log_p) + stirling_rest(b, np.log(s) + log_q)
        return np.asarray(self._constant() + 0.5 * (log_p + log_q) - divergence - rest)

    def _constant(self) -> Array:
        """What ψ has besides terms in x: ½ log(s/2π) + R(s) − log y(1 − y)."""
        s = self.precision
        return np.asarray(
            0.5 * (np.log(s) - LOG_2PI) + stirling_rest(s, np.log(s)) - np.log(self.y) - np.log1p(-self.y)
        )

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = np.asarray(x, dtype=float)
        if x.ndim == 1 and self._is_moderate:
            return Derivatives(*self._points(x)[1:4])
        s, one = self.precision, np.ones(())
        left, right = (gamma_slopes(one, s * expit(side * x)) for side in (1, -1))
        slopes = (
            s * (self._log_odds() - left[0] + right[0]),
            -(s**2) * (left[1] + right[1]),
            -(s**3) * (left[2] - right[2]),
        )
        return through_mean(x, slopes, one, one)

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        from latlin.potentials.kernels.gamma_sites import beta_points  # loads the compiler: when first needed

        if x.ndim != 1:
            return super()._expansion(x)
        if self._is_moderate:
            value, first, second = self._points(x)[:3]
            return value + self._once("moderate constant", self._moderate_constant), first, second
        value, first, second = beta_points(x, *self._sites())
        return value + self._constant(), first, second

    @property
    def _is_moderate(self) -> bool:
        """No precision is so large that log Γ of the shapes loses digits."""
        return self._once("moderate", lambda: bool(np.all(self.precision <= MODERATE)))

    def _points(self, x: Array) -> Array:
        """ψ but for its constant, ψ′, ψ″ and ψ‴, and ∂ψ/∂s but for its constant with two slopes in x."""
        from latlin.potentials.kernels.beta_sites import beta_points  # loads the compiler: when first needed

        return beta_points(x, self.precision, self._once("odds", self._log_odds))

    def _moderate_constant(self) -> Array:
        """log Γ(s) + 2 log s + s log(1 − y) − log y(1 − y)."""
        s, rest = self.precision, np.log1p(-self.y)
        return np.asarray(gammaln(s) + 2.0 * np.log(s) + (s - 1.0) * rest - np.log(self.y))

    def _sites(self) -> tuple[Array, Array, Array, Array]:
        """The parameters that the compiled loop takes."""
        return self.precision, np.log(self.precision), self.y, self._log_odds()

    def _parameter_derivative(self, name: str, x: Array) -> Array:
        return self._parameter_slopes(name, x)[0]

    def _parameter_slopes(self, name: str, x: Array) -> tuple[Array, Array, Array]:
        """g = ∂ψ/∂s = F(s) + 2/s − μF(1 + a) − (1 − μ)F(1 + b) + μ log y + (1 − μ) log(1 − y) and its slopes in x."""
        if x.ndim == 1 and self._is_moderate:
            value, first, second = self._points(x)[4:]
            return value + self._size_constant(), first, second
        s, p, q = self.precision, expit(x), expit(-x)
        (f, f1, f2), (h, h1, h2) = (gamma_slopes(np.ones(()), s * share) for share in (p, q))
        value = digamma(s) + 2.0 / s + p * (np.log(self.y) - f) + q * (np.log1p(-self.y) - h)
        # in μ: da/dμ = s, db/dμ = −s
        one = self._log_odds() - f + h + s * (q * h1 - p * f1)
        two = -2.0 * s * (f1 + h1) - s**2 * (p * f2 + q * h2)
        w = p * q
        return value, one * w, two * w**2 + one * w * (q - p)

    def _size_constant(self) -> Array:
        """The derivative of `_moderate_constant` in s."""
        return np.asarray(digamma(self.precision) + 2.0 / self.precision + np.log1p(-self.y))

    def _expected_moderate(self, m: Array, v: Array) -> Array | None:
        """⟨ψ⟩ with its slopes in m, v and s; None where a precision or the sd of a site is large."""
        from latlin.potentials.kernels.beta_sites import expected_beta  # loads the compiler: when first needed

        if not self._is_moderate:
            return None
        found = expected_beta(m, v, self.precision, self._once("odds", self._log_odds))
        if np.any(np.isnan(found[0])):
            return None
        found[0] += self._once("moderate constant", self._moderate_constant)
        found[3] += self._size_constant()
        return found

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array | None:
        if (known := self._expected_moderate(m, v)) is not None:
            return known[3]
        found = expected_size_slope(m, v, BETA, *self._sites())
        # d/ds (½ log s + R(s)) = F(s) − log s + 1/s
        s = self.precision
        return None if found is None else digamma(s) - np.log(s) + 1.0 / s + found

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.zeros(()), np.ones(())), (self._log_odds(), 1 / np.sqrt(1 + self.precision)))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        if (known := self._expected_moderate(m, v)) is not None:
            return ExpectedLog(*known[:3])
        return expected_log(self, m, v, self._constant(), BETA, *self._sites())

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._in_blocks(mean_moments, m, v)
        # var y = ⟨μ(1 − μ)⟩/(1 + s) + var μ
        spread = (first - second) / (1 + self.precision) + np.maximum(second - first * first, 0.0)
        return ContinuousPredictive(self, m, v, shape, first, spread, UNIT)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        a, b = self.precision * expit(x), self.precision * expit(-x)
        draws = rng.beta(np.maximum(a, 1e-300), np.maximum(b, 1e-300))
        return np.clip(draws, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)

    def _conditional_cdf(self, x: Array) -> Array:
        a, b = self.precision * expit(x), self.precision * expit(-x)
        return np.asarray(betainc(np.maximum(a, 1e-300), np.maximum(b, 1e-300), self.y))

"""Amounts that are often exactly zero and otherwise positive: sums of a Poisson number of gamma variables."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, log_link_predictive
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive, Predictive
from latlin.potentials.ranges import Between, Positive

#: Poisson numbers beyond which the distribution function is no longer summed term by term
MOST_TERMS = 2000


#: sites up to which plain Python sums the series
FEW = 4


class Tweedie(Potential):
    """Tweedie's exponential dispersion family with mean μ = e^x and variance dispersion·μ^power, 1 < power < 2.

    log φ = log a(y) + (y μ^{1−power}/(1 − power) − μ^{2−power}/(2 − power))/dispersion, with a(y) by its series.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Observations of at least zero.
    power : float or array_like of shape (sites,)
        Strictly between 1 (Poisson) and 2 (gamma).
    dispersion : float or array_like of shape (sites,)
        Positive.

    Examples
    --------
    >>> Tweedie([0.0, 1.0], 1.5, 1.0).log_density([0.0, 0.0]).round(4).tolist()
    [-2.0, -1.0286]
    """

    parameters = ("y", "power", "dispersion")
    arrays = ("y", "power", "dispersion", "log_series")
    observation = ("y", 1.0)
    free = MappingProxyType({"power": Between(1.0, 2.0, start=1.5, margin=1e-2), "dispersion": Positive(low=1e-4)})
    log_concave = True

    y: Array
    power: Array
    dispersion: Array
    log_series: Array

    def __init__(self, y: ArrayLike, power: ArrayLike, dispersion: ArrayLike) -> None:
        from latlin.potentials.kernels.tweedie import log_series  # loads the compiler: when first needed

        y, power, dispersion = finite("y", y), finite("power", power), positive("dispersion", dispersion)
        refuse("y", y, y < 0, "numbers of at least zero")
        refuse("power", power, (power <= 1) | (power >= 2), "numbers strictly between 1 and 2")
        together = np.broadcast_arrays(*np.atleast_1d(y, power, dispersion))
        # a few sites, such as those of a family's description, are not worth a compiler
        series_of = log_series.py_func if together[0].size <= FEW else log_series
        series = series_of(*(np.ascontiguousarray(part) for part in together))
        shape = np.broadcast_shapes(y.shape, power.shape, dispersion.shape)
        self._store(y=y, power=power, dispersion=dispersion, log_series=series.reshape(shape))

    def _form(self) -> Exponentials:
        p, scale = self.power, self.dispersion
        with np.errstate(divide="ignore"):
            fall = ExponentialTerm(np.log(self.y) - np.log(scale * (p - 1)), 1 - p)
        return Exponentials(self.log_series, np.zeros(()), (fall, ExponentialTerm(-np.log(scale * (2 - p)), 2 - p)))

    def log_density(self, x: ArrayLike) -> Array:
        return self._form().log_density(np.asarray(x, dtype=float))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(np.asarray(x, dtype=float))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        # at the observation, or at zero where the expected number of parts is one
        one_part = np.log(self.dispersion * (2 - self.power)) / (2 - self.power)
        return ((np.where(self.y > 0, np.log(np.maximum(self.y, 1e-300)), one_part), np.ones(())),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._form().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._form().tilted_moments(m, v, power)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        plain = log_link_predictive(self, m, v, shape, self.dispersion, self.power)
        return CompoundPredictive(self, m, v, shape, plain.mean, plain.variance, POSITIVE)

    def _parts(self, x: Array) -> tuple[Array, Array, Array]:
        """Given x: the expected number of gamma variables, their shape and their scale."""
        p, x = self.power, np.clip(x, -LOG_MOST, LOG_MOST)
        rate = np.exp((2 - p) * x) / (self.dispersion * (2 - p))
        return rate, (2 - p) / (p - 1), self.dispersion * (p - 1) * np.exp((p - 1) * x)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        rate, shape, scale = self._parts(x)
        return np.asarray(scale * rng.standard_gamma(shape * rng.poisson(np.minimum(rate, 1e15))))

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new ≤ y | x) = Σ_j Poisson(j | rate) P(jshape, y/scale)."""
        rate, shape, scale = self._parts(x)
        total, weight = np.exp(-rate), np.exp(-rate)
        most = int(min(MOST_TERMS, np.max(rate + 12 * np.sqrt(rate) + 30)))
        # sums of more parts than that are normal; those far below the rate weigh nothing
        log_rate = np.log(np.maximum(rate, 1e-300))
        log_weight = -rate
        for j in range(1, most):
            log_weight = log_weight + log_rate - np.log(j)
            if np.max(log_weight) < -40 and j > np.max(rate):
                break
            weight = np.exp(log_weight)
            total = total + weight * gammainc(j * shape, self.y / scale)
        return np.asarray(np.minimum(total, 1.0))


class CompoundPredictive(ContinuousPredictive):
    """Observations with a mass at zero beside a density above it."""

    def _inside(self, y: Array) -> NDArray[np.bool_]:
        return y >= 0

    def quantile(self, q: ArrayLike) -> Array:
        none = self.cdf(np.zeros(self._shape))
        level = np.asarray(q, dtype=float)
        above = np.where(level > none, level, 0.5 * (1.0 + none))
        return np.where(level > none, super().quantile(above), 0.0)

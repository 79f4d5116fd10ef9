"""Amounts that are often exactly zero and otherwise positive: sums of a Poisson number of gamma variables."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaln, xlogy

from latlin.numerics import quadrature
from latlin.numerics.options import float_array
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, log_link_predictive
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive, Predictive
from latlin.potentials.ranges import Between, Positive

#: nat of a Poisson number's tails that the distribution function leaves out, and most of its terms
TAIL, MOST_TERMS = 28.0, 2000
#: standard deviation of x, against the width over which the distribution function bends, up to which few nodes do
NARROW, NODES = 0.4, 16
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
        from latlin.potentials.kernels.counts import log_series  # loads the compiler: when first needed

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
        return self._form().log_density(float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(float_array("x", x))

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
        """P(new ≤ y | x) = Σ_j Poisson(j | rate) P(j·shape, y/scale), over the j that weigh more than 1e-12.

        Poisson(j)·P is smooth over √(rate/(1 + shape)) numbers j: every h-th, taken h times, has the same sum up to
        e^{−rate(1 − cos(2π/h))/(1 + shape)}, e^{−32} at the h below, and up to the weight e^{−rate} of its end.
        """
        rate, shape, scale = self._parts(x)
        rate, shape, z = (part.ravel() for part in np.broadcast_arrays(rate, shape, self.y / scale))
        stride = np.where(rate > 32.0, np.maximum(1.0, np.floor(0.5 * np.sqrt(rate / (1.0 + shape)))), 1.0)
        # Bernstein's tails: t² = 2·TAIL·(rate + t/3) above, t² = 2·TAIL·rate below
        above = TAIL / 3.0 + np.sqrt((TAIL / 3.0) ** 2 + 2.0 * TAIL * rate)
        first = np.maximum(1.0, np.floor(rate - np.sqrt(2.0 * TAIL * rate)))
        length = np.minimum(np.ceil((rate + above - first) / stride) + 1, MOST_TERMS).astype(int)
        start = np.cumsum(length) - length
        node = np.repeat(np.arange(rate.size), length)
        j = first[node] + stride[node] * (np.arange(node.size) - start[node])
        weight = stride[node] * np.exp(xlogy(j, rate[node]) - rate[node] - gammaln(j + 1.0))
        total = np.add.reduceat(weight * gammainc(j * shape[node], z[node]), start)
        return np.asarray(np.minimum(np.exp(-rate) + total, 1.0)).reshape(np.broadcast_shapes(x.shape, self.y.shape))


class CompoundPredictive(ContinuousPredictive):
    """Observations with a mass at zero beside a density above it."""

    least = 0.0

    def _inside(self, y: Array) -> NDArray[np.bool_]:
        return y >= 0

    @staticmethod
    def _cdf_block(block: Tweedie, m: Array, v: Array) -> tuple[Array]:
        """By Gauss–Hermite nodes where x hardly varies, else by panels."""
        # the coefficient of variation of y given x = m
        width = np.minimum(1.0, np.sqrt(block.dispersion) * np.exp(0.5 * (block.power - 2) * np.minimum(m, LOG_MOST)))
        narrow = np.sqrt(v) <= NARROW * width
        out, wide = np.empty_like(m), np.flatnonzero(~narrow)
        if some := np.flatnonzero(narrow).tolist():
            z, w = quadrature.gauss_hermite(NODES)
            out[some] = w @ block.select(some)._conditional_cdf(m[some] + np.sqrt(v[some]) * z[:, None])
        if wide.size:
            out[wide] = ContinuousPredictive._cdf_block(block.select(wide), m[wide], v[wide])[0]
        return (out,)

    def quantile(self, q: ArrayLike) -> Array:
        none = self.cdf(np.zeros(self._shape))
        level = np.asarray(q, dtype=float)
        above = np.where(level > none, level, 0.5 * (1.0 + none))
        return np.where(level > none, super().quantile(above), 0.0)

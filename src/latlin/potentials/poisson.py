"""Counts with rate e^x: the likelihood of Poisson regression with its exponential link."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammaln, wrightomega

from latlin.numerics import quadrature
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential
from latlin.potentials.checks import UnboundedExpectation, counts
from latlin.potentials.predictive import CountPredictive, Predictive

#: largest log of a finite number
LOG_MAX = float(np.log(np.finfo(float).max))
TINY = 1e-300
#: largest log rate whose counts are drawn, and the rate from which counts are drawn as normal ones
LOG_MOST, MANY = 320.0, 1e15


class Poisson(Potential):
    """φ(x) = e^{y x − e^x} / y!

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Counts 0, 1, 2, …

    Examples
    --------
    >>> Poisson([0, 3]).expected_log([0.0, 1.0], [0.5, 0.5]).value.round(4).tolist()
    [-1.284, -2.2821]
    """

    parameters = ("y",)
    arrays = ("y",)
    observation = ("y", 0.0)
    log_concave = True

    y: Array

    def __init__(self, y: ArrayLike) -> None:
        self._store(y=counts("y", y))

    def log_density(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=float)
        with np.errstate(over="ignore"):
            return np.asarray(self.y * x - np.exp(x) - gammaln(self.y + 1))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = np.asarray(x, dtype=float)
        with np.errstate(over="ignore"):
            rate = np.exp(x)
        curvature = np.broadcast_to(-rate, np.broadcast_shapes(x.shape, self.y.shape))
        return Derivatives(self.y - rate, curvature, curvature)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.log(self.y + 1), np.ones(())),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        rate = expected_rate(m, v)
        return ExpectedLog(self.y * m - rate - gammaln(self.y + 1), self.y - rate, -0.5 * rate)

    def _tilted_block(self, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array]:
        """The default about the mode x₀, where what is large (up to 1e14 nat) has cancelled by hand.

        With d = x − x₀: log N(x|m, v) + power ψ(x) = const − d²/(2v) − power·rate·(e^d − 1 − d).
        """
        mode, rate = tilted_mode(m, v, power * self.y, power)
        load = power * rate
        # the integrand bends at d = 0 and where e^d makes up for a small rate
        knee = np.maximum(0.0, -np.log(np.maximum(load, TINY)))
        one = np.ones(())

        def log_f(d: Array) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.where(load > 0, -load * (np.expm1(d) - d), 0.0)

        nodes = quadrature.tilted_nodes(log_f, np.zeros_like(m), np.sqrt(v), ((0.0, one), (knee, one)), True)
        log_sum, shift, spread = quadrature.moments(*nodes)
        away = (mode - m) / np.sqrt(np.maximum(v, TINY))
        constant = power * (self.y * mode - rate - gammaln(self.y + 1)) - 0.5 * away * away
        return constant + log_sum, mode + np.sqrt(v) * shift, v * spread

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        rate = expected_rate(m, v)
        # var y = ⟨e^x⟩ + var e^x = ⟨e^x⟩ + ⟨e^x⟩²(e^v − 1)
        with np.errstate(over="ignore"):
            variance = rate + rate * rate * np.expm1(v)
        return CountPredictive(self, m, v, shape, rate, variance)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return draw_counts(np.exp(np.minimum(x, LOG_MOST)), rng)

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ y | x), the regularised gamma function Q(y + 1, e^x)."""
        with np.errstate(over="ignore"):
            return np.asarray(gammaincc(self.y + 1, np.exp(x)))


def draw_counts(rate: Array, rng: np.random.Generator) -> Array:
    """Poisson counts; beyond 1e15 their distribution is normal to the last digit of a count."""
    few = rng.poisson(np.minimum(rate, MANY)).astype(float)
    many = np.floor(rate + np.sqrt(rate) * rng.standard_normal(rate.shape))
    return np.where(rate < MANY, few, many)


def tilted_mode(m: Array, v: Array, count: Array, power: Array) -> tuple[Array, Array]:
    """Where N(x|m, v) exp(count·x − power·e^x) is largest, and e^x there.

    x + v·power·e^x = a with a = m + v·count, so that ω = v·power·e^x is Wright's function of a + log(v·power).
    """
    load = v * power
    a = m + v * count
    log_load = np.log(np.maximum(load, TINY))
    omega = np.where(load > 0, wrightomega(a + log_load), 0.0)
    mode = np.where(omega > 1, np.log(np.maximum(omega, 1.0)) - log_load, a - omega)
    return mode, np.exp(mode)


def expected_rate(m: Array, v: Array) -> Array:
    """⟨e^x⟩ = e^{m + v/2} under N(x|m, v), or an error where it is too large for a number."""
    exponent = m + 0.5 * v
    if np.any(exponent > LOG_MAX):
        worst = int(np.argmax(exponent))
        raise UnboundedExpectation(
            f"the expected Poisson rate exp(mean + var/2) overflows at mean {m[worst]:g}, var {v[worst]:g}; "
            "start nearer to the data or use a narrower prior"
        )
    return np.asarray(np.exp(exponent))

"""Successes among trials that vary more than binomial ones: the chance of a success is itself beta distributed."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, expit, gammaln

from latlin.numerics.options import float_array
from latlin.numerics.special import log_rising, log_sigmoid
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential
from latlin.potentials.checks import check_trials, positive
from latlin.potentials.mean_link import (
    SHARES,
    expected_log,
    expected_size_slope,
    gamma_slopes,
    mean_moments,
    through_mean,
)
from latlin.potentials.predictive import CountPredictive, Predictive
from latlin.potentials.ranges import Positive


class BetaBinomial(Potential):
    """φ(x) = (trials choose successes) B(successes + a, trials − successes + b)/B(a, b), mean trials·σ(x).

    Parameters
    ----------
    successes : array_like of shape (sites,) or scalar
        Whole numbers from 0 to `trials`.
    trials : array_like of shape (sites,) or scalar
        Whole numbers from 1.
    precision : float or array_like of shape (sites,)
        a + b of the beta distribution, a = σ(x)·precision; as it grows the counts become binomial.

    Examples
    --------
    >>> BetaBinomial([3, 0], [10, 4], 5.0).log_density([-1.0, -1.0]).round(4).tolist()
    [-1.9467, -0.9644]
    """

    parameters = ("successes", "trials", "precision")
    arrays = ("successes", "trials", "precision")
    observation = ("successes", 0.0)
    free = MappingProxyType({"precision": Positive(start=5.0, low=1e-2, high=1e6)})
    strip = np.pi

    successes: Array
    trials: Array
    precision: Array

    def __init__(self, successes: ArrayLike, trials: ArrayLike, precision: ArrayLike) -> None:
        y, n = check_trials(successes, trials)
        self._store(successes=y, trials=n, precision=positive("precision", precision))

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        k, n, s = self.successes, self.trials, self.precision
        up, down = (log_inverse_beta(y, s * expit(t), np.log(s) + log_sigmoid(t)) for t, y in ((x, k), (-x, n - k)))
        return np.asarray(self._counted() + up + down)

    def _counted(self) -> Array:
        """log n B(n, s)/(k (n − k)), without counts that are zero: what remains is log 1/B(k, a) B(n − k, b)."""
        k, n, s = self.successes, self.trials, self.precision
        outcomes = np.log(np.maximum(k, 1.0)) + np.log(np.maximum(n - k, 1.0))
        return np.asarray(np.log(n) - outcomes - log_inverse_beta(n, s, np.log(s)))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
        s, k, n = self.precision, self.successes, self.trials - self.successes
        # log Γ(k + a)/Γ(1 + a) + log a, if there are successes at all, and likewise for failures
        up, down = self._slopes(k, s * expit(x)), self._slopes(n, s * expit(-x))
        slopes = (s * (up[0] - down[0]), s**2 * (up[1] + down[1]), s**3 * (up[2] - down[2]))
        return through_mean(x, slopes, np.sign(k), np.sign(n))

    @staticmethod
    def _slopes(count: Array, argument: Array) -> Array:
        """Derivatives of log Γ(count + a)/Γ(1 + a) in a; none where the count is zero."""
        above, below = gamma_slopes(np.maximum(count, 1.0), argument), gamma_slopes(np.ones(()), argument)
        return np.where(count > 0, above - below, 0.0)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        zero, one = np.zeros(()), np.ones(())
        # factors j + a bend where a = 1, at log precision from either end
        return ((zero, one), (-np.log1p(self.precision), one), (np.log1p(self.precision), one))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        k, n, s = self.successes, self.trials, self.precision
        # log a = log s + log σ: once for each kind of outcome that occurs
        ends = (np.sign(k) + np.sign(n - k)) * np.log(s)
        return expected_log(self, m, v, self._counted() + ends, SHARES, s, k, n - k, np.zeros(()))

    def _parameter_derivative(self, name: str, x: Array) -> Array:
        return self._parameter_slopes(name, x)[0]

    def _parameter_slopes(self, name: str, x: Array) -> tuple[Array, Array, Array]:
        """g = ∂ψ/∂s = μU + (1 − μ)V + constant, with U the slope of log Γ(k + a)/Γ(1 + a) and V that of failures."""
        s, k, n = self.precision, self.successes, self.trials - self.successes
        p, q = expit(x), expit(-x)
        (f, f1, f2), (h, h1, h2) = self._slopes(k, s * p), self._slopes(n, s * q)
        one = f - h + s * (p * f1 - q * h1)
        two = 2.0 * s * (f1 + h1) + s**2 * (p * f2 + q * h2)
        w = p * q
        return self._constant_slope() + p * f + q * h, one * w, two * w**2 + one * w * (q - p)

    def _constant_slope(self) -> Array:
        """Of (number of outcomes that occur)·log s − log Γ(s + n)/Γ(s) in s."""
        k, n, s = self.successes, self.trials, self.precision
        return np.asarray((np.sign(k) + np.sign(n - k)) / s - digamma(s + n) + digamma(s))

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array | None:
        k, n, s = self.successes, self.trials, self.precision
        found = expected_size_slope(m, v, SHARES, s, k, n - k, np.zeros(()))
        return None if found is None else self._constant_slope() + found

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._in_blocks(mean_moments, m, v)
        n, s = self.trials, self.precision
        # var(y|x) = nμ(1 − μ)(n + s)/(1 + s)
        spread = n * (first - second) * (n + s) / (1 + s) + n * n * np.maximum(second - first * first, 0.0)
        return CountPredictive(self, m, v, shape, n * first, spread, n)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        a, b = (np.maximum(self.precision * expit(side * x), 1e-300) for side in (1, -1))
        return rng.binomial(self.trials.astype(np.int64), rng.beta(a, b)).astype(float)

    def _conditional_moments(self, x: Array) -> tuple[Array, Array]:
        p, n, s = expit(x), self.trials, self.precision
        return n * p, n * p * (1 - p) * (n + s) / (1 + s) + (n * p) ** 2

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ successes | x), summed count by count."""
        from latlin.potentials.kernels.counts import beta_binomial_cdf  # loads the compiler: when first needed

        s = self.precision
        return beta_binomial_cdf(self.successes, self.trials, s * expit(x), s * expit(-x))


def log_inverse_beta(count: Array, a: Array, log_a: Array) -> Array:
    """log Γ(count + a)/(Γ(count) Γ(a)), moderate where one of both is large; zero where the count is."""
    large, small = np.maximum(np.maximum(count, 1.0), a), np.minimum(np.maximum(count, 1.0), a)
    # Γ(a) = Γ(1 + a)/a, where a may be next to nothing
    log_small = np.where(a < count, gammaln(1.0 + small) - log_a, gammaln(small))
    return np.where(count > 0, log_rising(large, small) - log_small, 0.0)

"""Counts that vary more than Poisson's: mean e^x and a dispersion.

With the usual variance μ + dispersion·μ² the count is a power of σ in t = x + log dispersion, and everything is that of
logistic regression. With the variance (1 + dispersion)·μ the mean sits inside gamma functions and quadrature serves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, digamma, expit, gammaln

from latlin.numerics.options import check_choice, float_array
from latlin.numerics.special import log_rising, log_sigmoid, map_counts
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import counts, positive
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, Walled, expected_rate
from latlin.potentials.mean_link import RATES, expected_log, gamma_slopes
from latlin.potentials.poisson import RATE, draw_counts
from latlin.potentials.predictive import CountPredictive, Predictive
from latlin.potentials.ranges import Positive
from latlin.potentials.sigmoids import Sigmoids

VARIANCES = ("quadratic", "linear")
SQUARE = ExponentialTerm(np.zeros(()), np.full((), 2.0))
#: log σ(−t)
LAST = Sigmoids(np.zeros(()), np.zeros(()), np.ones(()), np.zeros(()), np.ones(()))


class NegativeBinomial(Potential):
    """φ(x) = Γ(y + r)/(Γ(r) y!) p^y (1 − p)^r with mean e^x.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Counts 0, 1, 2, …
    dispersion : float or array_like of shape (sites,)
        Positive; as it goes to zero the counts become Poisson's.
    variance : {"quadratic", "linear"}
        Of a count with mean μ: μ + dispersion·μ² (r = 1/dispersion), or (1 + dispersion)·μ (r = μ/dispersion).

    Examples
    --------
    >>> NegativeBinomial([0, 3], 0.5).expected_log([0.0, 1.0], [0.5, 0.5]).value.round(4).tolist()
    [-0.9177, -2.2743]
    """

    parameters = ("y", "dispersion", "variance")
    arrays = ("y", "dispersion")
    observation = ("y", 0.0)
    free = MappingProxyType({"dispersion": Positive(start=1.0, low=1e-5, high=1e3)})

    y: Array
    dispersion: Array
    variance: str

    def __init__(self, y: ArrayLike, dispersion: ArrayLike, variance: str = "quadratic") -> None:
        check_choice("variance", variance, VARIANCES)
        y, quadratic = counts("y", y), variance == "quadratic"
        self._store(
            y=y,
            dispersion=positive("dispersion", dispersion),
            variance=variance,
            log_concave=quadratic or bool(np.all(y <= 1)),
            super_gaussian=quadratic,
        )

    @property
    def strip(self) -> float:
        """Either kind is a polynomial in e^x with its zeros below the axis, times an exponential or a power of σ."""
        return float(np.pi)

    @property
    def loc(self) -> Array:
        """Where the quadratic bound is centred."""
        return np.asarray(-np.log(self.dispersion))

    def _form(self) -> Sigmoids:
        return self._once("form", self._sigmoids)

    def _sigmoids(self) -> Sigmoids:
        r = 1.0 / self.dispersion

        def constant(y: Array) -> Array:
            return log_rising(r, y) - gammaln(y + 1)

        return Sigmoids(self._by_count(constant), self.y, r, np.log(self.dispersion), np.ones(()))

    def _by_count(self, f: Callable[[Array], Array]) -> Array:
        """A function of a site's count and dispersion; once per count where the dispersion is one number."""
        return f(self.y) if self.dispersion.ndim else map_counts(f, self.y)

    def _walled(self) -> Walled:
        """φ = Γ(y + r)/(Γ(r) y!) (α/(1+α))^y (1 + α)^{−r}, r = e^x/α."""
        a = self.dispersion
        constant = self.y * (np.log(a) - np.log1p(a)) - gammaln(self.y + 1)
        wall = ExponentialTerm(np.log(np.log1p(a)) - np.log(a), np.ones(()))
        return Walled(Exponentials(constant, np.zeros(()), (wall,)), LogRising(self.y, self.dispersion))

    def log_density(self, x: ArrayLike) -> Array:
        form = self._form() if self.variance == "quadratic" else self._walled()
        return form.log_density(float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        form = self._form() if self.variance == "quadratic" else self._walled()
        return form.derivatives(float_array("x", x))

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        return self._form().expansion(x)[:3] if self.variance == "quadratic" else super()._expansion(x)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        one = np.ones(())
        if self.variance == "quadratic":
            return ((-np.log(self.dispersion), one), (np.log(self.y + 1.0), one))
        wall = np.log(self.dispersion) - np.log(np.log1p(self.dispersion)) + np.log(self.y + 1.0)
        return ((wall, one), *LogRising(self.y, self.dispersion).regions())

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return (self._form() if self.variance == "quadratic" else self._walled()).expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if self.variance == "linear":
            return self._walled().tilted_moments(self, m, v, power)
        return self._form().tilted_moments(self, m, v, power)

    def _remainder(self, x: Array, d: Array) -> Array:
        return self._walled().remainder(x, d) if self.variance == "linear" else super()._remainder(x, d)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        return self._form().quadratic_bound(xi)

    def _parameter_derivative(self, name: str, x: Array) -> Array | None:
        if self.variance == "linear":
            return None
        form = self._form()
        return self._by_dispersion(log_sigmoid(-form.place(x)), form.derivatives(x).first)

    def _parameter_slopes(self, name: str, x: Array) -> tuple[Array, Array, Array] | None:
        if self.variance == "linear":
            return None
        form, r = self._form(), 1.0 / self.dispersion
        _, first, second, third = form.expansion(x)
        # log(1 − p) = log σ(−t), its slope −p and its curvature −p(1 − p)
        rest = LAST._replace(shift=form.shift).expansion(x)
        return self._by_dispersion(rest[0], first), r * second - r * r * rest[1], r * third - r * r * rest[2]

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array | None:
        from latlin.potentials.kernels.sites import log_sigmoid_expectations  # loads the compiler: when first needed

        if self.variance == "linear":
            return None
        form = self._form()
        value, _, _ = log_sigmoid_expectations(-form.place(m), v)
        return self._by_dispersion(value, form.expected_log(m, v).d_mean)

    def _by_dispersion(self, log_rest: Array, slope: Array) -> Array:
        """∂ψ/∂α = −r²(F(y + r) − F(r) + log(1 − p)) + rψ′ with F the digamma function, r = 1/α."""
        r = 1.0 / self.dispersion
        return np.asarray(r * slope - r * r * (self._by_count(lambda y: digamma(y + r)) - digamma(r) + log_rest))

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        mean, a = expected_rate(m, v, RATE), self.dispersion
        square = expected_rate(m, v, SQUARE)
        inside = mean + a * square if self.variance == "quadratic" else (1 + a) * mean
        # var μ = ⟨μ⟩²(e^v − 1)
        with np.errstate(over="ignore"):
            return CountPredictive(self, m, v, shape, mean, inside + mean * mean * np.expm1(v))

    def _shape_at(self, x: Array) -> tuple[Array, Array]:
        """r and p given x."""
        if self.variance == "linear":
            return np.exp(np.minimum(x, LOG_MOST)) / self.dispersion, self.dispersion / (1 + self.dispersion)
        return 1.0 / self.dispersion, expit(x + np.log(self.dispersion))

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        # a Poisson count whose rate is gamma distributed with mean e^x
        mean = np.exp(np.minimum(x, LOG_MOST))
        r = np.broadcast_to(self._shape_at(x)[0], x.shape)
        return draw_counts(mean * rng.standard_gamma(r) / np.maximum(r, 1e-290), rng)

    def _mode_start(self, m: Array, v: Array, power: Array) -> Array:
        return self._walled().wall._mode(m, v, power) if self.variance == "linear" else m

    def _conditional_moments(self, x: Array) -> tuple[Array, Array]:
        mean, a = np.exp(np.minimum(x, LOG_MOST)), self.dispersion
        spread = mean + a * mean * mean if self.variance == "quadratic" else (1 + a) * mean
        return mean, spread + mean * mean

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ y | x) = I_{1−p}(r, y + 1)."""
        if self.variance == "linear":
            r, p = self._shape_at(x)
            return np.asarray(betainc(np.maximum(r, 1e-290), self.y + 1.0, 1.0 - p))
        return np.asarray(betainc(1.0 / self.dispersion, self.y + 1.0, expit(-x - np.log(self.dispersion))))


class LogRising(Potential):
    """φ(x) = r(r + 1) … (r + y − 1) with r = e^x/dispersion."""

    parameters = ("y", "dispersion")
    arrays = ("y", "dispersion")
    strip = np.pi

    y: Array
    dispersion: Array

    def __init__(self, y: Array, dispersion: Array) -> None:
        self._store(y=y, dispersion=dispersion)

    def _size(self, x: ArrayLike) -> tuple[Array, Array]:
        """r, as far as it is a number that can be cubed, and log r."""
        log_r = float_array("x", x) - np.log(self.dispersion)
        return np.exp(np.clip(log_r, -230.0, 230.0)), log_r

    def log_density(self, x: ArrayLike) -> Array:
        r, log_r = self._size(x)
        # beyond all bends: y log r
        return np.where(log_r > 230.0, self.y * log_r, log_rising(r, self.y, np.minimum(log_r, 230.0)))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        r, y = self._size(x)[0], self.y
        # log r + log Γ(y + r)/Γ(1 + r), differentiated in log r
        above, below = gamma_slopes(np.maximum(y, 1.0), r), gamma_slopes(np.ones(()), r)
        one, two, three = (np.where(y > 0, r**k * (above[k - 1] - below[k - 1]), 0.0) for k in (1, 2, 3))
        return Derivatives(np.sign(y) + one, one + two, one + 3 * two + three)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        one = np.ones(())
        return ((np.log(self.dispersion), one), (np.log(self.dispersion * (self.y + 1.0)), one))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        out, some = np.zeros((3, m.size)), np.flatnonzero(np.broadcast_to(self.y > 0, m.shape))
        if some.size:
            block = self.select(some)
            size, constant = 1.0 / block.dispersion, -np.log(block.dispersion)
            out[:, some] = expected_log(block, m[some], v[some], constant, RATES, size, block.y)
        return ExpectedLog(*out)

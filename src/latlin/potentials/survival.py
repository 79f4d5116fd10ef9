"""Survival times, observed or only known to lie somewhere: what they share, Weibull and log-logistic families.

The codes are those of R's `Surv`: an event is observed at `time` (1), comes later (0, right-censored), came earlier (2,
left-censored), or lies between `time` and `upper` (3, interval-censored).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, gamma

from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.arrays import check_visible
from latlin.numerics.options import float_array
from latlin.numerics.special import log1mexp
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse
from latlin.potentials.complementary import LogComplement
from latlin.potentials.exponentials import LOG_MOST, Exponentials, ExponentialTerm, Walled, expected_rate
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive, Predictive
from latlin.potentials.ranges import Positive, Range
from latlin.potentials.sigmoids import Sigmoids

RIGHT, EVENT, LEFT, INTERVAL = 0.0, 1.0, 2.0, 3.0


def warn_of_codes(event: ArrayLike) -> None:
    """Warn where codes may be those of another convention, in which 1 is censored and 2 observed."""
    if set(np.unique(np.asarray(event)).tolist()) == {EVENT, LEFT}:
        alert(
            "event holds 1 (observed) and 2 (the event came earlier), and neither 0 nor 3; where 1 means censored and "
            "2 observed, as in some tables, give event == 2 instead",
            MisfitWarning,
        )


class SurvivalTime(Potential):
    """Times T = e^x T₀^{1/shape}, with T₀ of a standard distribution, observed or censored."""

    parameters: ClassVar[tuple[str, ...]] = ("time", "event", "shape", "upper")
    arrays: ClassVar[tuple[str, ...]] = ("time", "event", "shape", "upper")
    observation = ("time", 1.0)
    free: MappingProxyType[str, Range] = MappingProxyType({"shape": Positive(low=1e-2, high=1e2)})
    log_concave = True

    time: Array
    event: Array
    shape: Array
    upper: Array

    def __init__(
        self,
        time: ArrayLike,
        event: ArrayLike = EVENT,
        shape: ArrayLike = 1.0,
        upper: ArrayLike | None = None,
    ) -> None:
        self._store_times(time, event, shape, upper)

    def _store_times(self, time: ArrayLike, event: ArrayLike, shape: ArrayLike, upper: ArrayLike | None) -> None:
        """Check and keep the times; `upper` is zero, which ends no interval, where nothing is interval-censored."""
        time, codes = positive("time", time), finite("event", event)
        known = np.isin(codes, (RIGHT, EVENT, LEFT, INTERVAL))
        refuse("event", codes, ~known, "1 (observed), 0 (right-censored), 2 (left-censored) or 3 (interval-censored)")
        inside = codes == INTERVAL
        if upper is None:
            refuse("event", codes, inside, "no 3 (interval-censored) unless upper is given")
            ends = np.zeros(())
        else:
            given = float_array("upper", check_visible("upper", upper))
            ends = finite("upper", np.where(np.isfinite(given) | inside, given, 0.0))
            refuse("upper", ends, inside & (ends <= time), "numbers above time where event is 3 (interval-censored)")
        self._store(time=time, event=codes, shape=positive("shape", shape), upper=ends)

    def observe(self, y: ArrayLike) -> Self:
        """The same family with observed times."""
        return self.replace(time=y, event=EVENT, upper=None)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        width = 1.0 / self.shape
        if not np.any(self.event == INTERVAL):
            return ((np.log(self.time), width),)
        return ((np.log(self.time), width), (np.log(np.where(self.event == INTERVAL, self.upper, self.time)), width))

    def _log_ratio(self, x: ArrayLike) -> Array:
        """w = shape·(log time − x)."""
        return np.asarray(self.shape * (np.log(self.time) - float_array("x", x)))

    def _gap(self) -> Array:
        """w at `upper` less w at `time`; one where there is no interval."""
        inside = self.event == INTERVAL
        return np.where(inside, self.shape * (np.log(np.where(inside, self.upper, 1.0)) - np.log(self.time)), 1.0)

    def _standard_moments(self) -> tuple[Array, Array]:
        """⟨T⟩ and ⟨T²⟩ at x = 0."""
        raise NotImplementedError

    def _standard_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws of T at x = 0 and shape 1."""
        raise NotImplementedError

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._standard_moments()
        level = expected_rate(m, v, ExponentialTerm(np.zeros(()), np.ones(())))
        # var T = ⟨T₀²⟩⟨e^{2x}⟩ − ⟨T⟩²; infinite moments stay infinite
        with np.errstate(over="ignore", invalid="ignore"):
            mean = first * level
            spread = np.where(np.isinf(second), np.inf, level * level * (second * np.exp(v) - first * first))
        return ContinuousPredictive(self, m, v, shape, mean, spread, POSITIVE)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        log_time = x + np.log(np.maximum(self._standard_sample(x.shape, rng), 1e-300)) / self.shape
        return np.exp(np.clip(log_time, -LOG_MOST, LOG_MOST))


# --- Weibull survival times with scale e^x: an accelerated failure time and a proportional hazard at once.


class Weibull(SurvivalTime):
    """P(T > t | x) = exp(−(t e^{−x})^shape), for observed and censored times.

    With w = shape·(log time − x): φ = shape/time·e^{w − e^w} for an event, e^{−e^w} for one that comes later,
    1 − e^{−e^w} for one that came earlier, and the difference of two such survival probabilities for an interval.

    Parameters
    ----------
    time : array_like of shape (sites,) or scalar
        Positive times.
    event : array_like of shape (sites,) or scalar, default 1
        1 observed at `time`, 0 later (right-censored), 2 earlier (left-censored), 3 between `time` and `upper`.
    shape : float or array_like of shape (sites,), default 1
        Above one the hazard grows with time, below one it falls.
    upper : array_like of shape (sites,), optional
        Ends of the intervals, where `event` is 3; other entries are not used.

    Examples
    --------
    >>> sites = Weibull([2.0, 3.0], [1, 0], shape=1.5)
    >>> sites.log_density([0.0, 1.0]).round(4).tolist()
    [-2.0764, -1.1594]
    """

    def _wall(self) -> Exponentials:
        k, log_t = self.shape, np.log(self.time)
        seen = self.event == EVENT
        constant = np.where(seen, np.log(k) - log_t + k * log_t, 0.0)
        log_weight = np.where(self.event == LEFT, -np.inf, k * log_t)
        return Exponentials(constant, np.where(seen, -k, 0.0), (ExponentialTerm(log_weight, -k),))

    def _form(self) -> Walled:
        # S(t₁) − S(t₂) = e^{−e^w}(1 − exp(−e^w(e^δ − 1)))
        earlier = (self.event == LEFT) | (self.event == INTERVAL)
        gap = self._gap()
        log_growth = np.where(self.event == INTERVAL, gap + np.log(-np.expm1(-gap)), 0.0)
        shift = self.shape * np.log(self.time) + log_growth
        return Walled(self._wall(), LogComplement(earlier.astype(float), shift, -self.shape))

    def log_density(self, x: ArrayLike) -> Array:
        return self._form().log_density(float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(float_array("x", x))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        if self._exponential_only():
            return self._wall().expected_log(m, v)
        return self._form().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if self._exponential_only():
            return self._wall().tilted_moments(m, v, power)
        return self._form().tilted_moments(self, m, v, power)

    def _remainder(self, x: Array, d: Array) -> Array:
        return self._form().remainder(x, d)

    def _parameter_derivative(self, name: str, x: Array) -> Array | None:
        if not self._exponential_only():
            return None
        (term,) = self._wall().terms
        return self._by_shape(np.log(self.time) - x, (np.log(self.time) - x) * term.at(x))

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array | None:
        if not self._exponential_only():
            return None
        (term,) = self._wall().terms
        # ⟨(log t − x) e^{k(log t − x)}⟩ = (log t − m + kv) ⟨e^{k(log t − x)}⟩
        away = np.log(self.time) - m
        return self._by_shape(away, (away + self.shape * v) * expected_rate(m, v, term))

    def _by_shape(self, away: Array, fall: Array) -> Array:
        """∂ψ/∂k = event·(1/k + log t − x) − (log t − x)e^w, the last term given."""
        return np.asarray(np.where(self.event == EVENT, 1.0 / self.shape + away, 0.0) - fall)

    def _exponential_only(self) -> bool:
        """No site is censored from the left or into an interval."""
        return not np.any((self.event == LEFT) | (self.event == INTERVAL))

    def _conditional_cdf(self, x: Array) -> Array:
        return np.asarray(-np.expm1(-np.exp(np.minimum(self._log_ratio(x), 700.0))))

    def _standard_moments(self) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):
            return gamma(1 + 1 / self.shape), gamma(1 + 2 / self.shape)

    def _standard_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.standard_exponential(shape)


class Exponential(Weibull):
    """P(T > t | x) = exp(−t e^{−x}): survival times with a constant hazard e^{−x} and mean e^x.

    Parameters
    ----------
    time : array_like of shape (sites,) or scalar
        Positive times.
    event : array_like of shape (sites,) or scalar, default 1
        1 observed at `time`, 0 later (right-censored), 2 earlier (left-censored), 3 between `time` and `upper`.
    upper : array_like of shape (sites,), optional
        Ends of the intervals, where `event` is 3; other entries are not used.

    Examples
    --------
    >>> Exponential([2.0, 3.0], [1, 0]).log_density([0.0, 1.0]).round(4).tolist()
    [-2.0, -1.1036]
    """

    parameters: ClassVar[tuple[str, ...]] = ("time", "event", "upper")
    free: MappingProxyType[str, Range] = MappingProxyType({})

    def __init__(self, time: ArrayLike, event: ArrayLike = EVENT, upper: ArrayLike | None = None) -> None:
        self._store_times(time, event, 1.0, upper)


# --- Log-logistic survival times with median e^x: hazards that rise and fall, odds that are proportional.


class LogLogistic(SurvivalTime):
    """P(T > t | x) = 1/(1 + (t e^{−x})^shape), for observed and censored times.

    With w = shape·(log time − x): φ = shape/time·σ(w)σ(−w) for an event, σ(−w) for one that comes later, σ(w) for one
    that came earlier, and the difference of two such probabilities for an interval.

    Parameters
    ----------
    time : array_like of shape (sites,) or scalar
        Positive times.
    event : array_like of shape (sites,) or scalar, default 1
        1 observed at `time`, 0 later (right-censored), 2 earlier (left-censored), 3 between `time` and `upper`.
    shape : float or array_like of shape (sites,), default 1
        log T has a logistic distribution of scale 1/shape; the mean exists for shape > 1.
    upper : array_like of shape (sites,), optional
        Ends of the intervals, where `event` is 3; other entries are not used.

    Examples
    --------
    >>> LogLogistic([2.0, 3.0], [1, 0], shape=1.5).log_density([0.0, 1.0]).round(4).tolist()
    [-1.9329, -0.7698]
    """

    def _store_times(self, time: ArrayLike, event: ArrayLike, shape: ArrayLike, upper: ArrayLike | None) -> None:
        super()._store_times(time, event, shape, upper)
        object.__setattr__(self, "super_gaussian", not np.any(self.event == INTERVAL))

    @property
    def strip(self) -> Array:
        return np.asarray(np.pi / self.shape)

    @property
    def loc(self) -> Array:
        """Where the quadratic bound is centred."""
        return np.asarray(np.log(self.time))

    def _form(self) -> Sigmoids:
        """Everything but that T was before the end of an interval."""
        k, log_t = self.shape, np.log(self.time)
        seen = self.event == EVENT
        constant = np.where(seen, np.log(k) - log_t, 0.0)
        return Sigmoids(
            constant,
            np.where(seen | (self.event == LEFT), 1.0, 0.0),
            np.where(seen | (self.event == RIGHT) | (self.event == INTERVAL), 1.0, 0.0),
            k * log_t,
            -k,
        )

    def _end(self) -> Sigmoids:
        """σ(w₂) − σ(w₁) = σ(w₂) σ(−w₁) (1 − e^{w₁ − w₂}): the first and the last factor."""
        inside, gap, zero = self.event == INTERVAL, self._gap(), np.zeros(())
        constant = np.where(inside, log1mexp(gap), 0.0)
        shift = self.shape * np.log(self.time) + np.where(inside, gap, 0.0)
        return Sigmoids(constant, inside.astype(float), zero, shift, -self.shape)

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        return self._form().log_density(x) + self._end().log_density(x)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
        parts = zip(self._form().derivatives(x), self._end().derivatives(x), strict=True)
        return Derivatives(*(one + other for one, other in parts))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        found = self._form().expected_log(m, v)
        if self.super_gaussian:
            return found
        return ExpectedLog(*(a + b for a, b in zip(found, self._end().expected_log(m, v), strict=True)))

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if self.super_gaussian:
            return self._form().tilted_moments(self, m, v, power)
        widths = np.broadcast_to(self.strip, m.shape)
        return strip.tilted_moments(self, m, v, power, strip=widths, curvature=0.5 * self.shape**2)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        return self._form().quadratic_bound(xi)

    def _conditional_cdf(self, x: Array) -> Array:
        return np.asarray(expit(self._log_ratio(x)))

    def _standard_moments(self) -> tuple[Array, Array]:
        # ⟨T^r⟩ = (πr/k)/sin(πr/k) for r < k
        first, second = (np.pi * r / self.shape for r in (1, 2))
        return (
            np.where(self.shape > 1, first / np.sin(np.where(self.shape > 1, first, 1.0)), np.inf),
            np.where(self.shape > 2, second / np.sin(np.where(self.shape > 2, second, 1.0)), np.inf),
        )

    def _standard_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(np.exp(rng.logistic(size=shape)))

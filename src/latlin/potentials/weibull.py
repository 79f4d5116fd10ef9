"""Weibull survival times with scale e^x: an accelerated failure time and a proportional hazard at once."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gamma

from latlin.potentials.base import Array, Derivatives, ExpectedLog, TiltedMoments
from latlin.potentials.complementary import LogComplement
from latlin.potentials.exponentials import Exponentials, ExponentialTerm, Walled, expected_rate
from latlin.potentials.ranges import Positive, Range
from latlin.potentials.survival import EVENT, INTERVAL, LEFT, SurvivalTime


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

    free = MappingProxyType({"shape": Positive(low=1e-2, high=1e2)})
    log_concave = True

    def __init__(
        self,
        time: ArrayLike,
        event: ArrayLike = EVENT,
        shape: ArrayLike = 1.0,
        upper: ArrayLike | None = None,
    ) -> None:
        self._store_times(time, event, shape, upper)

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
        return self._form().log_density(np.asarray(x, dtype=float))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._form().derivatives(np.asarray(x, dtype=float))

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

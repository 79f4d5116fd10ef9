"""Log-logistic survival times with median e^x: hazards that rise and fall, odds that are proportional."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from latlin.numerics.special import log1mexp
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, QuadraticBound, TiltedMoments
from latlin.potentials.ranges import Positive
from latlin.potentials.sigmoids import Sigmoids
from latlin.potentials.survival import EVENT, INTERVAL, LEFT, RIGHT, SurvivalTime


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
        x = np.asarray(x, dtype=float)
        return self._form().log_density(x) + self._end().log_density(x)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = np.asarray(x, dtype=float)
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

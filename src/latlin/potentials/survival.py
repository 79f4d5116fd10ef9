"""What survival times share: which of them are observed and which are only known to lie somewhere.

The codes are those of R's `Surv`: an event is observed at `time` (1), comes later (0, right-censored), came earlier (2,
left-censored), or lies between `time` and `upper` (3, interval-censored).
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.options import float_array
from latlin.potentials.base import Array, Potential
from latlin.potentials.checks import finite, positive, refuse
from latlin.potentials.exponentials import LOG_MOST, ExponentialTerm, expected_rate
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive, Predictive

RIGHT, EVENT, LEFT, INTERVAL = 0.0, 1.0, 2.0, 3.0


class SurvivalTime(Potential):
    """Times T = e^x T₀^{1/shape}, with T₀ of a standard distribution, observed or censored."""

    parameters: ClassVar[tuple[str, ...]] = ("time", "event", "shape", "upper")
    arrays: ClassVar[tuple[str, ...]] = ("time", "event", "shape", "upper")
    observation = ("time", 1.0)

    time: Array
    event: Array
    shape: Array
    upper: Array

    def _store_times(self, time: ArrayLike, event: ArrayLike, shape: ArrayLike, upper: ArrayLike | None) -> None:
        """Check and keep the times; `upper` is one (and unused) where nothing is interval-censored."""
        time, codes = positive("time", time), finite("event", event)
        known = np.isin(codes, (RIGHT, EVENT, LEFT, INTERVAL))
        refuse("event", codes, ~known, "1 (observed), 0 (right-censored), 2 (left-censored) or 3 (interval-censored)")
        inside = codes == INTERVAL
        if upper is None:
            refuse("event", codes, inside, "no 3 (interval-censored) unless upper is given")
            ends = np.ones(())
        else:
            ends = finite("upper", np.where(np.isfinite(float_array("upper", upper)) | inside, upper, 1.0))
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
        return np.asarray(self.shape * (np.log(self.time) - np.asarray(x, dtype=float)))

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

"""Probit sites: φ(x) = Φ(y x), the likelihood of probit regression, with closed tilted moments."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.options import float_array
from latlin.numerics.special import log_ndtr
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import labels
from latlin.potentials.kernels.truncated import half_normal
from latlin.potentials.predictive import ClassPredictive, Predictive

#: the zeros of Φ nearest to the real line are at 1.92 ± 2.82i
STRIP = 2.81


class Probit(Potential):
    """φ(x) = Φ(y x), with Φ the distribution function of the standard normal.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Labels in {−1, +1}, in {0, 1} or booleans; kept as −1 and +1. Predictives speak of classes 0 and 1.

    Examples
    --------
    >>> log_z, mean, variance = Probit([1]).tilted_moments([-50.0], [1.0])
    >>> float(log_z.round(4)[0]), float(mean.round(4)[0]), float(variance.round(4)[0])
    (-629.4852, -24.98, 0.5004)
    """

    parameters = ("y",)
    arrays = ("y",)
    observation = ("y", 1.0)
    log_concave = True
    strip = STRIP

    y: Array

    def __init__(self, y: ArrayLike) -> None:
        self._store(y=labels("y", y))

    def log_density(self, x: ArrayLike) -> Array:
        return log_ndtr(self.y * float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        first, second, third = log_ndtr_derivatives(self.y * float_array("x", x))
        return Derivatives(self.y * first, second, self.y * third)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        # Φ(x) is what is above zero of N(x, 1), Φ(−x) what is below
        lower, upper = np.where(self.y > 0, 0.0, -np.inf), np.where(self.y > 0, np.inf, 0.0)
        return strip.expected_log_mass(self, m, v, lower, upper, STRIP)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if np.any(power != 1):
            return strip.tilted_moments(self, m, v, power, strip=STRIP, curvature=1.0)
        # Z = Φ(t), t = ym/√(1+v); with r = N(t)/Φ(t) the variance is v[1 − v/(1+v) r(t+r)]
        root = np.sqrt(1 + v)
        t = self.y * m / root
        gap, rest = half_normal(t)
        return TiltedMoments(log_ndtr(t), m / (1 + v) + self.y * (v / root) * gap, v * ((1 + v * rest) / (1 + v)))

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(rng.standard_normal(x.shape) < x)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        return ClassPredictive(self, m, v, shape, n_classes=2)


def log_ndtr_derivatives(t: Array) -> tuple[Array, Array, Array]:
    """First three derivatives of log Φ, without cancellation on the left.

    With r = N/Φ, g = t + r and V = 1 − r g they are r, −r g and r(g² − V).
    """
    gap, rest = (part.reshape(np.shape(t)) for part in half_normal(np.atleast_1d(t)))
    r = gap - t
    with np.errstate(over="ignore", invalid="ignore"):  # g² overflows where r is nothing
        third = np.where(r > 0.0, r * (gap * gap - rest), 0.0)
    return r, rest - 1, third

"""Logistic sites: φ(x) = σ(y x), the likelihood of logistic regression.

The expected log and the tilted moments are compiled (`numerics.site_kernels`, `numerics.sigmoid_tilt`); the quadratic
bound is that of Jaakkola and Jordan, Challis (2013), §3.8 and A.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from latlin.numerics.special import log_sigmoid
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import labels
from latlin.potentials.predictive import ClassPredictive, Predictive


class Logit(Potential):
    """φ(x) = σ(y x) = 1/(1 + e^{−y x}).

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Labels in {−1, +1}, in {0, 1} or booleans; kept as −1 and +1. Predictives speak of classes 0 and 1.

    Examples
    --------
    >>> sites = Logit([1, 0, 1])
    >>> sites.expected_log([0.0, 1.0, 2.0], 0.5).value.round(4).tolist()
    [-0.7523, -1.3612, -0.1542]
    >>> sites.predictive(0.7, 2.0).probabilities.round(4).tolist()
    [0.3752, 0.6248]
    """

    parameters = ("y",)
    arrays = ("y",)
    observation = ("y", 1.0)
    log_concave = True
    super_gaussian = True
    strip = np.pi

    y: Array

    def __init__(self, y: ArrayLike) -> None:
        self._store(y=labels("y", y))

    def log_density(self, x: ArrayLike) -> Array:
        return log_sigmoid(self.y * np.asarray(x, dtype=float))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        t = self.y * np.asarray(x, dtype=float)
        if t.ndim == 1:
            return Derivatives(*self._with_derivatives(t)[1:])
        p, q = expit(t), expit(-t)
        # ψ′ = yσ(−yx), ψ″ = −σ(x)σ(−x), ψ‴ = −yσσ(1 − 2σ)
        return Derivatives(self.y * q, -p * q, self.y * p * q * (p - q))

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        return self._with_derivatives(self.y * x)[:3]

    def _with_derivatives(self, t: Array) -> tuple[Array, Array, Array, Array]:
        """ψ, ψ′, ψ″ and ψ‴ at x = yt."""
        from latlin.potentials.kernels.sites import log_sigmoid_derivatives  # loads the compiler: when first needed

        value, first, second, third = log_sigmoid_derivatives(t)
        return value, self.y * first, second, self.y * third

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        from latlin.potentials.kernels.sites import log_sigmoid_expectations  # loads the compiler: when first needed

        value, d_mean, d_var = log_sigmoid_expectations(self.y * m, v)
        return ExpectedLog(value, self.y * d_mean, d_var)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        from latlin.potentials.kernels.sigmoid_tilt import MOST_NODES, nodes_needed, sigmoid_tilt  # as above

        s = np.sqrt(v)
        count = nodes_needed(s, power)
        if not np.any(count > MOST_NODES):
            log_z, mean, variance = sigmoid_tilt(self.y * m, s, power, count)
            return TiltedMoments(log_z, self.y * mean, variance)
        few = np.flatnonzero(count <= MOST_NODES)
        out = np.empty((3, m.size))
        log_z, mean, variance = sigmoid_tilt((self.y * m)[few], s[few], power[few], count[few])
        out[:, few] = log_z, (self.y * np.ones_like(m))[few] * mean, variance
        rest = np.flatnonzero(count > MOST_NODES)
        out[:, rest] = Potential._tilted_moments(self.select(rest), m[rest], v[rest], power[rest])
        return TiltedMoments(*out)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # log σ(t) ≥ log σ(ξ) + ½(t − ξ) − ½a(t² − ξ²), a = tanh(ξ/2)/(2ξ)
        half = 0.5 * xi
        a = 0.25 * np.where(half > 1e-4, np.tanh(half) / np.maximum(half, 1e-4), 1 - half**2 / 3)
        return QuadraticBound(a, 0.5 * self.y, log_sigmoid(xi) - half + 0.5 * a * xi * xi)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(rng.random(x.shape) < expit(x))

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        return ClassPredictive(self, m, v, shape, n_classes=2)

"""Step sites: labels that are right with probability 1 − ε whatever the distance from the boundary.

Closed forms throughout, Challis (2013), A.5.7, the sign of its ∂/∂μ corrected.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from latlin.numerics.options import float_array
from latlin.numerics.special import log_ndtr
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import finite, labels
from latlin.potentials.kernels.truncated import join_halves
from latlin.potentials.predictive import ClassPredictive, Predictive
from latlin.potentials.ranges import Between


class Step(Potential):
    """φ(x) = 1 − eps where y·x ≥ 0, eps elsewhere.

    Parameters
    ----------
    y : array_like of shape (sites,)
        Labels in {−1, +1}, in {0, 1} or booleans.
    eps : float or array_like of shape (sites,)
        Probability of a wrong label, 0 ≤ eps < ½. With eps = 0 the log is −∞ on the wrong side:
        `tilted_moments` exist, `expected_log` does not.

    Examples
    --------
    >>> Step([1, 0], eps=0.1).expected_log([0.0, 0.0], 1.0).d_mean.round(3)
    array([ 0.877, -0.877])
    """

    parameters = ("y", "eps")
    arrays = ("y", "eps")
    observation = ("y", 1.0)
    smooth = False
    free = MappingProxyType({"eps": Between(0.0, 0.5, start=0.05)})

    y: Array
    eps: Array

    def __init__(self, y: ArrayLike, eps: ArrayLike) -> None:
        eps = finite("eps", eps)
        if np.any((eps < 0) | (eps >= 0.5)):
            raise ValueError(f"eps must lie in [0, 1/2), got {eps[(eps < 0) | (eps >= 0.5)].flat[0]:g}")
        self._store(y=labels("y", y), eps=eps, log_concave=bool(np.all(eps == 0)))

    def log_density(self, x: ArrayLike) -> Array:
        right, wrong = self._levels()
        return np.where(self.y * float_array("x", x) >= 0, right, wrong)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        """Zero everywhere: the jump at x = 0 has no derivative."""
        zero = np.zeros(np.broadcast_shapes(np.shape(x), self.y.shape))
        return Derivatives(zero, zero, zero)

    def _levels(self) -> tuple[Array, Array]:
        """log(1 − ε) and log ε."""
        with np.errstate(divide="ignore"):
            return np.log1p(-self.eps), np.log(self.eps)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        if np.any(self.eps == 0):
            raise ValueError("eps must be positive for the expectation of a log: with eps = 0 it is −∞")
        right, wrong = self._levels()
        s = np.maximum(np.sqrt(v), 1e-150 * np.maximum(np.abs(m), 1))
        a = self.y * m / s
        jump = np.where(v > 0, right - wrong, 0.0) * np.exp(-0.5 * a * a) / np.sqrt(2 * np.pi)
        # ⟨ψ⟩ = log(1−ε) − log((1−ε)/ε) Φ(−a)
        value = np.where(v > 0, right - (right - wrong) * ndtr(-a), np.where(a >= 0, right, wrong))
        return ExpectedLog(value, self.y * jump / s, -0.5 * jump * a / s / s)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        right, wrong = self._levels()
        s = np.maximum(np.sqrt(v), 1e-150 * np.maximum(np.abs(m), 1))
        a = self.y * m / s
        lost = np.where(power > 0, wrong, 0.0)
        z = join_halves(power * right + log_ndtr(a), a, power * lost + log_ndtr(-a), -a)
        log_z = np.where(v > 0, z.log_z, power * np.where(a >= 0, right, lost))
        return TiltedMoments(log_z, np.where(v > 0, self.y * s * z.mean, m), v * z.variance)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return ((x >= 0) ^ (rng.random(x.shape) < self.eps)).astype(float)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        return ClassPredictive(self, m, v, shape, n_classes=2)

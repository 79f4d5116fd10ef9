"""The generalised normal density q(v) ∝ exp(−|v/s|^η): sparse for η < 2, flat for η > 2, standardised.

Challis (2013), C.3.2, its entropy gradient corrected. The characteristic function

    φ(t) = η/Γ(1/η) Re ∫_0^∞ e^{itr − r^η} dr

is integrated along the ray r = ρe^{iπ/(4η)}, on which both factors fall, by the double-exponential rule, and is kept as
a Chebyshev series in log η.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, expit, gammainc, gammaln, logit

from latlin.densities.bases.base import Array, Base, Characteristic, ComplexArray, shape_rows
from latlin.densities.bases.shape_series import ShapeSeries, shape_series
from latlin.numerics.stored import storable

#: η of the ascent lies between these; the bound is differentiable only above one
LOWEST, HIGHEST = 1.0, 6.0
POINTS = 32
#: where the free coordinate is zero: η = 2
CENTRE = float(logit((2.0 - LOWEST) / (HIGHEST - LOWEST)))


@storable
class GeneralisedNormal(Base):
    """η/(2sΓ(1/η)) exp(−|v/s|^η) with s = √(Γ(1/η)/Γ(3/η)), so that the variance is one.

    Parameters
    ----------
    shape : float or array_like of shape (coordinates,), default 2
        η in (1, 6]; 2 is the Gaussian, 1 would be the Laplace density.

    Examples
    --------
    >>> GeneralisedNormal(1.5).third_and_fourth()[1].round(3)
    array([0.762])
    """

    name = "generalised-normal"
    n_free = 1
    has_gaussian = True
    cumulants = (4,)

    def __init__(self, shape: ArrayLike = 2.0) -> None:
        self.shape = shape_rows("shape", shape)
        if np.any((self.shape <= LOWEST) | (self.shape > HIGHEST)):
            bad = self.shape[(self.shape <= LOWEST) | (self.shape > HIGHEST)][0]
            raise ValueError(
                f"shape of a generalised normal base must lie in ({LOWEST:g}, {HIGHEST:g}], got {bad:g}: "
                "at 1 and below the bound is not differentiable"
            )
        self.rows = len(self.shape)
        self.scale = _scale(self.shape)
        share = np.clip((self.shape - LOWEST) / (HIGHEST - LOWEST), 1e-12, 1 - 1e-12)
        self.free = (logit(share) - CENTRE)[:, None]

    def with_free(self, free: Array) -> GeneralisedNormal:
        share = np.clip(expit(free[:, 0] + CENTRE), 1e-9, 1.0)
        return GeneralisedNormal(LOWEST + (HIGHEST - LOWEST) * share)

    @classmethod
    def starting(cls, rows: int, third: Array, fourth: Array) -> GeneralisedNormal:
        grid = np.linspace(4.0, 1.15, 200)
        return cls(np.interp(fourth, _kurtosis(grid), grid))

    def logpdf(self, v: ArrayLike) -> Array:
        r = np.abs(np.asarray(v, float)) / self.scale
        return np.log(0.5 * self.shape / self.scale) - gammaln(1.0 / self.shape) - r**self.shape

    def cdf(self, v: ArrayLike) -> Array:
        v = np.asarray(v, float)
        inside = gammainc(1.0 / self.shape, (np.abs(v) / self.scale) ** self.shape)
        return np.asarray(0.5 + 0.5 * np.sign(v) * inside)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        size = rng.gamma(np.broadcast_to(1.0 / self.shape, shape)) ** (1.0 / self.shape)
        return self.scale * size * rng.choice([-1.0, 1.0], size=shape)

    def entropy(self) -> Array:
        # 1/η − log(η/(2sΓ(1/η)))
        eta = self.shape
        return 1.0 / eta - np.log(0.5 * eta / self.scale) + gammaln(1.0 / eta)

    def entropy_gradient(self) -> Array:
        eta = self.shape
        raw = -1.0 / eta**2 - 1.0 / eta - digamma(1.0 / eta) / eta**2
        # d log s/dη with log s = ½(log Γ(1/η) − log Γ(3/η))
        d_scale = 0.5 * (3.0 * digamma(3.0 / eta) - digamma(1.0 / eta)) / eta**2
        return ((raw + d_scale) * self._d_shape_d_free())[:, None]

    def characteristic(self, s: Array) -> Characteristic:
        value, slope = _series(s).at(np.log(self.shape))
        return Characteristic(value.astype(complex), slope.astype(complex))

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        d_log = _series(s).derivative(np.log(self.shape))
        factor = self._d_shape_d_free() / self.shape
        return (d_log * factor[:, None])[:, None, :].astype(complex)

    def third_and_fourth(self) -> tuple[Array, Array]:
        return np.zeros(self.rows), _kurtosis(self.shape)

    def reach(self) -> Array:
        # exp(−(R/s)^η) = 1e-14
        return np.maximum(self.scale * 32.0 ** (1.0 / self.shape), 5.0)

    def _d_shape_d_free(self) -> Array:
        share = (self.shape - LOWEST) / (HIGHEST - LOWEST)
        return (HIGHEST - LOWEST) * share * (1.0 - share)


def _scale(eta: Array) -> Array:
    return np.exp(0.5 * (gammaln(1.0 / eta) - gammaln(3.0 / eta)))


def _kurtosis(eta: Array) -> Array:
    return np.exp(gammaln(5.0 / eta) + gammaln(1.0 / eta) - 2.0 * gammaln(3.0 / eta)) - 3.0


def _series(s: Array) -> ShapeSeries:
    return shape_series(_transform, float(np.log(LOWEST)), float(np.log(HIGHEST)), POINTS, s)


def _transform(log_eta: float, s: Array) -> tuple[Array, Array]:
    """φ and dφ/ds of one standardised shape."""
    eta = np.exp(log_eta)
    scale, theta = float(_scale(eta)), np.pi / (4.0 * eta)
    # ρ = exp(y − e^{−y}); the rule's error falls as exp(−2π·strip/step)
    step = 2.0 * np.pi * 0.95 * theta / 58.0
    y = np.arange(-3.7, 2.5 + np.log(60.0) / eta, step)
    rho = np.exp(y - np.exp(-y))
    r = rho * np.exp(1j * theta)
    weight = step * rho * (1.0 + np.exp(-y)) * np.exp(1j * theta - r**eta)
    kept = np.abs(weight) > 1e-18
    r, weight = r[kept], weight[kept] * eta / np.exp(gammaln(1.0 / eta))
    waves = np.exp(1j * np.outer(s * scale, r))
    return (waves @ weight).real, scale * (waves @ (1j * r * weight)).real

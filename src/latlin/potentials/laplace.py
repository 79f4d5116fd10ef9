"""Laplace (double exponential) sites: the sparse prior and the robust likelihood with a kink.

Closed forms throughout, Challis (2013), A.5.2, its ∂/∂σ² and its shifted density corrected.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, erfcx

from latlin.numerics.special import log_ndtr
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.kernels.truncated import two_halves
from latlin.potentials.ranges import Positive


class Laplace(Potential):
    """φ(x) = exp(−|x − loc|/scale) / (2 scale).

    At the kink, x = loc, `derivatives` answers with the middle of the two slopes, zero.

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        Mean absolute deviation; the standard deviation is √2 times that.

    Examples
    --------
    >>> prior = Laplace(scale=0.5)
    >>> float(prior.tilted_moments(0.0, 1.0).variance.round(4))
    0.2536
    """

    parameters = ("loc", "scale")
    arrays = ("loc", "scale")
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    log_concave = True
    super_gaussian = True
    smooth = False

    loc: Array
    scale: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale))

    def log_density(self, x: ArrayLike) -> Array:
        return -np.abs(np.asarray(x, dtype=float) - self.loc) / self.scale - np.log(2 * self.scale)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        first = -np.sign(np.asarray(x, dtype=float) - self.loc) / self.scale
        return Derivatives(first, np.zeros_like(first), np.zeros_like(first))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        distance, sign, density = expected_distance(m - self.loc, v)
        value = -distance / self.scale - np.log(2 * self.scale)
        return ExpectedLog(value, -sign / self.scale, -density / self.scale)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        d = m - self.loc
        # a point mass is a Gaussian 1e-150 times as wide as it is far away
        s = np.maximum(np.sqrt(v), 1e-150 * np.maximum(np.abs(d), 1))
        a, k = d / s, power * s / self.scale
        z = two_halves(log_half(a, k), a - k, log_half(-a, k), -a - k)
        return TiltedMoments(z.log_z - power * np.log(2 * self.scale), self.loc + s * z.mean, v * z.variance)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # −|r| ≥ −½(r²/ξ + ξ); the bound closes on the kink as ξ → 0
        xi = np.maximum(xi, 1e-100 * self.scale)
        a = 1 / (self.scale * xi)
        return QuadraticBound(a, a * self.loc, -0.5 * (xi / self.scale + a * self.loc**2) - np.log(2 * self.scale))

    def _noise_moments(self) -> tuple[Array, Array]:
        return np.zeros_like(self.scale), 2 * self.scale**2

    def _noise_cdf(self, r: Array) -> Array:
        half = 0.5 * np.exp(-np.abs(r) / self.scale)
        return np.where(r < 0, half, 1 - half)

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self.scale * rng.laplace(size=shape)


def expected_distance(d: Array, v: Array) -> tuple[Array, Array, Array]:
    """⟨|x|⟩ for x ~ N(d, v) with its derivatives in d and in v.

    With σ² = v and a = d/σ: ⟨|x|⟩ = 2σN(a) + d erf(a/√2), ∂/∂d = erf(a/√2), ∂/∂v = N(a)/σ.
    """
    s = np.sqrt(v)
    some = np.where(v > 0, s, 1e-150)
    a = np.clip(d / some, -50, 50)
    density, sign = np.exp(-0.5 * a * a) / np.sqrt(2 * np.pi), erf(a / np.sqrt(2))
    return 2 * s * density + d * sign, sign, np.where(v > 0, density / some, 0.0)


def log_half(a: Array, k: Array) -> Array:
    """log ∫_0^∞ N(z|a, 1) e^{−kz} dz = ½k² − ka + log Φ(a − k), squares cancelled by hand where a < k."""
    near = np.minimum(a, k)
    far = np.maximum(a, k)
    beyond = -0.5 * near * near + np.log(0.5 * erfcx((k - near) / np.sqrt(2)))
    return np.where(a > k, k * (0.5 * k - far) + log_ndtr(far - k), beyond)

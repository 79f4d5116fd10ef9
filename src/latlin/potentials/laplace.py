"""Laplace (double exponential) sites: the sparse prior and the robust likelihood with a kink.

Closed forms throughout, Challis (2013), A.5.2, its ∂/∂σ² and its shifted density corrected.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, erfcx

from latlin.numerics.options import float_array
from latlin.numerics.special import log_ndtr
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, fractions, positive
from latlin.potentials.kernels.truncated import join_halves
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
    located = True
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
        return -np.abs(float_array("x", x) - self.loc) / self.scale - np.log(2 * self.scale)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        first = -np.sign(float_array("x", x) - self.loc) / self.scale
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
        z = join_halves(log_half(a, k), a - k, log_half(-a, k), -a - k)
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


# --- Asymmetric Laplace sites: the likelihood of quantile regression.
#
# A Laplace density that is tilted by e^{(τ−½)r}; its closed forms are those of the Laplace sites with a rate of its
# own on either side.


class AsymmetricLaplace(Potential):
    """φ(x) = τ(1 − τ)/scale·exp(−ρ(u)), u = (loc − x)/scale, ρ(u) = u(τ − [u < 0]): x is the τ-quantile of loc.

    Parameters
    ----------
    quantile : float or array_like of shape (sites,)
        τ, strictly between 0 and 1; ½ is `Laplace(loc, 2·scale)`.
    loc : float or array_like of shape (sites,), default 0
        The observation.
    scale : float or array_like of shape (sites,), default 1
        Positive.

    Examples
    --------
    >>> AsymmetricLaplace(0.9, [1.0, -1.0]).log_density([0.0, 0.0]).round(4).tolist()
    [-3.3079, -2.5079]
    """

    parameters = ("quantile", "loc", "scale")
    arrays = ("quantile", "loc", "scale")
    located = True
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    log_concave = True
    super_gaussian = True
    smooth = False

    quantile: Array
    loc: Array
    scale: Array

    def __init__(self, quantile: ArrayLike, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(quantile=fractions("quantile", quantile), loc=finite("loc", loc), scale=positive("scale", scale))

    def _log_normaliser(self) -> Array:
        return np.asarray(np.log(self.quantile) + np.log1p(-self.quantile) - np.log(self.scale))

    def log_density(self, x: ArrayLike) -> Array:
        r = (float_array("x", x) - self.loc) / self.scale
        # τr on the left of loc, −(1 − τ)r on the right
        return self._log_normaliser() + np.where(r < 0, self.quantile, self.quantile - 1) * r

    def derivatives(self, x: ArrayLike) -> Derivatives:
        r = float_array("x", x) - self.loc
        first = (self.quantile - 0.5 - 0.5 * np.sign(r)) / self.scale
        return Derivatives(first, np.zeros_like(first), np.zeros_like(first))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        distance, sign, density = expected_distance(m - self.loc, v)
        # −½|r| + (τ − ½)r
        lean, s = self.quantile - 0.5, self.scale
        value = self._log_normaliser() + (lean * (m - self.loc) - 0.5 * distance) / s
        return ExpectedLog(value, (lean - 0.5 * sign) / s, -0.5 * density / s)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        d = m - self.loc
        # a point mass is a Gaussian 1e-150 times as wide as it is far away
        s = np.maximum(np.sqrt(v), 1e-150 * np.maximum(np.abs(d), 1))
        a, right, left = d / s, power * s * (1 - self.quantile) / self.scale, power * s * self.quantile / self.scale
        z = join_halves(log_half(a, right), a - right, log_half(-a, left), -a - left)
        return TiltedMoments(z.log_z + power * self._log_normaliser(), self.loc + s * z.mean, v * z.variance)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # −½|r| ≥ −¼(r²/ξ + ξ) in units of scale; the line is kept
        xi = np.maximum(xi, 1e-100 * self.scale)
        a, slope, loc = 0.5 / (self.scale * xi), (self.quantile - 0.5) / self.scale, self.loc
        c = self._log_normaliser() - 0.25 * xi / self.scale - 0.5 * a * loc**2 - slope * loc
        return QuadraticBound(a, a * loc + slope, c)

    def _noise_moments(self) -> tuple[Array, Array]:
        p, q = self.quantile, 1 - self.quantile
        return self.scale * (q - p) / (p * q), self.scale**2 * (p * p + q * q) / (p * q) ** 2

    def _noise_cdf(self, r: Array) -> Array:
        p, u = self.quantile, r / self.scale
        return np.where(u < 0, p * np.exp((1 - p) * np.minimum(u, 0.0)), 1 - (1 - p) * np.exp(-p * np.maximum(u, 0.0)))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        up, down = rng.standard_exponential(shape), rng.standard_exponential(shape)
        return np.asarray(self.scale * (up / self.quantile - down / (1 - self.quantile)))

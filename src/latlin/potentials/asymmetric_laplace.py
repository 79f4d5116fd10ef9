"""Asymmetric Laplace sites: the likelihood of quantile regression.

A Laplace density that is tilted by e^{(τ−½)r}; its closed forms are those of `latlin.potentials.laplace` with a rate of
its own on either side.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, fractions, positive
from latlin.potentials.kernels.truncated import two_halves
from latlin.potentials.laplace import expected_distance, log_half
from latlin.potentials.ranges import Positive


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
        r = (np.asarray(x, dtype=float) - self.loc) / self.scale
        # τr on the left of loc, −(1 − τ)r on the right
        return self._log_normaliser() + np.where(r < 0, self.quantile, self.quantile - 1) * r

    def derivatives(self, x: ArrayLike) -> Derivatives:
        r = np.asarray(x, dtype=float) - self.loc
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
        z = two_halves(log_half(a, right), a - right, log_half(-a, left), -a - left)
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

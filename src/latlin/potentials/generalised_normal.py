"""Generalised normal sites: one family from sparse (shape < 1) over Laplace (1) and Gaussian (2) to a box."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaincc, gammaln

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse_overflow
from latlin.potentials.kernels.power import absolute_moment
from latlin.potentials.ranges import Positive


class GeneralisedNormal(Potential):
    """φ(x) ∝ exp(−|r|^shape), r = (x − loc)/scale, normalised in x and in loc.

    Log-concave for shape ≥ 1, super-Gaussian for shape ≤ 2, with two continuous derivatives for shape ≥ 2. At
    x = loc a derivative that does not exist is given as zero.

    Parameters
    ----------
    shape : float or array_like of shape (sites,)
        The power, positive: 1 is `Laplace(loc, scale)`, 2 is `Gaussian(loc, scale/√2)`.
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        Distance at which the density has fallen by a factor e.

    Examples
    --------
    >>> GeneralisedNormal(shape=1.5).log_concave, GeneralisedNormal(shape=0.5).log_concave
    (True, False)
    """

    parameters = ("shape", "loc", "scale")
    arrays = ("shape", "loc", "scale")
    free = MappingProxyType({"shape": Positive(low=0.3, high=4.0), "scale": Positive()})
    location_scale = True

    shape: Array
    loc: Array
    scale: Array

    def __init__(self, shape: ArrayLike, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        q = positive("shape", shape)
        self._store(
            shape=q,
            loc=finite("loc", loc),
            scale=positive("scale", scale),
            log_concave=bool(np.all(q >= 1)),
            super_gaussian=bool(np.all(q <= 2)),
            smooth=bool(np.all(q >= 2)),
        )

    def _standard(self, x: ArrayLike) -> Array:
        return (np.asarray(x, dtype=float) - self.loc) / self.scale

    def _log_normaliser(self) -> Array:
        # ∫ exp(−|r|^q) dx = 2 s Γ(1 + 1/q)
        return np.asarray(-np.log(2 * self.scale) - gammaln(1 + 1 / self.shape))

    def log_density(self, x: ArrayLike) -> Array:
        return self._log_normaliser() - np.abs(self._standard(x)) ** self.shape

    def derivatives(self, x: ArrayLike) -> Derivatives:
        q, s, r = self.shape, self.scale, self._standard(x)
        zero = r == 0
        size = np.where(zero, 1.0, np.abs(r))
        first = q * np.where(zero, 0.0, size ** (q - 1)) * np.sign(r)
        second = q * (q - 1) * np.where(zero & (q != 2), 0.0, size ** (q - 2))
        third = q * (q - 1) * (q - 2) * np.where(zero, 0.0, size ** (q - 3)) * np.sign(r)
        return Derivatives(-first / s, -second / s**2, -third / s**3)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        s, q = self.scale, np.broadcast_to(self.shape, m.shape)
        moment, d_mean, d_var = absolute_moment(self._standard(m), np.sqrt(v) / s, q)
        refuse_overflow("|x − loc|^shape", m, v, moment, d_mean, d_var)
        return ExpectedLog(self._log_normaliser() - moment, -d_mean / s, -d_var / s**2)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        from latlin.potentials.kernels.power import tilted_by_exponential

        s, q = self.scale, np.broadcast_to(self.shape, m.shape)
        log_z, shift, variance = tilted_by_exponential(self._standard(m), np.sqrt(v) / s, power, q)
        refuse_overflow("|x − loc|^shape", m, v, log_z, shift, variance)
        return TiltedMoments(power * self._log_normaliser() + log_z, m + s * shift, s**2 * variance)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # |r|^q is concave in r²; a = q ξ^{q−2}/s^q, and the bound closes on the kink as ξ → 0
        q, loc = self.shape, self.loc
        xi = np.maximum(xi, 1e-100 * self.scale)
        fall = (xi / self.scale) ** q
        a = q * fall / xi**2
        return QuadraticBound(a, a * loc, self._log_normaliser() - fall + 0.5 * a * (xi - loc) * (xi + loc))

    def _noise_moments(self) -> tuple[Array, Array]:
        # ⟨r²⟩ = Γ(3/q)/Γ(1/q)
        spread = self.scale**2 * np.exp(gammaln(3 / self.shape) - gammaln(1 / self.shape))
        return np.zeros_like(spread), spread

    def _noise_cdf(self, r: Array) -> Array:
        q = self.shape
        size = np.abs(r / self.scale) ** q
        return np.where(r < 0, 0.5 * gammaincc(1 / q, size), 0.5 + 0.5 * gammainc(1 / q, size))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        # |r|^q is Gamma(1/q, 1)
        size = rng.standard_gamma(1 / self.shape, size=shape) ** (1 / self.shape)
        return np.asarray(self.scale * size * rng.choice([-1.0, 1.0], size=shape))

"""The horseshoe prior of Carvalho, Polson and Scott (2010): a pole at zero and the tails of a Cauchy.

x = λτz with z standard normal and λ half-Cauchy. With u = r²/2 the density is e^u E₁(u)/√(2π³), E₁ the exponential
integral. Given λ everything is Gaussian: in t = log λ the mixture has the weight 1/(π cosh t), and integrals over t by
the trapezoid rule converge exponentially.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import exp1

from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.options import float_array
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.ranges import Positive

LOG_NORMALISER = -0.5 * float(np.log(2 * np.pi**3))
#: log λ in equal steps; the weight has fallen to 1e-17 at its ends
_T = np.arange(-40.0, 40.001, 0.2)
_LOG_WEIGHT = np.log(0.2 / np.pi) - np.logaddexp(_T, -_T) + np.log(2.0)
#: terms of the continued fraction, and the u from which it has converged with them
TERMS, LARGE = 40, 8.0
#: standard deviations from the pole beyond which a Gaussian does not see it
CLEAR = 12.0
#: widths of the panels towards the pole, in units of the scale
GRADES = 2.0 ** np.array([0.0, -4.0, -8.0, -12.0, -16.0, -22.0, -28.0, -36.0, -44.0])


class Horseshoe(Potential):
    """φ(x) = ∫ N(x | loc, λ²scale²) dC⁺(λ), λ half-Cauchy.

    Infinite at loc, where the value at a distance of 1e-150 is given and derivatives are zero; not log-concave.

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The centre.
    scale : float or array_like of shape (sites,), default 1
        The global scale τ.

    Examples
    --------
    >>> Horseshoe().tilted_moments([0.1, 5.0], 0.01).mean.round(3).tolist()
    [0.073, 4.996]
    """

    parameters = ("loc", "scale")
    arrays = ("loc", "scale")
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    super_gaussian = True
    smooth = False

    loc: Array
    scale: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale))

    def log_density(self, x: ArrayLike) -> Array:
        r = (float_array("x", x) - self.loc) / self.scale
        with np.errstate(over="ignore", divide="ignore"):
            u = 0.5 * r * r
            small = np.clip(u, 1e-300, LARGE)
            # e^u E₁(u) = 1/(u + K)
            value = np.where(u < LARGE, small + np.log(exp1(small)), -np.log(u + _fraction(np.maximum(u, LARGE))))
        return np.asarray(LOG_NORMALISER - np.log(self.scale) + value)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        r = (float_array("x", x) - self.loc) / self.scale
        zero = np.abs(r) < 1e-140
        r = np.where(zero, 1.0, r)
        with np.errstate(over="ignore"):
            u = np.minimum(0.5 * r * r, 1e200)
        k = _gap(u)
        # ∂ψ/∂u = −K/u and ∂K/∂u = L = (K(u + K) − u)/u: in r, with du/dr = r
        slope, bend = _gap_slopes(u, k)
        first = -2 * k / r
        second = 2 * k / r**2 - 2 * slope
        third = -4 * k / r**3 + 2 * slope / r - 2 * bend * r
        s = self.scale
        return Derivatives(*(np.where(zero, 0.0, d) for d in (first / s, second / s**2, third / s**3)))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return tuple((self.loc, self.scale * grade) for grade in GRADES)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        """Weighted by z and z² where the pole is within reach, by derivatives where it is not."""
        away = np.abs(m - self.loc) > CLEAR * np.sqrt(v)
        out = np.empty((3, m.size))
        for some, by in (
            (np.flatnonzero(away), Potential._derivative_block),
            (np.flatnonzero(~away), Potential._weighted_block),
        ):
            if some.size:
                out[:, some] = self.select(some)._in_blocks(by, m[some], v[some])
        return ExpectedLog(*out)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if np.any(power != 1):
            return super()._tilted_moments(m, v, power)
        parts = self._in_blocks(Horseshoe._mixture_block, m, v)
        # a point is where it is
        point = v == 0
        return TiltedMoments(
            np.where(point, self.log_density(m), parts[0]), np.where(point, m, parts[1]), np.where(point, 0.0, parts[2])
        )

    def _mixture_block(self, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """Given λ: evidence N(d | 0, v + τ²λ²), mean d·g, variance v·g with g = τ²λ²/(v + τ²λ²)."""
        d = m - self.loc
        wide = (self.scale * np.exp(_T[:, None])) ** 2
        total = v + wide
        with np.errstate(over="ignore"):
            logs = _LOG_WEIGHT[:, None] - 0.5 * (d * (d / total) + LOG_2PI + np.log(total))
        top = np.maximum(logs.max(axis=0), -1e300)
        share = np.exp(logs - top)
        mass = share.sum(axis=0)
        share /= mass
        kept = wide / total
        mean = np.sum(share * kept, axis=0)
        spread = np.sum(share * (kept - mean) ** 2, axis=0)
        return top + np.log(mass), self.loc + d * mean, v * mean + d * (d * spread)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # the bound closes on the pole as ξ → 0
        r = np.maximum(xi / self.scale, 1e-100)
        a = 2 * _gap(0.5 * r * r) / r**2 / self.scale**2
        top = self.log_density(self.loc + self.scale * r)
        return QuadraticBound(a, a * self.loc, top + 0.5 * a * ((self.scale * r) ** 2 - self.loc**2))

    def observe(self, y: ArrayLike) -> NoReturn:
        raise ValueError("Horseshoe is a prior: it does not describe observations")


def _fraction(u: Array) -> Array:
    """K = 1/(1 + 1/(u + 2/(1 + 2/(u + 3/(1 + …))))), with e^u E₁(u) = 1/(u + K), for u ≥ LARGE."""
    k = np.ones_like(u)
    for n in range(TERMS, 0, -1):
        k = n / (1.0 + n / (u + k)) if n > 1 else 1.0 / (1.0 + 1.0 / (u + k))
    return k


def _gap(u: Array) -> Array:
    """K(u) = 1/(e^u E₁(u)) − u."""
    small = np.clip(u, 1e-300, LARGE)
    return np.where(u < LARGE, np.exp(-small) / exp1(small) - small, _fraction(np.maximum(u, LARGE)))


def _gap_slopes(u: Array, k: Array) -> tuple[Array, Array]:
    """∂K/∂u = (K(u + K) − u)/u and ∂²K/∂u²; far out by K = 1 − 1/u + 3/u² − 13/u³ + 71/u⁴ − 461/u⁵ + 3447/u⁶ − …"""
    q = 1.0 / u
    slope = (k * (u + k) - u) * q
    bend = (slope * (u + 2 * k) + k - 1 - slope) * q
    far = q * q * (1 - q * (6 - q * (39 - q * (284 - q * (2305 - q * 20682)))))
    far_bend = -(q**3) * (2 - q * (18 - q * (156 - q * (1420 - q * (13830 - q * 144774)))))
    return np.where(u > 800.0, far, slope), np.where(u > 800.0, far_bend, bend)

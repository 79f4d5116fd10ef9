"""Compiled loops for sites with the algebraic tails of Student's t, in units where ψ(x) = −β log(1 + x²).

Two facts make both integrals cheap and accurate at any mean and standard deviation:

* ⟨log(1 + x²)⟩ = log 2σ² + 2 Re G(ζ), ζ = (i − μ)/(σ√2), where G(z) = π^{−½} ∫ e^{−t²} log(z − t) dt is an
  integral of the Faddeeva function, G′ = −i√π w. In the upper half plane G(z) − log(z + iL) is a fast
  converging power series in Z = (L + iz)/(L − iz), the variable in which Weideman (1994) expands w; far out G
  has an asymptotic series in ζ⁻².
* (1 + x²)^{−β} is a gamma mixture of Gaussians, ∫ τ^{β−1} e^{−τ(1+x²)} dτ / Γ(β). Given τ the tilted density
  is Gaussian, and the integrand in u = log τ is analytic and decays on both sides, so the trapezoid rule
  converges exponentially.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy.special import wofz

from latlin.numerics.arrays import Array
from latlin.numerics.threads import share_out

_L = 5.0
_N_SERIES = 42
_N_ASYMPTOTIC = 17
#: nanoseconds per site of an expectation and of tilted moments, by measurement
EXPECTED, TILTED = 250.0, 2500.0
# relative size at which a tail of the mixture is cut, as a logarithm
_CUT = 42.0


def _series() -> Array:
    """Coefficients c_k, k = 0 … N, of P(Z) = G(z) − log(z + iL) = Σ c_k Z^k."""
    n = 1024
    θ = (np.arange(n) + 0.5) * (2 * np.pi / n) - np.pi
    z, Z = _L * np.tan(θ / 2), np.exp(1j * θ)
    # dP/dZ = (G′ − 1/(z+iL)) dz/dZ on the unit circle, where z is real
    slope = (-1j * np.sqrt(np.pi) * wofz(z) - 1 / (z + 1j * _L)) * (_L - 1j * z) ** 2 / (2j * _L)
    k = np.arange(_N_SERIES)
    c = (slope * Z[None, :] ** -k[:, None]).mean(axis=1).real / (k + 1)
    # z → ∞ is Z = −1, where P vanishes
    return np.concatenate([[-np.sum(c * (-1.0) ** (k + 1))], c])


_SERIES = _series()
# E t^{2k} = (2k−1)!!/2^k for t ~ N(0, ½)
_MOMENTS: Array = np.cumprod(np.arange(1, _N_ASYMPTOTIC + 1) - 0.5)


@njit(cache=True)
def _near(mu: float, sd: float, c: Array) -> tuple[float, float, float]:
    """⟨log(1+x²)⟩, its derivative in μ and half its second one, by the series in Z."""
    d = _L - 1j * complex(-mu, 1.0) / (math.sqrt(2.0) * sd)
    inverse = 1.0 / d
    z = 2.0 * _L * inverse - 1.0
    p, p1, p2 = 0j, 0j, 0j
    for k in range(c.size - 1, -1, -1):
        p2 = p2 * z + p1
        p1 = p1 * z + p
        p = p * z + c[k]
    z1 = 2j * _L * inverse * inverse
    z2 = 2j * z1 * inverse
    # G′ = −i/d + P′Z′, G″ = 1/d² + P″Z′² + P′Z″
    g1 = -1j * inverse + p1 * z1
    g2 = inverse * inverse + 2.0 * p2 * z1 * z1 + p1 * z2
    value = 2.0 * (math.log(math.sqrt(2.0) * sd * abs(d)) + p.real)
    return value, -math.sqrt(2.0) * g1.real / sd, 0.5 * g2.real / (sd * sd)


@njit(cache=True)
def _far(mu: float, sd: float, moments: Array) -> tuple[float, float, float]:
    """The same for σ² ≪ 1 + μ², by moments: G = log ζ − Σ ⟨t^{2k}⟩ q^k / 2k, q = ζ⁻², t ~ N(0, ½)."""
    y = 1.0 / complex(-mu, 1.0)
    q = 2.0 * (sd * y) * (sd * y)
    s, s1, s2 = 0j, 0j, 0j
    for k in range(moments.size, 0, -1):
        e = moments[k - 1]
        s = (s + e / (2.0 * k)) * q
        s1 = (s1 + e) * q
        s2 = (s2 + (2.0 * k + 1.0) * e) * q
    log = math.log1p(mu * mu) if abs(mu) < 1e8 else 2.0 * math.log(abs(mu))
    return log - 2.0 * s.real, -2.0 * ((1.0 + s1) * y).real, -((1.0 + s2) * y * y).real


@njit(cache=True, nogil=True)
def _expected(first: int, last: int, sites: Array, c: Array, moments: Array, out: Array) -> None:
    for n in range(first, last):
        mu, sd = sites[0, n], sites[1, n]
        if 1.0 + mu * mu > 128.0 * sd * sd:
            out[0, n], out[1, n], out[2, n] = _far(mu, sd, moments)
        else:
            out[0, n], out[1, n], out[2, n] = _near(mu, sd, c)


@njit(cache=True, nogil=True)
def _tilted(first: int, last: int, sites: Array, out: Array) -> None:
    for n in range(first, last):
        mu, b = sites[0, n], sites[2, n]
        m2, v = mu * mu, sites[1, n] * sites[1, n]
        if b == 0.0:
            out[0, n], out[1, n], out[2, n] = 0.0, 0.0, v
            continue
        # every mode has β/(1+σ²+μ²) ≤ τ ≤ β and is no narrower than (β+½)^{−½} in u
        spread = math.log(1.0 + v + m2)
        lower = max(math.log(b) - spread - 1.0 - _CUT / b, -spread - _CUT)
        upper = math.log(b + _CUT + math.sqrt(2.0 * b * _CUT))
        steps = int((upper - lower) / min(0.25, 0.6 / math.sqrt(b))) + 1
        h = (upper - lower) / steps
        top, s0, s1, s2 = -np.inf, 0.0, 0.0, 0.0
        for i in range(steps + 1):
            u = lower + i * h
            tau = math.exp(u)
            y = 2.0 * v * tau
            g = b * u - tau - 0.5 * math.log1p(y) - tau * m2 / (1.0 + y)
            if g > top:
                shrink = math.exp(top - g)
                s0, s1, s2, top = s0 * shrink, s1 * shrink, s2 * shrink, g
            w = math.exp(g - top)
            if i == 0:
                # to the left the terms are a geometric series
                w /= -math.expm1(-b * h)
            # given τ: mean μ(1−d), variance σ²(1−d)
            d = y / (1.0 + y)
            s0 += w
            s1 += w * d
            s2 += w * d * d
        d = s1 / s0
        out[0, n] = top + math.log(h * s0) - math.lgamma(b)
        out[1, n] = mu * d
        out[2, n] = v * (1.0 - d) + m2 * max(s2 / s0 - d * d, 0.0)


def _stack(*arrays: Array) -> Array:
    """One array of one type, so that one version is compiled."""
    return np.array(np.broadcast_arrays(*arrays), dtype=float)


def expected_log1p_square(mu: Array, sd: Array) -> tuple[Array, Array, Array]:
    """⟨log(1 + x²)⟩ for x ~ N(mu, sd²), with its derivatives with respect to mu and sd²."""
    sites = _stack(mu, sd)
    out = np.empty((3, sites.shape[1]))
    share_out(_expected, sites.shape[1], EXPECTED, sites, _SERIES, _MOMENTS, out)
    return out[0], out[1], out[2]


def tilted_by_power(mu: Array, sd: Array, beta: Array) -> tuple[Array, Array, Array]:
    """log Z, mu − mean and variance of N(x | mu, sd²) (1 + x²)^{−beta} / Z."""
    sites = _stack(mu, sd, beta)
    out = np.empty((3, sites.shape[1]))
    share_out(_tilted, sites.shape[1], TILTED, sites, out)
    return out[0], out[1], out[2]

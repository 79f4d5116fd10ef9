"""Student's t sites, Challis (2013), A.5.3 (sign of the derivative and kurtosis corrected)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, stdtr, wofz

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array
from latlin.numerics.threads import INNER, njit, share_out
from latlin.potentials.base import Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse_overflow
from latlin.potentials.ranges import Positive

# --- Compiled loops for sites with the algebraic tails of Student's t, in units where ψ(x) = −β log(1 + x²).
#
# Two facts make both integrals cheap and accurate at any mean and standard deviation:
#
# * ⟨log(1 + x²)⟩ = log 2σ² + 2 Re G(ζ), ζ = (i − μ)/(σ√2), where G(z) = π^{−½} ∫ e^{−t²} log(z − t) dt is an
#   integral of the Faddeeva function, G′ = −i√π w. In the upper half plane G(z) − log(z + iL) is a fast
#   converging power series in Z = (L + iz)/(L − iz), the variable in which Weideman (1994) expands w; far out G
#   has an asymptotic series in ζ⁻².
# * (1 + x²)^{−β} is a gamma mixture of Gaussians, ∫ τ^{β−1} e^{−τ(1+x²)} dτ / Γ(β). Given τ the tilted density
#   is Gaussian, and the integrand in u = log τ is analytic and decays on both sides, so the trapezoid rule
#   converges exponentially.


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


@njit(**INNER)
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


@njit(**INNER)
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


class StudentT(Potential):
    """φ(x) ∝ (1 + r²/df)^{−(df+1)/2}, r = (x − loc)/scale, normalised in x and in loc.

    Not log-concave: engines find a stationary point, which may be one of several.

    Parameters
    ----------
    df : float or array_like of shape (sites,)
        Degrees of freedom, positive.
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        The family's scale; the standard deviation is scale·√(df/(df−2)) for df > 2.

    Examples
    --------
    >>> outlier = StudentT(df=4.0, loc=10.0)
    >>> float(outlier.expected_log(0.0, 1.0).d_mean.round(3))
    0.485
    """

    parameters = ("df", "loc", "scale")
    arrays = ("df", "loc", "scale")
    located = True
    free = MappingProxyType({"df": Positive(start=4.0, low=0.5, high=200.0), "scale": Positive()})
    location_scale = True
    super_gaussian = True

    df: Array
    loc: Array
    scale: Array

    def __init__(self, df: ArrayLike, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(df=positive("df", df), loc=finite("loc", loc), scale=positive("scale", scale))

    def _tail(self) -> PowerTail:
        # Γ((ν+1)/2) / (Γ(ν/2) √(πν)) = 1 / (B(ν/2, ½) √ν)
        width = self.scale * np.sqrt(self.df)
        return PowerTail(self.loc, width, 0.5 * (self.df + 1), -betaln(0.5 * self.df, 0.5) - np.log(width))

    def log_density(self, x: ArrayLike) -> Array:
        return self._tail().log_density(float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._tail().derivatives(float_array("x", x))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((self.loc, self.scale * np.sqrt(np.minimum(self.df, 1))),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._tail().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._tail().tilted_moments(m, v, power)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        return self._tail().quadratic_bound(xi)

    def _noise_moments(self) -> tuple[Array, Array]:
        more = np.where(self.df > 2, self.df, 3.0)
        variance = np.where(self.df > 2, self.scale**2 * more / (more - 2), np.inf)
        return np.where(self.df > 1, 0.0, np.nan), variance

    def _noise_cdf(self, r: Array) -> Array:
        return np.asarray(stdtr(self.df, r / self.scale))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self.scale * rng.standard_t(self.df, size=shape))


class PowerTail(NamedTuple):
    """What Student's t and the Cauchy share: ψ(x) = c − β log(1 + r²) with r = (x − centre)/width.

    Each field is a scalar or one number per site. The expectations are compiled, see above.
    """

    centre: Array
    width: Array
    exponent: Array
    log_normaliser: Array

    def log_density(self, x: Array) -> Array:
        r = (x - self.centre) / self.width
        return np.asarray(self.log_normaliser - self.exponent * np.log1p(r * r))

    def derivatives(self, x: Array) -> Derivatives:
        r = (x - self.centre) / self.width
        q = 1 / (1 + r * r)
        b = 2 * self.exponent / self.width
        # ψ′ = −2βrq/ω, ψ″ = −2β(1−r²)q²/ω², ψ‴ = 4βr(3−r²)q³/ω³
        return Derivatives(
            -b * r * q, -b * (2 * q - 1) * q / self.width, 2 * b * r * q * (4 * q - 1) * q / self.width**2
        )

    def expected_log(self, m: Array, v: Array) -> ExpectedLog:
        from latlin.potentials.student_t import expected_log1p_square

        centre, width = np.broadcast_to(self.centre, m.shape), np.broadcast_to(self.width, m.shape)
        value, d_mean, d_var = expected_log1p_square((m - centre) / width, np.sqrt(v) / width)
        b = self.exponent
        return ExpectedLog(self.log_normaliser - b * value, -b * d_mean / width, -b * d_var / width**2)

    def tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        from latlin.potentials.student_t import tilted_by_power

        shift = (m - self.centre) / self.width
        log_z, pull, variance = tilted_by_power(shift, np.sqrt(v) / self.width, power * self.exponent)
        refuse_overflow("the squared distance from loc", m, v, log_z, pull, variance)
        return TiltedMoments(power * self.log_normaliser + log_z, m - self.width * pull, self.width**2 * variance)

    def quadratic_bound(self, xi: Array) -> QuadraticBound:
        # log(1 + r²) is concave in r²: its tangent there has slope q = 1/(1 + ξ²/ω²)
        ratio = xi / self.width
        a = 2 * self.exponent / self.width**2 / (1 + ratio * ratio)
        top = self.log_normaliser - self.exponent * np.log1p(ratio * ratio)
        return QuadraticBound(a, a * self.centre, top + 0.5 * a * (xi - self.centre) * (xi + self.centre))


# --- Cauchy sites, Challis (2013), A.5.4: Student's t with one degree of freedom.


class Cauchy(Potential):
    """φ(x) = 1 / (π scale (1 + r²)), r = (x − loc)/scale.

    Not log-concave: engines find a stationary point, which may be one of several.

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        Half the width at half the height; the family has no mean and no variance.

    Examples
    --------
    >>> float(Cauchy(scale=2.0).log_density(0.0).round(4))
    -1.8379
    """

    parameters = ("loc", "scale")
    arrays = ("loc", "scale")
    located = True
    free = MappingProxyType({"scale": Positive()})
    location_scale = True
    super_gaussian = True

    loc: Array
    scale: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale))

    def _tail(self) -> PowerTail:
        return PowerTail(self.loc, self.scale, np.ones(()), -np.log(np.pi * self.scale))

    def log_density(self, x: ArrayLike) -> Array:
        return self._tail().log_density(float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._tail().derivatives(float_array("x", x))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._tail().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._tail().tilted_moments(m, v, power)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        return self._tail().quadratic_bound(xi)

    def _noise_moments(self) -> tuple[Array, Array]:
        return np.full_like(self.scale, np.nan), np.full_like(self.scale, np.inf)

    def _noise_cdf(self, r: Array) -> Array:
        # ½ + arctan(r)/π, which keeps its digits in the left tail
        return np.arctan2(1.0, -r / self.scale) / np.pi

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self.scale * rng.standard_cauchy(shape)

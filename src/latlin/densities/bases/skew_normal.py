"""The skew-normal density, standardised, with the skewness itself as the free shape.

Challis (2013), C.3.1. With Azzalini's slant ν, δ = ν/√(1 + ν²), the characteristic function has a closed form
through Dawson's function D,

    φ(t) = e^{−t²/2} + i(2/√π) e^{−t²(1−δ²)/2} D(δt/√2).

In ν (or δ) the standardised density leaves the Gaussian only at third order, so that a gradient vanishes there; in its
skewness γ ∝ (μ/σ)³ it leaves at first order. The free coordinate is therefore artanh of γ over its largest value.
The entropy has no closed form; ⟨log Φ(νr)⟩ is a smooth function of arctan ν and is kept as a Chebyshev series.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike
from scipy.special import dawsn, owens_t
from scipy.special import ndtr as normal_cdf

from latlin.densities.bases.base import Array, Base, Characteristic, ComplexArray, chebyshev_sum, shape_rows
from latlin.numerics.special import LOG_SQRT_2PI, log_ndtr
from latlin.numerics.stored import storable

#: γ = PREFACTOR (μ/σ)³
PREFACTOR = 0.5 * (4.0 - np.pi)
#: largest |skewness| the ascent may reach; that of the half-normal is 0.9953
LARGEST = 0.99
#: below this skewness the derivative of φ is that of its first two cumulants
SMALL = 1e-8
ROOT_2_PI = np.sqrt(2.0 / np.pi)


@storable
class SkewNormal(Base):
    """2 N(r) Φ(νr), r standardised to mean zero and variance one.

    Parameters
    ----------
    slant : float or array_like of shape (coordinates,), default 0
        ν; zero is the Gaussian, ±∞ the half-normal.

    Examples
    --------
    >>> SkewNormal(2.0).third_and_fourth()[0].round(3)
    array([0.454])
    """

    name = "skew-normal"
    n_free = 1
    has_gaussian = True
    cumulants = (3,)

    def __init__(self, slant: ArrayLike = 0.0) -> None:
        self.slant = shape_rows("slant", slant)
        self.rows = len(self.slant)
        # δ, the raw mean μ and standard deviation σ
        self.delta = self.slant / np.hypot(1.0, self.slant)
        self.mu = ROOT_2_PI * self.delta
        self.sigma = np.sqrt(1.0 - self.mu**2)
        self.skewness = PREFACTOR * (self.mu / self.sigma) ** 3
        self.free = np.arctanh(np.clip(self.skewness / LARGEST, -1 + 1e-12, 1 - 1e-12))[:, None]

    @classmethod
    def of_skewness(cls, skewness: Array) -> SkewNormal:
        """The member with these skewnesses."""
        ratio = np.cbrt(skewness / PREFACTOR)
        delta = ratio / np.hypot(1.0, ratio) / ROOT_2_PI
        return cls(delta / np.sqrt((1.0 - delta) * (1.0 + delta)))

    def with_free(self, free: Array) -> SkewNormal:
        return SkewNormal.of_skewness(LARGEST * np.tanh(free[:, 0]))

    @classmethod
    def starting(cls, rows: int, third: Array, fourth: Array) -> SkewNormal:
        return cls.of_skewness(np.clip(third, -0.8, 0.8))

    def logpdf(self, v: ArrayLike) -> Array:
        r = self.mu + self.sigma * np.asarray(v, float)
        return np.log(2.0 * self.sigma) - 0.5 * r * r - LOG_SQRT_2PI + log_ndtr(self.slant * r)

    def cdf(self, v: ArrayLike) -> Array:
        r = self.mu + self.sigma * np.asarray(v, float)
        return np.asarray(np.clip(normal_cdf(r) - 2.0 * owens_t(r, self.slant), 0.0, 1.0))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        # r = δ|z₀| + √(1−δ²) z₁
        folded = np.abs(rng.standard_normal(shape))
        r = self.delta * folded + np.sqrt(1.0 - self.delta**2) * rng.standard_normal(shape)
        return (r - self.mu) / self.sigma

    def entropy(self) -> Array:
        return 0.5 + LOG_SQRT_2PI - np.log(self.sigma) - chebyshev_sum(_log_skew()[0], self._unit_angle())

    def entropy_gradient(self) -> Array:
        # d/dδ = d/dω · dω/dδ with ω = arctan ν = arcsin δ
        d_omega = -np.sign(self.slant) * chebyshev_sum(_log_skew()[1], self._unit_angle())
        d_delta = self.mu * ROOT_2_PI / self.sigma**2 + d_omega / np.sqrt(1.0 - self.delta**2)
        small = np.abs(self.skewness) < SMALL
        # −γ²/12 is all that is left of the entropy near the Gaussian
        d_skew = np.where(small, -self.skewness / 6.0, d_delta * self._d_delta_d_skewness())
        return (d_skew * self._d_skewness_d_free())[:, None]

    def characteristic(self, s: Array) -> Characteristic:
        t, _, e, raw = self._raw(s)
        turn = np.exp(-1j * t * self.mu[:, None])
        value = turn * raw
        # φ_raw′ = −t φ_raw + i√(2/π) δ e^{−t²(1−δ²)/2}
        raw_slope = -t * raw + 1j * ROOT_2_PI * self.delta[:, None] * e
        slope = (turn * raw_slope - 1j * self.mu[:, None] * value) / self.sigma[:, None]
        return Characteristic(value, slope)

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        t, sigma, e, raw = self._raw(s)
        mu, delta = self.mu[:, None], self.delta[:, None]
        turn = np.exp(-1j * t * mu)
        raw_slope = -t * raw + 1j * ROOT_2_PI * delta * e
        # μ′ = √(2/π), σ′ = −μμ′/σ, (μ/σ)′ = μ′/σ³, all with respect to δ
        stretch = t * mu * ROOT_2_PI / sigma**2
        moved = raw_slope * stretch + 1j * ROOT_2_PI * t * e - 1j * s * ROOT_2_PI / sigma**3 * raw
        d_skew = turn * moved * self._d_delta_d_skewness()[:, None]
        small = np.abs(self.skewness) < SMALL
        if small.any():
            d_skew[small] = self._near_gaussian(s)[small]
        return (d_skew * self._d_skewness_d_free()[:, None])[:, None, :]

    def third_and_fourth(self) -> tuple[Array, Array]:
        return self.skewness, 2.0 * (np.pi - 3.0) * (self.mu / self.sigma) ** 4

    def reach(self) -> Array:
        # the longer tail is that of 2N(r)
        return np.maximum((8.0 - np.abs(self.mu)) / self.sigma, 8.0)

    def cutoff(self) -> float:
        return float(np.max(8.4 * self.sigma / np.sqrt(1.0 - self.delta**2)))

    def _raw(self, s: Array) -> tuple[Array, Array, Array, ComplexArray]:
        """t = s/σ, σ, e^{−t²(1−δ²)/2} and φ of the density before its mean is taken away."""
        sigma, delta = self.sigma[:, None], self.delta[:, None]
        t = s / sigma
        e = np.exp(-0.5 * t * t * (1.0 - delta**2))
        imaginary = 2.0 / np.sqrt(np.pi) * e * dawsn(delta * t / np.sqrt(2.0))
        return t, sigma, e, np.exp(-0.5 * t * t) + 1j * imaginary

    def _unit_angle(self) -> Array:
        """arctan |ν| mapped from [0, π/2] to [−1, 1]."""
        return np.arctan(np.abs(self.slant)) * (4.0 / np.pi) - 1.0

    def _d_skewness_d_free(self) -> Array:
        return LARGEST * (1.0 - np.tanh(self.free[:, 0]) ** 2)

    def _d_delta_d_skewness(self) -> Array:
        ratio = np.where(np.abs(self.skewness) < SMALL, 1.0, self.mu / self.sigma)
        return self.sigma**3 / (3.0 * PREFACTOR * ratio**2 * ROOT_2_PI)

    def _near_gaussian(self, s: Array) -> ComplexArray:
        """∂φ/∂γ = e^{−s²/2}((is)³/6 + (is)⁴/24 dκ₄/dγ)."""
        fourth = 8.0 * (np.pi - 3.0) / (3.0 * PREFACTOR) * (self.mu / self.sigma)
        return np.exp(-0.5 * s * s) * (-1j * s**3 / 6.0 + fourth[:, None] * s**4 / 24.0)


@cache
def _log_skew() -> tuple[Array, Array]:
    """⟨log 2Φ(νr)⟩ as a Chebyshev series in ω = arctan ν on [0, π/2], and its derivative's."""
    nodes, weights = np.polynomial.legendre.leggauss(400)

    def expectation(unit: Array) -> Array:
        nu = np.tan(np.minimum(0.25 * np.pi * (unit + 1.0), 0.5 * np.pi - 1e-9))[:, None]
        # half the nodes where Φ(νr) bends, half over the Gaussian: r = x/ν for |x| < 12
        inner = np.minimum(12.0 / np.maximum(nu, 1e-300), 10.0)
        panels = [(-inner, inner), (-10.0 + 0.0 * inner, -inner), (inner, 10.0 + 0.0 * inner)]
        total = np.zeros(len(unit))
        for low, high in panels:
            r = 0.5 * (low + high) + 0.5 * (high - low) * nodes
            log_two_phi = np.log(2.0) + log_ndtr(nu * r)
            density = np.exp(-0.5 * r * r - LOG_SQRT_2PI + log_two_phi)
            total += np.sum(0.5 * (high - low) * weights * density * log_two_phi, axis=1)
        return total

    points = chebyshev.chebpts1(61)
    series = np.asarray(chebyshev.chebfit(points, expectation(points), 60), float)
    return series, np.asarray(chebyshev.chebder(series, scl=4.0 / np.pi), float)

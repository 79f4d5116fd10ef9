"""Base densities that may be skew: the skew-normal and a mixture of Gaussians, of mean zero and variance one."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike
from scipy.special import dawsn, ndtr, owens_t, softmax
from scipy.special import ndtr as normal_cdf

from latlin.densities.bases.base import Array, Base, Characteristic, ComplexArray, chebyshev_sum, shape_rows
from latlin.numerics.arrays import LOG_SQRT_2PI
from latlin.numerics.special import log_ndtr
from latlin.numerics.stored import storable

# --- The skew-normal density, standardised, with the skewness itself as the free shape.
#
# Challis (2013), C.3.1. With Azzalini's slant ν, δ = ν/√(1 + ν²), the characteristic function has a closed form
# through Dawson's function D,
#
#     φ(t) = e^{−t²/2} + i(2/√π) e^{−t²(1−δ²)/2} D(δt/√2).
#
# In ν (or δ) the standardised density leaves the Gaussian only at third order, so that a gradient vanishes there; in
# its skewness γ ∝ (μ/σ)³ it leaves at first order. The free coordinate is therefore artanh of γ over its largest value.
# The entropy has no closed form; ⟨log Φ(νr)⟩ is a smooth function of arctan ν and is kept as a Chebyshev series.


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


# --- A mixture of Gaussians, standardised: skew, heavy, flat or bimodal, with a closed-form characteristic function.
#
#     φ(s) = Σ_k π_k exp(i s m_k − ½ s² σ_k²)
#
# Challis (2013), §6.5 names it as the base for which no transform need be approximated. Free coordinates are, for
# every component but the first, its log weight, its mean and its log scale relative to the first.


#: entropy by the trapezoidal rule on ±REACH with at most this many nodes
REACH, NODES = 16.0, 1601
#: nodes per scale of the narrowest part
FINENESS = 8.0
#: parts that differ by more are not begun by their cumulants
FARTHEST_START = 0.3
#: smallest weight of a part
LEAST = 1e-300
#: most that scales of one coordinate may differ, as a logarithm
SPREAD = 3.0


@storable
class Raw(NamedTuple):
    """Weights, means and scales before standardisation, each (rows, components), first component 0 and 1."""

    weights: Array
    locs: Array
    scales: Array


@storable
class GaussianMixture(Base):
    """Σ_k π_k N(v | m_k, σ_k²), shifted and scaled to mean zero and variance one.

    Parameters
    ----------
    weights, locs, scales : array_like of shape (components,) or (coordinates, components)
        Weights (normalised here), means and standard deviations.
    """

    name = "gaussian-mixture"
    n_free = 3
    has_gaussian = True
    cumulants = (3, 4)

    def __init__(
        self, weights: ArrayLike = (0.5, 0.5), locs: ArrayLike = (0.0, 0.0), scales: ArrayLike = (1.0, 1.0)
    ) -> None:
        arrays = [np.atleast_2d(np.asarray(a, float)) for a in (weights, locs, scales)]
        try:
            weight, loc, scale = np.broadcast_arrays(*arrays)
        except ValueError as error:
            shapes = ", ".join(str(a.shape) for a in arrays)
            raise ValueError(f"weights, locs and scales must broadcast to one shape, got {shapes}") from error
        if not np.all(np.isfinite(weight) & np.isfinite(loc) & np.isfinite(scale)):
            raise ValueError("weights, locs and scales must be finite")
        if np.any(weight <= 0.0) or np.any(scale <= 0.0):
            raise ValueError("weights and scales must be positive")
        raw = Raw(
            weight / weight.sum(axis=1, keepdims=True),
            (loc - loc[:, :1]) / scale[:, :1],
            scale / scale[:, :1],
        )
        self._set(raw)

    def _set(self, raw: Raw) -> None:
        self.raw = raw
        self.rows, self.components = raw.weights.shape
        self.n_free = 3 * (self.components - 1)  # type: ignore[misc]
        w, m, s = raw
        mean = np.sum(w * m, axis=1, keepdims=True)
        self._sd = np.sqrt(np.sum(w * (s**2 + (m - mean) ** 2), axis=1, keepdims=True))
        self.weights, self.locs, self.scales = w, (m - mean) / self._sd, s / self._sd
        self.free = np.concatenate(
            [
                np.log(w[:, 1:] / w[:, :1]),
                m[:, 1:],
                SPREAD * np.arctanh(np.clip(np.log(s[:, 1:]) / SPREAD, -0.99, 0.99)),
            ],
            axis=1,
        )

    def with_free(self, free: Array) -> GaussianMixture:
        logits, locs, logs = np.split(free, 3, axis=1)
        first = np.zeros((len(free), 1))
        made = GaussianMixture.__new__(GaussianMixture)
        scales = np.exp(SPREAD * np.tanh(np.concatenate([first, logs], axis=1) / SPREAD))
        weights = np.maximum(softmax(np.concatenate([first, logits], axis=1), axis=1), LEAST)
        made._set(Raw(weights, np.hstack([first, locs]), scales))
        return made

    @classmethod
    def starting(cls, rows: int, third: Array, fourth: Array) -> GaussianMixture:
        """The halves that have these cumulants; where these ask for much, halves that lie and stretch apart."""
        shift, stretch = _halves(third, fourth)
        locs = np.stack([-shift, shift], axis=1)
        squares = 1.0 - shift**2 + np.multiply.outer([-1.0, 1.0], stretch)
        far = shift**2 + np.abs(stretch) > FARTHEST_START
        apart = 0.8 * np.where(third < 0.0, -1.0, 1.0)
        locs = np.where(far[:, None], np.stack([0.0 * apart, apart], axis=1), locs)
        scales = np.where(far[:, None], [1.0, 1.6], np.sqrt(np.where(far, 1.0, squares)).T)
        return cls(np.full((rows, 2), 0.5), locs, scales)

    def logpdf(self, v: ArrayLike) -> Array:
        return np.logaddexp.reduce(self._log_parts(np.asarray(v, float)[..., None]), axis=-1)

    def cdf(self, v: ArrayLike) -> Array:
        z = (np.asarray(v, float)[..., None] - self.locs) / self.scales
        return np.asarray(np.sum(self.weights * ndtr(z), axis=-1))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        edges = np.cumsum(self.weights, axis=1)
        chosen = np.sum(rng.uniform(size=shape)[..., None] > edges[:, :-1], axis=-1)
        row = np.broadcast_to(np.arange(self.rows) if self.rows > 1 else 0, shape)
        return self.locs[row, chosen] + self.scales[row, chosen] * rng.standard_normal(shape)

    def entropy(self) -> Array:
        _, step, parts, log_q = self._nodes
        return -step * np.sum(parts.sum(axis=-1) * log_q, axis=0)

    def entropy_gradient(self) -> Array:
        # ∂H = −∫ ∂q log q (∫ ∂q = 0); ∂q/∂(π, m, σ) of each component
        v, step, parts, log_q = self._nodes
        z = (v[:, None, None] - self.locs) / self.scales
        weighted = parts * log_q[..., None]
        pushed = weighted * z
        sums = weighted.sum(axis=0), pushed.sum(axis=0), np.sum(pushed * z, axis=0)
        d_parts = sums[0] / self.weights, sums[1] / self.scales, (sums[2] - sums[0]) / self.scales
        return self._chain(*(-step * d[..., None] for d in d_parts))[..., 0]

    @cached_property
    def _nodes(self) -> tuple[Array, float, Array, Array]:
        """Nodes, their distance, the parts (nodes, rows, components) and log q (nodes, rows) there."""
        count = min(NODES, 1 + 2 * int(np.ceil(REACH * FINENESS / self.scales.min())))
        v, step = np.linspace(-REACH, REACH, count, retstep=True)
        log_parts = self._log_parts(np.broadcast_to(v[:, None, None], (count, self.rows, 1)))
        top = log_parts.max(axis=-1)
        parts = np.exp(log_parts - top[..., None])
        log_q = top + np.log(parts.sum(axis=-1))
        return v, float(step), parts * np.exp(top)[..., None], log_q

    def characteristic(self, s: Array) -> Characteristic:
        part = self._waves(s)
        slope = (1j * self.locs[..., None] - s * self.scales[..., None] ** 2) * part
        return Characteristic(part.sum(axis=1), slope.sum(axis=1))

    def characteristic_gradient(self, s: Array) -> ComplexArray:
        part = self._waves(s)
        d_scale = -(s**2) * self.scales[..., None] * part
        return self._chain(part / self.weights[..., None], 1j * s * part, d_scale)

    def third_and_fourth(self) -> tuple[Array, Array]:
        w, m, s = self.weights, self.locs, self.scales
        third = np.sum(w * (m**3 + 3.0 * m * s**2), axis=1)
        return third, np.sum(w * (m**4 + 6.0 * m**2 * s**2 + 3.0 * s**4), axis=1) - 3.0

    def reach(self) -> Array:
        return np.max(np.abs(self.locs) + 8.0 * self.scales, axis=1)

    def cutoff(self) -> float:
        return float(8.4 / self.scales.min())

    def _log_parts(self, v: Array) -> Array:
        z = (v - self.locs) / self.scales
        return np.log(self.weights / self.scales) - 0.5 * z * z - LOG_SQRT_2PI

    def _waves(self, s: Array) -> ComplexArray:
        exponent = 1j * s * self.locs[..., None] - 0.5 * (s * self.scales[..., None]) ** 2
        return self.weights[..., None] * np.exp(exponent)

    def _chain(self, d_w: Any, d_m: Any, d_s: Any) -> Any:
        """Derivatives (rows, n_free, …) in `free` from those (rows, components, …) in π, m and σ."""
        w, raw_m, raw_s = (a[..., None] for a in self.raw)
        m, s, sd = self.locs[..., None], self.scales[..., None], self._sd[..., None]
        # standardised m = (m° − μ)/sd and σ = σ°/sd move with μ and with log sd
        d_mu = -np.sum(d_m, axis=1, keepdims=True) / sd
        d_log_sd = -np.sum(d_m * m + d_s * s, axis=1, keepdims=True)
        # dμ = Σ m° dπ + Σ π dm°;  d log sd = Σ ½(m² + σ²) dπ + Σ π m dm°/sd + Σ π σ dσ°/sd
        by_w = d_w + d_mu * raw_m + 0.5 * d_log_sd * (m**2 + s**2)
        by_m = d_m / sd + d_mu * w + d_log_sd * w * m / sd
        by_s = d_s / sd + d_log_sd * w * s / sd
        by_logit = w * (by_w - np.sum(w * by_w, axis=1, keepdims=True))
        by_log = by_s * raw_s * (1.0 - (np.log(raw_s) / SPREAD) ** 2)
        return np.concatenate([by_logit[:, 1:], by_m[:, 1:], by_log[:, 1:]], axis=1)


def _halves(third: Array, fourth: Array) -> tuple[Array, Array]:
    """a and e of ½N(−a, c − e) + ½N(a, c + e), c = 1 − a², whose cumulants are κ₃ = 3ae and κ₄ = 3e² − 2a⁴."""
    kappa = np.where(np.abs(third) < 1e-6, np.where(third < 0.0, -1e-6, 1e-6), third)
    low, high = np.full_like(kappa, -20.0), np.full_like(kappa, 2.0)
    # κ₃²/(3a²) − 2a⁴ falls in a: bisection of log a
    for _ in range(50):
        middle = 0.5 * (low + high)
        above = kappa**2 / 3.0 * np.exp(-2.0 * middle) - 2.0 * np.exp(4.0 * middle) > fourth
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    a = np.exp(0.5 * (low + high))
    return a, kappa / (3.0 * a)

"""Huber's density: a Gaussian in the middle, exponential tails beyond a threshold.

ρ(r) = ½r² for |r| ≤ c and c|r| − ½c² beyond. Closed forms throughout: with T₁(k) = ⟨(k − r)₊⟩ and T₂(k) = ⟨(k − r)₊²⟩
of a Gaussian with mean μ ≥ 0, ⟨ρ⟩ = cμ − ½c² + ½T₂(c) − ½T₂(−c); products with a Gaussian are pieces of Gaussians.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, ndtr, ndtri

from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.options import float_array
from latlin.numerics.special import SQRT_2
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.kernels.truncated import half_normal, normal_interval
from latlin.potentials.laplace import log_half
from latlin.potentials.ranges import Positive

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


class Huber(Potential):
    """φ(x) ∝ exp(−ρ(r)), r = (x − loc)/scale, with ρ quadratic up to the threshold and linear beyond.

    The slope of log φ is continuous; its second derivative jumps at the thresholds, and engines take it as it is on
    either side.

    Parameters
    ----------
    loc : float or array_like of shape (sites,), default 0
        The observation.
    scale : float or array_like of shape (sites,), default 1
        Standard deviation of the Gaussian in the middle.
    threshold : float or array_like of shape (sites,), default 1.345
        Where the tails begin, in units of scale.

    Examples
    --------
    >>> Huber([0.0, 5.0]).log_density([0.0, 0.0]).round(4).tolist()
    [-0.9786, -6.7991]
    """

    parameters = ("loc", "scale", "threshold")
    arrays = ("loc", "scale", "threshold")
    located = True
    free = MappingProxyType({"scale": Positive(), "threshold": Positive(start=1.345, low=1e-2, high=20.0)})
    location_scale = True
    log_concave = True
    super_gaussian = True

    loc: Array
    scale: Array
    threshold: Array

    def __init__(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, threshold: ArrayLike = 1.345) -> None:
        self._store(loc=finite("loc", loc), scale=positive("scale", scale), threshold=positive("threshold", threshold))

    def _masses(self) -> tuple[Array, Array]:
        """∫ e^{−ρ} dr over the middle and over one tail."""
        c = self.threshold
        return np.sqrt(2 * np.pi) * erf(c / SQRT_2), np.exp(-0.5 * c * c) / c

    def _log_normaliser(self) -> Array:
        middle, tail = self._masses()
        return np.asarray(-np.log(self.scale) - np.log(middle + 2 * tail))

    def log_density(self, x: ArrayLike) -> Array:
        r, c = np.abs(float_array("x", x) - self.loc) / self.scale, self.threshold
        near = np.minimum(r, c)
        # ½ near² + c(r − near)
        return np.asarray(self._log_normaliser() - 0.5 * near * near - c * (r - near))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        r, c = (float_array("x", x) - self.loc) / self.scale, self.threshold
        second = np.where(np.abs(r) <= c, -1.0 / self.scale**2, 0.0)
        return Derivatives(-np.clip(r, -c, c) / self.scale, second, np.zeros_like(second))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        reach = self.scale * self.threshold
        return ((self.loc, self.scale), (self.loc - reach, self.scale), (self.loc + reach, self.scale))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        c, scale = np.broadcast_to(self.threshold, m.shape), self.scale
        d = (m - self.loc) / scale
        sign, mu = np.where(d < 0, -1.0, 1.0), np.abs(d)
        sd = np.broadcast_to(np.sqrt(v) / scale, m.shape)
        # ½T₂(c) − ½T₂(−c) = ∫_{−c}^{c} T₁(k) dk, by nodes where the squares would cancel
        k = np.where(sd > c, c * _NODES[:, None], 0.0)
        smooth = np.einsum("ks,k->s", _shortfall(k - mu, sd)[0], _WEIGHTS) * c
        (one, two), (far, far_two) = _shortfall(c - mu, sd), _shortfall(-c - mu, sd)
        with np.errstate(over="ignore", invalid="ignore"):
            area = np.where(sd > c, smooth, 0.5 * (two - far_two))
        value = self._log_normaliser() - (c * mu - 0.5 * c * c + area)
        some = np.maximum(sd, 1e-150)
        inside = np.where(sd > 0, _between((-c - mu) / some, (c - mu) / some), np.where(mu <= c, 1.0, 0.0))
        return ExpectedLog(value, -sign * (c - one + far) / scale, -0.5 * inside / scale**2)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if not m.size:
            return TiltedMoments(m, m, m)
        c, scale = self.threshold, self.scale
        mu = (m - self.loc) / scale
        sd = np.maximum(np.sqrt(v) / scale, 1e-150 * np.maximum(np.abs(mu), 1))
        # the middle: N(r|μ, σ²) e^{−pr²/2} is a Gaussian, cut at ±c
        shrink = 1.0 / (1.0 + power * sd * sd)
        centre, width = mu * shrink, sd * np.sqrt(shrink)
        cut = normal_interval((-c - centre) / width, (c - centre) / width, 2 * c / width)
        log_middle = cut.log_mass + 0.5 * np.log(shrink) - 0.5 * power * mu * mu * shrink
        pieces = [(log_middle, centre - width * cut.first, (width * width) * cut.rest)]
        k = power * c * sd
        for side in (-1.0, 1.0):
            # beyond the threshold, counted from it: N(z|±μ − c, σ²) e^{−pcz − pc²/2}
            a = (side * mu - c) / sd
            mean, variance = half_normal(a - k)
            pieces.append((log_half(a, k) - 0.5 * power * c * c, side * (c + sd * mean), sd * sd * variance))
        log_z, mean, variance = _joined(pieces)
        point = v == 0
        return TiltedMoments(
            np.where(point, power * self.log_density(m), log_z + power * self._log_normaliser()),
            np.where(point, m, self.loc + scale * mean),
            np.where(point, 0.0, scale**2 * variance),
        )

    def _noise_moments(self) -> tuple[Array, Array]:
        c = self.threshold
        middle, tail = self._masses()
        # ∫ r² e^{−ρ} is middle − 2c e^{−½c²} inside, and c² + 2 + 2/c² per tail mass beyond
        square = middle - 2 * c * c * tail + 2 * tail * (c * c + 2 + 2 / (c * c))
        return np.zeros_like(self.scale * c), self.scale**2 * square / (middle + 2 * tail)

    def _noise_cdf(self, r: Array) -> Array:
        u, c = r / self.scale, self.threshold
        middle, tail = self._masses()
        low = tail * np.exp(c * (c - np.maximum(np.abs(u), c)))
        inside = tail + np.sqrt(2 * np.pi) * (ndtr(np.clip(u, -c, c)) - ndtr(-c))
        below = np.where(u < -c, low, np.where(u > c, middle + 2 * tail - low, inside))
        return np.asarray(below / (middle + 2 * tail))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        c = self.threshold
        middle, tail = self._masses()
        u = rng.random(shape)
        inside = ndtri(ndtr(-c) + rng.random(shape) * (ndtr(c) - ndtr(-c)))
        beyond = (c + rng.standard_exponential(shape) / c) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        return np.asarray(self.scale * np.where(u * (middle + 2 * tail) < middle, inside, beyond))

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # a = −ψ′(loc + ξ)/ξ, one within the threshold
        near = np.maximum(xi / self.scale, self.threshold)
        a = self.threshold / near / self.scale**2
        top = self.log_density(self.loc + xi)
        return QuadraticBound(a, a * self.loc, top + 0.5 * a * (xi - self.loc) * (xi + self.loc))


def _shortfall(gap: Array, sd: Array) -> tuple[Array, Array]:
    """⟨(k − r)₊⟩ and ⟨(k − r)₊²⟩ for r ~ N(k − gap, sd²)."""
    a = np.clip(gap / np.maximum(sd, 1e-150), -40.0, 40.0)
    density = sd * np.exp(-0.5 * a * a - 0.5 * LOG_2PI)
    share = ndtr(a)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.maximum(gap * share + density, 0.0), np.maximum((gap * gap + sd * sd) * share + gap * density, 0.0)


def _between(a: Array, b: Array) -> Array:
    """Φ(b) − Φ(a) without cancellation, a < b."""
    flip = a > 0
    return np.where(flip, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def _joined(pieces: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Log mass, mean and variance of several pieces with log mass, mean and variance each."""
    logs = np.stack([piece[0] for piece in pieces])
    top = logs.max(axis=0)
    finite_top = np.where(np.isfinite(top), top, 0.0)
    share = np.exp(logs - finite_top)
    total = share.sum(axis=0)
    share = share / np.maximum(total, 1e-300)
    means, variances = (np.stack([piece[i] for piece in pieces]) for i in (1, 2))
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.sum(np.where(share > 0, share * means, 0.0), axis=0)
        spread = np.where(share > 0, share * (variances + (means - mean) ** 2), 0.0)
    return finite_top + np.log(np.maximum(total, 1e-300)), mean, spread.sum(axis=0)

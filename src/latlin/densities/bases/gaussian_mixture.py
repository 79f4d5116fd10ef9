"""A mixture of Gaussians, standardised: skew, heavy, flat or bimodal, with a closed-form characteristic function.

    φ(s) = Σ_k π_k exp(i s m_k − ½ s² σ_k²)

Challis (2013), §6.5 names it as the base for which no transform need be approximated. Free coordinates are, for
every component but the first, its log weight, its mean and its log scale relative to the first.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, softmax

from latlin.densities.bases.base import Array, Base, Characteristic, ComplexArray
from latlin.numerics.special import LOG_SQRT_2PI
from latlin.numerics.stored import storable

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

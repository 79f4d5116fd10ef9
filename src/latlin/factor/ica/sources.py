"""Source densities that are Gaussian scale mixtures: z | u ~ N(0, s²/u), u from a mixing density.

Lau (2020), §2.1 has Student's t, u ~ Gamma(α/2, α/2) with α degrees of freedom; the Laplace density ½e^{−|z|}
is the mixture with 1/u ~ Exponential(rate ½). The scale s is free: it takes up what the mixing matrix leaves, and
without it EM would move the scale of a source only at the rate of the noise.

With q(z) and q(u) independent, q(u) at its best depends on ⟨z²⟩ alone, and what the bound gains from a source is
f(⟨z²⟩) = log p(√⟨z²⟩); the precision it lends to q(z) is ⟨u⟩/s² = −2f′. With u kept together with z, a grid over log u
serves both families.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import betaln, digamma, gammaln, polygamma

from latlin.numerics.linalg import Array

#: degrees of freedom are kept between these; the upper is a Gaussian for any practical purpose
DF_RANGE = (0.3, 1000.0)
#: terms below exp(−CUT) of the largest are left out
CUT = 40.0


class Grid(NamedTuple):
    """Nodes t = log u, equally spaced, and the log weights of the mixing density there."""

    log_u: Array
    log_weight: Array


class SourceFamily(Protocol):
    """A Gaussian scale mixture with a shape and a scale."""

    def log_density(self, square: Array, shape: float, scale: float) -> Array:
        """f(⟨z²⟩) = log p(√⟨z²⟩)."""

    def precision(self, square: Array, shape: float, scale: float) -> Array:
        """⟨u⟩/s² = −2 f′(⟨z²⟩)."""

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        """A shape (when it is learnt) and a scale with a higher Σ f(⟨z²⟩)."""

    def grid(self, shape: float, largest: float) -> Grid:
        """Nodes that serve every z with z²/s² up to `largest`."""

    def refit(self, mean_u: float, mean_log_u: float, shape: float) -> float:
        """argmax of ⟨log p(u | shape)⟩ given averages over the observations: (21), summed over them."""


class StudentTSource:
    """t with `shape` degrees of freedom."""

    def log_density(self, square: Array, shape: float, scale: float) -> Array:
        r = square / (shape * scale**2)
        constant = -betaln(0.5 * shape, 0.5) - 0.5 * np.log(shape) - np.log(scale)
        return constant - 0.5 * (shape + 1.0) * np.log1p(r)

    def precision(self, square: Array, shape: float, scale: float) -> Array:
        return (shape + 1.0) / (shape * scale**2 + square)

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        # s² ← Σ w z² / Σ w with w = ⟨u⟩: EM with its scale expanded
        w = self.precision(square, shape, scale)
        scale = float(np.sqrt((w @ square) / w.sum()))
        return (self._climb(square / scale**2, shape) if learn else shape), scale

    def _climb(self, r: Array, shape: float) -> float:
        """One safeguarded Newton step in log α."""
        n = len(r)
        value = float(self.log_density(r, shape, 1.0).sum())
        rest = shape + r
        slope = 0.5 * n * (digamma(0.5 * (shape + 1.0)) - digamma(0.5 * shape) + np.log(shape) + 1.0)
        slope += -0.5 * np.log(rest).sum() - 0.5 * (shape + 1.0) * (1.0 / rest).sum()
        bend = 0.25 * n * (polygamma(1, 0.5 * (shape + 1.0)) - polygamma(1, 0.5 * shape)) + 0.5 * n / shape
        bend += -(1.0 / rest).sum() + 0.5 * (shape + 1.0) * (1.0 / rest**2).sum()
        first, second = shape * slope, shape**2 * bend + shape * slope
        step = np.clip(-first / second if second < 0.0 else np.sign(first), -1.0, 1.0)
        for _ in range(8):
            new = float(np.clip(shape * np.exp(step), *DF_RANGE))
            if float(self.log_density(r, new, 1.0).sum()) >= value:
                return new
            step *= 0.3
        return shape

    def grid(self, shape: float, largest: float) -> Grid:
        # left of its peak the table falls like e^{(α+1)t/2}, right of it like exp(−αu/2)
        peak = min(0.0, float(np.log((shape + 1.0) / (shape + largest))))
        low = peak - 2.0 * CUT / (shape + 1.0) - 2.0
        high = float(np.log1p(2.0 * CUT / shape + 2.0 * np.sqrt(2.0 * CUT / shape)))
        step = min(0.3, 0.6 * np.sqrt(2.0 / (shape + 1.0)))
        t = np.arange(low, high + step, step)
        half = 0.5 * shape
        return Grid(t, half * np.log(half) - gammaln(half) + half * t - half * np.exp(t) + np.log(step))

    def refit(self, mean_u: float, mean_log_u: float, shape: float) -> float:
        # log(α/2) + 1 − ψ(α/2) + ⟨log u⟩ − ⟨u⟩ = 0 falls in α: bisection in log α
        low, high = np.log(DF_RANGE)
        target = mean_log_u - mean_u + 1.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            half = 0.5 * np.exp(middle)
            low, high = (middle, high) if np.log(half) - digamma(half) + target > 0.0 else (low, middle)
        return float(np.exp(0.5 * (low + high)))


class LaplaceSource:
    """Laplace; it has no shape."""

    def log_density(self, square: Array, shape: float, scale: float) -> Array:
        return -np.log(2.0 * scale) - np.sqrt(square) / scale

    def precision(self, square: Array, shape: float, scale: float) -> Array:
        return 1.0 / (scale * np.sqrt(np.maximum(square, 1e-300)))

    def fit(self, square: Array, shape: float, scale: float, learn: bool) -> tuple[float, float]:
        return shape, float(np.sqrt(square).mean())

    def grid(self, shape: float, largest: float) -> Grid:
        # v = 1/u has the density ½e^{−v/2}; in t = −log v it falls like e^{−t} on the right
        low = -float(np.log(2.0 * CUT + 2.0 * np.sqrt(largest))) - 1.0
        t = np.arange(low, CUT, 0.2)
        return Grid(t, -t - 0.5 * np.exp(-t) + np.log(0.5 * 0.2))

    def refit(self, mean_u: float, mean_log_u: float, shape: float) -> float:
        return shape


FAMILIES: dict[str, SourceFamily] = {"student-t": StudentTSource(), "laplace": LaplaceSource()}

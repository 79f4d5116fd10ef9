"""Corrected mean, variances and covariance of w, accumulated over blocks of draws.

    ⟨f⟩_p = Σ_i w̄_i f(w_i)   or   ⟨f⟩_q + Σ_i (w̄_i − u_i) f(w_i),   w̄ ∝ p/r,   u ∝ q/r

The second uses what is known of q itself as a control variate: where p is close to q hardly any noise is left. Where q
is far from p it adds noise instead, and each coordinate takes the one of the smaller error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from latlin.numerics.arrays import Array

# --- Which way the weights lean: a check that is left in high dimension, where too few draws count for any average.
#
# Along q_ε ∝ q^{1−ε} p^ε the moments of q start to move by
#
# d⟨w⟩/dε = cov_q(w, log p/q),   d⟨(w − m)²⟩/dε = cov_q((w − m)², log p/q),
#
# which need logs of weights only. Both vanish at the optimum of Gaussian KL; a q that is misplaced, too wide or too
# narrow shows large ones.


class LargestMoves(NamedTuple):
    """Largest movements that are certain: of a mean, in sd of q, and of the log of a variance."""

    mean: float
    log_variance: float


def response(
    blocks: Iterator[tuple[slice, Array]], log_weights: Array, mean: Array, variance: Array, margin: float
) -> LargestMoves:
    """From draws of q; a certain movement exceeds its noise by `margin` standard errors."""
    finite = np.isfinite(log_weights)
    if finite.sum() < 2:
        return LargestMoves(np.inf, np.inf)
    logs = np.where(finite, log_weights, log_weights[finite].min())
    centred = (logs - logs.mean()) / len(logs)
    first, second = np.zeros_like(mean), np.zeros_like(mean)
    noise = np.zeros((2, len(mean)))
    for span, draws in blocks:
        z = (draws - mean) / np.sqrt(variance)
        square = z * z - 1.0
        c = centred[span]
        first += c @ z
        second += c @ square
        noise += np.stack([(c * c) @ (z * z), (c * c) @ (square * square)])
    error = margin * np.sqrt(noise)
    return LargestMoves(float(np.max(np.abs(first) - error[0])), float(np.max(np.abs(second) - error[1])))


class CorrectedMoments(NamedTuple):
    """Mean and variance with standard errors; the covariance, if it was asked for."""

    mean: Array
    mean_error: Array
    variance: Array
    variance_error: Array
    covariance: Array | None


class _Sums:
    """Σ a x, Σ a x², Σ a x xᵀ and, for their errors, Σ a², Σ a²x, Σ a²x², Σ a²x⁴ over draws with weights a."""

    def __init__(self, dim: int, cross: bool) -> None:
        self.first, self.second = np.zeros(dim), np.zeros(dim)
        self.squares = np.zeros((3, dim))
        self.size = 0.0
        self.cross = np.zeros((dim, dim)) if cross else None

    def add(self, a: Array, x: Array, square: Array) -> None:
        self.first += a @ x
        self.second += a @ square
        a2 = a * a
        self.size += float(a2.sum())
        self.squares += np.stack([a2 @ x, a2 @ square, a2 @ (square * square)])
        if self.cross is not None:
            self.cross += (a[:, None] * x).T @ x

    def errors(self, mean: Array, second: Array) -> tuple[Array, Array]:
        """√Σ a²(x − mean)² and √Σ a²(x² − second)²."""
        one, two, four = self.squares
        of_mean = two - 2.0 * mean * one + mean**2 * self.size
        of_second = four - 2.0 * second * two + second**2 * self.size
        return np.sqrt(np.maximum(of_mean, 0.0)), np.sqrt(np.maximum(of_second, 0.0))


def corrected_moments(
    blocks: Iterator[tuple[slice, Array]],
    weights: Array,
    reference: Array,
    mean: Array,
    variance: Array,
    covariance: Array | None,
) -> CorrectedMoments:
    """Moments of p from draws of r.

    Parameters
    ----------
    blocks : iterator of (slice, ndarray of shape (b, dim))
        The draws and where their weights are.
    weights, reference : ndarray of shape (n,)
        w̄ and u, each of sum one.
    mean, variance, covariance
        Of q; the covariance may be None.
    """
    plain, change = (_Sums(len(mean), covariance is not None) for _ in range(2))
    for span, draws in blocks:
        x = draws - mean
        square = x * x
        plain.add(weights[span], x, square)
        change.add(weights[span] - reference[span], x, square)
    # both count from the mean of q
    noise = plain.errors(plain.first, plain.second), change.errors(np.zeros_like(mean), variance)
    close = noise[1][0] ** 2 / variance + (noise[1][1] / variance) ** 2 < (
        noise[0][0] ** 2 / variance + (noise[0][1] / variance) ** 2
    )
    first, mean_error = np.where(close, change.first, plain.first), np.where(close, noise[1][0], noise[0][0])
    second = np.where(close, variance + change.second, plain.second)
    spread = np.maximum(second - first**2, np.finfo(float).tiny)
    full = None
    if covariance is not None and plain.cross is not None and change.cross is not None:
        raw = covariance + change.cross if close.mean() > 0.5 else plain.cross
        full = _proper(raw - np.outer(first, first), spread)
    return CorrectedMoments(mean + first, mean_error, spread, np.where(close, noise[1][1], noise[0][1]), full)


def _proper(matrix: Array, variance: Array) -> Array:
    """Symmetric with the given variances; negative eigenvalues (noise) are raised to zero."""
    scale = np.sqrt(variance)
    root = np.sqrt(np.maximum(np.diagonal(matrix), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T) / root / root[:, None])
    correlation = (vectors * np.maximum(values, 0.0)) @ vectors.T
    own = np.sqrt(np.diagonal(correlation))
    return correlation / own / own[:, None] * scale * scale[:, None]

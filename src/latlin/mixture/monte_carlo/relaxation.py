"""Gumbel-softmax relaxation of the labels, for teaching and for comparison with summing them out.

Source: Gutteridge (2021), eq. 5.27–(5.29, corrected: − ln r). At temperature τ → 0 a relaxed label becomes a draw
of z_n; at τ > 0 its mean is not r_n, so gradients built on it are biased (`compare_estimators` shows how much).
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, softmax

from latlin.mixture.fixed import Fixed
from latlin.mixture.model import Belief, Mixture
from latlin.mixture.moments import Moments
from latlin.mixture.sweep import Rows, widen
from latlin.numerics.linalg import Array


def relaxed_labels(log_r: Array, noise: Array, temperature: float) -> Array:
    """z_n = softmax((ln r_n + g_n)/τ) with Gumbel noise g, shape (N, K)."""
    return softmax((log_r + noise) / temperature, axis=1)


def relaxed_labels_pullback(z: Array, temperature: float, cotangent: Array) -> Array:
    """∂f/∂ln r from ∂f/∂z through the relaxation (5.28): z ⊙ (∂f/∂z − Σ_k z_k ∂f/∂z_k)/τ."""
    return z * (cotangent - (z * cotangent).sum(axis=1, keepdims=True)) / temperature


def label_cost_gradient(log_joint: Array, log_r: Array) -> Array:
    """∂f/∂z (5.29, corrected): ln π_k + ln N(x_n | μ_k, Σ) − ln r_nk."""
    return log_joint - log_r


def relaxed_moments(
    mixture: Mixture, data: Rows, belief: Belief, temperature: float, rng: np.random.Generator
) -> Moments:
    """Moments of the rows under one relaxed draw of all labels, from logits at their optimum."""
    values = widen(data.values)
    log_r = log_softmax(mixture.log_joint(values, belief), axis=1)
    z = relaxed_labels(log_r, rng.gumbel(size=log_r.shape), temperature)
    weighted = z * data.weights_of(slice(0, len(data)))[:, None]
    return _moments(mixture.components, values, weighted)


def _moments(structure: Fixed, values: Array, weighted: Array) -> Moments:
    counts = weighted.sum(axis=0)
    mean = weighted.T @ values / counts[:, None]
    scatter = [structure.scatter_of(values - m, w) for m, w in zip(mean, weighted.T, strict=True)]
    return Moments(counts, mean, structure.gather(scatter))

"""What the weights w = p/q of draws from q say about log Z: effective size, a lower bound and an upper bound.

    ⟨log (1/n) Σ w⟩ ≤ log Z ≤ ½ log ⟨w²⟩

The left is the importance-weighted bound (IWAE; Gutteridge (2021), §5.4), the right the χ² bound (CUBO). Both are
estimated from the draws, and the right one means something only where the squares have a mean: for a tail of shape k
that needs k < ½, and k < 0.35 to be estimated well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from latlin.diagnostics.pareto import LARGEST_K, smooth_log_weights
from latlin.numerics.arrays import Array


class WeightSummary(NamedTuple):
    """Tail shape, effective number of draws, and estimates of two bounds on log Z."""

    k_hat: float
    ess: float
    lower_bound: float
    upper_bound: float
    upper_bound_reliable: bool


def effective_size(log_weights: Array) -> float:
    """1/Σ w̄² of normalised weights."""
    return float(np.exp(2.0 * logsumexp(log_weights) - logsumexp(2.0 * log_weights)))


def summarise_weights(log_weights: Array) -> WeightSummary:
    """Of log p − log q at draws of q.

    Examples
    --------
    >>> summary = summarise_weights(np.full(100, -2.0))
    >>> summary.ess, summary.lower_bound, summary.upper_bound
    (100.0, -2.0, -2.0)
    """
    n = len(log_weights)
    if not np.any(np.isfinite(log_weights)):
        return WeightSummary(np.inf, 0.0, -np.inf, np.inf, False)
    smoothed, k = smooth_log_weights(log_weights)
    lower = float(logsumexp(log_weights) - np.log(n))
    upper = 0.5 * float(logsumexp(2.0 * log_weights) - np.log(n))
    # squares double the shape of a tail
    return WeightSummary(k, round(effective_size(smoothed), 6), lower, max(lower, upper), bool(2.0 * k < LARGEST_K))

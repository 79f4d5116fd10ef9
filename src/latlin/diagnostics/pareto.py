"""Pareto-smoothed importance weights: the shape k̂ of the tail says whether weights can be trusted.

The largest weights are replaced by expected order statistics of a generalised Pareto distribution fitted to them
(Vehtari, Simpson, Gelman, Yao and Gabry, 2024); the fit is the empirical-Bayes one of Zhang and Stephens (2009). A tail
of shape k has finite moments up to order 1/k: beyond k = 0.7 no affordable number of draws makes an average of the
weights reliable.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array

#: largest shape of a tail that averages still survive
LARGEST_K = 0.7
#: fewest weights whose tail is fitted
FEWEST = 25
#: logs of weights that spread by less are equal
EQUAL = 1e-8


class Smoothed(NamedTuple):
    """Log weights with a smoothed tail, normalised to sum to one, and the tail's shape."""

    log_weights: Array
    k_hat: float


def smooth_log_weights(log_weights: ArrayLike) -> Smoothed:
    """Smooth the tail of importance weights.

    Parameters
    ----------
    log_weights : array_like of shape (n,)
        log p − log q at draws of q; −∞ for a weight of zero.

    Returns
    -------
    Smoothed
        With k̂ = 0 for weights that do not vary, and ∞ where there are too few to tell.

    Examples
    --------
    >>> smooth_log_weights(np.zeros(100)).k_hat
    0.0
    """
    logs = float_array("log_weights", log_weights)
    if logs.ndim != 1 or np.any(np.isnan(logs)) or np.any(logs == np.inf):
        raise ValueError(f"log_weights must be a vector of numbers below infinity, got shape {logs.shape}")
    top = logs.max(initial=-np.inf)
    if not np.isfinite(top):
        return Smoothed(np.full(logs.size, -np.log(max(logs.size, 1))), np.inf)
    logs = logs - top
    if logs.min() > -EQUAL:
        return Smoothed(logs - logsumexp(logs), 0.0)
    smoothed, k = _with_smooth_tail(logs) if logs.size >= FEWEST else (logs, np.inf)
    return Smoothed(smoothed - logsumexp(smoothed), k)


def _with_smooth_tail(logs: Array) -> tuple[Array, float]:
    count = int(np.ceil(min(0.2 * logs.size, 3.0 * np.sqrt(logs.size))))
    order = np.argsort(logs)
    cutoff = max(float(logs[order[-count - 1]]), float(np.log(np.finfo(float).tiny)))
    tail = order[logs.size - count :]
    tail = tail[logs[tail] > cutoff]
    excess = np.exp(logs[tail]) - np.exp(cutoff)
    excess, tail = excess[excess > 0.0], tail[excess > 0.0]
    if len(excess) < 5:
        return logs, np.inf
    k, sigma = fit_generalised_pareto(excess)
    if not np.isfinite(k):
        return logs, np.inf
    levels = (np.arange(len(excess)) + 0.5) / len(excess)
    smoothed = logs.copy()
    # no weight above the largest that was seen
    smoothed[tail] = np.minimum(np.log(_quantile(levels, k, sigma) + np.exp(cutoff)), 0.0)
    return smoothed, k


def fit_generalised_pareto(excess: ArrayLike) -> tuple[float, float]:
    """Shape k and scale σ of positive excesses in rising order.

    The density is (1/σ)(1 + kx/σ)^{−1/k−1}. With θ = −k/σ the profile likelihood is averaged over a grid of θ under a
    data-driven prior; k is then drawn a little towards ½ (ten observations' worth), which steadies small samples.
    """
    x = np.sort(np.asarray(excess, float))
    n = len(x)
    size = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    grid = np.arange(1, size + 1) - 0.5
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(size / grid)) / (3.0 * quartile)
    shapes = np.mean(np.log1p(-theta[:, None] * x), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # profile log likelihood n (log(−θ/k) − k − 1)
        profile = n * (np.log(-theta / shapes) - shapes - 1.0)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    share = np.exp(profile - logsumexp(profile))
    centre = float(share @ theta)
    k = float(np.mean(np.log1p(-centre * x)))
    return (n * k + 5.0) / (n + 10.0), -k / centre


def _quantile(levels: Array, k: float, sigma: float) -> Array:
    if abs(k) < 1e-12:
        return -sigma * np.log1p(-levels)
    return sigma * np.expm1(-k * np.log1p(-levels)) / k

"""What the weights w = p/q of draws from q say about log Z: effective size, a lower bound and an upper bound.

    ⟨log (1/n) Σ w⟩ ≤ log Z ≤ ½ log ⟨w²⟩

The left is the importance-weighted bound (IWAE; Gutteridge (2021), §5.4), the right the χ² bound (CUBO). Both are
estimated from the draws, and the right one means something only where the squares have a mean: for a tail of shape k
that needs k < ½, and k < 0.35 to be estimated well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array

# --- Pareto-smoothed importance weights: the shape k̂ of the tail says whether weights can be trusted.
#
# The largest weights are replaced by expected order statistics of a generalised Pareto distribution fitted to them
# (Vehtari, Simpson, Gelman, Yao and Gabry, 2024); the fit is the empirical-Bayes one of Zhang and Stephens (2009). A
# tail of shape k has finite moments up to order 1/k: beyond k = 0.7 no affordable number of draws makes an average of
# the weights reliable.


#: largest shape of a tail that averages still survive
LARGEST_K = 0.7
#: fewest weights whose tail is fitted
FEWEST = 25
#: logs of weights that spread by less are equal
EQUAL = 1e-8


class SmoothedWeights(NamedTuple):
    """Log weights with a smoothed tail, normalised to sum to one, and the tail's shape."""

    log_weights: Array
    k_hat: float


def smooth_log_weights(log_weights: ArrayLike) -> SmoothedWeights:
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
        return SmoothedWeights(np.full(logs.size, -np.log(max(logs.size, 1))), np.inf)
    logs = logs - top
    if logs.min() > -EQUAL:
        return SmoothedWeights(logs - logsumexp(logs), 0.0)
    smoothed, k = _with_smooth_tail(logs) if logs.size >= FEWEST else (logs, np.inf)
    return SmoothedWeights(smoothed - logsumexp(smoothed), k)


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
    log_weights = float_array("log_weights", log_weights)
    if log_weights.ndim != 1:
        raise ValueError(f"log_weights must be a vector, got shape {log_weights.shape}")
    n = len(log_weights)
    if not np.any(np.isfinite(log_weights)):
        return WeightSummary(np.inf, 0.0, -np.inf, np.inf, False)
    smoothed, k = smooth_log_weights(log_weights)
    lower = float(logsumexp(log_weights) - np.log(n))
    upper = 0.5 * float(logsumexp(2.0 * log_weights) - np.log(n))
    # squares double the shape of a tail
    return WeightSummary(k, round(effective_size(smoothed), 6), lower, max(lower, upper), bool(2.0 * k < LARGEST_K))


# --- Evidence by importance sampling from q and wider companions, so that a q narrower than p cannot hide it.
#
# Draws come from a mixture r = Σ_j π_j q_j with fixed shares. Every component integrates to one, so q_j/r − 1 has
# mean zero under r and serves as control variate: the regression of p/r on these estimates Z with an error no larger
# than any single component would give with its share of the draws (Owen and Zhou, 2000). When q is exact the error is
# nil.


#: weights of which none is more than this many times their mean have no tail; if q is exact, none is above 1/π₀ = 2
BOUNDED = 4.0


class DefendedEvidence(NamedTuple):
    """log Z with a standard error; shares p/r of the draws, their tail and effective size; shares q₀/r of the first."""

    log_evidence: float
    standard_error: float
    k_hat: float
    ess: float
    weights: Array
    reference: Array


def defended_evidence(log_p: Array, log_components: Array, shares: Array) -> DefendedEvidence:
    """Estimate log Z.

    Parameters
    ----------
    log_p : ndarray of shape (n,)
        Log joint at the draws; −∞ allowed.
    log_components : ndarray of shape (n, j)
        Log densities of all components at all draws.
    shares : ndarray of shape (j,)
        How large a part of the draws came from each; sums to one.
    """
    log_r = logsumexp(log_components, axis=1, b=shares)
    logs = log_p - log_r
    top = float(logs.max())
    controls = np.exp(log_components - log_r[:, None]) - 1.0
    reference = (controls[:, 0] + 1.0) / np.sum(controls[:, 0] + 1.0)
    if not np.isfinite(top):
        return DefendedEvidence(-np.inf, np.inf, np.inf, 0.0, np.full(len(logs), 1.0 / len(logs)), reference)
    y = np.exp(logs - top)
    level, error = _regressed(y, controls)
    k = 0.0 if BOUNDED * y.mean() >= 1.0 else smooth_log_weights(logs).k_hat
    log_z = top + np.log(level)
    return DefendedEvidence(float(log_z), error / level, k, effective_size(logs), y / y.sum(), reference)


def _regressed(y: Array, controls: Array) -> tuple[float, float]:
    """Mean of y, the controls' mean of zero used, and its standard error; the plain ones if that is not positive."""
    design = np.column_stack([np.ones(len(y)), controls])
    # the controls are linearly dependent, Σ π_j (q_j/r − 1) = 0: least norm
    solution = np.linalg.lstsq(design, y, rcond=1e-10)[0]
    residual = y - design @ solution
    spare = max(len(y) - design.shape[1], 1)
    level, error = float(solution[0]), float(np.sqrt(residual @ residual / spare / len(y)))
    if level <= 3.0 * error:
        return float(y.mean()), float(y.std(ddof=1) / np.sqrt(len(y)))
    return level, error


# --- Corrected mean, variances and covariance of w, accumulated over blocks of draws.
#
#     ⟨f⟩_p = Σ_i w̄_i f(w_i)   or   ⟨f⟩_q + Σ_i (w̄_i − u_i) f(w_i),   w̄ ∝ p/r,   u ∝ q/r
#
# The second uses what is known of q itself as a control variate: where p is close to q hardly any noise is left. Where
# q is far from p it adds noise instead, and each coordinate takes the one of the smaller error.


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


def largest_moves(
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

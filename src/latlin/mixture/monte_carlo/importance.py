"""The importance-weighted bound and its doubly reparameterised gradient.

    L_IW = E ln (1/L) Σ_l w_l,   w_l = p(X, π_l, μ_l) / (q(π_l) q(μ_l)),   ELBO ≤ L_IW ≤ ln p(X), rising with L.

Labels are summed out exactly. Source: Gutteridge (2021), eqs. 5.31, 5.32; the gradient is that of Tucker et al.
(2018), Σ_l w̃_l² ∂ ln w_l/∂θ_l ∂θ_l/∂φ with w̃ the normalised weights: without the score term of (5.32), whose
noise grows with L.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from latlin.mixture.euclidean import Gradient, Point
from latlin.mixture.fixed import KnownCovariance
from latlin.mixture.model import Mixture
from latlin.mixture.monte_carlo.gradient_terms import Draws, _parts, draw, path_gradient
from latlin.mixture.sweep import CompleteRows
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array


class WeightedDraws(NamedTuple):
    """Draws with their log weights, and the moments of each draw's own responsibilities."""

    log_weights: Array  # (L,)  ln w
    counts: Array  # (L, K)
    averages: Array  # (L, K, D)


class BoundEstimate(NamedTuple):
    """A Monte Carlo estimate and its standard error."""

    value: float
    standard_error: float


def weigh(mixture: Mixture, data: CompleteRows, point: Point, draws: Draws) -> WeightedDraws:
    """ln w_l of each draw; one pass over the data a draw."""
    structure = mixture.components
    mu = draws.means(point)
    log_det = np.log(np.diagonal(structure.whitener)).sum() - 0.5 * structure.dim * LOG_2PI
    passes = [
        structure.collect_at(data, log_pi + log_det, means) for log_pi, means in zip(draws.log_weights, mu, strict=True)
    ]
    likelihood = np.array([sum_log for sum_log, _ in passes])
    log_ratio = _log_prior(mixture, draws.log_weights, mu) - _log_posterior(point, draws)
    counts = np.stack([moments.counts for _, moments in passes])
    return WeightedDraws(likelihood + log_ratio, counts, np.stack([moments.mean for _, moments in passes]))


def importance_bound(
    mixture: Mixture, data: CompleteRows, point: Point, n_draws: int, repeats: int, rng: np.random.Generator
) -> BoundEstimate:
    """L_IW with L = `n_draws`, averaged over `repeats` independent sets."""
    weighted = weigh(mixture, data, point, draw(point, n_draws * repeats, rng))
    values = logsumexp(weighted.log_weights.reshape(repeats, n_draws), axis=1) - np.log(n_draws)
    error = values.std(ddof=1) / np.sqrt(repeats) if repeats > 1 else np.inf
    return BoundEstimate(float(values.mean()), float(error))


def importance_gradient(mixture: Mixture, data: CompleteRows, point: Point, draws: Draws) -> Gradient:
    """The doubly reparameterised gradient of L_IW from one set of L draws."""
    weighted = weigh(mixture, data, point, draws)
    share = np.exp(weighted.log_weights - logsumexp(weighted.log_weights))
    terms = path_gradient(mixture, point, draws, weighted.counts, weighted.averages)
    return Gradient(*(np.tensordot(np.square(share), part, axes=1) for part in terms))


def _log_prior(mixture: Mixture, log_pi: Array, mu: Array) -> Array:
    """ln p(π) p(μ) at each draw."""
    prior, structure = _parts(mixture)
    components = log_pi.shape[1]
    a0 = prior.concentration
    weights = gammaln(components * a0) - components * gammaln(a0) + (a0 - 1.0) * log_pi.sum(axis=1)
    return weights + _log_normal(structure, mu)


def _log_normal(structure: KnownCovariance, mu: Array) -> Array:
    away = mu - structure.prior_mean
    square = np.einsum("skd,de,ske->s", away, structure.prior_precision, away)
    log_det = np.linalg.slogdet(structure.prior_precision)[1] - structure.dim * LOG_2PI
    return 0.5 * (mu.shape[1] * log_det - square)


def _log_posterior(point: Point, draws: Draws) -> Array:
    """ln q(π) q(μ) at each draw."""
    alpha = point.alpha
    normaliser = gammaln(alpha.sum()) - gammaln(alpha).sum()
    weights = normaliser + draws.log_weights @ (alpha - 1.0)
    log_det = np.log(np.diagonal(point.root, axis1=1, axis2=2)).sum()
    size = draws.noise[0].size
    return weights - 0.5 * np.square(draws.noise).sum(axis=(1, 2)) - log_det - 0.5 * size * LOG_2PI

"""Gradients of the bound of a fixed-covariance mixture: exact, by score function, by path, weighted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, log_softmax, logsumexp, polygamma, softmax

from latlin.mixture.fixed import Gradient, KnownCovariance, RootBelief, require_known_covariance
from latlin.mixture.kernels import gamma_log_slopes
from latlin.mixture.model import Belief, DirichletWeights, Mixture
from latlin.mixture.moments import ComponentMoments, inverse
from latlin.mixture.sweep import CompleteRows, widen
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array

# --- Gradients of the bound of a fixed-covariance mixture: exact, by score function, by path.
#
# Source: Gutteridge (2021), eqs. 3.41–3.43, 5.11–5.26, corrected as each docstring says. Responsibilities are
# at their optimum, so by the envelope theorem they are held while α, m and C are differentiated. Every estimator
# returns one term a draw; the mean of the terms is unbiased.


# --- Gumbel-softmax relaxation of the labels, for teaching and for comparison with summing them out.
#
# Source: Gutteridge (2021), eq. 5.27–(5.29, corrected: − ln r). At temperature τ → 0 a relaxed label becomes a draw
# of z_n; at τ > 0 its mean is not r_n, so gradients built on it are biased (`compare_estimators` shows how much).


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
    mixture: Mixture, data: CompleteRows, belief: Belief, temperature: float, rng: np.random.Generator
) -> ComponentMoments:
    """Moments of the rows under one relaxed draw of all labels, from logits at their optimum."""
    values = widen(data.values)
    log_r = log_softmax(mixture.log_joint(values, belief), axis=1)
    z = relaxed_labels(log_r, rng.gumbel(size=log_r.shape), temperature)
    weighted = z * data.weights_of(slice(0, len(data)))[:, None]
    return _moments(require_known_covariance(mixture), values, weighted)


def _moments(structure: KnownCovariance, values: Array, weighted: Array) -> ComponentMoments:
    counts = weighted.sum(axis=0)
    mean = weighted.T @ values / counts[:, None]
    scatter = [structure.scatter_of(values - m, w) for m, w in zip(mean, weighted.T, strict=True)]
    return ComponentMoments(counts, mean, structure.gather(scatter))


class NaturalGradient(NamedTuple):
    """η* − η (4.12) in the natural parameters ν = α, λ₁ = C⁻¹m, λ₂ = −½C⁻¹ of Table 1."""

    alpha: Array
    first: Array
    second: Array


class CovarianceGradient(NamedTuple):
    """Derivatives in α, m_k and C_k."""

    alpha: Array
    mean: Array
    covariance: Array


class Draws(NamedTuple):
    """S draws of q(π) q(μ), and what their paths need."""

    log_weights: Array  # (S, K)  ln π
    slopes: Array  # (S, K)  ∂ ln y_k/∂α_k of the gamma draws behind π
    noise: Array  # (S, K, D)  ξ, μ_k = m_k + L_k ξ_k

    def means(self, point: RootBelief) -> Array:
        """μ, shape (S, K, D)."""
        return point.mean + np.einsum("kde,ske->skd", point.root, self.noise)


def draw(point: RootBelief, size: int, rng: np.random.Generator) -> Draws:
    """Draws of π and μ. Gamma variables are drawn in logs, y = y′u^{1/α} with y′ ~ Gamma(α+1): none underflows."""
    alpha = point.alpha
    above = rng.gamma(alpha + 1.0, size=(size, len(alpha)))
    log_y = np.log(above) - rng.standard_exponential(above.shape) / alpha
    slopes = gamma_log_slopes(alpha, log_y, digamma(alpha + 1.0))
    log_weights = log_y - np.logaddexp.reduce(log_y, axis=1, keepdims=True)
    return Draws(log_weights, slopes, rng.standard_normal((size, *point.mean.shape)))


def exact_gradient(mixture: Mixture, point: RootBelief, moments: ComponentMoments) -> CovarianceGradient:
    """∇L in α (3.41, corrected), m (3.42) and C (3.43).

    ∂/∂α_k = (N_k + α₀ − α_k) ψ′(α_k) − ψ′(Σα) Σ_j (N_j + α₀ − α_j).
    """
    prior, structure = _parts(mixture)
    short = moments.counts + prior.concentration - point.alpha
    alpha = short * polygamma(1, point.alpha) - polygamma(1, point.alpha.sum()) * short.sum()
    mean = _mean_force(structure, moments.counts, moments.mean, point.mean)
    precision = moments.counts[:, None, None] * structure.precision + structure.prior_precision
    covariance = inverse(point.root @ point.root.transpose(0, 2, 1))
    return CovarianceGradient(alpha, mean, 0.5 * (covariance - precision))


def natural_gradient(mixture: Mixture, point: RootBelief, moments: ComponentMoments) -> NaturalGradient:
    """η* − η (4.12): a step of length one is coordinate ascent."""
    prior, structure = _parts(mixture)
    precision = inverse(point.root @ point.root.transpose(0, 2, 1))
    target = moments.counts[:, None, None] * structure.precision + structure.prior_precision
    pull = moments.counts[:, None] * moments.mean @ structure.precision
    goal = pull + structure.prior_precision @ structure.prior_mean
    return NaturalGradient(
        moments.counts + prior.concentration - point.alpha,
        goal - np.einsum("kde,ke->kd", precision, point.mean),
        -0.5 * (target - precision),
    )


def in_root(gradient: CovarianceGradient, point: RootBelief) -> Gradient:
    """∂/∂L = 2 (∂/∂C) L, lower triangle."""
    return Gradient(gradient.alpha, gradient.mean, np.tril(2.0 * gradient.covariance @ point.root))


def entropy_gradient(point: RootBelief) -> Gradient:
    """∇ of the entropy of q(π) q(μ)."""
    alpha, total = point.alpha, point.alpha.sum()
    slope = (total - len(alpha)) * polygamma(1, total) - (alpha - 1.0) * polygamma(1, alpha)
    diagonal = np.arange(point.mean.shape[1])
    root = np.zeros_like(point.root)
    root[:, diagonal, diagonal] = 1.0 / point.root[:, diagonal, diagonal]
    return Gradient(slope, np.zeros_like(point.mean), root)


def path_gradient(mixture: Mixture, point: RootBelief, draws: Draws, counts: Array, averages: Array) -> Gradient:
    """One term a draw through μ = m + Lξ and the implicit path of the Dirichlet ((5.16)–(5.25), corrected).

    The cost ln p − ln q is differentiated through the draw only: the direct dependence of ln q on its parameters
    has mean zero. With g_k = N_k + α₀ − α_k and π = y/Σy (full Jacobian),

        ∂/∂α_k = (g_k − π_k Σ_j g_j) ∂ ln y_k/∂α_k,
        ∂/∂m_k = u_k,  ∂/∂L_k = u_k ξ_kᵀ,  u_k = N_kΣ⁻¹(x̄_k − μ_k) − C₀⁻¹(μ_k − m₀) + C_k⁻¹(μ_k − m_k).

    `counts` (…, K) and `averages` (…, K, D) may be those of each draw.
    """
    prior, structure = _parts(mixture)
    g = counts + prior.concentration - point.alpha
    weights = np.exp(draws.log_weights)
    alpha = (g - weights * g.sum(axis=-1, keepdims=True)) * draws.slopes
    away = np.einsum("ked,ske->skd", inverse(point.root), draws.noise)
    u = _mean_force(structure, counts, averages, draws.means(point)) + away
    return Gradient(alpha, u, np.tril(u[..., :, None] * draws.noise[..., None, :]))


def score_gradient(
    mixture: Mixture,
    point: RootBelief,
    draws: Draws,
    moments: ComponentMoments,
    control_variate: str | None = "baseline",
) -> Gradient:
    """One term a draw, cost times score plus the entropy's exact gradient ((5.11)–(5.14), corrected).

    Parameters
    ----------
    control_variate : {"baseline", "regression", None}
        None is the plain estimator: the whole ln p(X, Z, π, μ) multiplies every score, and its variance grows with
        N². Otherwise each block keeps only its own part of the cost (Rao–Blackwell), less a baseline a·1: the mean
        cost of the *other* draws, or in each coordinate Σf h²/Σh² over them. Leaving the own draw out keeps the
        mean exact; at least two draws are needed.
    """
    weights_cost, mean_cost, constant = _costs(mixture, point, draws, moments)
    score = _scores(point, draws)
    if control_variate is None:
        whole = weights_cost + mean_cost.sum(axis=1) + constant
        costs = (whole[:, None], whole[:, None], whole[:, None])
        terms = [_times(cost, part) for cost, part in zip(costs, score, strict=True)]
    else:
        baseline = CONTROL_VARIATES[control_variate]
        costs = (weights_cost[:, None], mean_cost, mean_cost)
        terms = [baseline(cost, part) for cost, part in zip(costs, score, strict=True)]
    entropy = entropy_gradient(point)
    return Gradient(*(term + part for term, part in zip(terms, entropy, strict=True)))


def _times(cost: Array, score: Array) -> Array:
    return _aligned(cost, score) * score


def _aligned(cost: Array, score: Array) -> Array:
    return cost.reshape(cost.shape + (1,) * (score.ndim - cost.ndim))


def _less_mean(cost: Array, score: Array) -> Array:
    """(f_l − mean of the other f) h_l."""
    size = len(cost)
    others = (cost.sum(axis=0) - cost) / (size - 1)
    return _times(cost - others, score)


def _less_regression(cost: Array, score: Array) -> Array:
    """(f_l − a_l) h_l with a_l = Σ f h²/Σ h² over the other draws, the best multiple of h in each coordinate."""
    f = _aligned(cost, score)
    square = np.square(score)
    weighted = (f * square).sum(axis=0) - f * square
    total = square.sum(axis=0) - square
    coefficient = np.divide(weighted, total, out=np.zeros_like(weighted), where=total > 0.0)
    return (f - coefficient) * score


CONTROL_VARIATES = {"baseline": _less_mean, "regression": _less_regression}


def _parts(mixture: Mixture) -> tuple[DirichletWeights, KnownCovariance]:
    weights, structure = mixture.weights, mixture.components
    if not isinstance(weights, DirichletWeights) or not isinstance(structure, KnownCovariance):
        raise ValueError(
            "gradients in (α, m, C) are for covariance='fixed' with weight_prior='dirichlet'; "
            "algorithms 'cavi', 'natural' and 'stochastic-natural' work for every covariance"
        )
    return weights, structure


def _mean_force(structure: KnownCovariance, counts: Array, averages: Array, mu: Array) -> Array:
    """N_kΣ⁻¹(x̄_k − μ_k) − C₀⁻¹(μ_k − m₀)."""
    pull = (counts[..., None] * (averages - mu)) @ structure.precision
    return pull - (mu - structure.prior_mean) @ structure.prior_precision


def _scores(point: RootBelief, draws: Draws) -> Gradient:
    """∇ ln q at each draw: ψ(Σα) − ψ(α_k) + ln π_k, L⁻ᵀξ, and the lower triangle of L⁻ᵀ(ξξᵀ − I)."""
    alpha = digamma(point.alpha.sum()) - digamma(point.alpha) + draws.log_weights
    back = inverse(point.root).transpose(0, 2, 1)
    mean = np.einsum("kde,ske->skd", back, draws.noise)
    outer = draws.noise[..., :, None] * draws.noise[..., None, :] - np.eye(point.mean.shape[1])
    return Gradient(alpha, mean, np.tril(back @ outer))


def _costs(mixture: Mixture, point: RootBelief, draws: Draws, moments: ComponentMoments) -> tuple[Array, Array, float]:
    """ln p(X, Z, π, μ), averaged over Z, in the parts that know π (S,), μ_k (S, K), and neither."""
    prior, structure = _parts(mixture)
    components, dim = point.mean.shape
    mu = draws.means(point)
    weights = (moments.counts + prior.concentration - 1.0) @ draws.log_weights.T
    off = (moments.mean - mu) @ structure.whitener.T
    back = mu - structure.prior_mean
    squares = moments.counts * np.square(off).sum(axis=-1)
    squares += np.einsum("skd,de,ske->sk", back, structure.prior_precision, back)
    log_det = 2.0 * np.log(np.diagonal(structure.whitener)).sum() - dim * LOG_2PI
    prior_det = np.linalg.slogdet(structure.prior_precision)[1] - dim * LOG_2PI
    data = 0.5 * (moments.counts.sum() * log_det - moments.scatter.sum() + components * prior_det)
    normaliser = gammaln(components * prior.concentration) - components * gammaln(prior.concentration)
    return weights, -0.5 * squares, float(data + normaliser)


# --- The importance-weighted bound and its doubly reparameterised gradient.
#
#     L_IW = E ln (1/L) Σ_l w_l,   w_l = p(X, π_l, μ_l) / (q(π_l) q(μ_l)),   ELBO ≤ L_IW ≤ ln p(X), rising with L.
#
# Labels are summed out exactly. Source: Gutteridge (2021), eqs. 5.31, 5.32; the gradient is that of Tucker et al.
# (2018), Σ_l w̃_l² ∂ ln w_l/∂θ_l ∂θ_l/∂φ with w̃ the normalised weights: without the score term of (5.32), whose
# noise grows with L.


class WeightedDraws(NamedTuple):
    """Draws with their log weights, and the moments of each draw's own responsibilities."""

    log_weights: Array  # (L,)  ln w
    counts: Array  # (L, K)
    averages: Array  # (L, K, D)


class BoundEstimate(NamedTuple):
    """A Monte Carlo estimate and its standard error."""

    value: float
    standard_error: float


def weigh(mixture: Mixture, data: CompleteRows, point: RootBelief, draws: Draws) -> WeightedDraws:
    """ln w_l of each draw; one pass over the data per draw."""
    structure = require_known_covariance(mixture)
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
    mixture: Mixture, data: CompleteRows, point: RootBelief, n_draws: int, repeats: int, rng: np.random.Generator
) -> BoundEstimate:
    """L_IW with L = `n_draws`, averaged over `repeats` independent sets."""
    weighted = weigh(mixture, data, point, draw(point, n_draws * repeats, rng))
    values = logsumexp(weighted.log_weights.reshape(repeats, n_draws), axis=1) - np.log(n_draws)
    error = values.std(ddof=1) / np.sqrt(repeats) if repeats > 1 else np.inf
    return BoundEstimate(float(values.mean()), float(error))


def importance_gradient(mixture: Mixture, data: CompleteRows, point: RootBelief, draws: Draws) -> Gradient:
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


def _log_posterior(point: RootBelief, draws: Draws) -> Array:
    """ln q(π) q(μ) at each draw."""
    alpha = point.alpha
    normaliser = gammaln(alpha.sum()) - gammaln(alpha).sum()
    weights = normaliser + draws.log_weights @ (alpha - 1.0)
    log_det = np.log(np.diagonal(point.root, axis1=1, axis2=2)).sum()
    size = draws.noise[0].size
    return weights - 0.5 * np.square(draws.noise).sum(axis=(1, 2)) - log_det - 0.5 * size * LOG_2PI

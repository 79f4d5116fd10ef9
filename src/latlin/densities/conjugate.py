"""Conjugate families with every constant: Dirichlet, Beta, gamma, Wishart, and normals given a precision.

Plain functions of parameter arrays. A Wishart W(Λ | W, ν) is held by the *scale* Ψ = W⁻¹ (its Cholesky factor
where one is needed), because posterior updates add to Ψ: E[Λ] = νΨ⁻¹. In one dimension it is the gamma density
of shape ν/2 and rate Ψ/2. Source: Gutteridge (2021), eqs. 3.8, 3.30–3.39.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, digamma, gammaln

from latlin.numerics.linalg import Array


def dirichlet_expected_log(alpha: Array) -> Array:
    """E[ln π_k] = ψ(α_k) − ψ(Σα) along the last axis."""
    return digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))


def dirichlet_log_normaliser(alpha: Array) -> Array:
    """ln C(α) = ln Γ(Σα) − Σ ln Γ(α_k), so that Dir(π|α) = C(α) ∏ π_k^{α_k − 1}."""
    return gammaln(alpha.sum(axis=-1)) - gammaln(alpha).sum(axis=-1)


def dirichlet_entropy(alpha: Array) -> Array:
    """−E[ln Dir(π|α)]."""
    return -dirichlet_log_normaliser(alpha) - ((alpha - 1.0) * dirichlet_expected_log(alpha)).sum(axis=-1)


def dirichlet_kl(alpha: Array, prior: Array) -> Array:
    """KL(Dir(α) ‖ Dir(prior)).

    >>> round(float(dirichlet_kl(np.array([2.0, 1.0]), np.array([1.0, 1.0]))), 6)
    0.193147
    """
    moved = ((alpha - prior) * dirichlet_expected_log(alpha)).sum(axis=-1)
    return dirichlet_log_normaliser(alpha) - dirichlet_log_normaliser(prior) + moved


def beta_expected_logs(a: Array, b: Array) -> tuple[Array, Array]:
    """(E[ln v], E[ln(1 − v)]) of v ~ Beta(a, b)."""
    total = digamma(a + b)
    return digamma(a) - total, digamma(b) - total


def beta_kl(a: Array, b: Array, prior_a: Array | float, prior_b: Array | float) -> Array:
    """KL(Beta(a, b) ‖ Beta(prior_a, prior_b)), elementwise."""
    log_v, log_rest = beta_expected_logs(a, b)
    return betaln(prior_a, prior_b) - betaln(a, b) + (a - prior_a) * log_v + (b - prior_b) * log_rest


def gamma_expected_log(shape: Array, rate: Array) -> Array:
    """E[ln λ] = ψ(shape) − ln rate."""
    return digamma(shape) - np.log(rate)


def gamma_entropy(shape: Array, rate: Array) -> Array:
    """−E[ln Gamma(λ | shape, rate)]."""
    return shape - np.log(rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)


def gamma_kl(shape: Array, rate: Array, prior_shape: Array | float, prior_rate: Array | float) -> Array:
    """KL(Gamma(shape, rate) ‖ Gamma(prior_shape, prior_rate)), elementwise."""
    return (
        (shape - prior_shape) * digamma(shape)
        - gammaln(shape)
        + gammaln(prior_shape)
        + prior_shape * (np.log(rate) - np.log(prior_rate))
        + shape * (prior_rate / rate - 1.0)
    )


def wishart_expected_log_det(dof: Array | float, log_det_scale: Array | float, dim: int) -> Array:
    """E[ln|Λ|] = Σ_i ψ((ν + 1 − i)/2) + D ln 2 − ln|Ψ|."""
    halves = 0.5 * (np.asarray(dof)[..., None] - np.arange(dim))
    return digamma(halves).sum(axis=-1) + dim * np.log(2.0) - log_det_scale


def wishart_log_normaliser(dof: Array | float, log_det_scale: Array | float, dim: int) -> Array:
    """ln B of W(Λ) = B |Λ|^{(ν−D−1)/2} exp(−½ tr(ΨΛ)): ½ν ln|Ψ| − ½νD ln 2 − ln Γ_D(ν/2)."""
    nu = np.asarray(dof, dtype=float)
    if np.any(nu <= dim - 1.0):
        raise ValueError(f"degrees of freedom must be larger than {dim - 1} in {dim} dimensions, got {nu.min():g}")
    # ln Γ_D(ν/2) = ¼D(D−1) ln π + Σ_j ln Γ((ν − j)/2),  j = 0 … D−1
    multigamma = gammaln(0.5 * (nu[..., None] - np.arange(dim))).sum(axis=-1) + 0.25 * dim * (dim - 1) * np.log(np.pi)
    return 0.5 * nu * (log_det_scale - dim * np.log(2.0)) - multigamma


def wishart_entropy(dof: Array | float, log_det_scale: Array | float, dim: int) -> Array:
    """−E[ln W(Λ)]."""
    nu = np.asarray(dof, dtype=float)
    expected = wishart_expected_log_det(nu, log_det_scale, dim)
    normaliser = wishart_log_normaliser(nu, log_det_scale, dim)
    return -normaliser - 0.5 * (nu - dim - 1.0) * expected + 0.5 * nu * dim


def wishart_kl(
    dof: Array | float,
    log_det_scale: Array | float,
    prior_dof: float,
    prior_log_det_scale: float,
    trace: Array | float,
    dim: int,
) -> Array:
    """KL(W(Ψ, ν) ‖ W(Ψ₀, ν₀)), where `trace` is tr(Ψ₀Ψ⁻¹)."""
    nu = np.asarray(dof, dtype=float)
    expected = wishart_expected_log_det(nu, log_det_scale, dim)
    normalisers = wishart_log_normaliser(nu, log_det_scale, dim) - wishart_log_normaliser(
        prior_dof, prior_log_det_scale, dim
    )
    return normalisers + 0.5 * (nu - prior_dof) * expected + 0.5 * nu * (trace - dim)


def precision_weighted_kl(strength: Array, prior_strength: float, expected_square: Array, dim: int) -> Array:
    """E over Λ of KL(N(m, (βΛ)⁻¹) ‖ N(m₀, (β₀Λ)⁻¹)), where `expected_square` is E[(m−m₀)ᵀΛ(m−m₀)]."""
    ratio = prior_strength / strength
    return 0.5 * (dim * (ratio - 1.0 - np.log(ratio)) + prior_strength * expected_square)


def gaussian_kl(mean: Array, covariance: Array, prior_mean: Array, prior_precision: Array) -> Array:
    """KL(N(m_k, C_k) ‖ N(m₀, P₀⁻¹)) for K Gaussians of shape (K, D), (K, D, D)."""
    dim = mean.shape[-1]
    away = mean - prior_mean
    square = np.einsum("kd,de,ke->k", away, prior_precision, away)
    trace = np.einsum("de,ked->k", prior_precision, covariance)
    log_dets = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(prior_precision)[1]
    return 0.5 * (trace + square - dim - log_dets)

"""Derivatives of the log evidence in the means and covariances of the Gaussian factors.

With r = Hw − μ, α = Σ⁻¹⟨r⟩ and q's covariance S,

    ∂/∂μ = α + β,   ∂/∂Σ = ½(ααᵀ + αβᵀ + βαᵀ + Σ⁻¹HSHᵀΣ⁻¹ − Σ⁻¹)

where β = Σ⁻¹H S Σ_n h_n τ_n is the movement of a mode that the sites' curvature pulls by τ, nil but for Laplace.

A prior covariance K on w itself, with a posterior in site form S⁻¹ = K⁻¹ + G, G = HᵀΓH, needs no inverse of K, which
may be singular to working precision: α = Hᵀ(ν − Γx), β = Hᵀτ − G S Hᵀτ, and K⁻¹ − K⁻¹SK⁻¹ = G − GSG, which for γ ≥ 0
is HᵀΓ^½(I + Γ^½HKHᵀΓ^½)⁻¹Γ^½H.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.densities.density import Density
from latlin.inference.evidence.terms import FittedPosterior, Movement
from latlin.inference.model import GaussianFactor
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky


class GaussianGradient(NamedTuple):
    """Derivatives of log Z in a factor's mean, (m,), and covariance: (m,) for variances, else symmetric (m, m).

    For a full covariance d log Z = Σ_ij d_cov_ij dΣ_ij. A scalar mean or variance sums over the entries. A precision
    matrix has no d_cov (it is empty): see `latlin.inference.evidence.precision`.
    """

    d_mean: Array
    d_cov: Array


def gaussian_gradients(
    posterior: FittedPosterior, rows: Any, movement: Movement | None
) -> tuple[GaussianGradient, ...]:
    """One per Gaussian factor; `rows` are those of the sites."""
    if _in_site_form(posterior):
        return (_from_sites(posterior, rows, movement),)
    model, move = posterior.model, None if movement is None else movement.move
    return tuple(_from_moments(factor, posterior.density, model.dim, move) for factor in model.gaussians)


def _in_site_form(posterior: FittedPosterior) -> bool:
    """One factor, on w itself, with a full covariance, and stand-ins for the sites."""
    gaussians = posterior.model.gaussians
    alone = len(gaussians) == 1 and gaussians[0].H is None and gaussians[0].factor is not None
    return alone and posterior.sites is not None


def _from_sites(posterior: FittedPosterior, rows: Any, movement: Movement | None) -> GaussianGradient:
    assert posterior.sites is not None
    gamma, nu = posterior.sites
    mean = np.broadcast_to(posterior.model.gaussians[0].mean, posterior.model.dim)
    # α = Hᵀ(ν − Γx)
    alpha = np.asarray(rows.T @ (nu - gamma * (rows @ (posterior.density.mean - mean))))
    d_cov = 0.5 * (np.outer(alpha, alpha) - _lost_precision(posterior, rows, gamma))
    if movement is None:
        return GaussianGradient(alpha, d_cov)
    beta = np.asarray(rows.T @ (movement.pull - gamma * (rows @ movement.move)))
    cross = np.outer(alpha, beta)
    return GaussianGradient(alpha + beta, d_cov + 0.5 * (cross + cross.T))


def _lost_precision(posterior: FittedPosterior, rows: Any, gamma: Array) -> Array:
    """K⁻¹ − K⁻¹SK⁻¹ without an inverse of K."""
    count, dim = rows.shape
    if count <= dim and np.all(gamma >= 0.0):
        root = np.sqrt(gamma)
        inner = root[:, None] * np.asarray(rows @ (rows @ posterior.model.gaussians[0].cov).T) * root
        inner[np.diag_indices(count)] += 1.0
        core = root[:, None] * cholesky(inner, name="I + Γ^½HKHᵀΓ^½").inverse() * root
        return np.asarray(rows.T @ (rows.T @ core).T)
    weighted = sparse.diags_array(gamma) @ rows if sparse.issparse(rows) else gamma[:, None] * rows
    g = _dense(rows.T @ weighted)
    return g - g @ posterior.density.covariance() @ g


def _from_moments(factor: GaussianFactor, density: Density, dim: int, move: Array | None) -> GaussianGradient:
    rows: Any = sparse.eye_array(dim, format="csr") if factor.H is None else factor.H
    residual = np.asarray(rows @ density.mean) - factor.mean
    pushed = np.zeros(rows.shape[0]) if move is None else np.asarray(rows @ move)
    if factor.by_precision:
        return GaussianGradient(factor.times_precision(residual + pushed), np.zeros(0))
    if factor.factor is not None:
        return _full(factor.factor, rows, density, residual, pushed)
    variance = density.variance if factor.H is None else density.project(rows).variance
    precision = 1.0 / np.broadcast_to(factor.cov, rows.shape[0])
    alpha, beta = precision * residual, precision * pushed
    spread = precision * (precision * variance - 1.0)
    return GaussianGradient(alpha + beta, 0.5 * (alpha**2 + 2.0 * alpha * beta + spread))


def _full(triangle: Array, rows: Any, density: Density, residual: Array, pushed: Array) -> GaussianGradient:
    chol = Cholesky(triangle, 0.0)
    alpha, beta = chol.solve(residual), chol.solve(pushed)
    turned = chol.solve(_dense(rows))
    spread = turned @ density.covariance() @ turned.T - chol.inverse()
    cross = np.outer(alpha, beta)
    return GaussianGradient(alpha + beta, 0.5 * (np.outer(alpha, alpha) + cross + cross.T + spread))


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)

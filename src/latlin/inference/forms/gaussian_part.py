"""The Gaussian factors of a model as one, and the coordinates in which they are simple.

    ∏_m N(H_m w | μ_m, Σ_m) = exp(constant − ½ (w − μ)ᵀ Λ (w − μ) + bᵀ(w − μ))

With w = μ + L u the quadratic form is Λ̃ = LᵀΛL: the identity when the factors on w itself make a proper Gaussian and
nothing else is measured (Challis (2013), B.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from latlin.densities.whitening import (
    CovarianceWhitening,
    DiagonalWhitening,
    PrecisionWhitening,
    Whitening,
)
from latlin.inference.model import BY_PRECISION, GaussianFactor, LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import Cholesky, cholesky


@dataclass(frozen=True)
class GaussianPart:
    """The proper Gaussian N(w | mean, LLᵀ) of the factors on w itself, and what else is measured.

    Parameters
    ----------
    mean : ndarray of shape (dim,)
    whitening : Whitening or None
        L; None when no factor is on w itself.
    constant : float
        Value of all log factors on w itself at `mean`.
    measured_rows, measured_values : ndarray of shape (m, dim) and (m,)
        R and t of the factors N(Hw | μ, Σ) = exp(measured_constant − ½‖Rw − t‖²).
    measured_constant : float
    """

    mean: Array
    whitening: Whitening | None
    constant: float
    measured_rows: Array
    measured_values: Array
    measured_constant: float


def gaussian_part(model: LatentLinearModel) -> GaussianPart:
    """Collect the Gaussian factors of a model, which must have neither precision matrices nor constraints."""
    refuse_sparse(model)
    direct = [factor for factor in model.gaussians if factor.H is None]
    mean, whitening, constant = product_of(direct, model.dim)
    rows, values, measured_constant = _measurements(
        [factor for factor in model.gaussians if factor.H is not None], model.dim
    )
    return GaussianPart(mean, whitening, constant, rows, values, measured_constant)


def refuse_sparse(model: LatentLinearModel) -> None:
    """A sentence for engines that know nothing of precision matrices, constraints and priors to be normalised."""
    if any(factor.precision is not None for factor in model.gaussians):
        raise ValueError(BY_PRECISION)
    if model.constraints or model.normalise_prior:
        raise ValueError(
            "constraints and normalise_prior=True need an engine with full covariances: "
            "'gkl', 'laplace', 'ep', 'lvb' or 'map'"
        )


def product_of(factors: list[GaussianFactor], dim: int) -> tuple[Array, Whitening | None, float]:
    """Mean, whitening and log value at the mean of the product of factors on w itself (without any: 0, None, 0)."""
    if not factors:
        return np.zeros(dim), None, 0.0
    if len(factors) == 1:
        factor = factors[0]
        mean = np.broadcast_to(factor.mean, dim).astype(float)
        whitening = factor_whitening(factor, dim)
        # log N(μ | μ, Σ) = −½ log det(2πΣ)
        return mean, whitening, -0.5 * dim * LOG_2PI - whitening.log_det
    return _product(factors, dim)


def factor_whitening(factor: GaussianFactor, dim: int) -> Whitening:
    """L of the factor's covariance LLᵀ."""
    if factor.factor is not None:
        return CovarianceWhitening(factor.factor)
    return DiagonalWhitening(np.sqrt(np.broadcast_to(factor.cov, dim).astype(float)))


def _product(factors: list[GaussianFactor], dim: int) -> tuple[Array, Whitening, float]:
    """Λ = Σ_m Σ_m⁻¹, μ = Λ⁻¹ Σ_m Σ_m⁻¹μ_m; the constant is the product's value at μ."""
    means = [np.broadcast_to(factor.mean, dim).astype(float) for factor in factors]
    if all(factor.factor is None for factor in factors):
        precisions = [1.0 / np.broadcast_to(factor.cov, dim) for factor in factors]
        total = np.sum(precisions, axis=0)
        mean = np.sum([p * m for p, m in zip(precisions, means, strict=True)], axis=0) / total
        whitening: Whitening = DiagonalWhitening(1.0 / np.sqrt(total))
    else:
        inverses = [_dense_precision(factor, dim) for factor in factors]
        chol = cholesky(np.sum(inverses, axis=0), name="the precision of the Gaussian factors")
        mean = chol.solve(np.sum([p @ m for p, m in zip(inverses, means, strict=True)], axis=0))
        whitening = PrecisionWhitening(chol.factor)
    constant = sum(
        _log_normal(factor_whitening(factor, dim), mean - m) for factor, m in zip(factors, means, strict=True)
    )
    return mean, whitening, float(constant)


def _dense_precision(factor: GaussianFactor, dim: int) -> Array:
    if factor.factor is None:
        return np.diag(1.0 / np.broadcast_to(factor.cov, dim))
    return Cholesky(factor.factor, 0.0).inverse()


def _log_normal(whitening: Whitening, deviation: Array) -> float:
    """log N(δ | 0, LLᵀ)."""
    z = whitening.solve(deviation)
    return -0.5 * float(z @ z) - 0.5 * len(z) * LOG_2PI - whitening.log_det


def _measurements(factors: list[GaussianFactor], dim: int) -> tuple[Array, Array, float]:
    """Rows R and values t with N(Hw | μ, Σ) = exp(constant − ½‖Rw − t‖²)."""
    rows, values, constant = [np.zeros((0, dim))], [np.zeros(0)], 0.0
    for factor in factors:
        size = factor.H.shape[0]
        whitening = factor_whitening(factor, size)
        dense = factor.H.toarray() if sparse.issparse(factor.H) else factor.H
        rows.append(np.ascontiguousarray(whitening.solve(dense)))
        values.append(whitening.solve(np.broadcast_to(factor.mean, size).astype(float)))
        constant -= 0.5 * size * LOG_2PI + whitening.log_det
    return np.concatenate(rows), np.concatenate(values), constant

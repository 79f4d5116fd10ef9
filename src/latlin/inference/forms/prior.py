"""The Gaussian factors of a model as one quadratic form, whatever they are given by, with constraints and constants.

    ∏_m N(H_m w | μ_m, Σ_m) = exp(constant + bᵀδ − ½δᵀΛδ),   δ = w − origin,   A δ = 0

Precisions stay sparse, intrinsic ones keep their generalised determinants, and a prior that is normalised as a whole is
divided by its integral over the constraints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import (
    CovarianceWhitening,
    DiagonalWhitening,
    PrecisionWhitening,
    Whitening,
)
from latlin.densities.sparse_precision import SparsePrecisionCovariance, condition
from latlin.inference.model import BY_PRECISION, GaussianFactor, LatentLinearModel, Model
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.intrinsic import hold_coordinates
from latlin.numerics.linalg import Cholesky, cholesky
from latlin.numerics.sparse_cholesky import analyse

#: dimension from which on a diagonal prior with sparse rows may be worth a sparse factor
LARGE = 300
#: pairs of non-zeros of rows up to which it is
PAIRS = 5 * 10**7

# --- The Gaussian factors of a model as one, and the coordinates in which they are simple.
#
#     ∏_m N(H_m w | μ_m, Σ_m) = exp(constant − ½ (w − μ)ᵀ Λ (w − μ) + bᵀ(w − μ))
#
# With w = μ + L u the quadratic form is Λ̃ = LᵀΛL: the identity when the factors on w itself make a proper Gaussian
# and nothing else is measured (Challis (2013), B.5).


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


class Quadratic(NamedTuple):
    """The Gaussian factors together: exp(constant + bᵀδ − ½δᵀΛδ), δ = w − origin, and the constraints A δ = 0."""

    origin: Array
    precision: sparse.csr_array
    linear: Array
    constant: float
    rows: Array


def needs_sparse(model: LatentLinearModel) -> bool:
    """Whether no other form can do: a precision matrix, constraints, or a prior to be normalised."""
    by_precision = any(factor.by_precision for factor in model.gaussians)
    return by_precision or bool(model.constraints) or model.normalise_prior


def may_be_sparse(model: LatentLinearModel, pairs: float = PAIRS) -> bool:
    """A large w, a prior with independent coordinates, and sparse rows throughout, few pairs of whose entries exist."""
    rows = [factor.H for factor in model.sites if factor.H is not None]
    priors = [factor for factor in model.gaussians if factor.H is None]
    simple = all(
        factor.factor is None and (factor.H is None or sparse.issparse(factor.H)) for factor in model.gaussians
    )
    if model.dim < LARGE or not priors or not rows or not simple or not all(map(sparse.issparse, rows)):
        return False
    return sum(float(np.sum(np.diff(matrix.indptr).astype(float) ** 2)) for matrix in rows) < pairs


def may_take_sparse(model: LatentLinearModel) -> bool:
    """Whether a sparse precision is needed or comes into question."""
    return needs_sparse(model) or may_be_sparse(model)


def has_proper_factor(model: LatentLinearModel) -> bool:
    """Whether a factor on w itself is a density, so that P is positive definite whatever the sites."""
    direct = [factor for factor in model.gaussians if factor.H is None]
    return any(not factor.by_precision or factor.rank == model.dim for factor in direct)


def quadratic_of(model: LatentLinearModel) -> Quadratic:
    """The Gaussian factors of a model and its constraints about a point that meets them."""
    origin, constraint = reference_point(model), model.constraint_rows()
    parts: list[sparse.csr_array] = []
    linear, constant = np.zeros(model.dim), 0.0
    for factor in model.gaussians:
        precision, log_constant = factor_precision(factor, model.dim)
        rows = None if factor.H is None else sparse.csr_array(factor.H)
        residual = np.broadcast_to(factor.mean, precision.shape[0]) - (origin if rows is None else rows @ origin)
        pulled = precision @ residual if residual.any() else np.zeros(len(residual))
        parts.append(precision if rows is None else sparse.csr_array(rows.T @ precision @ rows))
        linear += pulled if rows is None else rows.T @ pulled
        constant += log_constant - 0.5 * float(residual @ pulled)
    total = sum(parts[1:], parts[0]) if parts else sparse.csr_array((model.dim, model.dim))
    held = np.zeros((0, model.dim)) if constraint is None else constraint[0]
    return Quadratic(origin, total, linear, constant, held)


def factor_precision(factor: GaussianFactor, dim: int) -> tuple[sparse.csr_array, float]:
    """Q of a Gaussian factor, and the log of its constant: −½ rank log 2π + ½ log |Q|₊."""
    if factor.precision is not None:
        return factor.precision, 0.5 * ((factor.log_det or 0.0) - (factor.rank or 0) * LOG_2PI)
    if factor.factor is not None:
        chol = Cholesky(factor.factor, 0.0)
        return sparse.csr_array(chol.inverse()), -0.5 * (chol.log_det + len(factor.factor) * LOG_2PI)
    size = dim if factor.H is None else factor.H.shape[0]
    variance = np.broadcast_to(factor.cov, size).astype(float)
    return sparse.csr_array(sparse.diags_array(1.0 / variance)), -0.5 * float(np.sum(LOG_2PI + np.log(variance)))


def reference_point(model: LatentLinearModel) -> Array:
    """The point from which site parameters count w: the prior mean, moved onto the constraints."""
    direct = [factor for factor in model.gaussians if factor.H is None]
    if not any(factor.by_precision for factor in direct):
        origin = product_of(direct, model.dim)[0]
    elif len(direct) == 1:
        origin = np.broadcast_to(direct[0].mean, model.dim).astype(float)
    else:
        origin = np.zeros(model.dim)
    constraint = model.constraint_rows()
    if constraint is None:
        return origin
    rows, e = constraint
    return origin + np.linalg.lstsq(rows, e - rows @ origin)[0]


def prior_gaussian(model: LatentLinearModel) -> tuple[Gaussian, float] | None:
    """The Gaussian factors together as a density, and the log of their integral; None where they make none."""
    return _normalised(quadratic_of(model))


def _normalised(prior: Quadratic) -> tuple[Gaussian, float] | None:
    analysis = analyse(prior.precision)
    grounded = hold_coordinates(analysis, analysis.values(prior.precision), len(prior.rows))
    if grounded is None:
        return None
    held, weight, factor = grounded
    precision = condition(factor, prior.rows, held, weight if len(held) else 0.0)
    if precision is None:
        return None
    deviation = precision.solve(prior.linear)
    log_volume = 0.5 * (len(prior.linear) * LOG_2PI - precision.log_det)
    integral = prior.constant + 0.5 * float(prior.linear @ deviation) + log_volume
    return Gaussian(prior.origin + deviation, SparsePrecisionCovariance(precision)), integral


def log_integral(model: LatentLinearModel, prior: Quadratic) -> float:
    """log ∫ of the Gaussian factors over the constraints."""
    found = _normalised(prior)
    if found is None:
        raise ValueError(
            "normalise_prior=True needs Gaussian factors that are together a proper density (under the constraints), "
            f"got {model!r}"
        )
    return found[1]


def expected_log_gaussians(model: LatentLinearModel, density: Gaussian) -> float:
    """⟨log Gaussian factors⟩ under a Gaussian over w, as the evidence counts them."""
    prior = quadratic_of(model)
    deviation = density.mean - prior.origin
    structure: Any = density.structure
    if isinstance(structure, SparsePrecisionCovariance):
        trace = structure.trace_with(prior.precision)
    else:
        trace = float(prior.precision.multiply(density.covariance()).sum())
    at_mean = prior.constant + float(prior.linear @ deviation - 0.5 * deviation @ (prior.precision @ deviation))
    normaliser = log_integral(model, prior) if model.normalise_prior else 0.0
    return at_mean - 0.5 * trace - normaliser


# --- Whether it integrates: every proper factor does, several of them together may not integrate to one.


OVERLAP = (
    "; Gaussian factors overlap (several on w itself, or on projections of w with mean zero or of lower rank), and "
    "their product is not normalised: log_evidence compares sites under the same factors, but scales of the factors "
    "cannot be learnt from it unless the model has normalise_prior=True"
)


def is_proper(factor: GaussianFactor) -> bool:
    return not factor.by_precision or factor.rank == factor.size


def has_proper_prior(model: Model) -> bool:
    """Whether a factor on w itself falls in every direction."""
    return any(factor.H is None and is_proper(factor) for factor in model.gaussians)


def has_overlap(model: LatentLinearModel) -> bool:
    """Whether several Gaussian factors make a prior that does not integrate to one.

    A factor on a projection Hw may stand for data; with mean zero or an intrinsic precision it is taken for a part of
    the prior, such as a penalty on differences. A factor of rank r and scale σ has the constant σ⁻ʳ, and the integral
    of the product as many powers of scales as w has numbers: factors of more ranks than that overlap.
    """
    parts = [factor for factor in model.gaussians if factor.H is None or not is_proper(factor) or not factor.mean.any()]
    ranks = sum(factor.rank or factor.size or model.dim for factor in parts)
    several = sum(factor.H is None for factor in parts) > 1
    return (several or ranks > model.dim) and not model.normalise_prior

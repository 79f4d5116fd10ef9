"""The Gaussian factors of a model as one quadratic form, whatever they are given by, with constraints and constants.

    ∏_m N(H_m w | μ_m, Σ_m) = exp(constant + bᵀδ − ½δᵀΛδ),   δ = w − origin,   A δ = 0

Precisions stay sparse, intrinsic ones keep their generalised determinants, and a prior that is normalised as a whole is
divided by its integral over the constraints.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import SparsePrecisionCovariance, condition
from latlin.inference.forms.gaussian_part import product_of
from latlin.inference.model import GaussianFactor, LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.intrinsic import ground
from latlin.numerics.linalg import Cholesky
from latlin.numerics.sparse_cholesky import analyse


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


def quadratic_of(model: LatentLinearModel) -> Quadratic:
    """The Gaussian factors of a model and its constraints about a point that meets them."""
    origin, constraint = reference_point(model), model.constraint_rows()
    total = sparse.csr_array((model.dim, model.dim))
    linear, constant = np.zeros(model.dim), 0.0
    for factor in model.gaussians:
        precision, log_constant = factor_precision(factor, model.dim)
        rows = sparse.eye_array(model.dim, format="csr") if factor.H is None else sparse.csr_array(factor.H)
        residual = np.broadcast_to(factor.mean, precision.shape[0]) - rows @ origin
        pulled = precision @ residual
        total = total + (precision if factor.H is None else rows.T @ precision @ rows)
        linear += rows.T @ pulled
        constant += log_constant - 0.5 * float(residual @ pulled)
    rows = np.zeros((0, model.dim)) if constraint is None else constraint[0]
    return Quadratic(origin, sparse.csr_array(total), linear, constant, rows)


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
    grounded = ground(analysis, analysis.values(prior.precision), len(prior.rows))
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

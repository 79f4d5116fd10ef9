"""The Gaussian KL bound of any Gaussian, however it was found.

    log Z ≥ Σ_n ⟨ψ_n⟩ + Σ_m ⟨log N(H_m w | μ_m, Σ_m)⟩ + entropy

Challis (2013), eq. 3.7.2. At the moments of a local bound it is never below that bound (§4.4.1).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.inference.forms.gaussian_part import factor_whitening
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites
from latlin.inference.forms.sparse import expected_log_gaussians, needs_sparse
from latlin.inference.model import GaussianFactor, LatentLinearModel
from latlin.numerics.arrays import LOG_2PI


def gaussian_kl_bound(model: LatentLinearModel, density: Gaussian) -> float:
    """The bound at a Gaussian over w, with every constant."""
    marginals = density.project(stacked_rows(model))
    sites = Sites.of(model).expected_log(marginals.mean, marginals.variance)
    if needs_sparse(model):
        return float(sites.value.sum()) + expected_log_gaussians(model, density) + density.entropy
    gaussians = sum(_expected_log_factor(factor, density) for factor in model.gaussians)
    return float(sites.value.sum()) + gaussians + density.entropy


def _expected_log_factor(factor: GaussianFactor, density: Gaussian) -> float:
    """⟨log N(Hw | μ, LLᵀ)⟩ = −½ log det(2πLLᵀ) − ½ Σ_i ⟨r_i²⟩, r = L⁻¹(Hw − μ)."""
    rows = sparse.eye_array(density.dim, format="csr") if factor.H is None else factor.H
    whitening = factor_whitening(factor, rows.shape[0])
    constant = -0.5 * rows.shape[0] * LOG_2PI - whitening.log_det
    residual = whitening.solve(rows @ density.mean - factor.mean)
    if factor.factor is None:
        # a diagonal L scales the variances
        variance = density.project(rows).variance * whitening.solve(np.ones(rows.shape[0])) ** 2
    else:
        dense = rows.toarray() if sparse.issparse(rows) else rows
        variance = density.project(np.ascontiguousarray(whitening.solve(dense))).variance
    return constant - 0.5 * float(residual @ residual + variance.sum())

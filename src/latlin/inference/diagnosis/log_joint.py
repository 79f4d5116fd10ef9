"""log ∏ factors of a model at many w, a block of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from scipy.special import logsumexp

from latlin.densities.gaussian import Gaussian
from latlin.inference.averaged import AveragedModel
from latlin.inference.forms.prior import (
    expected_log_gaussians,
    factor_precision,
    factor_whitening,
    log_integral,
    needs_sparse,
    quadratic_of,
)
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor, in_memory
from latlin.numerics.arrays import LOG_2PI, Array


class LogJoint:
    """The log joint of one model, with every constant.

    Parameters
    ----------
    model : LatentLinearModel
        A LinearOperator H is used as one, a product with each block.
    """

    def __init__(self, model: LatentLinearModel) -> None:
        self._model = model
        sites = Sites.of(model)
        self._blocks = [sites.part(span) for span, _ in sites.blocks]
        # of a prior that is normalised as a whole
        self._constant = -log_integral(model, quadratic_of(model)) if model.normalise_prior else 0.0

    def __call__(self, w: Array) -> Array:
        """log p at each row of w; −∞ where a site is, an error where a value is not a number."""
        total = np.full(len(w), self._constant)
        for gaussian in self._model.gaussians:
            total += _log_gaussian(gaussian, w)
        for block, site in zip(self._blocks, self._model.sites, strict=True):
            total += block.log_density(_projected(site, w)).sum(axis=1)
        if np.any(np.isnan(total)) or np.any(total == np.inf):
            raise ValueError("the model's log density is not a number at some draws; rescale the columns of H")
        return total


class AveragedLogJoint:
    """log Σ_k weight_k p_k(w) of a model whose hyperparameters are integrated out."""

    def __init__(self, model: AveragedModel) -> None:
        self._parts = [LogJoint(in_memory(part)) for part in model.parts]
        self._log_weights = model.log_weights

    def __call__(self, w: Array) -> Array:
        parts = [weight + joint(w) for weight, joint in zip(self._log_weights, self._parts, strict=True)]
        return np.asarray(logsumexp(parts, axis=0))


def log_joint(model: LatentLinearModel) -> LogJoint | AveragedLogJoint:
    """The log joint of a model as a function of rows of w."""
    return AveragedLogJoint(model) if isinstance(model, AveragedModel) else LogJoint(model)


def _log_gaussian(factor: GaussianFactor, w: Array) -> Array:
    x = w if factor.H is None else _times(factor.H, w)
    if factor.precision is not None:
        precision, constant = factor_precision(factor, x.shape[1])
        deviations = x - factor.mean
        return constant - 0.5 * np.einsum("nd,dn->n", deviations, precision @ deviations.T)
    whitening = factor_whitening(factor, x.shape[1])
    root = whitening.solve(np.ascontiguousarray((x - factor.mean).T))
    return -0.5 * np.einsum("dn,dn->n", root, root) - 0.5 * x.shape[1] * LOG_2PI - whitening.log_det


def _projected(site: SiteFactor, w: Array) -> Array:
    return w if site.H is None else _times(site.H, w)


def _times(matrix: Any, w: Array) -> Array:
    """Rows of w times Hᵀ."""
    if sparse.issparse(matrix) or isinstance(matrix, LinearOperator):
        return np.asarray(matrix @ w.T).T
    return w @ matrix.T


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

"""log ∏ factors of a model at many w, a block of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from scipy.special import logsumexp

from latlin.inference.averaged import AveragedModel
from latlin.inference.forms.gaussian_part import factor_whitening
from latlin.inference.forms.sites import Sites
from latlin.inference.forms.sparse import factor_precision, log_integral, quadratic_of
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
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
        self._parts = [LogJoint(part) for part in model.parts]
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

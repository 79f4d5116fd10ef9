"""The site form of a model: in the smaller of its two spaces, and by the kernel matrix for a Gaussian process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import qr

from latlin.densities.whitening import DiagonalWhitening, PrecisionWhitening, Whitening
from latlin.inference.forms.gaussian_part import GaussianPart, gaussian_part
from latlin.inference.forms.kernel import by_kernel, kernel_form
from latlin.inference.forms.projections import (
    DenseProjections,
    Projections,
    ScaledProjections,
    SparseProjections,
    WhitenedProjections,
    stacked_rows,
)
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import Sites
from latlin.inference.forms.sparse import sparse_form
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import cholesky, gram, symmetrise
from latlin.numerics.magnitude import summable

__all__ = ["SiteForm", "Solution", "dense_form", "site_form"]

#: largest scale of a column, and the inverse of the smallest, up to which rows are left unscaled
FARTHEST = 1e100


def site_form(model: LatentLinearModel) -> SiteForm:
    """The family for a model: with a sparse precision, or in the smaller of its two spaces."""
    return sparse_form(model) or dense_form(model)


def dense_form(model: LatentLinearModel) -> SiteForm:
    """The family for a model in the smaller of its two spaces, by dense matrices."""
    part = gaussian_part(model)
    rows, sites = stacked_rows(model), Sites.of(model)
    summable("SiteFactor H", rows)
    summable("GaussianFactor H", part.measured_rows)
    if part.whitening is None:
        return _improper(part, rows, sites)
    kernel = kernel_form(model, part, rows, sites)
    if kernel is not None:
        return kernel
    few = 0 < len(sites) + len(part.measured_values) < model.dim
    if few:
        return _reduced(part, part.whitening, rows, sites)
    return _proper(part, part.whitening, rows, sites)


def _proper(part: GaussianPart, whitening: Whitening, rows: Any, sites: Sites) -> SiteForm:
    measured = whitening.rows(part.measured_rows)
    residual = part.measured_values - part.measured_rows @ part.mean
    quadratic, linear, constant = _measured_terms(part, measured, residual)
    return SiteForm(
        part.mean,
        whitening,
        None,
        quadratic,
        linear,
        constant + whitening.log_det,
        whitened_projections(rows, whitening),
        _moved(sites, rows, part.mean),
        rows,
    )


def _measured_terms(part: GaussianPart, measured: Array, residual: Array) -> tuple[Array | None, Array, float]:
    """Λ̃ = I + R̃ᵀR̃, b̃ = R̃ᵀ(t − Rμ), and the log factors at u = 0."""
    constant = part.constant + part.measured_constant - 0.5 * float(residual @ residual)
    if not len(residual):
        return None, np.zeros(measured.shape[1]), constant
    return symmetrise(gram(measured)) + np.eye(measured.shape[1]), measured.T @ residual, constant


def _reduced(part: GaussianPart, whitening: Whitening, rows: Any, sites: Sites) -> SiteForm:
    """With H̃ᵀ = QR only the coordinates Qᵀu are informed; the others keep the prior and integrate to one."""
    dense = whitening.rows(rows)
    dense = dense.toarray() if sparse.issparse(dense) else dense
    measured = whitening.rows(part.measured_rows)
    basis, triangle = qr(np.concatenate([measured, dense]).T, mode="economic", check_finite=False)
    reduced = np.ascontiguousarray(triangle.T)
    residual = part.measured_values - part.measured_rows @ part.mean
    split = len(residual)
    quadratic, linear, constant = _measured_terms(part, reduced[:split], residual)
    integrated = 0.5 * (len(part.mean) - basis.shape[1]) * LOG_2PI
    form = SiteForm(
        part.mean,
        whitening,
        basis,
        quadratic,
        linear,
        constant + whitening.log_det + integrated,
        DenseProjections(np.ascontiguousarray(reduced[split:])),
        _moved(sites, rows, part.mean),
        rows,
    )
    return form if split else by_kernel(form, triangle)


def _improper(part: GaussianPart, rows: Any, sites: Sites) -> SiteForm:
    """Without a proper prior: whiten by the precision that the sites' own curvature gives at their centres.

    Sparse rows are scaled by its diagonal alone, so that they stay sparse.
    """
    measured = part.measured_rows
    quadratic = symmetrise(gram(measured)) if len(measured) else np.zeros((measured.shape[1],) * 2)
    plain = whitened_projections(rows, DiagonalWhitening(np.ones(measured.shape[1])))
    p = quadratic + symmetrise(plain.gram(sites.typical_precision()))
    scale = np.sqrt(np.maximum(np.diagonal(p), np.finfo(float).tiny))
    try:
        chol = cholesky(p / scale[:, None] / scale, name="the first precision")
    except ValueError:
        chol = None
    if chol is None or np.diagonal(chol.factor).min() < 1e-7:
        raise ValueError(
            "the posterior is improper: the factors leave some direction of w undetermined; "
            "add a GaussianFactor on w or more sites"
        )
    whitening: Whitening = PrecisionWhitening(chol.factor * scale)
    if sparse.issparse(rows):
        whitening = DiagonalWhitening(1.0 / scale)
    start = GaussianPart(part.mean, whitening, 0.0, measured, part.measured_values, part.measured_constant)
    form = _proper(start, whitening, rows, sites)
    whitened = whitening.rows(measured)
    bare = symmetrise(gram(whitened)) if len(measured) else np.zeros_like(quadratic)
    return replace(form, quadratic=np.asfortranarray(bare))


def _moved(sites: Sites, rows: Any, mean: Array) -> Sites:
    """The sites as functions of h_nᵀ(w − mean)."""
    return sites.shifted(np.asarray(rows @ mean)) if mean.any() else sites


def whitened_projections(rows: Any, whitening: Whitening) -> Projections:
    """Rows hL, sparse ones in the way that keeps them sparse or makes a block of them dense at a time."""
    if not sparse.issparse(rows):
        if isinstance(whitening, DiagonalWhitening) and rows.size and _is_moderate(whitening.scale):
            return ScaledProjections(np.ascontiguousarray(rows), whitening.scale)
        return DenseProjections(np.ascontiguousarray(whitening.rows(rows)))
    if isinstance(whitening, DiagonalWhitening):
        return SparseProjections(whitening.rows(rows))
    if _is_coordinates(rows):
        return DenseProjections(np.ascontiguousarray(whitening.rows(rows)))
    return WhitenedProjections(rows, whitening)


def _is_moderate(scale: Array) -> bool:
    """Scales other than one, of which products of unscaled rows neither overflow nor vanish."""
    return bool(np.any(scale != 1.0) and scale.min() > 1.0 / FARTHEST and scale.max() < FARTHEST)


def _is_coordinates(rows: Any) -> bool:
    return sparse.issparse(rows) and rows.shape[0] == rows.shape[1] == rows.nnz

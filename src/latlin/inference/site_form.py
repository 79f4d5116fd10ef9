"""Gaussians in site form: the prior times one Gaussian stand-in a site.

    q(u) ∝ exp(−½uᵀΛ̃u + b̃ᵀu) ∏_n exp(−½γ_n x_n² + ν_n x_n),   x = H̃u,   w = μ + L(Qu + …)

The Laplace approximation, the full Gaussian KL optimum (002_71af9439e55c646f (4.3.1)), expectation propagation and
local bounds all live in this family; they differ only in how they choose (γ, ν). The coordinates u are whitened by the
prior (B.5) or, when no proper prior is there, by a first precision; and when there are fewer sites than
dimensions they are reduced to the span of the projections (H̃ = RᵀQᵀ), so that every matrix is min(N, D) square.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance
from latlin.densities.subspace import SubspaceCovariance
from latlin.densities.whitening import DiagonalWhitening, PrecisionWhitening, Whitening
from latlin.inference.gaussian_part import LOG_2PI, GaussianPart, gaussian_part
from latlin.inference.model import LatentLinearModel
from latlin.inference.projections import DenseProjections, Projections, SparseProjections, stacked_rows
from latlin.inference.sites import SiteParameters, Sites
from latlin.numerics.linalg import Cholesky, cholesky, dot, gram, symmetrise

Array = NDArray[np.float64]


class Solution(NamedTuple):
    """The member of the family with given site parameters."""

    parameters: SiteParameters
    precision: Cholesky  # of P = Λ̃ + H̃ᵀΓH̃
    u: Array  # mean, P⁻¹(b̃ + H̃ᵀν)
    x: Array  # its projections H̃u


@dataclass(frozen=True)
class SiteForm:
    """The family for one model; see the module.

    Parameters
    ----------
    mean : ndarray of shape (dim,)
        μ.
    whitening : Whitening
        L.
    basis : ndarray of shape (dim, rank) or None
        Q, orthonormal, when the coordinates are reduced.
    quadratic : ndarray of shape (rank, rank) or None
        Λ̃, both triangles; None is the identity.
    linear : ndarray of shape (rank,)
        b̃.
    constant : float
        Log of the Gaussian factors at u = 0, times the volume |det L| and what the reduction integrates out.
    projections : Projections
        Rows of H̃.
    sites : Sites
        The potentials, as functions of x.
    rows : ndarray or csr_array of shape (n_sites, dim)
        H itself, in the model's own coordinates.
    """

    mean: Array
    whitening: Whitening
    basis: Array | None
    quadratic: Array | None
    linear: Array
    constant: float
    projections: Projections
    sites: Sites
    rows: Any

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return len(self.linear)

    def solve(self, parameters: SiteParameters) -> Solution | None:
        """The Gaussian with these site parameters, or None when its precision is not positive definite."""
        try:
            chol = cholesky(self.precision(parameters.gamma), overwrite=True)
        except ValueError:
            return None
        u = chol.solve(self.linear + self.projections.transposed_times(parameters.nu))
        return Solution(parameters, chol, u, self.projections.times(u))

    def precision(self, gamma: Array) -> Array:
        """Upper triangle of P = Λ̃ + H̃ᵀΓH̃."""
        p = self.projections.gram(gamma)
        if self.quadratic is None:
            p[np.diag_indices(self.rank)] += 1.0
        else:
            p += self.quadratic
        return p

    def variances(self, solution: Solution) -> Array:
        """Variances of the projections x_n."""
        return self.projections.variances(solution.precision.factor)

    def log_gaussian(self, u: Array) -> float:
        """Log of the Gaussian factors at u."""
        return self.constant + dot(self.linear, u) - 0.5 * dot(u, self.times_quadratic(u))

    def times_quadratic(self, u: Array) -> Array:
        return u if self.quadratic is None else self.quadratic @ u

    def gaussian_terms(self, solution: Solution, variances: Array) -> float:
        """⟨log Gaussian factors⟩_q + entropy of q, with every constant.

        tr(Λ̃S̃) = rank − Σ_n γ_n s_n², because S̃⁻¹ = Λ̃ + H̃ᵀΓH̃.
        """
        trace = self.rank - dot(solution.parameters.gamma, variances)
        entropy = 0.5 * (self.rank * (1.0 + LOG_2PI) - solution.precision.log_det)
        return self.log_gaussian(solution.u) - 0.5 * trace + entropy

    def log_integral(self, solution: Solution) -> float:
        """log ∫ Gaussian factors · ∏ exp(−½γx² + νx), from its value at the top."""
        gamma, nu = solution.parameters
        top = self.log_gaussian(solution.u) + float(np.sum((nu - 0.5 * gamma * solution.x) * solution.x))
        return top + 0.5 * (self.rank * LOG_2PI - solution.precision.log_det)

    def weights(self, u: Array) -> Array:
        """w of a coordinate vector (the mean over what the reduction left out)."""
        inner = u if self.basis is None else self.basis @ u
        return self.mean + self.whitening.apply(inner)

    def coordinates(self, w: Array) -> Array:
        """The coordinate vector of a w."""
        if np.shape(w) != self.mean.shape:
            raise ValueError(f"start has dimension {len(w)}, but the model has {len(self.mean)}")
        inner = self.whitening.solve(np.asarray(w, float) - self.mean)
        return inner if self.basis is None else self.basis.T @ inner

    def marginals(self, density: Any) -> tuple[Array, Array]:
        """Mean and variance of the projections x under any density over w that can `project`."""
        projected = density.project(self.rows)
        return projected.mean - self.rows @ self.mean, projected.variance

    def density(self, solution: Solution) -> Gaussian:
        """The Gaussian over w."""
        if self.basis is None:
            structure: Any = PrecisionCovariance(self.whitening, solution.precision)
        else:
            structure = SubspaceCovariance(self.whitening, self.basis, solution.precision)
        return Gaussian(self.weights(solution.u), structure)


def site_form(model: LatentLinearModel) -> SiteForm:
    """The family for a model, in the smaller of its two spaces."""
    part = gaussian_part(model)
    rows, sites = stacked_rows(model), Sites.of(model)
    _check_magnitude(rows, "SiteFactor H")
    _check_magnitude(part.measured_rows, "GaussianFactor H")
    if part.whitening is None:
        return _improper(part, rows, sites)
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
        _whitened(rows, whitening),
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
    return SiteForm(
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


def _improper(part: GaussianPart, rows: Any, sites: Sites) -> SiteForm:
    """Without a proper prior: whiten by the precision that the sites' own curvature gives at their centres."""
    measured = part.measured_rows
    quadratic = symmetrise(gram(measured)) if len(measured) else np.zeros((measured.shape[1],) * 2)
    plain = _whitened(rows, DiagonalWhitening(np.ones(measured.shape[1])))
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
    whitening = PrecisionWhitening(chol.factor * scale)
    start = GaussianPart(part.mean, whitening, 0.0, measured, part.measured_values, part.measured_constant)
    form = _proper(start, whitening, rows, sites)
    whitened = whitening.rows(measured)
    bare = symmetrise(gram(whitened)) if len(measured) else np.zeros_like(quadratic)
    return replace(form, quadratic=bare)


def _moved(sites: Sites, rows: Any, mean: Array) -> Sites:
    """The sites as functions of h_nᵀ(w − mean)."""
    return sites.shifted(np.asarray(rows @ mean)) if mean.any() else sites


def _whitened(rows: Any, whitening: Whitening) -> Projections:
    if not sparse.issparse(rows):
        return DenseProjections(np.ascontiguousarray(whitening.rows(rows)))
    if isinstance(whitening, DiagonalWhitening):
        return SparseProjections(whitening.rows(rows))
    if _is_coordinates(rows):
        return DenseProjections(np.ascontiguousarray(whitening.rows(rows)))
    return SparseProjections(rows, whitening)


def _is_coordinates(rows: Any) -> bool:
    return sparse.issparse(rows) and rows.shape[0] == rows.shape[1] == rows.nnz


def _check_magnitude(rows: Any, name: str) -> None:
    values = rows.data if sparse.issparse(rows) else rows
    largest = float(np.abs(values).max()) if np.size(values) else 0.0
    if largest > 1e140:
        raise ValueError(f"{name} has entries as large as {largest:.3g}; rescale its columns to below 1e140")

"""The site form of a model, in the smaller of its two spaces or by a kernel matrix; and which form a model takes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack, qr
from scipy.sparse.linalg import LinearOperator

from latlin.densities.density import Density
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import (
    CovarianceWhitening,
    DiagonalWhitening,
    KernelPrecision,
    MarginalCovariance,
    PrecisionWhitening,
    Whitening,
    kernel_weights,
)
from latlin.inference.blocks import BlockModel
from latlin.inference.forms.chain import chain_form
from latlin.inference.forms.prior import GaussianPart, gaussian_part, may_take_sparse, needs_sparse, reference_point
from latlin.inference.forms.projections import (
    DenseProjections,
    stacked_rows,
    stacked_sites,
    whitened_projections,
)
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters, Sites, Start
from latlin.inference.forms.sparse import sparse_form
from latlin.inference.forms.sums import HeldSites, SumForm
from latlin.inference.model import LatentLinearModel, Model, SiteFactor, require_in_memory
from latlin.numerics.arrays import LOG_2PI, Array, check_summable
from latlin.numerics.linalg import Cholesky, cholesky, dot, gram, symmetrise

# --- Gaussians in site form when the prior is a full covariance K on w and the sites are on its coordinates.
#
# For γ ≥ 0 everything follows from B = I + Γ^½KΓ^½, whose eigenvalues are at least 1 (Rasmussen & Williams 2006,
# §3.4.3; S⁻¹ = K⁻¹ + Γ is Challis (2013), eq. 4.3.1), in the same whitened coordinates w = μ + Lu, K = LLᵀ:
#
#     α = ν − Γ^½B⁻¹Γ^½Kν = Γ^½B⁻¹Γ^−½ν,  u = Lᵀα,  log det(I + LᵀΓL) = log det B,  γ_n s_n² = 1 − [B⁻¹]_nn.
#
# One factorisation of N³/3 and, for the variances, one triangular inverse of N³/3, where P = I + LᵀΓL takes N³ to
# form, N³/3 to factorise and N³ for the variances. Where some γ is negative, P it is.


#: γK_nn below which 1 − [B⁻¹]_nn would lose too many digits
SMALL = 1e-3


@dataclass(frozen=True)
class KernelForm(SiteForm):
    """The family of a Gaussian process; see the module.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The prior covariance.
    kernel_factor : ndarray of shape (n, n)
        C = Lᵀ with K = CᵀC.
    """

    K: Array
    kernel_factor: Array

    def solve(self, parameters: SiteParameters) -> Solution | None:
        gamma, nu = parameters
        if not np.all(gamma >= 0.0):
            return super().solve(parameters)
        root = np.sqrt(gamma)
        inner = self._factorised(root)
        if inner is None:
            return None
        u = blas.dtrmv(self.kernel_factor, kernel_weights(self.K, root, inner, nu))
        precision: Any = KernelPrecision(self.kernel_factor, root, inner)
        return Solution(parameters, precision, u, blas.dtrmv(self.kernel_factor, u, trans=1))

    def _factorised(self, root: Array) -> Cholesky | None:
        b = np.multiply(self.K, root[:, None])
        b *= root
        b[np.diag_indices(len(root))] += 1.0
        try:
            return cholesky(b.T, overwrite=True)
        except ValueError:
            return None

    def variances(self, solution: Solution) -> Array:
        precision: Any = solution.precision
        if not isinstance(precision, KernelPrecision):
            return super().variances(solution)
        gamma, prior = solution.parameters.gamma, np.diagonal(self.K)
        # B = FᵀF, B⁻¹ = TTᵀ with T = F⁻¹
        inverse = lapack.dtrtri(precision.inner.factor, lower=0)[0]
        shrunk = 1.0 - np.einsum("mn,mn->n", inverse.T, inverse.T)
        weak = gamma * prior < SMALL
        variance = shrunk / np.where(weak, 1.0, gamma)
        if weak.any():
            half = precision.inner.whiten(precision.root[:, None] * self.K[:, weak])
            variance[weak] = prior[weak] - np.einsum("nm,nm->m", half, half)
        return np.maximum(variance, 0.0)

    def density(self, solution: Solution) -> Gaussian:
        if self.basis is not None:
            plain: Any = Cholesky(solution.precision.factor, 0.0)
            return super().density(solution._replace(precision=plain))
        structure = MarginalCovariance(self.whitening, solution.precision, self.variances(solution))
        return Gaussian(self.weights(solution.u), structure)

    def kept(self, solution: Solution) -> Array:
        precision: Any = solution.precision
        return precision.inner.factor if isinstance(precision, KernelPrecision) else precision.factor

    def restored(self, parameters: SiteParameters, kept: Array) -> Any:
        if not np.all(parameters.gamma >= 0.0):
            return super().restored(parameters, kept)
        return KernelPrecision(self.kernel_factor, np.sqrt(parameters.gamma), Cholesky(kept, 0.0))

    def site_covariance(self, solution: Solution) -> Array | None:
        """S = Γ^−½(I − B⁻¹)Γ^−½, unless some γ is too small for it or negative."""
        precision: Any = solution.precision
        if not isinstance(precision, KernelPrecision) or self._is_weak(solution):
            return None
        covariance = self._shrunk(precision)
        covariance /= precision.root
        covariance /= precision.root[:, None]
        return covariance

    def _is_weak(self, solution: Solution) -> bool:
        return bool(np.any(solution.parameters.gamma * np.diagonal(self.K) < SMALL))

    def _shrunk(self, precision: KernelPrecision) -> Array:
        """I − B⁻¹, of which only the upper triangle is meant."""
        shrunk = lapack.dpotri(precision.inner.factor, lower=0)[0]
        np.negative(shrunk, out=shrunk)
        shrunk[np.diag_indices(len(shrunk))] += 1.0
        return shrunk

    def covariance_gradient(self, solution: Solution, variance: Array, excess: Array) -> float:
        """The Frobenius norm of ∂B/∂C̃ = C̃LᵀEL, which no entry exceeds, or a bound on it where γ is too small.

        ‖C̃LᵀEL‖² = Σ_nm e_n e_m S_nm K_nm ≤ (Σ_n |e_n| s_n √K_nn)², with S = Γ^−½(I − B⁻¹)Γ^−½.
        """
        precision: Any = solution.precision
        if not isinstance(precision, KernelPrecision):
            return super().covariance_gradient(solution, variance, excess)
        if self._is_weak(solution):
            return float(np.sum(np.abs(excess) * np.sqrt(variance * np.diagonal(self.K))))
        products = self._shrunk(precision)
        products *= self.K.T
        scaled = excess / precision.root
        return float(np.sqrt(max(dot(scaled, blas.dsymv(1.0, products, scaled)), 0.0)))


def make_kernel_form(form: SiteForm, factor: Array, K: Array | None = None) -> KernelForm:
    """A form with as many sites as coordinates, H̃ = Cᵀ for an upper triangular C, by the matrix K = CᵀC = H̃H̃ᵀ."""
    C = np.asfortranarray(factor)
    K = symmetrise(gram(C)) if K is None else K
    return KernelForm(**{field.name: getattr(form, field.name) for field in fields(form)}, K=K, kernel_factor=C)


#: entries of sparse rows without a proper prior up to which they are made dense
FEW_ENTRIES = 2**18
#: a row that has less of itself than this outside the span of others depends on them
DEPENDENT = 1e-12
#: widths of a site from zero at which rounding is felt in its value
FAR = 1e6


def dense_form(model: LatentLinearModel) -> SiteForm:
    """The family for a model in the smaller of its two spaces, by dense matrices."""
    part = gaussian_part(model)
    rows, sites = stacked_rows(model), stacked_sites(model)
    check_summable("SiteFactor H", rows)
    check_summable("GaussianFactor H", part.measured_rows)
    if part.whitening is None:
        return _improper(part, rows, sites)
    kernel = _process(model, part, rows, sites)
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


def _process(model: LatentLinearModel, part: GaussianPart, rows: Any, sites: Sites) -> SiteForm | None:
    """The form of a model that is a Gaussian process: one full covariance on w, one block of sites on coordinates."""
    whitening = part.whitening
    alone = len(model.gaussians) == len(model.sites) == 1 and model.sites[0].H is None
    if not alone or not isinstance(whitening, CovarianceWhitening) or model.gaussians[0].H is not None:
        return None
    form = SiteForm(
        part.mean,
        whitening,
        None,
        None,
        np.zeros(model.dim),
        part.constant + whitening.log_det,
        DenseProjections(np.asfortranarray(whitening.factor).T),
        sites.shifted(part.mean) if part.mean.any() else sites,
        rows,
    )
    return make_kernel_form(form, whitening.factor, np.ascontiguousarray(model.gaussians[0].cov))


def _reduced(part: GaussianPart, whitening: Whitening, rows: Any, sites: Sites) -> SiteForm:
    """With H̃ᵀ = QR only the coordinates Qᵀu are informed; the others keep the prior and integrate to one."""
    dense = whitening.rows(rows)
    dense = dense.toarray() if sparse.issparse(dense) else dense
    measured = whitening.rows(part.measured_rows)
    basis, reduced = _span(np.concatenate([measured, dense]))
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
    square = reduced.shape[0] == reduced.shape[1]
    return make_kernel_form(form, reduced.T) if square and not split else form


def _span(rows: Array) -> tuple[Array, Array]:
    """Q with orthonormal columns and R with H̃ = RQᵀ, lower triangular where no row depends on the others.

    Repeated rows would leave coordinates that nothing informs, and their unit precisions are lost in rounding beside
    sharp sites.
    """
    basis, triangle = qr(rows.T, mode="economic", check_finite=False)
    sizes = np.abs(np.diagonal(triangle))
    if sizes.min() > DEPENDENT * sizes.max():
        return basis, np.ascontiguousarray(triangle.T)
    basis, triangle, order = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(triangle))
    rank = max(int(np.sum(sizes > DEPENDENT * sizes[0])), 1)
    reduced = np.empty((len(rows), rank))
    reduced[order] = triangle[:rank].T
    return np.ascontiguousarray(basis[:, :rank]), reduced


def _improper(part: GaussianPart, rows: Any, sites: Sites) -> SiteForm:
    """Without a proper prior: whiten by the precision that the sites' own curvature gives at their centres.

    Many sparse rows are scaled by its diagonal alone, so that they stay sparse. Few are not worth it: noise that is
    small beside the prior's scale would leave a precision of a condition that costs digits. Where sites are so far from
    zero that their own width is lost in rounding, the origin is what their centres ask for by least squares.
    """
    rows = rows.toarray() if sparse.issparse(rows) and np.prod(rows.shape) <= FEW_ENTRIES else rows
    measured = part.measured_rows
    quadratic = symmetrise(gram(measured)) if len(measured) else np.zeros((measured.shape[1],) * 2)
    plain = whitened_projections(rows, DiagonalWhitening(np.ones(measured.shape[1])))
    typical = sites.typical_precision()
    p = quadratic + symmetrise(plain.gram(typical))
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
    mean = part.mean
    centres = sites.centres()
    if np.any(np.abs(centres) * np.sqrt(typical) > FAR):
        pull = plain.transposed_times(typical * centres) + measured.T @ part.measured_values
        mean = chol.solve(pull / scale) / scale
    start = GaussianPart(mean, whitening, 0.0, measured, part.measured_values, part.measured_constant)
    form = _proper(start, whitening, rows, sites)
    whitened = whitening.rows(measured)
    bare = symmetrise(gram(whitened)) if len(measured) else np.zeros_like(quadratic)
    return replace(form, quadratic=np.asfortranarray(bare))


def _moved(sites: Sites, rows: Any, mean: Array) -> Sites:
    """The sites as functions of h_nᵀ(w − mean)."""
    return sites.shifted(np.asarray(rows @ mean)) if mean.any() else sites


def match_parameters(form: SiteForm, model: LatentLinearModel, start: Density) -> SiteParameters:
    """The site parameters that match the sites' expected slopes and curvatures under another density."""
    if len(start.mean) != model.dim:
        raise ValueError(f"start has dimension {len(start.mean)}, but the model has {model.dim}")
    x, variance = form.marginals(start)
    expected = form.sites.expected_log(x, variance)
    # γ = −2 ∂⟨ψ⟩/∂s², ν = ∂⟨ψ⟩/∂m + γx
    gamma = -2.0 * expected.d_var
    return SiteParameters(gamma, expected.d_mean + gamma * np.asarray(x))


def inherit_parameters(form: SiteForm, model: LatentLinearModel, start: Start) -> SiteParameters:
    """Another posterior's own site parameters where it has one for each site, else those that match it."""
    if start.sites is None or len(start.sites.gamma) != len(form.sites) or len(start.mean) != model.dim:
        return match_parameters(form, model, start.density)
    gamma, nu = start.sites
    # they are functions of hᵀ(w − prior mean), and the prior may have moved
    moved = form.mean - reference_point(start.model)
    return SiteParameters(gamma, nu - gamma * (form.rows @ moved)) if moved.any() else start.sites


# --- Which form a model takes: stand-ins for every site, or sums over the sites alone.


def site_form(model: Model) -> SiteForm:
    """The family for a model whose rows are in memory: a chain, a sparse precision, or the smaller of two spaces."""
    model = require_in_memory(model)
    if not may_take_sparse(model):
        return dense_form(model)
    return chain_form(model) or sparse_form(model) or dense_form(model)


def sum_form(model: Model) -> SumForm | None:
    """A model by sums alone: it needs factors on w itself and sites on rows; None for any other."""
    if isinstance(model, BlockModel):
        return block_form(model)
    model = require_in_memory(model)
    if needs_sparse(model):
        return None
    own = [factor for factor in model.sites if factor.H is None]
    if any(factor.H is not None for factor in model.gaussians) or len(own) == len(model.sites):
        return None
    if not own and not model.gaussians:
        return None
    form = dense_form(model.among([*model.gaussians, *own]))
    return SumForm(form, tuple(_held(model, factor, form) for factor in model.sites))


def block_form(model: BlockModel) -> SumForm:
    """A model in blocks by sums: its own factors are here."""
    own = dense_form(model.own)
    return SumForm(own, (HeldSites(own.projections, own.sites),) if len(own.sites) else (), model)


def _held(model: LatentLinearModel, factor: SiteFactor, form: SiteForm) -> HeldSites:
    alone = model.among([factor])
    rows, sites = stacked_rows(alone), stacked_sites(alone)
    if isinstance(factor.H, LinearOperator):
        check_summable("SiteFactor H", rows)
    moved = sites.shifted(np.asarray(rows @ form.mean)) if form.mean.any() else sites
    return HeldSites(whitened_projections(rows, form.whitening), moved)

"""A model as structured covariances need it: a whitened diagonal Gaussian and rows of sites, nothing D×D.

Gaussian factors on w with a scalar or diagonal covariance whiten the coordinates, w = μ + L u, which keeps rows sparse
and patterns as they are. Every other Gaussian factor is a block of Gaussian sites (Challis (2013), B.1.3). Sites in
memory and those of a block of rows are treated alike: `StructuredSites` knows what sites add to the bound, and nothing
of a prior or of log det S (Challis (2013), B.1, corrected).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.densities.precision import CovarianceWhitening, DiagonalWhitening
from latlin.densities.structured.base import Structure
from latlin.densities.structured.rows import ProjectionRows
from latlin.densities.structured.stacked_rows import StackedRows, make_projection_rows
from latlin.distributed.blocks import Block, Blocks
from latlin.inference.blocks import BlockModel, Reading, read_pieces
from latlin.inference.forms.prior import product_of, refuse_sparse
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.forms.sites import SiteCurvature, Sites, site_curvature
from latlin.inference.model import GaussianFactor, LatentLinearModel, Model, SiteFactor, require_in_memory
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.potentials.base import ExpectedLog
from latlin.potentials.gaussian import Gaussian as GaussianSites


class SiteView(NamedTuple):
    """The image F(θ)h_n of every row, the projected moments, and the sites' expectations there."""

    image: Any
    x: Array
    variance: Array
    expected: ExpectedLog


@dataclass(frozen=True)
class StructuredSites:
    """Sites under N(m, S(θ)) for one structure.

    Parameters
    ----------
    rows : Rows
    sites : Sites
        As functions of x = Hm.
    structure : Structure
    """

    rows: ProjectionRows
    sites: Sites
    structure: Structure

    @cached_property
    def prepared(self) -> Any:
        """The rows as the structure takes them."""
        return self.structure.prepare(self.rows)

    def image(self, theta: Array) -> Any:
        return self.structure.image(theta, self.prepared)

    def view(self, m: Array, theta: Array) -> SiteView | None:
        """The sites' expectations, or None where they are not finite."""
        image = self.image(theta)
        x, variance = self.rows.times(m), self.structure.inner(image, image, self.prepared)
        expected = self.sites.finite_expected_log(x, variance)
        return None if expected is None else SiteView(image, x, variance, expected)

    def slopes(self, view: SiteView) -> tuple[Array, Array]:
        """Gradient of Σ_n ⟨ψ_n⟩ in m and θ."""
        by_theta = self.structure.pull([(2.0 * view.expected.d_var, view.image)], self.prepared)
        return self.rows.transposed(view.expected.d_mean), by_theta

    def curvature(self, view: SiteView) -> SiteCurvature:
        """Second derivatives of every ⟨ψ_n⟩: three numbers per site."""
        return site_curvature(self.sites, view.x, view.variance, view.expected)

    def products(self, image: Any, site: SiteCurvature) -> Callable[[Array, Array], tuple[Array, Array]]:
        """Exact products of minus the Hessian of Σ_n ⟨ψ_n⟩ with a direction (ṁ, θ̇)."""
        # ∂²⟨ψ⟩/∂m² = 2 ∂⟨ψ⟩/∂s²
        d_var = 0.5 * site.mm

        def product(m_dot: Array, theta_dot: Array) -> tuple[Array, Array]:
            x_dot = self.rows.times(m_dot)
            image_dot = self.image(theta_dot)
            # ṡ² = 2 (F h)·(Ḟ h)
            v_dot = 2.0 * self.structure.inner(image, image_dot, self.prepared)
            terms = [(site.mv * x_dot + site.vv * v_dot, image), (d_var, image_dot)]
            by_theta = self.structure.pull(terms, self.prepared)
            by_theta *= -2.0
            return -self.rows.transposed(site.mm * x_dot + site.mv * v_dot), by_theta

        return product

    def energies(self, d_var: Array) -> tuple[Array, Array]:
        """Diagonals in m and θ of minus the Hessian of Σ_n ⟨ψ_n⟩, the sites' curvatures held fixed."""
        gamma = site_precision(d_var)
        return self.rows.energy(gamma), self.structure.energy(gamma, self.prepared)


def site_precision(d_var: Array) -> Array:
    """γ = −2 ∂⟨ψ⟩/∂s², where it is positive."""
    return np.maximum(-2.0 * d_var, 0.0)


@dataclass(frozen=True)
class BlockView:
    """How a block's sites look in the coordinates u of a structured form, w = mean + scale ∘ u; it travels."""

    reading: Reading
    mean: Array
    scale: Array

    def sites(self, block: Block, structure: Structure) -> Iterator[StructuredSites]:
        """The block's sites, a piece at a time."""
        for observed in read_pieces(block, self.reading):
            sites = observed.sites
            moved = sites.shifted(observed.times(self.mean)) if self.mean.any() else sites
            yield StructuredSites(make_projection_rows(observed.rows, self.scale), moved, structure)


@dataclass(frozen=True)
class SitesElsewhere:
    """Sites in blocks of rows, reached through sums."""

    blocks: Blocks
    view: BlockView
    log_concave: bool

    def total(self, summand: Callable[..., tuple[Any, ...]], *shared: Any) -> tuple[Any, ...]:
        """Σ over blocks of `summand(block, view, *shared)`, in one pass."""
        return self.blocks.total(summand, self.view, *shared)


@dataclass(frozen=True)
class StructuredForm:
    """p(u) ∝ exp(−½ prior ‖u‖²) ∏_n φ_n(h̃_nᵀu), w = mean + L u.

    Parameters
    ----------
    mean : ndarray of shape (dim,)
    whitening : DiagonalWhitening
        L.
    prior : float
        1 when the coordinates are whitened by a Gaussian on w, 0 without one.
    constant : float
        What the bound adds to expectations, quadratic terms and ½ log det S̃.
    rows : Rows
        h̃_n of all sites, those of Gaussian factors last.
    sites : Sites
        As functions of x = H̃u.
    probed : bool
        Some squares of H are estimated by random signs, so that no number computed here is a bound.
    elsewhere : SitesElsewhere, optional
        Further sites, in blocks of rows.
    """

    mean: Array
    whitening: DiagonalWhitening
    prior: float
    constant: float
    rows: ProjectionRows
    sites: Sites
    probed: bool
    elsewhere: SitesElsewhere | None = None

    @property
    def log_concave(self) -> bool:
        return self.sites.log_concave and (self.elsewhere is None or self.elsewhere.log_concave)

    @property
    def dim(self) -> int:
        return len(self.mean)

    def weights(self, u: Array) -> Array:
        """w of a coordinate vector."""
        return self.mean + self.whitening.apply(u)

    def coordinates(self, w: Array) -> Array:
        """u of a w."""
        return self.whitening.solve(w - self.mean)


def structured_form(model: Model, probes: int = 64) -> StructuredForm:
    """The form of a model; `probes` random signs stand in for squares that a LinearOperator cannot give."""
    if isinstance(model, BlockModel):
        form = _held_form(model.own, probes)
        view = BlockView(model.reading, form.mean, form.whitening.scale)
        return replace(form, elsewhere=SitesElsewhere(model.blocks, view, model.log_concave))
    return _held_form(require_in_memory(model), probes)


def _held_form(model: LatentLinearModel, probes: int) -> StructuredForm:
    refuse_sparse(model)
    simple, extra = _simplified(model)
    sites = stacked_sites(simple)
    matrices = [_matrix(factor, model.dim) for factor in simple.sites]
    mean, direct, at_mean = product_of(list(simple.gaussians), model.dim)
    if isinstance(direct, DiagonalWhitening):
        scale, prior = direct.scale, 1.0
    else:
        scale, prior = _typical_scale(matrices, sites, model.dim, probes), 0.0
    rows = _stack(matrices, scale, probes)
    whitening = DiagonalWhitening(scale)
    # ½ log det(2πe S) = ½D(1 + log 2π) + log det L + ½ log det S̃
    constant = at_mean + extra + 0.5 * model.dim * (1.0 + LOG_2PI) + whitening.log_det
    return StructuredForm(
        mean,
        whitening,
        prior,
        constant,
        rows,
        sites.shifted(rows.times(mean / scale)),
        any(isinstance(m, LinearOperator) and getattr(m, "squares", None) is None for m in matrices),
    )


def _simplified(model: LatentLinearModel) -> tuple[LatentLinearModel, float]:
    """The model with diagonal Gaussian factors on w and sites only, and the log constant that this leaves out."""
    kept = [factor for factor in model.gaussians if factor.H is None and factor.factor is None]
    others = [factor for factor in model.gaussians if factor.H is not None or factor.factor is not None]
    pairs = [_as_sites(factor, model.dim) for factor in others]
    simple = LatentLinearModel([*kept, *model.sites, *(site for site, _ in pairs)])
    return simple, sum(constant for _, constant in pairs)


def _as_sites(factor: GaussianFactor, dim: int) -> tuple[SiteFactor, float]:
    """N(Hw | μ, Σ) as Gaussian sites on H, or on L⁻¹H when Σ = LLᵀ is not diagonal."""
    size = dim if factor.H is None else factor.H.shape[0]
    mean = np.broadcast_to(factor.mean, size).astype(float)
    if factor.factor is None:
        return SiteFactor(factor.H, GaussianSites(mean, np.sqrt(factor.cov))), 0.0
    whitening = CovarianceWhitening(factor.factor)
    dense = np.eye(dim) if factor.H is None else _dense(factor.H)
    rows = np.ascontiguousarray(whitening.solve(dense))
    return SiteFactor(rows, GaussianSites(whitening.solve(mean))), -whitening.log_det


def _dense(matrix: Any) -> Array:
    if isinstance(matrix, LinearOperator):
        return np.asarray(matrix @ np.eye(matrix.shape[1]), float)
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def _matrix(factor: SiteFactor, dim: int) -> Any:
    return sparse.eye_array(dim, format="csr") if factor.H is None else factor.H


def _stack(matrices: list[Any], scale: Array, probes: int) -> ProjectionRows:
    parts = tuple(make_projection_rows(matrix, scale, probes, random_state=i) for i, matrix in enumerate(matrices))
    if not parts:
        return make_projection_rows(sparse.csr_array((0, len(scale))), scale)
    return parts[0] if len(parts) == 1 else StackedRows(parts)


def _typical_scale(matrices: list[Any], sites: Sites, dim: int, probes: int) -> Array:
    """Coordinates in which the sites' typical curvature has a unit diagonal."""
    energy = _stack(matrices, np.ones(dim), probes).energy(sites.typical_precision())
    if not np.all(energy > 0.0):
        raise ValueError(
            f"the posterior is improper: coordinate {int(np.argmin(energy))} of w is in no factor; "
            "add a GaussianFactor on w or more sites"
        )
    return 1.0 / np.sqrt(energy)

"""A model as structured covariances need it: a whitened diagonal Gaussian and rows of sites, nothing D×D.

Gaussian factors on w with a scalar or diagonal covariance whiten the coordinates, w = μ + L u, which keeps rows sparse
and patterns as they are. Every other Gaussian factor is a block of Gaussian sites (Challis (2013), B.1.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.densities.structured.rows import Rows
from latlin.densities.structured.stacked_rows import StackedRows, as_rows
from latlin.densities.whitening import CovarianceWhitening, DiagonalWhitening
from latlin.inference.forms.gaussian_part import product_of, refuse_sparse
from latlin.inference.forms.sites import Sites
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.potentials.gaussian import Gaussian as GaussianSites


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
    """

    mean: Array
    whitening: DiagonalWhitening
    prior: float
    constant: float
    rows: Rows
    sites: Sites
    probed: bool

    @property
    def dim(self) -> int:
        return len(self.mean)

    def weights(self, u: Array) -> Array:
        """w of a coordinate vector."""
        return self.mean + self.whitening.apply(u)

    def coordinates(self, w: Array) -> Array:
        """u of a w."""
        return self.whitening.solve(w - self.mean)


def structured_form(model: LatentLinearModel, probes: int = 64) -> StructuredForm:
    """The form of a model; `probes` random signs stand in for squares that a LinearOperator cannot give."""
    refuse_sparse(model)
    simple, extra = _simplified(model)
    sites = Sites.of(simple)
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


def _stack(matrices: list[Any], scale: Array, probes: int) -> Rows:
    parts = tuple(as_rows(matrix, scale, probes, random_state=i) for i, matrix in enumerate(matrices))
    if not parts:
        return as_rows(sparse.csr_array((0, len(scale))), scale)
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

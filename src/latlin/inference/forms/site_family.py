"""Gaussians in site form: the prior times one Gaussian stand-in per site.

    q(u) ∝ exp(−½uᵀΛ̃u + b̃ᵀu) ∏_n exp(−½γ_n x_n² + ν_n x_n),   x = H̃u,   w = μ + L(Qu + …)

The Laplace approximation, the full Gaussian KL optimum (Challis (2013), eq. 4.3.1), expectation propagation and
local bounds all live in this family; they differ only in how they choose (γ, ν). The coordinates u are whitened by the
prior (B.5) or, when no proper prior is there, by a first precision; and when there are fewer sites than
dimensions they are reduced to the span of the projections (H̃ = RᵀQᵀ), so that every matrix is min(N, D) square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, eigh

from latlin.densities.affine import AffineIndependent
from latlin.densities.density import Density
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance, SubspaceCovariance, Whitening
from latlin.inference.forms.prior import GaussianPart, gaussian_part, needs_sparse
from latlin.inference.forms.projections import Projections
from latlin.inference.forms.sites import SiteParameters, Sites, Start
from latlin.inference.mode import Expansion
from latlin.inference.model import LatentLinearModel, Model
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import Cholesky, cholesky, dot, gram, symmetrise

#: smallest eigenvalue of a precision, in units of the sites' typical curvature, that is a curvature
FLATTEST = 1e-4
#: share of a site's typical curvature that a steady step gives it at least
STEADY = 1e-3


class LocalGaussian(NamedTuple):
    """The Gaussian with the curvature of an expansion, log det of its precision, and the stand-ins, if any."""

    density: Gaussian
    log_det: float
    sites: SiteParameters | None


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

    def kept(self, solution: Solution) -> Array:
        """What of a solution's precision is worth keeping in the state of an ascent."""
        return solution.precision.factor

    def restored(self, parameters: SiteParameters, kept: Array) -> Cholesky:
        """The precision again from its parameters and what was kept."""
        return Cholesky(kept, 0.0)

    def site_covariance(self, solution: Solution) -> Array | None:
        """The joint covariance of the sites' projections (upper triangle), or None where it is not cheap."""
        return None

    def covariance_gradient(self, solution: Solution, variance: Array, excess: Array) -> float:
        """Largest absolute entry of ∂B/∂C̃ = C̃ H̃ᵀ(Γ − Γ̂)H̃ of the Gaussian KL bound, S̃ = C̃ᵀC̃, excess = γ − γ̂."""
        root = solution.precision.whiten(symmetrise(self.projections.gram(excess)))
        return float(np.abs(root).max(initial=0.0))

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
        return self.log_volume(solution) + float(np.sum((nu - 0.5 * gamma * solution.x) * solution.x))

    def log_volume(self, solution: Solution) -> float:
        """The same for stand-ins that are one at their own means."""
        return self.log_gaussian(solution.u) + 0.5 * (self.rank * LOG_2PI - solution.precision.log_det)

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

    def expand(self, u: Array, smoothing: float | None = None) -> Expansion:
        """The log joint about u; with `smoothing`, that of smoothed sites with the size of their curvature.

        The form keeps x, ψ′ and γ = −ψ″ of every site.
        """
        x = self.projections.times(u)
        with np.errstate(over="ignore", invalid="ignore"):
            if smoothing is None:
                value, slope, second = self.sites.expansion(x)
                gamma = -second
            else:
                value, slope, second = self.sites.smoothed(x, smoothing)
                gamma = np.abs(second)
            held = self.times_quadratic(u)
            objective = self.constant + dot(self.linear, u) - 0.5 * dot(u, held) + float(value.sum())
        objective = objective if np.isfinite(objective) else -np.inf
        # b̃ − Λ̃u + H̃ᵀψ′(x)
        gradient = self.linear - held
        gradient += self.projections.transposed_times(slope)
        return Expansion(u, objective, gradient, (x, slope, gamma))

    def first_coordinates(self) -> Array:
        """Where a search for the mode starts without any other word: the prior mean."""
        return np.zeros(self.rank)

    def parameters(self, at: Expansion) -> SiteParameters:
        """γ = −ψ″, ν = ψ′ + γx."""
        x, slope, gamma = at.kept
        return SiteParameters(gamma, slope + gamma * x)

    def newton_step(self, at: Expansion) -> Array | None:
        """To the mean of the Gaussian with the sites' curvature; None where that is not definite."""
        target = self.solve(self.parameters(at))
        return None if target is None else target.u - at.u

    def steady_step(self, at: Expansion) -> Array | None:
        """As `newton_step` with |γ|, at least a share of a typical curvature."""
        x, slope, gamma = at.kept
        steady = np.maximum(np.abs(gamma), STEADY * self.sites.typical_precision())
        target = self.solve(SiteParameters(steady, slope + steady * x))
        return None if target is None else target.u - at.u

    def curvature(self, at: Expansion) -> Array:
        """Upper triangle of minus the Hessian of the log joint."""
        return self.precision(at.kept[2])

    def gaussian_at(self, at: Expansion) -> LocalGaussian | None:
        """The Gaussian of the stand-ins there, so that it follows from them; None where it is none or flat.

        Its mean is where one more Newton step leads, within the square of what is left of the gradient of the mode.
        """
        solution = self.solve(self.parameters(at))
        if solution is None or self._is_flat(solution):
            return None
        return LocalGaussian(self.density(solution), solution.precision.log_det, solution.parameters)

    def _is_flat(self, solution: Solution) -> bool:
        """Without a proper prior: the sites' typical curvature is the unit, and next to nothing of it is left."""
        if self.quadratic is None:
            return False
        smallest = np.linalg.svd(solution.precision.factor, compute_uv=False)[-1]
        if smallest**2 >= FLATTEST:
            return False
        gammas = (solution.parameters.gamma, self.sites.typical_precision())
        p, first = (symmetrise(self.precision(gamma)) for gamma in gammas)
        return bool(eigh(p, first, eigvals_only=True, subset_by_index=[0, 0])[0] < FLATTEST)


# --- A Gaussian posterior under another prior: the stand-ins of its sites stay, and the prior's precision is exchanged.
#
#     P₁ = P − Λ₀ + Λ₁,   P₁m₁ = Pm − Λ₀μ₀ + Λ₁μ₁
#
# With Gaussian sites that is the posterior under the other prior; with others it is near, and where to start.


class Whitened(NamedTuple):
    """Mean and precision (upper triangle, in Fortran's order) of a Gaussian in coordinates w = μ + Lu."""

    u: Array
    precision: Array


def density_under(model: Model, start: Start) -> Density:
    """The posterior with the prior of a model in the place of its own; as it is where a prior is not Gaussian.

    An affine-independent density keeps its bases and gets the moments that a Gaussian would have.
    """
    part, before = _prior_of(model), _prior_of(start.model)
    if part is None or before is None or part.whitening is None or _is_same(part, before):
        return start.density
    found = exchange_prior(part.mean, part.whitening, start)
    if found is None:
        return start.density
    mean = part.mean + part.whitening.apply(found.u)
    moved = Gaussian(mean, PrecisionCovariance(part.whitening, cholesky(found.precision)))
    if isinstance(start.density, AffineIndependent):
        return start.density.with_moments(moved.mean, moved.covariance())
    return moved


def exchange_prior(mean: Array, whitening: Whitening, start: Start) -> Whitened | None:
    """The posterior under the prior N(mean, LLᵀ), in coordinates whitened by that; None where its own has no such form.

    Parameters
    ----------
    mean : ndarray of shape (dim,)
    whitening : Whitening
        L.
    start : posterior
    """
    before, here = _prior_of(start.model), whiten_density(mean, whitening, start.density)
    if before is None or before.whitening is None or here is None or len(before.mean) != len(mean):
        return None
    # Λ̃₀ = RᵀR with R = L₀⁻¹L
    root = before.whitening.solve(whitening.apply(np.eye(len(mean))))
    own = symmetrise(gram(np.ascontiguousarray(root)))
    precision = symmetrise(here.precision) - own
    linear = blas.dsymv(1.0, here.precision, here.u) - blas.dsymv(1.0, own, whitening.solve(before.mean - mean))
    precision[np.diag_indices(len(mean))] += 1.0
    upper = np.asfortranarray(np.triu(precision))
    try:
        return Whitened(cholesky(upper).solve(linear), upper)
    except ValueError:
        return None


def whiten_density(mean: Array, whitening: Whitening, density: Density) -> Whitened | None:
    """A density as it is, in coordinates whitened by N(mean, LLᵀ); None where its covariance is singular."""
    half = whitening.solve(density.covariance())
    try:
        precision = cholesky(whitening.solve(np.ascontiguousarray(half.T))).inverse()
    except ValueError:
        return None
    return Whitened(whitening.solve(density.mean - mean), np.asfortranarray(np.triu(precision)))


def _prior_of(model: Model) -> GaussianPart | None:
    """The Gaussian factors on w, where there are no others."""
    held = getattr(model, "own", model)  # a model of rows in blocks has its prior beside them
    if not isinstance(held, LatentLinearModel) or needs_sparse(held):
        return None
    part = gaussian_part(held)
    return None if part.whitening is None or len(part.measured_values) else part


def _is_same(one: GaussianPart, other: GaussianPart) -> bool:
    scales = [getattr(part.whitening, "scale", getattr(part.whitening, "factor", None)) for part in (one, other)]
    return bool(np.array_equal(one.mean, other.mean) and np.array_equal(*scales))  # type: ignore[arg-type]

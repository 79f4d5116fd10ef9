"""Gaussians in site form, as the double loop asks for them: variances exact, by Lanczos' method, or by perturbations.

Challis (2013), §3.8: Lanczos' method underestimates variances. Perturb and MAP (Papandreou and Yuille 2010) does not:
each factor's mean is perturbed by its own noise, and the mode u of the perturbed Gaussian, a linear system, is an exact
draw, so that averages of (hᵀu)² are estimates of the variances without bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, SubspaceCovariance
from latlin.densities.sparse_precision import ProbedPrecisionCovariance
from latlin.densities.structured.rows import DenseRows, ProjectionRows, SparseRows, row_dots
from latlin.densities.structured.stacked_rows import StackedRows
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.structured import StructuredForm
from latlin.inference.local_bound.double_loop import SiteFit
from latlin.inference.mode import find_mode
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Rules
from latlin.numerics.linalg import Cholesky, cholesky
from latlin.numerics.optimise import lanczos, solve
from latlin.numerics.probes import SparseSum, probe

#: of the sites at first, in units of their typical ones, where several starts are worth their time
CURVATURES = (1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True)
class ExactFamily:
    """A `SiteForm`: every matrix is min(N, D) square."""

    form: SiteForm

    @property
    def sites(self) -> Sites:
        return self.form.sites

    def log_gaussian(self, u: Array) -> float:
        return self.form.log_gaussian(u)

    def mean(self, parameters: SiteParameters, guess: Array) -> tuple[Array, Array] | None:
        solution = self.form.solve(parameters)
        return None if solution is None else (solution.u, solution.x)

    def fit(self, parameters: SiteParameters, guess: Array) -> SiteFit | None:
        solution = self.form.solve(parameters)
        if solution is None:
            return None
        return SiteFit(solution.u, solution.x, self.form.variances(solution), self.form.log_integral(solution))

    def firsts(self) -> list[tuple[Array, Array, Array]]:
        """Where to start: (u, x, variance) of one Gaussian, of several where the bound may have several optima.

        Sites that are all narrow at first let go one after the other, those that the data need the first; the mode has
        chosen its outliers already.
        """
        if self.form.sites.log_concave:
            return [self.first()]
        starts = [self.first(curvature) for curvature in CURVATURES]
        if all(potential.smooth for potential in self.sites.potentials):
            rough = Rules(gradient_tol=1e-2, objective_tol=1e-6, max_iter=50)
            u = find_mode(self.form, np.zeros(self.form.rank), rules=rough, label="start", warn=False).state.u
            starts.append((u, self.form.projections.times(u), starts[0][2]))
        return starts

    def first(self, curvature: float = 1.0) -> tuple[Array, Array, Array]:
        """The Gaussian that so many times the sites' typical curvature makes: (u, x, variance)."""
        gamma = curvature * self.form.sites.typical_precision()
        solution = self.form.solve(SiteParameters(gamma, np.zeros_like(gamma)))
        if solution is None:
            raise ValueError("the sites' typical curvature gives no proper Gaussian; rescale the columns of H")
        return solution.u, solution.x, self.form.variances(solution)


#: steps of conjugate gradients for one mean, at most
STEPS = 1000


class LowRankPrecision(NamedTuple):
    """A precision in a subspace, and one number off it."""

    basis: Array
    inner: Cholesky
    outside: float

    @property
    def log_det(self) -> float:
        dim, rank = self.basis.shape
        return self.inner.log_det + (dim - rank) * float(np.log(self.outside))


@dataclass(frozen=True)
class ProductFamily:
    """Means by conjugate gradients, nothing but products with H̃; `accuracy` is their relative residual."""

    form: StructuredForm
    accuracy: float = field(default=1e-10, kw_only=True)

    @property
    def sites(self) -> Sites:
        return self.form.sites

    def log_gaussian(self, u: Array) -> float:
        # the form's constant also has that of an entropy
        constant = self.form.constant - 0.5 * self.form.dim * (1.0 + LOG_2PI)
        return constant - 0.5 * self.form.prior * float(u @ u)

    def mean(self, parameters: SiteParameters, guess: Array) -> tuple[Array, Array] | None:
        gamma, nu = parameters
        diagonal = self.form.prior + self.form.rows.energy(gamma)
        if not np.all(diagonal > 0.0) or np.any(gamma < 0.0):
            return None
        right, product = self.form.rows.transposed(nu), self._products(gamma)
        left = right - product(guess)
        goal, size = self.accuracy * float(np.linalg.norm(right)), float(np.linalg.norm(left))
        u = guess if size <= goal else guess + solve(product, left, diagonal, goal / size, STEPS)
        return u, self.form.rows.times(u)

    def moments(self, gamma: Array) -> tuple[Array, float]:
        """Variances of the projections, and log det P, of P = prior·I + H̃ᵀΓH̃."""
        raise NotImplementedError

    def fit(self, parameters: SiteParameters, guess: Array) -> SiteFit | None:
        found = self.mean(parameters, guess)
        if found is None:
            return None
        u, x = found
        variance, log_det = self.moments(parameters.gamma)
        top = self.log_gaussian(u) + float(np.sum((parameters.nu - 0.5 * parameters.gamma * x) * x))
        return SiteFit(u, x, variance, top + 0.5 * (self.form.dim * LOG_2PI - log_det))

    def first(self) -> tuple[Array, Array, Array]:
        """The Gaussian that the sites' typical curvature makes: (u, x, variance)."""
        zero = np.zeros(self.form.dim)
        return zero, np.zeros(len(self.sites)), self.moments(self.sites.typical_precision())[0]

    def inherited(self, density: Any) -> tuple[Array, Array, Array]:
        """(u, x, variance) of another Gaussian over w; of one that is not in this family the mean alone."""
        if len(density.mean) != self.form.dim:
            raise ValueError(f"start has dimension {len(density.mean)}, but the model has {self.form.dim}")
        u = self.form.coordinates(density.mean)
        variance = self._under(getattr(density, "structure", None))
        return u, self.form.rows.times(u), self.first()[2] if variance is None else variance

    def _under(self, structure: Any) -> Array | None:
        """Variances of the projections under a covariance of this family; None for another one."""
        raise NotImplementedError

    def _products(self, gamma: Array) -> Callable[[Array], Array]:
        """v ↦ Pv."""
        prior, rows = self.form.prior, self.form.rows
        return lambda v: prior * v + rows.transposed(gamma * rows.times(v))


@dataclass(frozen=True)
class LanczosFamily(ProductFamily):
    """Variances and log det P after `rank` Lanczos steps."""

    rank: int

    def moments(self, gamma: Array) -> tuple[Array, float]:
        low = self.precision(gamma)
        return self._variances(low), low.log_det

    def _under(self, structure: Any) -> Array | None:
        if not (isinstance(structure, SubspaceCovariance) and isinstance(structure.whitening, DiagonalWhitening)):
            return None
        # hL = h̃ diag(r) for the other Gaussian's L
        ratio = structure.whitening.scale / self.form.whitening.scale
        inside = self.form.rows.times_columns(np.ascontiguousarray(ratio[:, None] * structure.basis))
        root = structure.inner.whiten(np.asfortranarray(inside.T))
        scaled = self.form.rows.scaled_image(ratio)
        outside = np.maximum(self.form.rows.scaled_inner(scaled, scaled) - row_dots(inside, inside), 0.0)
        return np.einsum("kn,kn->n", root, root) + structure.complement**2 * outside

    def precision(self, gamma: Array) -> LowRankPrecision:
        """P = prior·I + H̃ᵀΓH̃ after `rank` Lanczos steps."""
        start = np.random.default_rng(0).standard_normal(self.form.dim)
        basis, diagonal, off = lanczos(self._products(gamma), start, self.rank)
        dim, rank = basis.shape
        inner = cholesky(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1), name="the Lanczos matrix")
        if rank == dim:
            return LowRankPrecision(basis, inner, float(diagonal.max()))
        trace = self.form.prior * dim + float(self.form.rows.energy(gamma).sum())
        left = (trace - float(diagonal.sum())) / (dim - rank)
        return LowRankPrecision(basis, inner, max(left, 1e-12 * float(diagonal.max())))

    def density(self, parameters: SiteParameters, u: Array) -> Gaussian:
        """The Gaussian over w."""
        low = self.precision(parameters.gamma)
        structure = SubspaceCovariance(self.form.whitening, low.basis, low.inner, low.outside**-0.5)
        return Gaussian(self.form.weights(u), structure)

    def _variances(self, low: LowRankPrecision) -> Array:
        inside = self.form.rows.times_columns(low.basis)
        root = low.inner.whiten(np.asfortranarray(inside.T))
        outside = np.maximum(self.form.rows.squares_outside(low.basis, inside), 0.0)
        return np.einsum("kn,kn->n", root, root) + outside / low.outside


class Perturbations(NamedTuple):
    """Standard normal numbers for the prior's coordinates (dim, samples) and for the sites (sites, samples)."""

    prior: Array
    sites: Array


@dataclass(frozen=True)
class PerturbedFamily(ProductFamily):
    """Variances from `samples` draws by perturb and MAP, the same perturbations at every step.

    So steps see one function of γ and end at one point; every solve starts from the draws before it.
    """

    samples: int
    last: dict[str, Array] = field(default_factory=dict, repr=False)

    def moments(self, gamma: Array) -> tuple[Array, float]:
        covariance = self.covariance(gamma)
        return covariance.project(self._rows), covariance.log_det_precision

    def covariance(self, gamma: Array) -> ProbedPrecisionCovariance:
        """(prior·I + H̃ᵀΓH̃)⁻¹."""
        eye = sparse.eye_array(self.form.dim, format="csr")
        precision = SparseSum(sparse.csr_array(self.form.prior * eye), self._rows, gamma)
        draws = self.last["draws"] = precision.perturb(*self._perturbations, start=self.last.get("draws"))
        found = probe(precision, self.samples)
        return ProbedPrecisionCovariance(precision, draws, precision.times(draws), found.log_det, found.error)

    def density(self, parameters: SiteParameters, u: Array) -> Gaussian:
        """The Gaussian over w, w = mean + scale ∘ u."""
        inner, scale = self.covariance(parameters.gamma), self.form.whitening.scale
        base = sparse.diags_array(self.form.prior / scale**2, format="csr")
        rows = sparse.csr_array(self._rows @ sparse.diags_array(1.0 / scale))
        precision = SparseSum(sparse.csr_array(base), rows, parameters.gamma)
        # log det of the precision of w = scale ∘ u
        log_det = inner.log_det_precision - 2.0 * self.form.whitening.log_det
        draws, images = scale[:, None] * inner.draws, inner.images / scale[:, None]
        return Gaussian(self.form.weights(u), ProbedPrecisionCovariance(precision, draws, images, log_det, inner.error))

    def _under(self, structure: Any) -> Array | None:
        if not isinstance(structure, ProbedPrecisionCovariance):
            return None
        return structure.project(sparse.csr_array(self._rows @ sparse.diags_array(1.0 / self.form.whitening.scale)))

    @cached_property
    def _rows(self) -> sparse.csr_array:
        return sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in list_matrices(self.form.rows)]))

    @cached_property
    def _perturbations(self) -> Perturbations:
        rng = np.random.default_rng(0)
        return Perturbations(
            rng.standard_normal((self.form.dim, self.samples)), rng.standard_normal((len(self.sites), self.samples))
        )


def list_matrices(rows: ProjectionRows) -> list[Any]:
    """The matrices that make these rows; refuses rows that are known by products only."""
    if isinstance(rows, StackedRows):
        return [matrix for part in rows.parts for matrix in list_matrices(part)]
    if isinstance(rows, DenseRows | SparseRows):
        return [rows.matrix]
    raise ValueError("variances='perturb' needs H as an array or a sparse array, got a LinearOperator; use 'lanczos'")

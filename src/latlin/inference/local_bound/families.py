"""Gaussians in site form with exact variances, as the double loop asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import SubspaceCovariance
from latlin.densities.structured.rows import row_dots
from latlin.densities.whitening import DiagonalWhitening
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.structured import StructuredForm
from latlin.inference.local_bound.double_loop import SiteFit
from latlin.inference.mode import find_mode
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Rules
from latlin.numerics.conjugate_gradients import lanczos
from latlin.numerics.linalg import Cholesky, cholesky

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
class LanczosFamily:
    """See the module; `rank` is the number of Lanczos steps, `accuracy` the relative residual of a mean."""

    form: StructuredForm
    rank: int
    accuracy: float = 1e-10

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
        scale = LinearOperator((self.form.dim,) * 2, matvec=lambda v: np.ravel(v) / diagonal)
        right = self.form.rows.transposed(nu)
        u, _ = cg(self._precision(gamma), right, x0=guess, rtol=self.accuracy, maxiter=STEPS, M=scale)
        return u, self.form.rows.times(u)

    def fit(self, parameters: SiteParameters, guess: Array) -> SiteFit | None:
        found = self.mean(parameters, guess)
        if found is None:
            return None
        u, x = found
        low = self.precision(parameters.gamma)
        top = self.log_gaussian(u) + float(np.sum((parameters.nu - 0.5 * parameters.gamma * x) * x))
        return SiteFit(u, x, self._variances(low), top + 0.5 * (self.form.dim * LOG_2PI - low.log_det))

    def first(self) -> tuple[Array, Array, Array]:
        """The Gaussian that the sites' typical curvature makes: (u, x, variance)."""
        zero = np.zeros(self.form.dim)
        return zero, np.zeros(len(self.sites)), self._variances(self.precision(self.sites.typical_precision()))

    def inherited(self, density: Any) -> tuple[Array, Array, Array]:
        """(u, x, variance) of another Gaussian over w; of one that is not in this family the mean alone."""
        if len(density.mean) != self.form.dim:
            raise ValueError(f"start has dimension {len(density.mean)}, but the model has {self.form.dim}")
        u = self.form.coordinates(density.mean)
        structure = getattr(density, "structure", None)
        own = isinstance(structure, SubspaceCovariance) and isinstance(structure.whitening, DiagonalWhitening)
        variance = self._under(structure) if own else self.first()[2]
        return u, self.form.rows.times(u), variance

    def _under(self, structure: Any) -> Array:
        """Variances of the projections, hL = h̃ diag(r) for the other Gaussian's L."""
        ratio = structure.whitening.scale / self.form.whitening.scale
        inside = self.form.rows.block_times(np.ascontiguousarray(ratio[:, None] * structure.basis))
        root = structure.inner.whiten(np.asfortranarray(inside.T))
        scaled = self.form.rows.scaled_image(ratio)
        outside = np.maximum(self.form.rows.scaled_inner(scaled, scaled) - row_dots(inside, inside), 0.0)
        return np.einsum("kn,kn->n", root, root) + structure.complement**2 * outside

    def precision(self, gamma: Array) -> LowRankPrecision:
        """P = prior·I + H̃ᵀΓH̃ after `rank` Lanczos steps."""
        start = np.random.default_rng(0).standard_normal(self.form.dim)
        basis, diagonal, off = lanczos(self._precision(gamma).matvec, start, self.rank)
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

    def _precision(self, gamma: Array) -> LinearOperator:
        def times(v: Array) -> Array:
            flat = np.ravel(v)
            return self.form.prior * flat + self.form.rows.transposed(gamma * self.form.rows.times(flat))

        return LinearOperator((self.form.dim,) * 2, matvec=times, dtype=float)

    def _variances(self, low: LowRankPrecision) -> Array:
        inside = self.form.rows.block_times(low.basis)
        root = low.inner.whiten(np.asfortranarray(inside.T))
        outside = np.maximum(self.form.rows.squares_outside(low.basis, inside), 0.0)
        return np.einsum("kn,kn->n", root, root) + outside / low.outside

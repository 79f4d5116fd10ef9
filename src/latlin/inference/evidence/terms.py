"""What each engine's evidence makes of one block of sites, as a function of the potential.

With everything else held at its optimum the evidence is a sum of site terms A[ψ_n]: an expectation under a marginal,
the log of a tilted integral, a quadratic bound, or a value with its curvature. A term answers four questions: its
value; its slope when x moves, A[ψ′]; its slope when x is stretched about the potential's centre, A[(x − loc)ψ′]; and
its slope in another parameter that the family declares, by differences of the value where there is no closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from latlin.densities.affine import ProjectedMarginals
from latlin.densities.characteristic import Projected, expect
from latlin.densities.density import Density
from latlin.densities.gaussian import Gaussian
from latlin.distributed.blocks import Block
from latlin.inference.blocks import BlockModel, Reading, read_pieces
from latlin.inference.forms.free import free_form
from latlin.inference.forms.prior import reference_point
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import SiteParameters, Sites, cavity
from latlin.inference.model import Model, require_in_memory
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.potentials.base import Potential

#: a variance below this is that of a row of zeros
FIXED = 1e-290


class Motion(NamedTuple):
    """Slopes of a term when x moves, and when it is stretched about the potential's centre."""

    shift: Array
    stretch: Array


class SiteTerm(Protocol):
    """A[ψ] of the sites in a span, weights included."""

    def value(self, potential: Potential, span: slice) -> Array: ...

    def motion(self, potential: Potential, span: slice) -> Motion: ...

    def slope(self, potential: Potential, name: str, span: slice) -> Array:
        """∂A/∂parameter, one number per site; a first axis more for a parameter that is one vector for all sites."""
        ...


class _Differenced:
    """The slope in a parameter by differences of the value."""

    def value(self, potential: Potential, span: slice) -> Array:
        raise NotImplementedError

    def motion(self, potential: Potential, span: slice) -> Motion:
        raise NotImplementedError

    def slope(self, potential: Potential, name: str, span: slice) -> Array:
        return potential.functional_derivative(
            name, lambda block: self.value(block, span), lambda: self.motion(potential, span).shift
        )


def centre_of(potential: Potential) -> Array:
    """The potential's loc, or zero."""
    return np.asarray(getattr(potential, "loc", 0.0), float)


class Movement(NamedTuple):
    """How a mode moves: the pull τ of every site's curvature, where sites are in memory, and S Hᵀτ, in w.

    `known` holds the rows of a model in memory, with the marginals of their projections.
    """

    pull: Array
    move: Array
    known: tuple[Any, Any] | None = None


class GaussianGradient(NamedTuple):
    """Derivatives of log Z in a factor's mean, (m,), and covariance: (m,) for variances, else symmetric (m, m).

    For a full covariance d log Z = Σ_ij d_cov_ij dΣ_ij. A scalar mean or variance sums over the entries. A precision
    matrix has no d_cov (it is empty): see `precision_slope`.
    """

    d_mean: Array
    d_cov: Array


@dataclass(frozen=True)
class EvidenceGradient:
    """Derivatives of the log evidence.

    Attributes
    ----------
    gaussians : tuple of GaussianGradient
        One per `GaussianFactor`, in the model's order: `.d_mean` (m,) and `.d_cov`, (m,) or (m, m).
    sites : tuple of dict
        One per `SiteFactor`: parameter → derivative, one number per site ("loc", "scale", "df", "shape"), or one per
        cut ("cuts", summed over sites). Labels and counts have none. Of observations in blocks of rows, totals.
    note : str
        Why the numbers are less than exact, or empty.
    """

    gaussians: tuple[GaussianGradient, ...]
    sites: tuple[dict[str, Array], ...]
    note: str = ""


class FittedPosterior(Protocol):
    """What an evidence term asks of a posterior; `latlin.Posterior` is one."""

    @property
    def model(self) -> Model: ...

    @property
    def density(self) -> Density: ...

    @property
    def sites(self) -> SiteParameters | None: ...


class EvidenceTerm(Protocol):
    """How an evidence depends on the sites of any rows, with everything else at its optimum.

    A diagnosis asks two more things where a term says them: `improved_by_gaussian_kl` and `is_gaussian_kl`.
    """

    def movement(self, posterior: FittedPosterior) -> Movement | None:
        """How the mode moves; None where the evidence is stationary in the posterior."""
        ...

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        """What the evidence makes of the sites on some rows."""
        ...


@dataclass(frozen=True)
class ExpectedTerm:
    """weight ⟨ψ(x)⟩ under N(x | at, variance): Gaussian KL, Challis (2013), eq. 4.2.1."""

    at: Array
    variance: Array
    weight: Array

    def value(self, potential: Potential, span: slice) -> Array:
        return self.weight[span] * potential.expected_log(self.at[span], self.variance[span]).value

    def motion(self, potential: Potential, span: slice) -> Motion:
        m, v, weight = self.at[span], self.variance[span], self.weight[span]
        _, d_mean, d_var = potential.expected_log(m, v)
        # ⟨(x − loc)ψ′⟩ = (m − loc) ∂/∂m + 2v ∂/∂v
        return Motion(weight * d_mean, weight * ((m - centre_of(potential)) * d_mean + 2.0 * v * d_var))

    def slope(self, potential: Potential, name: str, span: slice) -> Array:
        return self.weight[span] * potential.expected_parameter_derivative(name, self.at[span], self.variance[span])


@dataclass(frozen=True)
class BoundTerm(_Differenced):
    """weight ⟨−½a(ξ)x² + b(ξ)x + c(ξ)⟩ at the best ξ: local bounds, Challis (2013), eq. 3.8.1."""

    at: Array
    variance: Array
    weight: Array

    def _distance(self, potential: Potential, span: slice) -> Array:
        return np.sqrt((self.at[span] - potential.middle) ** 2 + self.variance[span])

    def value(self, potential: Potential, span: slice) -> Array:
        m, v = self.at[span], self.variance[span]
        # the formula, which holds a little beyond the parameters for which it is a bound
        a, b, c = potential._quadratic_bound(self._distance(potential, span))
        return self.weight[span] * (-0.5 * a * (m * m + v) + b * m + c)

    def motion(self, potential: Potential, span: slice) -> Motion:
        m, v, weight = self.at[span], self.variance[span], self.weight[span]
        a, b, _ = potential._quadratic_bound(self._distance(potential, span))
        slope = b - a * m
        return Motion(weight * slope, weight * ((m - centre_of(potential)) * slope - a * v))


@dataclass(frozen=True)
class TiltedTerm(_Differenced):
    """log ∫ N(x | at, variance) φ(x)^exponent dx / power: expectation propagation and free-form mean field."""

    at: Array
    variance: Array
    exponent: Array
    power: float

    def value(self, potential: Potential, span: slice) -> Array:
        return potential.tilted_moments(self.at[span], self.variance[span], self.exponent[span]).log_z / self.power

    def motion(self, potential: Potential, span: slice) -> Motion:
        m, v, exponent = self.at[span], self.variance[span], self.exponent[span]
        _, mean, variance = potential.tilted_moments(m, v, exponent)
        some = v > FIXED
        spread = np.where(some, v, 1.0)
        # ∂log Z/∂m = (m̂ − m)/v and 2v ∂log Z/∂v = (v̂ − v)/v + (m̂ − m)²/v; a point has the slope of ψ itself
        pull = np.where(some, (mean - m) / spread, exponent * potential.derivatives(m).first)
        widen = np.where(some, (variance - v + (mean - m) ** 2) / spread, 0.0)
        return Motion(pull / self.power, ((m - centre_of(potential)) * pull + widen) / self.power)


@dataclass(frozen=True)
class CurvedTerm(_Differenced):
    """weight (ψ + ½s²ψ″ + cψ′) at the mode: the Laplace approximation, Challis (2013), §3.5.

    The last part is how the mode moves, c_n = h_nᵀS Σ_k h_k ½s_k²ψ_k‴.
    """

    at: Array
    variance: Array
    weight: Array
    move: Array

    def value(self, potential: Potential, span: slice) -> Array:
        x = self.at[span]
        first, second, _ = potential.derivatives(x)
        curved = potential.log_density(x) + 0.5 * self.variance[span] * second + self.move[span] * first
        return self.weight[span] * curved

    def slope(self, potential: Potential, name: str, span: slice) -> Array:
        exact = potential._parameter_slopes(name, self.at[span])
        if exact is None:
            return super().slope(potential, name, span)
        value, first, second = exact
        return self.weight[span] * (value + 0.5 * self.variance[span] * second + self.move[span] * first)

    def motion(self, potential: Potential, span: slice) -> Motion:
        x, v, c, weight = self.at[span], self.variance[span], self.move[span], self.weight[span]
        first, second, third = potential.derivatives(x)
        shift = first + 0.5 * v * third + c * second
        return Motion(weight * shift, weight * ((x - centre_of(potential)) * shift + v * second + c * first))


@dataclass(frozen=True)
class AffineTerm(_Differenced):
    """weight ⟨ψ(x)⟩ under the marginals of an affine-independent density, Challis (2013), eq. 6.3.1."""

    marginals: ProjectedMarginals
    offset: Array
    weight: Array

    def value(self, potential: Potential, span: slice) -> Array:
        if potential.gaussian:
            return self._gaussian().value(potential, span)
        return self._expected(potential, span).value

    def motion(self, potential: Potential, span: slice) -> Motion:
        if potential.gaussian:
            return self._gaussian().motion(potential, span)
        found = self._expected(potential, span)
        deviation = self.marginals.mean[span] + self.offset[span] - centre_of(potential)
        along = np.einsum("nd,nd->n", self.marginals.alpha[span], found.d_alpha)
        return Motion(found.d_beta, deviation * found.d_beta + along)

    def _gaussian(self) -> ExpectedTerm:
        """⟨ψ⟩ of a parabola needs two moments only."""
        return ExpectedTerm(self.marginals.mean + self.offset, self.marginals.variance, self.weight)

    def _expected(self, potential: Potential, span: slice) -> Projected:
        weight, at = self.weight[span], self.marginals.mean[span] + self.offset[span]
        alpha = np.ascontiguousarray(self.marginals.alpha[span])
        return expect(
            lambda x: weight * potential.log_density(x),
            at,
            alpha,
            self.marginals.table,
            potential.regions(),
            smooth=potential.smooth,
        )


# --- How the evidence of each engine depends on the sites, with everything else at its optimum.
#
# An engine puts one of these into `Posterior.evidence_term`, and `evidence_gradient` asks nothing else about the
# engine.


class Stationary:
    """An evidence that is stationary in the posterior, so that nothing moves to first order."""

    def movement(self, posterior: FittedPosterior) -> Movement | None:
        return None


@storable
@dataclass(frozen=True)
class ExpectedEvidence(Stationary):
    """Expectations under the marginals of a Gaussian: Gaussian KL, and an exact posterior."""

    name: ClassVar[str] = "expected"
    is_gaussian_kl: ClassVar[bool] = True

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        return ExpectedTerm(*_marginals(posterior, rows, sites), sites.weight)


@storable
@dataclass(frozen=True)
class BoundEvidence(Stationary):
    """Quadratic bounds of the sites: local bounds."""

    name: ClassVar[str] = "bound"
    improved_by_gaussian_kl: ClassVar[bool] = True

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        return BoundTerm(*_marginals(posterior, rows, sites), sites.weight)


@storable
@dataclass(frozen=True)
class AffineEvidence(Stationary):
    """Expectations under the marginals of an affine-independent density."""

    name: ClassVar[str] = "affine"

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        return AffineTerm(posterior.density.project(rows), sites.offset, sites.weight)


@storable
@dataclass(frozen=True)
class TiltedEvidence(Stationary):
    """Tilted integrals over the cavities: expectation propagation with sites matched in a power."""

    name: ClassVar[str] = "tilted"
    power: float = 1.0

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        assert posterior.sites is not None  # expectation propagation always has them
        at, variance = _marginals(posterior, rows, sites)
        # the stand-ins count x from the prior mean, the potentials from their own zero
        start = rows @ reference_point(require_in_memory(posterior.model)) + sites.offset
        _, m, v = cavity(*posterior.sites, at - start, variance, self.power)
        return TiltedTerm(m + start, v, self.power * sites.weight, self.power)


@storable
@dataclass(frozen=True)
class FreeFormEvidence(Stationary):
    """Integrals over the factors of a free-form mean field."""

    name: ClassVar[str] = "free form"
    improved_by_gaussian_kl: ClassVar[bool] = True

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        form = free_form(require_in_memory(posterior.model))
        assert form is not None  # the density came from it
        centre = form.centres(posterior.density.mean - form.origin)[form.coordinates]
        own = np.diagonal(form.precision)[form.coordinates]
        # the form counts from its origin and moves locations there, the potentials count from their own zero
        at = form.scale * (centre + form.origin[form.coordinates]) + sites.offset
        return TiltedTerm(at, form.scale**2 / own, sites.weight, 1.0)


@storable
@dataclass(frozen=True)
class CurvedEvidence:
    """Values with their curvature at a mode that moves: the Laplace approximation."""

    name: ClassVar[str] = "curved"
    improved_by_gaussian_kl: ClassVar[bool] = True

    def movement(self, posterior: FittedPosterior) -> Movement:
        model, density = posterior.model, posterior.density
        held = model.own if isinstance(model, BlockModel) else require_in_memory(model)
        rows = stacked_rows(held)
        marginals = density.project(rows)
        pull = _pull(marginals, stacked_sites(held))
        total = np.asarray(rows.T @ pull)
        if isinstance(model, BlockModel):
            total = total + model.total(pull_sums, density)[0]
        assert isinstance(density, Gaussian)  # the Laplace approximation is one
        known = None if isinstance(model, BlockModel) else (rows, marginals)
        return Movement(pull, density.times_covariance(total), known)

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        assert movement is not None  # `movement` gave it
        if sites.extra is not None:
            raise ValueError("the Laplace evidence of sites with extra_variance has no gradient in their parameters")
        if movement.known is not None and movement.known[0] is rows:
            marginals = movement.known[1]
        else:
            marginals = posterior.density.project(rows)
        move = np.asarray(rows @ movement.move)
        return CurvedTerm(marginals.mean + sites.offset, marginals.variance, sites.weight, move)


@storable
@dataclass(frozen=True)
class RefusedEvidence:
    """An evidence without an exact gradient, and why."""

    name: ClassVar[str] = "refused"
    reason: str

    def movement(self, posterior: FittedPosterior) -> Movement | None:
        raise ValueError(self.reason)

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        raise ValueError(self.reason)


def _marginals(posterior: FittedPosterior, rows: Any, sites: Sites) -> tuple[Array, Array]:
    """Mean, as the potentials see it, and variance of every projection."""
    marginals = posterior.density.project(rows)
    extra = 0.0 if sites.extra is None else sites.extra
    return marginals.mean + sites.offset, marginals.variance + extra


def _pull(marginals: Any, sites: Sites) -> Array:
    """½s²ψ‴ of every site, the slope of −½ log det P in x, by which the curvature pulls the mode."""
    return 0.5 * marginals.variance * sites.derivatives(marginals.mean).third


def pull_sums(block: Block, reading: Reading, density: Density) -> tuple[Any, ...]:
    """Hᵀ ½s²ψ‴ of a block."""
    total = np.zeros(len(density.mean))
    for observed in read_pieces(block, reading):
        total += observed.rows.T @ _pull(density.project(observed.rows), observed.sites)
    return (total,)

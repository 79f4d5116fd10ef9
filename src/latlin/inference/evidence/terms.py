"""What each engine's evidence makes of one block of sites, as a function of the potential.

With everything else held at its optimum the evidence is a sum of site terms A[ψ_n]: an expectation under a marginal,
the log of a tilted integral, a quadratic bound, or a value with its curvature. A term answers four questions: its
value; its slope when x moves, A[ψ′]; its slope when x is stretched about the potential's centre, A[(x − loc)ψ′]; and
its slope in another parameter that the family declares, by differences of the value where there is no closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from latlin.densities.affine import ProjectedMarginals
from latlin.densities.characteristic import Projected, expect
from latlin.densities.density import Density
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.model import Model
from latlin.numerics.arrays import Array
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


class FittedPosterior(Protocol):
    """What an evidence term asks of a posterior; `latlin.Posterior` is one."""

    @property
    def model(self) -> Model: ...

    @property
    def density(self) -> Density: ...

    @property
    def sites(self) -> SiteParameters | None: ...


class EvidenceTerm(Protocol):
    """How an evidence depends on the sites of any rows, with everything else at its optimum."""

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

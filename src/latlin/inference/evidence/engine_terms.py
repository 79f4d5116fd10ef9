"""How the evidence of each engine depends on the sites, with everything else at its optimum.

An engine puts one of these into `Posterior.evidence_term`, and `evidence_gradient` asks nothing else about the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latlin.densities.density import Density
from latlin.densities.gaussian import Gaussian
from latlin.distributed.blocks import Block
from latlin.inference.blocks import BlockModel, Reading, pieces
from latlin.inference.evidence.terms import (
    AffineTerm,
    BoundTerm,
    CurvedTerm,
    ExpectedTerm,
    FittedPosterior,
    Movement,
    SiteTerm,
    TiltedTerm,
)
from latlin.inference.forms.free import free_form
from latlin.inference.forms.prior import reference_point
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites, cavity
from latlin.inference.model import in_memory
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


class Stationary:
    """An evidence that is stationary in the posterior, so that nothing moves to first order."""

    def movement(self, posterior: FittedPosterior) -> Movement | None:
        return None


@storable
@dataclass(frozen=True)
class ExpectedEvidence(Stationary):
    """Expectations under the marginals of a Gaussian: Gaussian KL, and an exact posterior."""

    name: ClassVar[str] = "expected"

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        return ExpectedTerm(*_marginals(posterior, rows, sites), sites.weight)


@storable
@dataclass(frozen=True)
class BoundEvidence(Stationary):
    """Quadratic bounds of the sites: local bounds."""

    name: ClassVar[str] = "bound"

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
        start = rows @ reference_point(in_memory(posterior.model)) + sites.offset
        _, m, v = cavity(*posterior.sites, at - start, variance, self.power)
        return TiltedTerm(m + start, v, self.power * sites.weight, self.power)


@storable
@dataclass(frozen=True)
class FreeFormEvidence(Stationary):
    """Integrals over the factors of a free-form mean field."""

    name: ClassVar[str] = "free form"

    def site_term(
        self, posterior: FittedPosterior, rows: Any, sites: Sites, movement: Movement | None = None
    ) -> SiteTerm:
        form = free_form(in_memory(posterior.model))
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

    def movement(self, posterior: FittedPosterior) -> Movement:
        model, density = posterior.model, posterior.density
        held = model.own if isinstance(model, BlockModel) else in_memory(model)
        rows = stacked_rows(held)
        marginals = density.project(rows)
        pull = _pull(marginals, Sites.of(held))
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
    for observed in pieces(block, reading):
        total += observed.rows.T @ _pull(density.project(observed.rows), observed.sites)
    return (total,)

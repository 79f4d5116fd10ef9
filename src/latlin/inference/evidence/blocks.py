"""Derivatives of the log evidence of a model of blocks: `latlin.inference.evidence.gradient` with sums over blocks.

Of the likelihood's parameters the total over all sites is found in one pass; for the Laplace approximation one pass
more says how the mode moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.distributed.blocks import Block, add
from latlin.inference.approximation import Density
from latlin.inference.block_model import BlockModel, Reading, pieces
from latlin.inference.evidence.gaussian import Turn, gaussian_gradients
from latlin.inference.evidence.gradient import EvidenceGradient, note_of
from latlin.inference.evidence.sites import parameter_gradients
from latlin.inference.evidence.terms import CurvedTerm, ExpectedTerm, SiteTerm
from latlin.inference.forms.blocks import BlockForm, block_form
from latlin.inference.forms.projections import Projections
from latlin.inference.forms.site_form import whitened_projections
from latlin.inference.forms.sites import Sites
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array


def block_evidence_gradient(posterior: Posterior) -> EvidenceGradient:
    """Derivatives of `posterior.log_evidence`; those of the observations' sites are totals."""
    model: Any = posterior.model
    density, turn = posterior.density, None
    if posterior.engine == "laplace":
        turn = _turn(block_form(model), posterior)
    move = None if turn is None else turn.move
    gaussians = gaussian_gradients(posterior, None, turn)
    return EvidenceGradient(
        gaussians, (*_own(model, density, move), _observed(model, density, move)), note_of(posterior)
    )


def _turn(form: BlockForm, posterior: Posterior) -> Turn:
    """How the mode moves: P⁻¹ Σ_n h̃_n ½s_n²ψ_n‴."""
    density: Any = posterior.density
    factor, own, w = density.structure.precision.factor, form.own, posterior.mean
    total = form.blocks.total(_pull_sums, form.reading, own.whitening, w, factor)[0]
    if len(own.sites):
        total = total + _pulled(own.projections, own.sites, own.projections.times(own.coordinates(w)), factor)
    u = density.structure.precision.solve(total)
    return Turn(np.zeros(0), own.whitening.apply(u))


def _pulled(projections: Projections, sites: Sites, x: Array, factor: Array) -> Array:
    pull = 0.5 * projections.variances(factor) * sites.derivatives(x).third
    return projections.transposed_times(pull)


def _pull_sums(block: Block, reading: Reading, whitening: Any, w: Array, factor: Array) -> tuple[Any, ...]:
    total = np.zeros(len(w))
    for observed in pieces(block, reading):
        projections = whitened_projections(observed.rows, whitening)
        total += _pulled(projections, observed.sites, observed.times(w), factor)
    return (total,)


def _term(at: Array, variance: Array, weight: Array, moved: Array | None) -> SiteTerm:
    return ExpectedTerm(at, variance, weight) if moved is None else CurvedTerm(at, variance, weight, moved)


def _own(model: BlockModel, density: Density, move: Array | None) -> list[dict[str, Array]]:
    """One number a coordinate, for each block of sites on the coordinates."""
    sites = Sites.of(model.own)
    count = len(sites.blocks)
    at, variance = np.tile(density.mean, count) + sites.offset, np.tile(density.variance, count)
    term = _term(at, variance, sites.weight, None if move is None else np.tile(move, count))
    return [parameter_gradients(term, potential, span, sites.weight[span]) for span, potential in sites.blocks]


def _observed(model: BlockModel, density: Density, move: Array | None) -> dict[str, Array]:
    names = tuple(model.reading.kind().free)
    if not names:
        return {}
    return dict(zip(names, model.blocks.total(_parameter_sums, model.reading, density, move), strict=True))


def _parameter_sums(block: Block, reading: Reading, density: Density, move: Array | None) -> tuple[Any, ...]:
    kind = reading.kind()
    # one vector for all sites (cut points), or one number
    shapes = {name: np.shape(kind.value_of(name)) for name in kind.free}
    total: tuple[Any, ...] = tuple(np.zeros(shape) for shape in shapes.values())
    for observed in pieces(block, reading):
        count = observed.rows.shape[0]
        marginals, sites = density.project(observed.rows), observed.sites
        moved = None if move is None else observed.times(move)
        term = _term(marginals.mean + sites.offset, marginals.variance, sites.weight, moved)
        found = parameter_gradients(term, observed.potential, slice(0, count), sites.weight)
        total = add(total, tuple(found[name] if shape else np.sum(found[name]) for name, shape in shapes.items()))
    return total

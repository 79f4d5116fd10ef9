"""A model in memory whose sites are reached through sums alone, as those of blocks are.

The factors on w itself are the own factors of a `BlockModel`, and the coordinates are whitened by them alone, so that
every step of a fit is that on blocks. Here the rows stay, and the stand-ins of all sites can be told at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator

from latlin.distributed.blocks import add, tree
from latlin.inference.forms.projections import Projections, stacked_rows
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.site_form import site_form, whitened_projections
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sparse import needs_sparse
from latlin.inference.forms.sums import SumForm, Sums, Terms
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.numerics.arrays import Array
from latlin.numerics.magnitude import summable


class HeldSites(NamedTuple):
    """The rows of a site factor in whitened coordinates, and its sites as functions of x = H̃u."""

    projections: Projections
    sites: Sites

    def stand_ins(self, u: Array, factor: Array) -> SiteParameters:
        """γ̂ = −2 ∂⟨ψ⟩/∂s² and ν̂ = ∂⟨ψ⟩/∂m + γ̂x under N(u, (CᵀC)⁻¹)."""
        x = self.projections.times(u)
        expected = self.sites.expected_log(x, self.projections.variances(factor))
        gamma = -2.0 * expected.d_var
        return SiteParameters(gamma, expected.d_mean + gamma * x)


@dataclass(frozen=True)
class HeldForm(SumForm):
    """A model in memory in coordinates whitened by the factors on w itself.

    Parameters
    ----------
    held : tuple of HeldSites
        One a site factor, in the model's order.
    """

    held: tuple[HeldSites, ...]

    def sums(self, terms: Terms, u: Array, *shared: Any) -> Sums:
        parts: list[tuple[Any, ...]] = [terms(*part, part.projections.times(u), *shared) for part in self.held]
        return Sums(*tree(parts, add))

    def stand_ins(self, u: Array, factor: Array) -> SiteParameters:
        """γ̂ and ν̂ of all sites under N(u, (CᵀC)⁻¹)."""
        parts = [part.stand_ins(u, factor) for part in self.held]
        return SiteParameters(*map(np.concatenate, zip(*parts, strict=True)))


def held_form(model: LatentLinearModel) -> HeldForm | None:
    """The form of a model with factors on w itself and sites on rows; None for any other."""
    if needs_sparse(model):
        return None
    own = [factor for factor in model.sites if factor.H is None]
    if any(factor.H is not None for factor in model.gaussians) or len(own) == len(model.sites):
        return None
    if not own and not model.gaussians:
        return None
    form = site_form(model.among([*model.gaussians, *own]))
    return HeldForm(form, tuple(_held(model, factor, form) for factor in model.sites))


def _held(model: LatentLinearModel, factor: SiteFactor, form: SiteForm) -> HeldSites:
    alone = model.among([factor])
    rows, sites = stacked_rows(alone), Sites.of(alone)
    if isinstance(factor.H, LinearOperator):
        summable("SiteFactor H", rows)
    moved = sites.shifted(np.asarray(rows @ form.mean)) if form.mean.any() else sites
    return HeldSites(whitened_projections(rows, form.whitening), moved)

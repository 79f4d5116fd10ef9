"""Which form a model takes: stand-ins for every site, or sums over the sites alone."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator

from latlin.inference.blocks import BlockModel
from latlin.inference.forms.chain import chain_form
from latlin.inference.forms.dense import dense_form
from latlin.inference.forms.prior import needs_sparse
from latlin.inference.forms.projections import stacked_rows, stacked_sites, whitened_projections
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sparse import sparse_form
from latlin.inference.forms.sums import HeldSites, SumForm
from latlin.inference.model import LatentLinearModel, Model, SiteFactor, in_memory
from latlin.numerics.arrays import summable


def site_form(model: Model) -> SiteForm:
    """The family for a model whose rows are in memory: a chain, a sparse precision, or the smaller of two spaces."""
    model = in_memory(model)
    return chain_form(model) or sparse_form(model) or dense_form(model)


def sum_form(model: Model) -> SumForm | None:
    """A model by sums alone: it needs factors on w itself and sites on rows; None for any other."""
    if isinstance(model, BlockModel):
        return block_form(model)
    model = in_memory(model)
    if needs_sparse(model):
        return None
    own = [factor for factor in model.sites if factor.H is None]
    if any(factor.H is not None for factor in model.gaussians) or len(own) == len(model.sites):
        return None
    if not own and not model.gaussians:
        return None
    form = dense_form(model.among([*model.gaussians, *own]))
    return SumForm(form, tuple(_held(model, factor, form) for factor in model.sites))


def block_form(model: BlockModel) -> SumForm:
    """A model in blocks by sums: its own factors are here."""
    own = dense_form(model.own)
    return SumForm(own, (HeldSites(own.projections, own.sites),) if len(own.sites) else (), model)


def _held(model: LatentLinearModel, factor: SiteFactor, form: SiteForm) -> HeldSites:
    alone = model.among([factor])
    rows, sites = stacked_rows(alone), stacked_sites(alone)
    if isinstance(factor.H, LinearOperator):
        summable("SiteFactor H", rows)
    moved = sites.shifted(np.asarray(rows @ form.mean)) if form.mean.any() else sites
    return HeldSites(whitened_projections(rows, form.whitening), moved)

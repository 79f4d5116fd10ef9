"""Which coordinates a full Gaussian is fitted in: what engines ask of a model."""

from __future__ import annotations

from latlin.inference.blocks import BlockModel
from latlin.inference.forms.chain import chain_form
from latlin.inference.forms.dense import dense_form
from latlin.inference.forms.prior import needs_sparse
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sparse import sparse_form
from latlin.inference.forms.sparse_blocks import SparseBlockForm, sparse_block_form
from latlin.inference.forms.sums import SumForm, block_form
from latlin.inference.model import Model, in_memory


def form_of(model: Model) -> SiteForm | SumForm | SparseBlockForm:
    """The coordinates in which a full Gaussian is fitted to a model, wherever its rows are."""
    if isinstance(model, BlockModel):
        return sparse_block_form(model) if needs_sparse(model.own) else block_form(model)
    return site_form(model)


def site_form(model: Model) -> SiteForm:
    """The family for a model whose rows are in memory: a chain, a sparse precision, or the smaller of two spaces."""
    model = in_memory(model)
    return chain_form(model) or sparse_form(model) or dense_form(model)

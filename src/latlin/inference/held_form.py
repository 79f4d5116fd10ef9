"""A model in memory whose sites are reached through sums alone, as those of blocks are: a cacheful of rows at a time.

The factors on w itself are the own factors of a `BlockModel`, and the coordinates are whitened by them alone, so that
every step of a fit is that on blocks. Here the rows stay, and the stand-ins of all sites can be told at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from latlin.distributed.blocks import add, slices, tree
from latlin.distributed.threads import side_by_side
from latlin.inference.block_model import rows_a_piece
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.projections import DenseProjections, Projections, ScaledProjections, stacked_rows
from latlin.inference.site_family import SiteForm
from latlin.inference.site_form import site_form, whitened_projections
from latlin.inference.sites import SiteParameters, Sites
from latlin.inference.sum_form import SumForm, Sums, Terms
from latlin.numerics.magnitude import summable

Array = NDArray[np.float64]
T = TypeVar("T")


class Piece(NamedTuple):
    """Some rows and their sites."""

    projections: Projections
    sites: Sites


@dataclass(frozen=True)
class HeldForm(SumForm):
    """A model in memory in coordinates whitened by the factors on w itself.

    Parameters
    ----------
    pieces : tuple of Piece
        All sites, in the order of the model's factors.
    """

    pieces: tuple[Piece, ...]

    def sums(self, terms: Terms, u: Array, *shared: Any) -> Sums:
        def of_piece(piece: Piece) -> tuple[Any, ...]:
            return terms(*piece, piece.projections.times(u), *shared)

        total = tree(self._over_pieces(of_piece), add)
        return Sums(float(total[0]), total[1], total[2])

    def parameters(self, u: Array, factor: Array) -> SiteParameters:
        """γ̂ = −2 ∂⟨ψ⟩/∂s² and ν̂ = ∂⟨ψ⟩/∂m + γ̂x of every site under N(u, (CᵀC)⁻¹)."""
        found = list(self._over_pieces(lambda piece: _stand_ins(piece, u, factor)))
        return SiteParameters(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def _over_pieces(self, function: Callable[[Piece], T]) -> Iterator[T]:
        return side_by_side(function, self.pieces, len(self.pieces))


def _stand_ins(piece: Piece, u: Array, factor: Array) -> SiteParameters:
    x = piece.projections.times(u)
    expected = piece.sites.expected_log(x, piece.projections.variances(factor))
    gamma = -2.0 * expected.d_var
    return SiteParameters(gamma, expected.d_mean + gamma * x)


def held_form(model: LatentLinearModel) -> HeldForm | None:
    """The form of a model with factors on w itself and sites on rows; None for any other."""
    own = [factor for factor in model.sites if factor.H is None]
    if any(factor.H is not None for factor in model.gaussians) or len(own) == len(model.sites):
        return None
    if not own and not model.gaussians:
        return None
    form = site_form(model.among([*model.gaussians, *own]))
    return HeldForm(form, tuple(piece for factor in model.sites for piece in _pieces(model, factor, form)))


def _pieces(model: LatentLinearModel, factor: SiteFactor, form: SiteForm) -> Iterator[Piece]:
    alone = model.among([factor])
    rows, sites = stacked_rows(alone), Sites.of(alone)
    if isinstance(factor.H, LinearOperator):
        summable("SiteFactor H", rows)
    moved = sites.shifted(np.asarray(rows @ form.mean)) if form.mean.any() else sites
    projections = whitened_projections(rows, form.whitening)
    if not isinstance(projections, DenseProjections | ScaledProjections):
        yield Piece(projections, moved)
        return
    for span in slices(len(sites), rows_a_piece(model.dim)):
        yield Piece(replace(projections, rows=projections.rows[span]), moved.part(span))

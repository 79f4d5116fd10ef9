"""Sums over blocks of sites; the sites among the own factors are one more block, kept here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latlin.densities.whitening import Whitening
from latlin.distributed.blocks import Block, Blocks, add
from latlin.inference.block_model import BlockModel, Reading, pieces
from latlin.inference.forms.site_form import site_form, whitened_projections
from latlin.inference.forms.sums import SumForm, Sums, Terms
from latlin.numerics.arrays import Array


def block_sums(
    block: Block, terms: Terms, reading: Reading, whitening: Whitening, w: Array, *shared: Any
) -> tuple[Any, ...]:
    """Terms of a block at w."""
    dim = len(w)
    total: tuple[Any, ...] = Sums(0.0, np.zeros(dim), np.zeros((dim, dim), order="F"))
    for observed in pieces(block, reading):
        projections = whitened_projections(observed.rows, whitening)
        total = add(total, terms(projections, observed.sites, observed.times(w), *shared))
    return total


@dataclass(frozen=True)
class BlockForm(SumForm):
    """A model of blocks in whitened coordinates.

    Parameters
    ----------
    blocks : Blocks
    reading : Reading
    """

    blocks: Blocks
    reading: Reading

    def sums(self, terms: Terms, u: Array, *shared: Any) -> Sums:
        whitening, w = self.own.whitening, self.own.weights(u)
        total = self.blocks.total(block_sums, terms, self.reading, whitening, w, *shared)
        if len(self.own.sites):
            total = add(terms(self.own.projections, self.own.sites, self.own.projections.times(u), *shared), total)
        return Sums(float(total[0]), total[1], total[2])


def block_form(model: BlockModel) -> BlockForm:
    """The model in coordinates whitened by its own factors."""
    return BlockForm(site_form(model.own), model.blocks, model.reading)

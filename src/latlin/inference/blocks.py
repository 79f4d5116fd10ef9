"""A latent linear model whose observations are in blocks of rows, wherever they are.

    p(w) = 1/Z ∏ own factors(w) ∏_blocks ∏_n φ_n(h_nᵀw + o_n)^{weight_n}

The factors on w itself (a Gaussian prior, or sites on the coordinates) are few and stay here; the observations are
reached only through sums over blocks (Challis (2013), §4.6.2). A *reading* turns the rows of a block into sites
where the block is, a piece at a time, so that no whitened or widened copy of a block is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import blas

from latlin.distributed.blocks import Block, Blocks, Summand, slices
from latlin.inference.forms.sites import Sites
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteTraits
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

#: entries of a piece of dense rows, which should stay in the cache, and the rows it has at least and at most
PIECE = 2**18
ROWS = (1024, 16_384)


class Observed(NamedTuple):
    """Sites of some rows: φ_n(h_nᵀw + offset_n)^{weight_n}, with what the rows leave out; see `SiteFactor`."""

    rows: Any
    potential: Potential
    weight: Array | None
    offset: Array | None
    extra_variance: Array | None = None

    @property
    def sites(self) -> Sites:
        count = self.rows.shape[0]
        weight = np.ones(count) if self.weight is None else self.weight
        offset = np.zeros(count) if self.offset is None else self.offset
        return Sites(((slice(0, count), self.potential),), weight, offset, self.extra_variance)

    def times(self, w: Array) -> Array:
        """Hw, on SciPy's BLAS."""
        if sparse.issparse(self.rows):
            return self.rows @ w
        return blas.dgemv(1.0, self.rows.T, w, trans=1)


class Reading(Protocol):
    """How a block becomes sites; small, and defined at the top level of a module, so that it can travel.

    Where it makes rows of another width than the block's, it has an attribute `width`.
    """

    def __call__(self, block: Block) -> Observed | None:
        """The sites of a block, at least one; None where no row counts."""
        ...

    def kind(self) -> Potential:
        """The potential of no particular observation."""
        ...


@dataclass(frozen=True)
class AbsentBlocks:
    """In the place of rows that a copied or stored model has left behind."""

    n_columns: int
    n_blocks: int = 0

    def total(self, summand: Summand, *shared: Any) -> NoReturn:
        raise ValueError("the blocks of rows were left behind when this model was copied or stored: fit again")

    each = fold = total


@dataclass(frozen=True, repr=False, eq=False)
class BlockModel(SiteTraits):
    """Own factors and blocks of observations; see the module.

    Parameters
    ----------
    own : LatentLinearModel
        Factors on w itself.
    blocks : Blocks
    reading : Reading
    signature : str
        What else distinguishes these data from others, for checkpoints.
    kept : dict
        What forms have found of these rows; models of the same rows that differ in values alone may share it.
    """

    own: LatentLinearModel
    blocks: Blocks
    reading: Reading
    signature: str = ""
    kept: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        matrices = [*(factor.H for factor in self.own.gaussians), *(factor.H for factor in self.own.sites)]
        if any(matrix is not None for matrix in matrices):
            raise ValueError("the own factors of a model of blocks must be on w itself, got one with an H")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and files leave the rows behind."""
        return BlockModel, (self.own, AbsentBlocks(self.blocks.n_columns), self.reading, self.signature)

    @property
    def dim(self) -> int:
        return self.own.dim

    @property
    def gaussians(self) -> tuple[GaussianFactor, ...]:
        return self.own.gaussians

    @property
    def potentials(self) -> tuple[Potential, ...]:
        """One potential per factor of sites, the observations' last."""
        return (*self.own.potentials, self.reading.kind())

    def total(self, summand: Summand, *shared: Any) -> tuple[Any, ...]:
        """Σ over blocks of `summand(block, reading, *shared)`, in one pass over the rows."""
        return self.blocks.total(summand, self.reading, *shared)

    def __repr__(self) -> str:
        factors = ", ".join(map(repr, (*self.own.gaussians, *self.own.sites)))
        kind = type(self.reading.kind()).__name__
        return f"BlockModel(dim={self.dim}: {factors}, {kind} on {self.blocks.n_blocks} blocks)"


def read_pieces(block: Block, reading: Reading) -> Iterator[Observed]:
    """The block's sites, dense rows a cacheful at a time; sparse rows, which are not widened, all at once."""
    for part in [block] if sparse.issparse(block.X) else _cut(block, getattr(reading, "width", block.X.shape[1])):
        observed = reading(part)
        if observed is not None:
            yield observed


def _cut(block: Block, width: int) -> Iterator[Block]:
    size = int(np.clip(PIECE // max(width, 1), *ROWS))
    for part in slices(block.n_rows, size):
        X, y, weight, offset = (None if values is None else values[part] for values in block[:4])
        yield Block(X, y, weight, offset, block.number)

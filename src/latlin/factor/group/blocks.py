"""Group factor analysis of rows that come in blocks: a sweep is one pass that returns the sums of the latents.

The latents of a row follow from the row and the loadings, so that they are computed where the row is, summed and
forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from latlin.distributed.blocks import Block, Blocks, MappedBlocks, slices, widen_rows
from latlin.factor.analysis.blocks import (
    DENSE_UP_TO,
    SLICE,
    BlockMoments,
    ColumnFacts,
    column_moments,
    products,
    read_columns,
)
from latlin.factor.group.data import (
    GroupData,
    Patterns,
    Scaling,
    Views,
    check_observed,
    describe,
    find_patterns,
    pack_flags,
    scaling_of,
)
from latlin.factor.group.rows import SPARE, Labels, LatentSums, multiply_by_label, outer_sums, principal_axes, product
from latlin.numerics.linalg import Array

Kinds = dict[bytes, int]


@dataclass(frozen=True)
class ColumnOrder:
    """Puts the columns of a block view by view."""

    order: NDArray[np.intp]

    def __call__(self, block: Block) -> Block:
        return block._replace(X=block.X[:, self.order])


@dataclass(frozen=True)
class GroupReading:
    """How the rows of a block are read: centred, scaled, filled; and the number of each kind of missing entries."""

    scaling: Scaling
    kinds: Kinds

    def slices(self, block: Block) -> Iterator[tuple[Array, Labels]]:
        """Rows and their patterns, in slices that stay in the cache."""
        for part in slices(block.n_rows, SLICE):
            z = widen_rows(block.X[part]) - self.scaling.centre
            z /= self.scaling.scale
            if len(self.kinds) == 1:
                yield z, np.zeros(len(z), dtype=np.int64)
            else:
                gap = np.isnan(z)
                z[gap] = 0.0
                yield z, self._patterns(gap)

    def _patterns(self, gap: NDArray[np.bool_]) -> Labels:
        kinds, kind = np.unique(pack_flags(gap), return_inverse=True)
        return np.array([self.kinds[one.tobytes()] for one in kinds], dtype=np.int64)[kind.ravel()]


@dataclass(frozen=True)
class RowsInBlocks:
    """Rows that are read when a pass comes to them.

    Parameters
    ----------
    blocks : Blocks
    reading : Reading
    n : int
        Rows of all blocks.
    """

    blocks: Blocks
    reading: GroupReading
    n: int

    def latents(self, pull: Array, covariance: Array) -> LatentSums:
        return _gathered(self.blocks.total(_latents, self.reading, pull, covariance))

    def principal(self, rank: int, rng: np.random.Generator) -> LatentSums:
        d = len(self.reading.scaling.centre)
        most = min(rank, self.n, d)
        span = rng.standard_normal((d, min(most + SPARE, self.n, d)))
        leading = principal_axes(self._gram(), span, most) * np.sqrt(self.n)
        return self._start(leading, rank - leading.shape[1], rng)

    def random(self, rank: int, rng: np.random.Generator) -> LatentSums:
        return self._start(np.zeros((len(self.reading.scaling.centre), 0)), rank, rng)

    def _gram(self) -> Callable[[Array], Array]:
        """b → XᵀXb, from the matrix when it is of moderate size, else a pass each."""
        centre, scale = self.reading.scaling.centre, self.reading.scaling.scale
        if len(centre) <= DENSE_UP_TO:
            gram = products(self.blocks, centre, scale)[1]
            return lambda b: product(gram, b)
        moments = BlockMoments(self.blocks, 1, centre, scale, np.ones(len(centre)))
        return lambda b: np.ascontiguousarray(moments.times(b))

    def _start(self, projection: Array, extra: int, rng: np.random.Generator) -> LatentSums:
        """Latents Xᵀ·projection beside `extra` columns of noise, the same numbers as one draw for all rows."""
        draws = self._draws(extra, rng) if extra else []
        return _gathered(self.blocks.total(_first_latents, self.reading, projection, extra, draws))

    def _draws(self, extra: int, rng: np.random.Generator) -> list[Any]:
        """Where the random numbers of each block begin."""
        sizes = np.zeros(self.blocks.n_blocks, dtype=np.int64)
        for number, size in self.blocks.each(_size):
            sizes[number] = size
        begun = []
        for size in sizes:
            begun.append(deepcopy(rng.bit_generator))
            for part in slices(int(size), 2**16):
                rng.standard_normal((part.stop - part.start, extra))
        return begun


def _size(block: Block) -> tuple[int, int]:
    return block.number, block.n_rows


def _gathered(sums: tuple[Array, Array]) -> LatentSums:
    moments, cross = sums
    return LatentSums(gram_root(moments.sum(axis=0)), moments, cross)


def gram_root(gram: Array) -> Array:
    """R with RᵀR = `gram`, accurate in every column however small."""
    size = np.sqrt(np.maximum(np.diagonal(gram), 1e-300))
    values, vectors = eigh(gram / size[:, None] / size)
    return np.ascontiguousarray((vectors * np.sqrt(np.maximum(values, 0.0))).T * size)


def _latents(block: Block, reading: GroupReading, pull: Array, covariance: Array) -> tuple[Array, Array]:
    k = pull.shape[1]
    moments, cross = np.zeros((len(covariance), k, k)), np.zeros(pull.shape)
    for z, pattern in reading.slices(block):
        latent = multiply_by_label(covariance, pattern, product(z, pull))
        moments += outer_sums(latent, np.ones(len(z)), pattern, len(covariance))
        cross += product(z.T, latent)
    return moments, cross


def _first_latents(
    block: Block, reading: GroupReading, projection: Array, extra: int, draws: list[Any]
) -> tuple[Array, Array]:
    k = projection.shape[1] + extra
    moments, cross = np.zeros((len(reading.kinds), k, k)), np.zeros((len(projection), k))
    rng = np.random.Generator(deepcopy(draws[block.number])) if extra else np.random.default_rng(0)
    for z, pattern in reading.slices(block):
        leading = product(z, projection) if projection.shape[1] else np.zeros((len(z), 0))
        latent = np.ascontiguousarray(np.concatenate([leading, rng.standard_normal((len(z), extra))], axis=1))
        moments += outer_sums(latent, np.ones(len(z)), pattern, len(reading.kinds))
        cross += product(z.T, latent)
    return moments, cross


def prepare_blocks(blocks: Blocks, views: Views, scale: str, per_feature: bool) -> tuple[GroupData, Scaling]:
    """The data of a fit from two passes over the blocks, three when entries are missing."""
    if not np.array_equal(views.order, np.arange(views.n_columns)):
        blocks = MappedBlocks(blocks, ColumnOrder(views.order))
    columns = read_columns(blocks)
    check_observed(columns.counts, views)
    mean, variance = column_moments(blocks, columns)
    scaling = scaling_of(mean, variance, views, scale)
    kinds, patterns = _patterns(blocks, columns, views)
    rows = RowsInBlocks(blocks, GroupReading(scaling, kinds), columns.n)
    squares = columns.counts * variance / scaling.scale**2
    return describe(rows, patterns, views, scaling, columns.counts, squares, per_feature), scaling


def _patterns(blocks: Blocks, columns: ColumnFacts, views: Views) -> tuple[Kinds, Patterns]:
    """The kinds of rows, numbered in the order of their bytes, and the patterns without the rows' own labels."""
    found: dict[bytes, int] = {}
    if columns.complete:
        gap = np.zeros((1, len(columns.mean)), dtype=bool)
        found[pack_flags(gap)[0].tobytes()] = columns.n
    else:
        for part in blocks.each(_kinds):
            for kind, count in part.items():
                found[kind] = found.get(kind, 0) + count
        flags = np.frombuffer(b"".join(sorted(found)), dtype=np.uint8).reshape(len(found), -1)
        gap = np.unpackbits(flags, axis=1)[:, : len(columns.mean)].astype(bool)
    patterns = find_patterns(gap, len(gap), views.of_column.astype(np.int64))
    rows_per = np.array([float(found[kind]) for kind in sorted(found)])
    kinds = {kind: number for number, kind in enumerate(sorted(found))}
    return kinds, Patterns(np.zeros(0, dtype=np.int64), patterns.column, patterns.seen, rows_per)


def _kinds(block: Block) -> dict[bytes, int]:
    """How many rows of the block miss which entries."""
    found: dict[bytes, int] = {}
    for part in slices(block.n_rows, 16 * SLICE):
        kinds, counts = np.unique(pack_flags(np.isnan(block.X[part])), return_counts=True)
        for kind, count in zip(kinds, counts.tolist(), strict=True):
            found[kind.tobytes()] = found.get(kind.tobytes(), 0) + count
    return found

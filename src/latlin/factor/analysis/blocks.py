"""Counts, means, variances and products of the columns of rows that come in blocks, each a sum over the blocks.

A first pass finds counts and means, the next ones sum about those means, and what rounding left in the means is taken
off at the end: no digits are lost to a large mean, and the numbers do not depend on how the rows are cut. Missing
entries (NaN) count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from latlin.distributed.blocks import Block, Blocks, Summand, slices, widen_rows
from latlin.factor.analysis.batch import batch_gradient_fit, complete_em_fit, ml_fit, rules_of
from latlin.factor.analysis.moments import (
    DENSE_UP_TO,
    DenseMoments,
    FactorParameters,
    SampleMoments,
    Units,
    climb_missing,
    expected_sums,
    leading_eigenpairs,
    principal_start,
)
from latlin.factor.analysis.online import feed, open_stream
from latlin.factor.analysis.stream import FactorStream
from latlin.factor.fit import FactorFit
from latlin.numerics.arrays import check_summable
from latlin.numerics.ascent import Checkpoint
from latlin.numerics.linalg import Array, LowRankNormal, symmetrise
from latlin.numerics.progress import progress
from latlin.numerics.rng import generator

T = TypeVar("T")
SLICE = 1024


class ColumnFacts(NamedTuple):
    """What a first pass knows: rows, observed entries and mean of each column, and the storage of the rows."""

    n: int
    counts: Array
    mean: Array
    dtype: np.dtype[Any]

    @property
    def complete(self) -> bool:
        return bool((self.counts == self.n).all())


def read_slices(block: Block) -> Iterator[Array]:
    """The rows of a block, widened, in slices that stay in the cache."""
    return (widen_rows(block.X[part]) for part in slices(block.n_rows, SLICE))


def standardise_slices(block: Block, centre: Array, scale: Array | None) -> Iterator[Array]:
    """(x − centre)/scale in slices, missing entries at zero; None is a scale of one."""
    for x in read_slices(block):
        z = x - centre
        if scale is not None:
            z /= scale
        if np.isnan(z.sum()):
            z[np.isnan(z)] = 0.0
        yield z


def read_columns(blocks: Blocks) -> ColumnFacts:
    """One pass: counts and means; infinite entries and weights are refused."""
    n, single, counts, total = blocks.total(_column_sums)
    if n < 2:
        raise ValueError(f"X must have at least 2 samples, got {n}")
    return ColumnFacts(n, counts, total / np.maximum(counts, 1.0), np.dtype(np.float32 if single == n else np.float64))


def _column_sums(block: Block) -> tuple[int, int, Array, Array]:
    if block.weight is not None:
        raise ValueError("the blocks of X hold weights; factor models take none")
    counts, total = np.zeros(block.X.shape[1]), np.zeros(block.X.shape[1])
    single = block.X.dtype == np.float32
    for x in read_slices(block):
        sums = x.sum(axis=0)
        if np.isfinite(sums).all():
            counts += len(x)
        else:
            counts, sums = counts + (~np.isnan(x)).sum(axis=0), _observed_sums(x)
        total += sums if single else _within_reach(x, sums)
    return block.n_rows, block.n_rows if single else 0, counts, total


def _observed_sums(x: Array) -> Array:
    if np.isinf(x).any():
        raise ValueError("Input X contains infinity")
    return np.where(np.isnan(x), 0.0, x).sum(axis=0)


def _within_reach(x: Array, sums: Array) -> Array:
    """The sums, unless squares of such numbers overflow."""
    check_summable("X", x)
    return sums


def column_moments(blocks: Blocks, columns: ColumnFacts) -> tuple[Array, Array]:
    """Mean and variance of the observed entries of each column, in one more pass."""
    first, second = blocks.total(_squares, columns.mean)
    # var = Σ(x − c)²/n − (x̄ − c)²
    shift = first / columns.counts
    return columns.mean + shift, np.maximum(second / columns.counts - shift**2, 0.0)


def _squares(block: Block, centre: Array) -> tuple[Array, Array]:
    first, second = np.zeros(len(centre)), np.zeros(len(centre))
    for z in standardise_slices(block, centre, None):
        first += z.sum(axis=0)
        second += np.einsum("nd,nd->d", z, z)
    return first, second


def products(blocks: Blocks, centre: Array, scale: Array | None) -> tuple[Array, Array]:
    """Σ z and Σ z zᵀ (d×d) of z = (x − centre)/scale, missing entries at zero, in one pass."""
    first, upper = blocks.total(_products, centre, scale)
    return first, symmetrise(upper)


def _products(block: Block, centre: Array, scale: Array | None) -> tuple[Array, Array]:
    dim = len(centre)
    first, upper = np.zeros(dim), np.zeros((dim, dim), order="F")
    for z in standardise_slices(block, centre, scale):
        first += z.sum(axis=0)
        upper = blas.dsyrk(1.0, z.T, beta=1.0, c=upper, overwrite_c=1)
    return first, upper


def block_moments(blocks: Blocks, columns: ColumnFacts) -> tuple[SampleMoments, Array]:
    """S of complete rows, and their mean; beyond `DENSE_UP_TO` columns every product with S is a pass."""
    n, dim = columns.n, len(columns.mean)
    if dim > DENSE_UP_TO:
        mean, variance = column_moments(blocks, columns)
        return BlockMoments(blocks, n, mean, None, variance), mean
    first, second = products(blocks, columns.mean, None)
    shift = first / n
    return DenseMoments(n, second / n - np.outer(shift, shift)), columns.mean + shift


@dataclass(frozen=True)
class BlockMoments:
    """The rows where they are, in units of `scale`; S is never formed."""

    blocks: Blocks
    n: int
    mean: Array
    scale: Array | None
    variance: Array

    def times(self, b: Array) -> Array:
        columns = b if b.ndim == 2 else b[:, None]
        total = self.blocks.total(_times, self.mean, self.scale, np.asfortranarray(columns))[0] / self.n
        return total if b.ndim == 2 else total[:, 0]

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        return leading_eigenpairs(self, scale, rank, start)


def _times(block: Block, centre: Array, scale: Array | None, b: Array) -> tuple[Array]:
    total = np.zeros(b.shape, order="F")
    for z in standardise_slices(block, centre, scale):
        # ZᵀZb
        total = blas.dgemm(1.0, z.T, blas.dgemm(1.0, z.T, b, trans_a=1), beta=1.0, c=total, overwrite_c=1)
    return (total,)


@dataclass(frozen=True)
class RememberedBlocks:
    """Blocks whose column sums and products are asked for once, however many models are fitted to them."""

    blocks: Blocks
    known: dict[Any, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def n_blocks(self) -> int:
        return self.blocks.n_blocks

    @property
    def n_columns(self) -> int:
        return self.blocks.n_columns

    def total(self, summand: Summand, *shared: Any) -> tuple[Any, ...]:
        if summand not in (_column_sums, _squares, _products):
            return self.blocks.total(summand, *shared)
        key = summand, *(None if values is None else values.tobytes() for values in shared)
        if key not in self.known:
            self.known[key] = self.blocks.total(summand, *shared)
        return self.known[key]

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return self.blocks.each(function, *shared)

    def fold(self, function: Callable[..., T], state: T, *shared: Any, order: Iterable[int] | None = None) -> T:
        return self.blocks.fold(function, state, *shared, order=order)


# --- Factor analysis of rows that come in blocks: the same fits, from sums over the blocks.
#
# "ml" and "em" need two passes for mean and covariance and none after that; with missing entries EM takes a pass a
# step, and so does it beyond the size where a covariance is formed. The online methods visit the blocks one after the
# other.

#: a fit, and the variances of the columns
Outcome = tuple[FactorFit, Array]
Run = Callable[[Any, Blocks, ColumnFacts, Checkpoint | None], Outcome]


def _check_variance(mean: Array, variance: Array) -> None:
    flat = np.flatnonzero(variance <= (1e-14 * mean) ** 2)
    if len(flat):
        raise ValueError(f"X is constant in column(s) {flat[:10].tolist()}: drop them, they have no noise variance")


def _from_moments(fit: Callable[..., FactorFit]) -> Run:
    def run(options: Any, blocks: Blocks, columns: ColumnFacts, checkpoint: Checkpoint | None) -> Outcome:
        s, mean = block_moments(blocks, columns)
        _check_variance(mean, s.variance)
        return fit(options, s, mean, checkpoint), s.variance

    return run


def _em(options: Any, blocks: Blocks, columns: ColumnFacts, checkpoint: Checkpoint | None) -> Outcome:
    if columns.complete:
        return _from_moments(complete_em_fit)(options, blocks, columns, checkpoint)
    mean, variance = column_moments(blocks, columns)
    _check_variance(mean, variance)
    isotropic, rank = options.noise == "isotropic", int(options.n_components)
    units = Units.of(mean, variance, isotropic)
    start = principal_start(products(blocks, *units)[1] / columns.n, rank)

    def expect(at: FactorParameters) -> tuple[Any, ...]:
        return blocks.total(_expected_sums, at, units)

    rules, floor = rules_of(options), options.noise_floor
    return climb_missing(
        expect, start, columns.n, columns.counts, units, isotropic, floor, rules, options.verbose, checkpoint
    ), variance


def _expected_sums(block: Block, at: FactorParameters, units: Units) -> tuple[Any, ...]:
    return expected_sums(at, block.X, units)


def _online(options: Any, blocks: Blocks, columns: ColumnFacts, checkpoint: Checkpoint | None) -> Outcome:
    if checkpoint is not None:
        raise ValueError(f"checkpoint is for method 'ml' or 'em'; {options.method!r} keeps its stream by save")
    mean, variance = column_moments(blocks, columns)
    _check_variance(mean, variance)
    stream = open_stream(options, len(mean), columns.dtype)
    rng, trace = generator(options.random_state), []
    with progress(f"factor analysis ({options.method})", options.n_passes, options.verbose) as bar:
        for _ in range(options.n_passes):
            order = rng.permutation(blocks.n_blocks) if options.shuffle else np.arange(blocks.n_blocks)
            seeds = rng.integers(2**63, size=blocks.n_blocks) if options.shuffle else None
            stream = blocks.fold(_feed, stream, options.batch_size, seeds, order=order.tolist())
            trace.append(float(blocks.total(_log_likelihood, stream.density())[0]))
            bar.advance(f"log-likelihood {trace[-1]:.6g}")
    options.stream_, options.n_floored_ = stream, stream.floored
    centre, loadings, noise = (np.array(part, dtype=np.float64) for part in stream.density())
    text = f"{options.n_passes} pass(es) over {columns.n} rows in {blocks.n_blocks} block(s)"
    return FactorFit(centre, loadings, noise, np.array(trace), True, stream.count, text), variance


def _feed(block: Block, stream: FactorStream, batch_size: int, seeds: NDArray[np.int64] | None) -> FactorStream:
    """The rows of a block, in an order of its own when there are seeds."""
    rows = block.X if seeds is None else block.X[np.random.default_rng(seeds[block.number]).permutation(block.n_rows)]
    feed(stream, rows, batch_size)
    return stream


def _log_likelihood(block: Block, density: LowRankNormal) -> tuple[float]:
    return (float(sum(density.logpdf(x).sum() for x in read_slices(block))),)


BLOCK_METHODS: dict[str, Run] = {
    "ml": _from_moments(ml_fit),
    "em": _em,
    "batch-gradient": _from_moments(batch_gradient_fit),
    "online-em": _online,
    "gradient": _online,
}

"""Factor analysis of rows that come in blocks: the same fits, from sums over the blocks.

"ml" and "em" need two passes for mean and covariance and none after that; with missing entries EM takes a pass a step,
and so does it beyond the size where a covariance is formed. The online methods visit the blocks one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.distributed.blocks import Block, Blocks
from latlin.factor.analysis.batch import complete_em_fit, ml_fit, rules_of
from latlin.factor.analysis.block_moments import Columns, block_moments, column_moments, parts, products
from latlin.factor.analysis.missing import Parameters, Units, climb_missing, expected_sums, principal_start
from latlin.factor.analysis.online import feed, open_stream
from latlin.factor.analysis.stream import FactorStream
from latlin.factor.fit import Fit
from latlin.numerics.ascent import Checkpoint
from latlin.numerics.linalg import Array
from latlin.numerics.low_rank import LowRankNormal
from latlin.numerics.progress import progress
from latlin.numerics.rng import generator

#: a fit, and the variances of the columns
Outcome = tuple[Fit, Array]
Run = Callable[[Any, Blocks, Columns, Checkpoint | None], Outcome]


def _check_variance(mean: Array, variance: Array) -> None:
    flat = np.flatnonzero(variance <= (1e-14 * mean) ** 2)
    if len(flat):
        raise ValueError(f"X is constant in column(s) {flat[:10].tolist()}: drop them, they have no noise variance")


def _from_moments(fit: Callable[..., Fit]) -> Run:
    def run(options: Any, blocks: Blocks, columns: Columns, checkpoint: Checkpoint | None) -> Outcome:
        s, mean = block_moments(blocks, columns)
        _check_variance(mean, s.variance)
        return fit(options, s, mean, checkpoint), s.variance

    return run


def _em(options: Any, blocks: Blocks, columns: Columns, checkpoint: Checkpoint | None) -> Outcome:
    if columns.complete:
        return _from_moments(complete_em_fit)(options, blocks, columns, checkpoint)
    mean, variance = column_moments(blocks, columns)
    _check_variance(mean, variance)
    isotropic, rank = options.noise == "isotropic", int(options.n_components)
    units = Units.of(mean, variance, isotropic)
    start = principal_start(products(blocks, *units)[1] / columns.n, rank)

    def expect(at: Parameters) -> tuple[Any, ...]:
        return blocks.total(_expected_sums, at, units)

    rules, floor = rules_of(options), options.noise_floor
    return climb_missing(
        expect, start, columns.n, columns.counts, units, isotropic, floor, rules, options.verbose, checkpoint
    ), variance


def _expected_sums(block: Block, at: Parameters, units: Units) -> tuple[Any, ...]:
    return expected_sums(at, block.X, units)


def _online(options: Any, blocks: Blocks, columns: Columns, checkpoint: Checkpoint | None) -> Outcome:
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
    return Fit(centre, loadings, noise, np.array(trace), True, stream.count, text), variance


def _feed(block: Block, stream: FactorStream, batch_size: int, seeds: NDArray[np.int64] | None) -> FactorStream:
    """The rows of a block, in an order of its own when there are seeds."""
    rows = block.X if seeds is None else block.X[np.random.default_rng(seeds[block.number]).permutation(block.n_rows)]
    feed(stream, rows, batch_size)
    return stream


def _log_likelihood(block: Block, density: LowRankNormal) -> tuple[float]:
    return (float(sum(density.logpdf(x).sum() for x in parts(block))),)


BLOCK_METHODS: dict[str, Run] = {
    "ml": _from_moments(ml_fit),
    "em": _em,
    "online-em": _online,
    "gradient": _online,
}

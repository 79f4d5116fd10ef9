"""The data of a mixture in blocks of rows: passes are sums over the blocks, mini-batches are taken where the rows are.

Every pass of `latlin.mixture.sweep` is a sum over rows, so that it can be a sum over blocks of them. Rows are counted,
sampled and drawn among those of positive weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from latlin.distributed.blocks import Block, Blocks
from latlin.mixture import kernels as mixture_kernels
from latlin.mixture.sweep import SLICE, CompleteRows, Totals, add_totals, by_pattern, incomplete_rows, slices, widen
from latlin.numerics.linalg import Array

T = TypeVar("T")


@dataclass(frozen=True)
class MixtureBlockRows:
    """N rows of positive weight in blocks.

    Parameters
    ----------
    blocks : Blocks
    rows : ndarray of int of shape (blocks,)
        Rows of positive weight in each block.
    total : float
        Sum of the weights.
    seen : ndarray of shape (D,)
        Observed entries of each feature.
    """

    blocks: Blocks
    rows: NDArray[np.int64]
    total: float
    seen: Array

    def __len__(self) -> int:
        return int(self.rows.sum())

    @property
    def dim(self) -> int:
        return self.blocks.n_columns

    @property
    def complete(self) -> bool:
        return bool((self.seen == len(self)).all())

    def every(self, stride: int) -> tuple[Array, Array]:
        """Rows 0, stride, 2·stride … of those with positive weight, and their weights, wherever they are."""
        first = np.concatenate([[0], np.cumsum(self.rows)[:-1]])
        found = self.blocks.each(_every, stride, first)
        values, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = slice(None) if self.complete else by_pattern(np.isnan(values))[0]
        return widen(values[order]), weights[order]

    def walk(
        self, advance: Callable[[T, CompleteRows], T], state: T, steps: int, size: int, rng: np.random.Generator
    ) -> T:
        """`state = advance(state, batch)` for `steps` batches, each from one block; a block is visited once.

        Blocks get batches by lot, in proportion to their rows, so that every row is as likely as any other.
        """
        steps_of = rng.multinomial(steps, self.rows / len(self))
        order = rng.permutation(self.blocks.n_blocks)
        seeds = rng.integers(2**63, size=self.blocks.n_blocks)
        visits = Visits(steps_of, seeds, size, len(self))
        return self.blocks.fold(_walk, state, advance, visits, order=order[steps_of[order] > 0].tolist())

    def reduce(
        self,
        kernel: Callable[..., Totals],
        parameters: tuple[Array, ...],
        change: tuple[Array, Array] | None = None,
    ) -> Totals:
        """As `Rows.reduce`, in one pass over the blocks; the kernel travels by its name."""
        sum_log, count, first, second = self.blocks.total(_pass, kernel.__name__, parameters, change)
        return sum_log, count, first, second

    def collect(self, structure: Any, params: Any, log_weights: Array) -> tuple[float, Any]:
        """Σ_n w_n log Σ_k ρ_nk and the moments under the optimal responsibilities."""
        if self.complete:
            return structure.collect(self, params, log_weights)
        offset = structure.offsets(params) + log_weights
        totals = self.blocks.total(_incomplete_pass, offset, params.mean, structure.precisions(params))
        sum_log, count, first, second = totals
        return sum_log, structure.from_products(params.mean, count, first, second)


class Visits(NamedTuple):
    """How many batches of which size each block gives, its seed, and the rows of all blocks."""

    steps: NDArray[np.int64]
    seeds: NDArray[np.int64]
    size: int
    whole: int


def _walk(block: Block, state: T, advance: Callable[[T, CompleteRows], T], visits: Visits) -> T:
    rows, rng = positive(block), np.random.default_rng(visits.seeds[block.number])
    for _ in range(visits.steps[block.number]):
        state = advance(state, rows.batch(visits.size, rng, visits.whole))
    return state


def read_rows(blocks: Blocks, missing_allowed: bool) -> MixtureBlockRows:
    """One pass: counts, weights, and what is not finite or not a weight refused."""
    rows, seen, total = np.zeros(blocks.n_blocks, dtype=np.int64), np.zeros(blocks.n_columns), 0.0
    for number, n, weight, observed in blocks.each(_counts, missing_allowed):
        rows[number] = n
        total += weight
        seen += observed
    if not total > 0.0:
        raise ValueError("sample_weight must be finite, not negative, and not all zero")
    return MixtureBlockRows(blocks, rows, total, seen)


def positive(block: Block) -> CompleteRows:
    """The rows of a block that have positive weight; where there is none, a row that counts for nothing."""
    if block.weight is None:
        return CompleteRows(block.X)
    weights = np.asarray(block.weight, dtype=np.float64)
    kept = weights > 0.0
    if not kept.any():
        return CompleteRows(np.zeros((1, block.X.shape[1])), np.zeros(1))
    return CompleteRows(block.X, weights) if kept.all() else CompleteRows(block.X[kept], weights[kept])


def _counts(block: Block, missing_allowed: bool) -> tuple[int, int, float, Array]:
    weights = np.ones(block.n_rows) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
    if weights.shape != (block.n_rows,) or not np.isfinite(weights).all() or (weights < 0.0).any():
        raise ValueError("sample_weight must be one number per row, finite, not negative, and not all zero")
    seen = np.zeros(block.X.shape[1])
    for part in slices(block.n_rows):
        x = np.asarray(block.X[part])
        if not np.isfinite(x).all():
            _check_finite(x, missing_allowed)
        seen += (~np.isnan(x))[weights[part] > 0.0].sum(axis=0)
    return block.number, int((weights > 0.0).sum()), float(weights.sum()), seen


def _check_finite(x: NDArray[Any], missing_allowed: bool) -> None:
    if np.isinf(x).any():
        raise ValueError("Input X contains infinity")
    if not missing_allowed:
        raise ValueError("Input X contains NaN; algorithm='cavi' and 'natural' integrate missing entries out")


def _every(block: Block, stride: int, first: NDArray[np.int64]) -> tuple[NDArray[Any], Array]:
    kept = np.arange(block.n_rows) if block.weight is None else np.flatnonzero(np.asarray(block.weight) > 0.0)
    chosen = kept[-int(first[block.number]) % stride :: stride]
    weights = np.ones(len(chosen)) if block.weight is None else np.asarray(block.weight, dtype=np.float64)[chosen]
    return np.asarray(block.X[chosen]), weights


def _pass(block: Block, kernel: str, parameters: tuple[Array, ...], change: tuple[Array, Array] | None) -> Totals:
    return positive(block).reduce(getattr(mixture_kernels, kernel), parameters, change)


def _incomplete_pass(block: Block, offset: Array, mean: Array, precision: Array) -> Totals:
    """In runs of slices, so that no wide copy of a whole block is made."""
    rows = positive(block)
    runs = (
        incomplete_rows(rows.values[part], rows.weights_of(part)).products(offset, mean, precision)
        for part in slices(len(rows), 16 * SLICE)
    )
    return add_totals(runs)

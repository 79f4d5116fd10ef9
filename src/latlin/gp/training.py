"""Training rows of a process: in memory, or in blocks of which a sample is in memory."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.distributed.blocks import Block, Blocks, LocalBlocks, widen_rows
from latlin.distributed.checkpoints import digest_of, signature
from latlin.distributed.opening import open_blocks
from latlin.gp.approximation import Approximation, Fitter
from latlin.gp.search import Journal
from latlin.gp.setting import Setting
from latlin.inference.engine import Engine
from latlin.numerics.arrays import Array

#: rows of a sample of blocks
SAMPLE = 10_000


class Training(NamedTuple):
    """Rows to learn from.

    Parameters
    ----------
    X, y : ndarray of shape (n, n_features) and (n,)
        All rows; where these are in blocks, a sample, which tells units and sizes.
    blocks : Blocks, optional
        All rows, where they are in blocks.
    one : label, optional
        The class that counts as one, where the targets in blocks are labels.
    """

    X: Array
    y: Array
    blocks: Blocks | None = None
    one: Any = None

    @property
    def n_rows(self) -> int:
        return len(self.X) if self.blocks is None else count_rows(self.blocks)

    def prepare(
        self,
        approximation: Approximation,
        setting: Setting,
        engine: Engine,
        rng: np.random.Generator,
        verbose: bool = False,
    ) -> Fitter:
        """The rows made ready for fits at many parameters."""
        if self.blocks is None:
            return approximation.prepare(setting, self.X, self.y, engine, rng, verbose)
        if not getattr(approximation, "takes_blocks", False):
            raise ValueError(f"approximation {approximation.name!r} needs rows in memory, got blocks; use 'inducing'")
        ready: Any = approximation
        found: Fitter = ready.prepare(setting, self.blocks, None, engine, rng, verbose, self.one)
        return found


def open_training(X: Any, y: Any, random_state: int) -> Training:
    """Rows in blocks, checked in one pass, and a sample of them."""
    blocks = open_blocks(X, y)
    blocks.each(_check)
    sample = sample_rows(blocks, SAMPLE, random_state).whole
    return Training(sample.X, sample.y, blocks)


def open_journal(path: Any, estimator: Any, data: Training, index: int = 0, count: int = 1) -> Journal | None:
    """The checkpoint of one search of an estimator; of several each has its own file."""
    if path is None:
        return None
    rows = local_blocks(data.X, data.y) if data.blocks is None else data.blocks
    numbered = f"{os.fspath(path)}.{index}" if count > 1 else path
    return Journal(numbered, f"{signature(estimator)} {digest_of(rows, path)} {data.one!r}")


def _check(block: Block) -> None:
    if block.y is None:
        raise ValueError("y is missing: blocks of rows must come with their targets")
    if not np.all(np.isfinite(np.asarray(block.X, dtype=float).sum(axis=0))):
        raise ValueError(f"Input X contains NaN or infinity, in block {block.number}.")
    y = np.asarray(block.y)
    if y.dtype.kind == "f" and not np.isfinite(y.sum()):
        raise ValueError(f"Input y contains NaN or infinity, in block {block.number}.")


def distinct_labels(blocks: Blocks) -> NDArray[Any]:
    """Distinct labels of all rows, in order."""
    return np.unique(np.concatenate(blocks.each(_labels)))


def _labels(block: Block) -> NDArray[Any]:
    return np.unique(np.asarray(block.y))


def count_rows(blocks: Blocks) -> int:
    """Rows of all blocks."""
    return blocks.whole.n_rows if isinstance(blocks, LocalBlocks) else int(blocks.total(_rows_of)[0])


def _rows_of(block: Block) -> tuple[int]:
    return (block.n_rows,)


def sample_rows(blocks: Blocks, count: int, seed: int) -> LocalBlocks:
    """About `count` rows drawn from all blocks, without replacement; all of them where there are fewer."""
    parts = blocks.each(_drawn, min(count / count_rows(blocks), 1.0), seed)
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    return local_blocks(X, y)


def _drawn(block: Block, share: float, seed: int) -> tuple[Array, Any]:
    take = round(share * block.n_rows) if share < 1.0 else block.n_rows
    chosen = np.sort(np.random.default_rng([seed, block.number]).permutation(block.n_rows)[: max(take, 1)])
    y = np.asarray(block.y)[chosen]
    return widen_rows(np.asarray(block.X)[chosen]), y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


#: blocks of rows in memory, and the rows that each has at least
PARTS, LEAST = 16, 1024


def local_blocks(X: Array, y: Array) -> LocalBlocks:
    """Rows in memory, in blocks on which threads work side by side."""
    return LocalBlocks.of(X, y, rows=max(LEAST, -(-len(X) // PARTS)))

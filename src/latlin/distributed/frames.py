"""Tables with columns of several kinds as blocks of rows: Dask data frames, and dicts of memory-mapped columns.

A block's X is then a `FrameRows`, which has columns by name; a reading makes numbers of them where the block is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.distributed.blocks import BLOCK_BYTES, Block, Blocks, LocalBlocks
from latlin.distributed.dask_blocks import DaskBlocks
from latlin.distributed.dask_parts import FrameRows, parts_of


def is_large_frame(frame: Any) -> bool:
    """Whether a table is fitted block by block: a Dask frame, blocks, or memory-mapped columns of more than 64 MiB.

    Examples
    --------
    >>> is_large_frame({"x": np.zeros(3)})
    False
    >>> is_large_frame(frame_blocks({"x": np.zeros(3)}))
    True
    """
    if hasattr(type(frame), "total") and hasattr(type(frame), "each"):
        return True
    if type(frame).__module__.partition(".")[0] == "dask":
        return True
    columns = list(frame.values()) if isinstance(frame, Mapping) else []
    mapped = [values for values in columns if isinstance(values, np.memmap)]
    return sum(values.nbytes for values in mapped) > BLOCK_BYTES


def frame_blocks(frame: Any, *, rows: int | None = None, client: Any = None) -> Blocks:
    """The rows of a table in blocks.

    Parameters
    ----------
    frame : dask.dataframe, or mapping of name → array of shape (n,)
        Arrays may be memory-mapped; a block is read when its turn comes. Blocks come back as they are.
    rows : int, optional
        Rows per block of arrays, by default about 64 MiB of them.
    client : distributed.Client, optional
        Where Dask computes; by default the scheduler Dask itself would use.

    Examples
    --------
    >>> blocks = frame_blocks({"x": np.arange(5), "g": np.array(list("aabba"))}, rows=2)
    >>> blocks.n_blocks, blocks.n_columns
    (3, 2)
    """
    if hasattr(type(frame), "total") and hasattr(type(frame), "each"):
        return frame
    if type(frame).__module__.partition(".")[0] == "dask":
        parts = parts_of(frame)
        names = tuple(map(str, frame.columns))
        keys = tuple(((FrameRows.of, key), None, None, None) for key in parts.keys)
        return DaskBlocks(parts.graph, keys, len(names), client)
    held = FrameRows.of(frame)
    size = BLOCK_BYTES * held.shape[0] // max(held.nbytes, 1) if rows is None else rows
    return LocalBlocks(Block(held), max(1, int(size)))


@dataclass(frozen=True)
class Sample:
    """Rows of a block that stand for all of them.

    Parameters
    ----------
    step : int
        Every so-manyth row is taken, and the first row of every label.
    """

    step: int

    def __call__(self, block: Block) -> dict[str, NDArray[Any]]:
        frame: FrameRows = block.X
        taken = np.zeros(frame.shape[0], bool)
        taken[:: self.step] = True
        for name in frame.columns:
            values = frame[name]
            if self.step > 1 and values.dtype.kind != "f":
                taken[np.unique(values.astype(str) if values.dtype.kind == "O" else values, return_index=True)[1]] = (
                    True
                )
        return {name: frame[name][taken] for name in frame.columns}


def sampled(blocks: Blocks, most: int) -> tuple[int, dict[str, NDArray[Any]]]:
    """The number of rows, and a table of about `most` of them at even distances, with every label in it.

    Where there are no more than that, it is the whole table.
    """
    count = sum(blocks.each(_length))
    parts = blocks.each(Sample(max(1, -(-count // most))))
    return count, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _length(block: Block) -> int:
    return block.n_rows

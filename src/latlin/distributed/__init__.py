"""Sums over blocks of rows, on this machine or on Dask."""

from latlin.distributed.blocks import Block, Blocks, LocalBlocks
from latlin.distributed.clusters import WORKER_SETTINGS, ClusterError
from latlin.distributed.opening import frame_blocks, is_blocked, open_blocks
from latlin.distributed.reading import read_rows

__all__ = [
    "WORKER_SETTINGS",
    "Block",
    "Blocks",
    "ClusterError",
    "LocalBlocks",
    "frame_blocks",
    "is_blocked",
    "open_blocks",
    "read_rows",
]

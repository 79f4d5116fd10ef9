"""Several tables of the same rows as blocks that have the columns of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latlin.distributed.blocks import Blocks, LocalBlocks
from latlin.distributed.opening import is_dask, open_blocks


@dataclass(frozen=True)
class SideBySide:
    """Arrays, possibly memory-mapped, whose columns are joined when rows are taken.

    Examples
    --------
    >>> SideBySide((np.zeros((5, 2)), np.ones((5, 1))))[1:3].tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """

    arrays: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.arrays[0]), sum(array.shape[1] for array in self.arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def __getitem__(self, rows: Any) -> Any:
        return np.concatenate([array[rows] for array in self.arrays], axis=1)


def open_side_by_side(tables: Mapping[Any, Any]) -> Blocks:
    """Blocks of rows with the columns of all tables, one after the other.

    Parameters
    ----------
    tables : mapping of name → array, memmap, dask.array or dask.dataframe
        All with the same rows, in the same order.
    """
    _check_lengths(tables)
    if any(is_dask(table) for table in tables.values()):
        return open_blocks(_joined(list(tables.values())))
    return LocalBlocks.of(SideBySide(tuple(tables.values())))


def _check_lengths(tables: Mapping[Any, Any]) -> None:
    counts = {name: table.shape[0] for name, table in tables.items()}
    known = {name: count for name, count in counts.items() if isinstance(count, int | np.integer)}
    if len(set(known.values())) > 1:
        found = ", ".join(f"{name!r} has {count}" for name, count in known.items())
        raise ValueError(f"all views must have the same number of rows: {found}")


def _joined(tables: list[Any]) -> Any:
    """One dask.array, cut in rows like the first Dask collection."""
    import dask.array as da

    arrays = [table.to_dask_array() if hasattr(table, "to_dask_array") else table for table in tables]
    cut = next(array.chunks[0] for array in arrays if is_dask(array))
    arrays = [array if is_dask(array) else da.from_array(np.asarray(array), chunks=(cut, -1)) for array in arrays]
    known = not any(np.isnan(length) for array in arrays for length in array.chunks[0])
    arrays = [array.rechunk({0: cut}) for array in arrays] if known else arrays
    return da.concatenate(arrays, axis=1, allow_unknown_chunksizes=not known)

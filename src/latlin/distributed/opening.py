"""What users bring, as blocks of rows: memory-mapped arrays, Dask collections, Parquet files, or blocks already.

Dask is never imported unless the object that comes was made by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import BLOCK_BYTES, Blocks, LocalBlocks
from latlin.distributed.dask_blocks import DaskBlocks
from latlin.distributed.dask_parts import check_columns

#: what estimators call what belongs to the rows
ARGUMENTS = {"y": "y", "weight": "sample_weight", "offset": "offset"}


def is_blocked(X: Any) -> bool:
    """Whether X is fitted block by block: a memory-mapped array of more than 64 MiB, a Dask collection, or `Blocks`.

    Smaller maps, such as joblib makes of its arguments, are arrays like others.

    Examples
    --------
    >>> is_blocked(np.zeros((3, 2)))
    False
    >>> is_blocked(LocalBlocks.of(np.zeros((3, 2))))
    True
    """
    return (isinstance(X, np.memmap) and X.nbytes > BLOCK_BYTES) or _has_blocks(X) or is_dask(X)


def is_dask(values: Any) -> bool:
    """Whether Dask made this object; Dask itself is not imported to find out."""
    return type(values).__module__.partition(".")[0] == "dask"


def open_blocks(X: Any, y: Any = None, weight: Any = None, offset: Any = None, client: Any = None) -> Blocks:
    """X and what belongs to its rows, as blocks.

    Parameters
    ----------
    X : array, memmap, CSR array, dask.array, dask.dataframe or Blocks of N rows
        Blocks come back as they are; they hold their own y, weight and offset.
    y : array of shape (N,) or (N, k), or a Dask collection, optional
    weight : array of shape (N,), or a Dask collection, optional
    offset : array of shape (N,), or a Dask collection, optional
    client : distributed.Client, optional
        Where Dask computes; by default the scheduler Dask itself would use: the active client, else threads.

    Returns
    -------
    Blocks
    """
    beside = {"y": y, "weight": weight, "offset": offset}
    if _has_blocks(X):
        given = [ARGUMENTS[name] for name, values in beside.items() if values is not None]
        if given:
            raise ValueError(f"{given[0]} was given beside X, which is blocks of rows: these hold their own {given[0]}")
        return X
    if is_dask(X):
        return DaskBlocks.of(X, **beside, client=client)
    return _open_local(X, beside)


def _has_blocks(X: Any) -> bool:
    return all(hasattr(type(X), name) for name in ("total", "each", "fold"))


def _open_local(X: Any, beside: dict[str, Any]) -> LocalBlocks:
    X = X if sparse.issparse(X) else np.asanyarray(X)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; expected two dimensions, rows and columns")
    if X.shape[0] == 0:
        raise ValueError(f"X has shape {X.shape}: there are no rows")
    check_columns(X)
    columns = {name: None if values is None else np.asanyarray(values) for name, values in beside.items()}
    for name, values in columns.items():
        if values is not None and (values.ndim == 0 or values.shape[0] != X.shape[0]):
            raise ValueError(
                f"{ARGUMENTS[name]} has shape {values.shape}; expected one entry for each of the {X.shape[0]} rows of X"
            )
    return LocalBlocks.of(X, **columns)


# --- Several tables of the same rows as blocks that have the columns of all of them.


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

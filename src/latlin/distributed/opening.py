"""What users bring, as blocks of rows: memory-mapped arrays, Dask collections, Parquet files, or blocks already.

Dask is never imported unless the object that comes was made by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import BLOCK_BYTES, Blocks, LocalBlocks
from latlin.distributed.dask_blocks import DaskBlocks
from latlin.distributed.dask_parts import check_columns

#: what estimators call what belongs to the rows
TOLD = {"y": "y", "weight": "sample_weight", "offset": "offset"}


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
        given = [TOLD[name] for name, values in beside.items() if values is not None]
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
                f"{TOLD[name]} has shape {values.shape}; expected one entry for each of the {X.shape[0]} rows of X"
            )
    return LocalBlocks.of(X, **columns)

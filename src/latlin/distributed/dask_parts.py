"""Dask collections as blocks of rows: which task holds which rows, and how a task's answer becomes a `Block`.

The graphs are taken as they are, without Dask's optimisation: it may merge the partitions of one column and not of the
others, and reads twice what X and y share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import Block

Key = Any


class Parts(NamedTuple):
    """The tasks of a collection.

    Parameters
    ----------
    graph : mapping
        Key → task.
    keys : tuple
        One key a block of rows, in order.
    lengths : tuple of int, or None
        Rows of each block, where they are known.
    """

    graph: Mapping[Key, Any]
    keys: tuple[Key, ...]
    lengths: tuple[int, ...] | None


class FrameRows:
    """Rows of a table by the names of its columns.

    Parameters
    ----------
    held : dict of name → array of shape (n,)

    Examples
    --------
    >>> rows = FrameRows.of({"x": np.arange(5), "g": np.array(list("aabba"))})[1:3]
    >>> rows.shape, rows["g"].tolist()
    ((2, 2), ['a', 'b'])
    """

    def __init__(self, held: dict[str, Any]) -> None:
        self._held = held

    @classmethod
    def of(cls, frame: Any) -> FrameRows:
        """A data frame or a mapping of columns; a frame's own arrays are taken."""
        names = list(frame.columns) if hasattr(frame, "columns") else list(frame)
        held = {str(name): _column(frame[name]) for name in names}
        lengths = {name: len(values) for name, values in held.items()}
        if not held or len(set(lengths.values())) > 1:
            raise ValueError(f"the columns of a table must have one length, got {lengths}")
        return cls(held)

    @property
    def columns(self) -> list[str]:
        return list(self._held)

    @property
    def shape(self) -> tuple[int, int]:
        return len(next(iter(self._held.values()))), len(self._held)

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values in self._held.values())

    def __getitem__(self, wanted: Any) -> Any:
        """A column, or some rows."""
        if isinstance(wanted, str):
            return np.asarray(self._held[wanted])
        return FrameRows({name: values[wanted] for name, values in self._held.items()})


def _column(values: Any) -> Any:
    return values if isinstance(values, np.ndarray) else np.asarray(values)


def rows_of(X: Any) -> Parts:
    """The blocks of X: a dask.array of two dimensions, or a dask.dataframe of numbers."""
    if _is_frame(X):
        _check_numbers(X)
        return parts_of(X)
    if not _is_array(X):
        raise ValueError(f"X is a Dask {type(X).__name__}; expected a dask.array or a dask.dataframe of rows")
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; expected two dimensions, rows and columns")
    check_columns(X)
    return parts_of(X.rechunk({1: -1}) if X.numblocks[1] > 1 else X)


def column_of(name: str, values: Any, rows: Parts) -> Parts:
    """The blocks of what belongs to the rows of X, cut where these are cut."""
    if not (_is_array(values) or _is_frame(values)):
        values = _from_memory(name, values, rows)
    known = _is_array(values) and rows.lengths is not None and not np.isnan(values.shape[0])
    if known and values.shape[0] != sum(rows.lengths or ()):
        raise ValueError(
            f"{name} has shape {values.shape}; expected one entry for each of the {sum(rows.lengths or ())} rows of X"
        )
    if _is_array(values):
        values = values.rechunk({axis: -1 for axis in range(1, values.ndim)} | ({0: rows.lengths} if known else {}))
    parts = parts_of(values)
    if len(parts.keys) != len(rows.keys):
        raise ValueError(
            f"{name} has {len(parts.keys)} blocks of rows and X has {len(rows.keys)}; "
            "repartition (or rechunk) one like the other"
        )
    return parts


def check_columns(X: Any) -> None:
    """Refuse an array without columns, or of what no real number can be made of without a loss."""
    if X.shape[1] == 0:
        raise ValueError(f"X has shape {X.shape}: there are no columns")
    if X.dtype.kind not in "biufO":
        raise ValueError(f"X must hold real numbers, got an array of {X.dtype}")


def n_columns_of(X: Any) -> int:
    """Columns of a dask.array or dask.dataframe."""
    return len(X.columns) if _is_frame(X) else int(X.shape[1])


def as_block(number: int, X: Any, y: Any, weight: Any, offset: Any) -> Block:
    """What the tasks of a block returned, as arrays; rows that do not belong together are refused."""
    for name, values in (("y", y), ("sample_weight", weight), ("offset", offset)):
        if values is not None and len(values) != X.shape[0]:
            raise ValueError(f"{name} has {len(values)} rows in block {number} and X has {X.shape[0]}; cut both alike")
        if hasattr(values, "index") and hasattr(X, "index") and not values.index.equals(X.index):
            raise ValueError(f"{name} has another index than X in block {number}: the rows do not belong together")
    return Block(_matrix(X), _values(y), _values(weight), _values(offset), number)


def aligned(values: Any) -> Any:
    """An array at an address that fits its numbers; others pass. What came over a network need not be at one.

    Matrix products at such addresses take another way through NumPy, which gives other last digits, slowly.
    """
    return np.require(values, requirements="A") if isinstance(values, np.ndarray) else values


def _matrix(X: Any) -> Any:
    if isinstance(X, FrameRows):
        return X
    if sparse.issparse(X):
        rows = sparse.csr_array(X)
        return sparse.csr_array((aligned(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    if not hasattr(X, "dtypes"):
        return aligned(np.asarray(X))
    kinds = {np.dtype(kind) if isinstance(kind, np.dtype) else np.dtype(float) for kind in X.dtypes}
    kind = np.float32 if kinds == {np.dtype(np.float32)} else np.float64
    return X.to_numpy(kind, na_value=np.nan)


def _values(values: Any) -> Any:
    if _is_nullable(getattr(values, "dtype", None)):
        return values.to_numpy(float, na_value=np.nan)
    return None if values is None else aligned(np.asarray(values))


def _is_nullable(kind: Any) -> bool:
    """Whether pandas keeps such numbers beside a mask: they become floats, as scikit-learn makes them in memory."""
    if kind is None or isinstance(kind, np.dtype):
        return False
    from pandas.api import types

    return bool(types.is_numeric_dtype(kind))


def _is_array(values: Any) -> bool:
    return _has(values, "numblocks", "rechunk")


def _is_frame(values: Any) -> bool:
    return _has(values, "npartitions", "map_partitions", "divisions")


def _has(values: Any, *names: str) -> bool:
    """Whether the class has these: a delayed value pretends to have everything."""
    return all(hasattr(type(values), name) for name in names)


def parts_of(values: Any) -> Parts:
    """The blocks of a dask.array or dask.dataframe of whatever kind."""
    keys = tuple(_first(key) for key in values.__dask_keys__())
    lengths = None
    if _is_array(values) and not np.isnan(values.shape[0]):
        lengths = tuple(int(length) for length in values.chunks[0])
    return Parts(dict(values.__dask_graph__()), keys, lengths)


def _first(key: Any) -> Key:
    """Keys of an array of two dimensions come as rows of columns, of which there is one."""
    while isinstance(key, list):
        key = key[0]
    return key


def _from_memory(name: str, values: Any, rows: Parts) -> Any:
    import dask.array as da

    values = np.asarray(values)
    if rows.lengths is None:
        raise ValueError(
            f"{name} is an array in memory, and the lengths of the blocks of X are unknown; give {name} from Dask too"
        )
    if values.ndim == 0 or values.shape[0] != sum(rows.lengths):
        raise ValueError(
            f"{name} has shape {values.shape}; expected one entry for each of the {sum(rows.lengths)} rows of X"
        )
    return da.from_array(values, chunks=(rows.lengths, *values.shape[1:]))


def _check_numbers(X: Any) -> None:
    from pandas.api import types

    if not len(X.columns):
        raise ValueError("X is a data frame without columns")
    others = [str(name) for name, kind in X.dtypes.items() if not types.is_numeric_dtype(kind)]
    if others:
        listed = ", ".join(map(repr, others[:8]))
        raise ValueError(f"X must hold numbers; these columns do not: {listed}; encode them or leave them out")

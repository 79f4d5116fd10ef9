"""Rows on disk as Dask collections that every worker reads by itself: Parquet files and NumPy arrays.

Only names of files are in the graphs, never their rows.
"""

from __future__ import annotations

import os
from glob import glob
from typing import Any, NamedTuple

import numpy as np

from latlin.distributed.blocks import BLOCK_BYTES, slices


class FileRows(NamedTuple):
    """X, and y where a target was named."""

    X: Any
    y: Any = None


def read_rows(pattern: str | os.PathLike[str], target: str | None = None, *, rows: int | None = None) -> FileRows:
    """The rows of Parquet files, or of NumPy files, as Dask collections.

    Parameters
    ----------
    pattern : str
        A file, or many by a pattern (`data/*.parquet`), in the order of their names. Files that end in `.npy` hold an
        array of one or two dimensions, and are mapped into memory where they are used. On a cluster, every worker must
        see the files under this name.
    target : str, optional
        The column of Parquet files that is y; the others are X.
    rows : int, optional
        Rows per block of NumPy files, by default about 64 MiB; Parquet files keep the parts they were written in.

    Returns
    -------
    Rows
        X, a dask.dataframe (Parquet) or dask.array (`.npy`), and y, a series, or None without a target.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.ones((10, 3)))
    ...     print(read_rows(f"{folder}/x.npy", rows=4).X.chunks)
    ((4, 4, 2), (3,))
    """
    paths = sorted(glob(os.fspath(pattern)))
    if not paths:
        raise FileNotFoundError(f"there is no file {os.fspath(pattern)}")
    texts = [path for path in paths if path.endswith((".csv", ".tsv", ".txt"))]
    if texts:
        raise ValueError(f"{texts[0]} is a table of text; blocks of rows are read from Parquet or NumPy files")
    if not all(path.endswith(".npy") for path in paths):
        return _with_target(_read_parquet(paths), target)
    if target is not None:
        raise ValueError(f"target={target!r} names a column, and the columns of {paths[0]} have no names")
    return FileRows(_read_arrays(paths, rows))


def _read_parquet(paths: list[str]) -> Any:
    try:
        import dask.dataframe as dd
    except ImportError as error:
        raise ImportError("Parquet files in blocks need Dask: install latlin[dask,parquet]") from error
    _check_columns(paths)
    return dd.read_parquet(paths)


def _check_columns(paths: list[str]) -> None:
    """Refuse files that are not Parquet, or lack a column of the first; only their footers are read."""
    first: list[str] = []
    for path in filter(os.path.isfile, paths):
        names = _column_names(path)
        lacking = [name for name in first if name not in names]
        if lacking:
            raise ValueError(f"{path} has no column {lacking[0]!r}, which {paths[0]} has")
        first = first or [name for name in names if not name.startswith("__index_level_")]


def _column_names(path: str) -> list[str]:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(path).names)
    except ArrowInvalid as error:
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error


def _with_target(frame: Any, target: str | None) -> FileRows:
    if target is None:
        return FileRows(frame)
    if target not in frame.columns:
        raise ValueError(f"target is {target!r}; expected one of the columns {', '.join(map(repr, frame.columns))}")
    return FileRows(frame[[name for name in frame.columns if name != target]], frame[target])


def _read_arrays(paths: list[str], rows: int | None) -> Any:
    try:
        import dask.array as da
    except ImportError as error:
        raise ImportError("arrays in blocks need Dask: install latlin[dask]") from error
    return da.concatenate([_read_array(path, rows) for path in paths])


def _read_array(path: str, rows: int | None) -> Any:
    import dask.array as da

    whole = np.load(path, mmap_mode="r")
    if whole.ndim not in (1, 2) or not whole.size:
        raise ValueError(f"{path} holds an array of shape {whole.shape}; expected rows, and columns")
    rows = max(1, BLOCK_BYTES * len(whole) // whole.nbytes) if rows is None else rows
    lengths = tuple(part.stop - part.start for part in slices(len(whole), rows))
    chunks = (lengths, *((size,) for size in whole.shape[1:]))
    meta = np.empty((0,) * whole.ndim, whole.dtype)
    return da.map_blocks(_mapped, chunks=chunks, dtype=whole.dtype, meta=meta, path=path)


def _mapped(path: str, block_info: Any = None) -> Any:
    (start, stop), *_ = block_info[None]["array-location"]
    return np.load(path, mmap_mode="r")[start:stop]

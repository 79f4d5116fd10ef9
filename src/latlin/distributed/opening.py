"""What users bring, as blocks of rows: memory-mapped arrays, Dask collections, Parquet files, or blocks already.

Dask is never imported unless the object that comes was made by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.distributed.blocks import BLOCK_BYTES, Block, Blocks, LocalBlocks
from latlin.distributed.dask_blocks import DaskBlocks, FrameRows, check_columns, parts_of
from latlin.numerics.options import PerRow, Rows, Table

#: what estimators call what belongs to the rows
ARGUMENTS = {"y": "y", "weight": "sample_weight", "offset": "offset"}


def is_blocked(X: Rows) -> bool:
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


def open_blocks(X: Rows, y: PerRow = None, weight: PerRow = None, offset: PerRow = None, client: Any = None) -> Blocks:
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


def _has_blocks(X: Rows) -> bool:
    return all(hasattr(type(X), name) for name in ("total", "each", "fold"))


def _open_local(X: Rows, beside: dict[str, Any]) -> LocalBlocks:
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


def refuse_checkpoint(path: Any) -> None:
    """Fits of rows in memory keep none."""
    if path is not None:
        raise ValueError("checkpoint is for rows in blocks: Dask collections, large memory-mapped arrays, blocks")


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


# --- Tables with columns of several kinds as blocks of rows: Dask data frames, and dicts of memory-mapped columns.
#
# A block's X is then a `FrameRows`, which has columns by name; a reading makes numbers of them where the block is.


def is_large_frame(frame: Table) -> bool:
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


def frame_blocks(frame: Table, *, rows: int | None = None, client: Any = None) -> Blocks:
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


def sample_rows(blocks: Blocks, most: int) -> tuple[int, dict[str, NDArray[Any]]]:
    """The number of rows, and a table of about `most` of them at even distances, with every label in it.

    Where there are no more than that, it is the whole table.
    """
    count = sum(blocks.each(_length))
    parts = blocks.each(Sample(max(1, -(-count // most))))
    return count, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _length(block: Block) -> int:
    return block.n_rows


# --- Answers of a fitted model for rows in blocks: a Dask collection gets a lazy Dask array, other blocks an array.


# --- What an estimator remembers of the columns of data that scikit-learn does not validate.


def remember_columns(estimator: Any, X: Rows, n_columns: int) -> None:
    """Set `n_features_in_`, and `feature_names_in_` when all columns of X have names that are text.

    Examples
    --------
    >>> class Table:
    ...     columns = ["a", "b"]
    >>> class Model:
    ...     pass
    >>> model = Model()
    >>> remember_columns(model, Table(), 2)
    >>> model.n_features_in_, model.feature_names_in_.tolist()
    (2, ['a', 'b'])
    """
    estimator.n_features_in_ = n_columns
    names = list(getattr(X, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


Method = TypeVar("Method", bound=Callable[..., Any])


def rowwise(method: Method) -> Method:
    """A method of X (and of offsets, if it has them) with an answer, or a row of them, for every row of X.

    It may be asked for X in blocks as well; its other options are for rows in memory.
    """

    @wraps(method)
    def ask(self: Any, X: Rows, *offset: PerRow, **options: Any) -> Any:
        if not is_blocked(X):
            return method(self, X, *offset, **options)
        beside = offset[0] if offset else options.pop("offset", None)
        given = sorted(name for name, value in options.items() if value)
        if given:
            raise ValueError(f"{given[0]} is for rows in memory: ask for it block by block")
        answer = Answer(self, method.__name__)
        return _lazily(answer, X, beside) if is_dask(X) else _eagerly(answer, X, beside)

    return cast(Method, ask)


@dataclass(frozen=True)
class Answer:
    """What a fitted estimator says of some rows; the rows it was fitted to do not travel with it."""

    estimator: Any
    method: str

    def __call__(self, X: Rows, offset: PerRow = None) -> Any:
        question = getattr(self.estimator, self.method)
        rows = X.toarray() if sparse.issparse(X) and not self._takes_sparse else X
        return question(rows) if offset is None else question(rows, offset)

    @property
    def _takes_sparse(self) -> bool:
        return bool(self.estimator.__sklearn_tags__().input_tags.sparse)

    def of_columns(self, X: Rows, offset: PerRow) -> Any:
        """With offsets that came as a column, so that they have the axes of X."""
        return self(X, offset[:, 0])

    def of_block(self, block: Block) -> Any:
        return self(block.X if sparse.issparse(block.X) else np.asarray(block.X), block.offset)


def _eagerly(answer: Answer, X: Rows, offset: PerRow) -> Any:
    return np.concatenate(open_blocks(X, offset=offset).each(answer.of_block))


def _lazily(answer: Answer, X: Rows, offset: PerRow) -> Any:
    """A Dask array; nothing is computed yet but the answer to one made-up row, for its kind."""
    if hasattr(X, "columns"):
        if offset is not None:
            raise ValueError("offset is for arrays: give X as a dask.array, or ask block by block")
        return _of_frame(X, answer, np.asarray(answer(X._meta_nonempty.astype(float)))[:0])
    kind = np.asarray(answer(np.zeros((1, X.shape[1]), X.dtype)))[:0]
    rows = X.rechunk({1: -1})
    shape: dict[str, Any] = {"drop_axis": 1} if kind.ndim == 1 else {"chunks": (rows.chunks[0], kind.shape[1:])}
    if offset is None:
        return rows.map_blocks(answer, dtype=kind.dtype, meta=kind, **shape)
    import dask.array as da

    column = da.asarray(offset)[:, None].rechunk((rows.chunks[0], 1))
    return da.map_blocks(answer.of_columns, rows, column, dtype=kind.dtype, meta=kind, **shape)


def _of_frame(X: Rows, answer: Answer, empty: Any) -> Any:
    """The partitions stay data frames, with the names of their columns; how many rows they have is not known."""
    import dask
    import dask.array as da

    shape = (np.nan, *empty.shape[1:])
    parts = [da.from_delayed(dask.delayed(answer)(part), shape, meta=empty) for part in X.to_delayed()]
    return da.concatenate(parts, axis=0, allow_unknown_chunksizes=True)

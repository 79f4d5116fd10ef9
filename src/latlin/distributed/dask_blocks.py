"""Sums over the blocks of Dask collections: on this machine's threads, or on the workers of a cluster.

A pass is one graph: a task a block, which makes the `Block` and calls the summand where the rows are, and a tree of
sums in the order of `latlin.distributed.blocks.combine_pairwise`, eight neighbours at a time. What summands share is
in it once; only totals come back. Dask does the rest: it starts tasks where their rows are, and again elsewhere when a
worker dies. Nothing is kept between passes that the user did not persist.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import Block, Summand, add, combine_pairwise, count_parts, log_block, report_blocks
from latlin.distributed.clusters import compute_answer, current_client, explain_faults
from latlin.numerics.options import PerRow, Rows
from latlin.numerics.progress import begin_pass
from latlin.numerics.threads import one_blas_thread, one_thread

# --- Dask collections as blocks of rows: which task holds which rows, and how a task's answer becomes a `Block`.
#
# The graphs are taken as they are, without Dask's optimisation: it may merge the partitions of one column and not of
# the others, and reads twice what X and y share.


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


def rows_of(X: Rows) -> Parts:
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


def check_columns(X: Rows) -> None:
    """Refuse an array without columns, or of what no real number can be made of without a loss."""
    if X.shape[1] == 0:
        raise ValueError(f"X has shape {X.shape}: there are no columns")
    if X.dtype.kind not in "biufO":
        raise ValueError(f"X must hold real numbers, got an array of {X.dtype}")


def n_columns_of(X: Rows) -> int:
    """Columns of a dask.array or dask.dataframe."""
    return len(X.columns) if _is_frame(X) else int(X.shape[1])


def make_block(number: int, X: Rows, y: PerRow, weight: PerRow, offset: PerRow) -> Block:
    """What the tasks of a block returned, as arrays; rows that do not belong together are refused."""
    for name, values in (("y", y), ("sample_weight", weight), ("offset", offset)):
        if values is not None and len(values) != X.shape[0]:
            raise ValueError(f"{name} has {len(values)} rows in block {number} and X has {X.shape[0]}; cut both alike")
        if hasattr(values, "index") and hasattr(X, "index") and not values.index.equals(X.index):
            raise ValueError(f"{name} has another index than X in block {number}: the rows do not belong together")
    return Block(_matrix(X), _values(y), _values(weight), _values(offset), number)


def align(values: Any) -> Any:
    """An array at an address that fits its numbers; others pass. What came over a network need not be at one.

    Matrix products at such addresses take another way through NumPy, which gives other last digits, slowly.
    """
    return np.require(values, requirements="A") if isinstance(values, np.ndarray) else values


def _matrix(X: Rows) -> Any:
    if isinstance(X, FrameRows):
        return X
    if sparse.issparse(X):
        rows = sparse.csr_array(X)
        return sparse.csr_array((align(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    if not hasattr(X, "dtypes"):
        return align(np.asarray(X))
    kinds = {np.dtype(kind) if isinstance(kind, np.dtype) else np.dtype(float) for kind in X.dtypes}
    kind = np.float32 if kinds == {np.dtype(np.float32)} else np.float64
    return X.to_numpy(kind, na_value=np.nan)


def _values(values: Any) -> Any:
    if _is_nullable(getattr(values, "dtype", None)):
        return values.to_numpy(float, na_value=np.nan)
    return None if values is None else align(np.asarray(values))


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


def _check_numbers(X: Rows) -> None:
    from pandas.api import types

    if not len(X.columns):
        raise ValueError("X is a data frame without columns")
    others = [str(name) for name, kind in X.dtypes.items() if not types.is_numeric_dtype(kind)]
    if others:
        listed = ", ".join(map(repr, others[:8]))
        raise ValueError(f"X must hold numbers; these columns do not: {listed}; encode them or leave them out")


T = TypeVar("T")
#: neighbours that one task adds; a power of two, so that sums of sums are those of the pairwise tree
FAN_IN = 8


@dataclass(frozen=True)
class Work:
    """What a pass does to every block; once in its graph. It travels as one piece, so that arrays arrive aligned.

    Parameters
    ----------
    function : callable
    shared : tuple
    logged : str
        The name under which workers log that a block is done; none if empty.
    """

    function: Callable[..., Any]
    shared: tuple[Any, ...]
    logged: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        return _unpacked, (cloudpickle.dumps((self.function, self.shared, self.logged)),)


def _unpacked(packed: bytes) -> Work:
    return Work(*pickle.loads(packed))


class Pass(NamedTuple):
    """One graph to compute.

    Parameters
    ----------
    name : str
        Of its own, in all its keys.
    client : distributed.Client or None
        None is a scheduler of this process.
    watched : int
        Blocks to watch; 0 is none.
    tell : callable or None
        What to tell how many blocks are done.
    """

    name: str
    client: Any
    watched: int
    tell: Callable[[int], None] | None

    @classmethod
    def begin(cls, client: Any, count: int = 0) -> Pass:
        """A pass by this client, by default where Dask itself would compute."""
        client = current_client() if client is None else client
        return cls(uuid4().hex, client, count, begin_pass(count) if count else None)

    def work(self, function: Callable[..., Any], shared: tuple[Any, ...]) -> dict[Key, Any]:
        """The graph of what is done to every block."""
        watched = self.tell is not None and self.client is not None
        return {f"work-{self.name}": Work(function, shared, self.name if watched else "")}

    def compute(self, graph: Mapping[Key, Any], key: Key) -> Any:
        from dask.delayed import Delayed

        wanted = Delayed(key, graph)
        watch = nullcontext() if self.tell is None else report_blocks(self.client, self.name, self.watched, self.tell)
        with explain_faults(), one_blas_thread(), watch:
            found = wanted.compute() if self.client is None else compute_answer(self.client, wanted)
        return type(found)(map(align, found)) if type(found) in (tuple, list) else align(found)


class NoRows:
    """The answer of a block without rows."""


@dataclass(frozen=True)
class DaskBlocks:
    """Rows in the blocks of Dask collections.

    Parameters
    ----------
    graph : mapping
        Key → task, of all collections together.
    keys : tuple of tuples of 4 keys
        Where the X, y, weight and offset of each block are, or the task that reads them; None where there is nothing.
    n_columns : int
    client : distributed.Client or None
        Where to compute; None is the scheduler Dask itself would use: the active client, else threads.
    """

    graph: Mapping[Key, Any]
    keys: tuple[tuple[Key | None, ...], ...]
    n_columns: int
    client: Any = None

    @classmethod
    def of(
        cls, X: Rows, y: PerRow = None, weight: PerRow = None, offset: PerRow = None, *, client: Any = None
    ) -> DaskBlocks:
        """Blocks of a dask.array or dask.dataframe; what belongs to its rows is cut like it."""
        rows = rows_of(X)
        if rows.lengths is not None and sum(rows.lengths) == 0:
            raise ValueError(f"X has shape {X.shape}: there are no rows")
        beside = {"y": y, "sample_weight": weight, "offset": offset}
        parts = [rows, *(None if v is None else column_of(name, v, rows) for name, v in beside.items())]
        graph = {key: task for part in parts if part is not None for key, task in part.graph.items()}
        keys = tuple(zip(*_columns(parts), strict=True))
        own = {key for block in keys for key in block if key is not None and _reads(graph[key])}
        # reading and summing are one task, so that rows cannot be read on one worker and summed on another
        keys = tuple(tuple(graph[key] if key in own else key for key in block) for block in keys)
        return cls({key: task for key, task in graph.items() if key not in own}, keys, n_columns_of(X), client)

    @property
    def n_blocks(self) -> int:
        return len(self.keys)

    def total(self, summand: Summand, *shared: Any) -> tuple[Any, ...]:
        run = Pass.begin(self.client, self.n_blocks)
        graph, level = self._leaves(run, summand, shared)
        depth = 0
        while len(level) > 1 or not depth:
            depth += 1
            groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
            level = [(f"sum-{run.name}", depth, place) for place in range(len(groups))]
            graph |= {key: (_sum, *group) for key, group in zip(level, groups, strict=True)}
        found = run.compute(graph, level[0])
        if isinstance(found, NoRows):
            raise ValueError("X has no rows: all its blocks are empty")
        return found

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        run = Pass.begin(self.client, self.n_blocks)
        graph, leaves = self._leaves(run, function, shared)
        graph[f"all-{run.name}"] = (_gathered, *leaves)
        return run.compute(graph, f"all-{run.name}")

    def fold(self, function: Callable[..., T], state: T, *shared: Any, order: Iterable[int] | None = None) -> T:
        numbers = list(range(self.n_blocks) if order is None else order)
        for number in count_parts(numbers, len(numbers)):
            run = Pass.begin(self.client)
            graph, leaves = self._leaves(run, function, (state, *shared), [number])
            found = run.compute(graph, leaves[0])
            state = state if isinstance(found, NoRows) else found
        return state

    def _leaves(
        self, run: Pass, function: Callable[..., Any], shared: tuple[Any, ...], numbers: Sequence[int] | None = None
    ) -> tuple[dict[Key, Any], list[Key]]:
        """The graph of the blocks and of one task on each, and the keys of these."""
        leaves = {
            (f"block-{run.name}", number): (_applied, f"work-{run.name}", number, *self.keys[number])
            for number in (range(self.n_blocks) if numbers is None else numbers)
        }
        return {**self.graph, **run.work(function, shared), **leaves}, list(leaves)


def map_parts(collection: Any, function: Callable[..., Any], *shared: Any, client: Any = None) -> list[Any]:
    """`function(part, *shared)` of every part of a Dask collection as it is, a data frame with texts say, in order."""
    parts, run = parts_of(collection), Pass.begin(client)
    name = run.name
    leaves = {(f"part-{name}", place): (_worked, f"work-{name}", key) for place, key in enumerate(parts.keys)}
    whole = (_gathered, *leaves)
    return run.compute({**parts.graph, **run.work(function, shared), **leaves, name: whole}, name)


def _reads(task: Any) -> bool:
    """Whether a task needs no other, and is not something that Dask holds already."""
    return type(task).__name__ == "Task" and not task.dependencies


def _columns(parts: Sequence[Parts | None]) -> list[tuple[Key | None, ...]]:
    rows = parts[0]
    assert rows is not None
    return [(None,) * len(rows.keys) if part is None else part.keys for part in parts]


def _applied(work: Work, number: int, X: Rows, y: PerRow, weight: PerRow, offset: PerRow) -> Any:
    block = make_block(number, X, y, weight, offset)
    found = _worked(work, block) if block.n_rows else NoRows()
    if work.logged:
        log_block(work.logged, number)
    return found


def _worked(work: Work, part: Any) -> Any:
    with one_thread():
        return work.function(part, *work.shared)


def _sum(*parts: Any) -> Any:
    there = [part for part in parts if not isinstance(part, NoRows)]
    return combine_pairwise(there, add) if there else NoRows()


def _gathered(*answers: Any) -> list[Any]:
    return [answer for answer in answers if not isinstance(answer, NoRows)]

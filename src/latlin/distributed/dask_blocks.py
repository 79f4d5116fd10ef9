"""Sums over the blocks of Dask collections: on this machine's threads, or on the workers of a cluster.

A pass is one graph: a task a block, which makes the `Block` and calls the summand where the rows are, and a tree
of sums in the order of `latlin.distributed.blocks.tree`, eight neighbours at a time. What summands share is in it
once; only totals come back. Dask does the rest: it starts tasks where their rows are, and again elsewhere when a worker
dies. Nothing is kept between passes that the user did not persist.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from latlin.distributed.blocks import Summand, add, counted, listening, log_block, tree
from latlin.distributed.clusters import ambient_client, answer, explain_faults
from latlin.distributed.dask_parts import Key, Parts, aligned, as_block, column_of, n_columns_of, parts_of, rows_of
from latlin.numerics.progress import begin_pass
from latlin.numerics.threads import one_blas_thread, one_thread

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
        client = ambient_client() if client is None else client
        return cls(uuid4().hex, client, count, begin_pass(count) if count else None)

    def work(self, function: Callable[..., Any], shared: tuple[Any, ...]) -> dict[Key, Any]:
        """The graph of what is done to every block."""
        watched = self.tell is not None and self.client is not None
        return {f"work-{self.name}": Work(function, shared, self.name if watched else "")}

    def compute(self, graph: Mapping[Key, Any], key: Key) -> Any:
        from dask.delayed import Delayed

        wanted = Delayed(key, graph)
        watch = nullcontext() if self.tell is None else listening(self.client, self.name, self.watched, self.tell)
        with explain_faults(), one_blas_thread(), watch:
            found = wanted.compute() if self.client is None else answer(self.client, wanted)
        return type(found)(map(aligned, found)) if type(found) in (tuple, list) else aligned(found)


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
    def of(cls, X: Any, y: Any = None, weight: Any = None, offset: Any = None, *, client: Any = None) -> DaskBlocks:
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
        for number in counted(numbers, len(numbers)):
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


def each_part(collection: Any, function: Callable[..., Any], *shared: Any, client: Any = None) -> list[Any]:
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


def _applied(work: Work, number: int, X: Any, y: Any, weight: Any, offset: Any) -> Any:
    block = as_block(number, X, y, weight, offset)
    found = _worked(work, block) if block.n_rows else NoRows()
    if work.logged:
        log_block(work.logged, number)
    return found


def _worked(work: Work, part: Any) -> Any:
    with one_thread():
        return work.function(part, *work.shared)


def _sum(*parts: Any) -> Any:
    there = [part for part in parts if not isinstance(part, NoRows)]
    return tree(there, add) if there else NoRows()


def _gathered(*answers: Any) -> list[Any]:
    return [answer for answer in answers if not isinstance(answer, NoRows)]

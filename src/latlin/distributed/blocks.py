"""Sums over blocks of rows: all that a fit needs of data that may not fit into memory, or not on one machine.

A fit never sees the rows. It asks for the total of a *summand*, a function of one block and of some shared numbers that
returns a tuple of arrays, and gets the tuple of their sums (Challis (2013), §4.6.2). Summands are functions at the
top level of a module, or instances of small frozen classes defined there, so that they travel by name: no data are ever
packed into them. Sums are taken pairwise in a fixed tree over the order of the blocks, so that the same blocks give the
same digits wherever they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import sparse

from latlin.numerics.options import PerRow, Rows, check_whole, real_array
from latlin.numerics.progress import begin_pass
from latlin.numerics.threads import one_blas_thread, one_thread, thread_count

# --- Tasks that run beside each other take one thread each: BLAS and compiled loops would else fight for the cores.


S = TypeVar("S")
T = TypeVar("T")


def side_by_side(function: Callable[[S], T], parts: Iterable[S], count: int) -> Iterator[T]:
    """`function` of each of `count` parts, in their order, by as many threads as compiled loops may use.

    No more parts are taken than are being worked on, and one. Where there is one thread or one part, the work is done
    here, and BLAS may use all threads.
    """
    threads = min(thread_count(), count)
    if threads == 1:
        yield from map(function, parts)
        return
    waiting: deque[Future[T]] = deque()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        try:
            for part in parts:
                waiting.append(pool.submit(_alone, function, part))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _alone(function: Callable[[S], T], part: S) -> T:
    with one_thread():
        return function(part)


# --- How far a pass over the blocks has got, for the bar of the loop that makes it; nothing is watched without a bar.
#
# Blocks of this process are counted as they come. Dask's local schedulers call back after every task; on a cluster the
# tasks log an event, which the scheduler hands on to the client. The graph, and with it the order of the sums, is the
# same in all cases.

#: of the events that tasks log: the name of their pass and the number of their block
TOPIC = "latlin-blocks"


def count_parts(parts: Iterable[T], count: int) -> Iterable[T]:
    """The parts of a pass as they are, counted if there is a bar."""
    tell = begin_pass(count)
    return parts if tell is None else _with_progress(parts, tell)


def _with_progress(parts: Iterable[T], tell: Callable[[int], None]) -> Iterator[T]:
    for done, part in enumerate(parts, start=1):
        yield part
        tell(done)


@contextmanager
def report_blocks(client: Any, name: str, count: int, tell: Callable[[int], None]) -> Iterator[None]:
    """While this lasts, `tell` how many of `count` blocks of the pass of this name are done, on a cluster or here."""
    seen: set[int] = set()

    def hear(event: tuple[float, Any]) -> None:
        _, (of_pass, number) = event
        if of_pass == name and number not in seen:
            seen.add(number)
            tell(len(seen))

    with _called_back(name, hear) if client is None else _subscribed(client, hear):
        yield
    if len(seen) < count:  # events that are still on their way are late now
        seen.update(range(count))
        tell(count)


def _called_back(name: str, hear: Callable[[tuple[float, Any]], None]) -> Any:
    from dask.callbacks import Callback

    def after(key: Any, *_: Any) -> None:
        if isinstance(key, tuple) and key[0] == f"block-{name}":
            hear((0.0, (name, key[1])))

    return Callback(posttask=after)


@contextmanager
def _subscribed(client: Any, hear: Callable[[tuple[float, Any]], None]) -> Iterator[None]:
    client.subscribe_topic(TOPIC, hear)
    try:
        yield
    finally:
        client.unsubscribe_topic(TOPIC)


def log_block(name: str, number: int) -> None:
    """Called by a task on a cluster: this block is done."""
    from distributed import get_worker

    get_worker().log_event(TOPIC, (name, number))


#: bytes of a block of rows when nothing else is said
BLOCK_BYTES = 64 * 2**20


class Block(NamedTuple):
    """Consecutive rows and what belongs to them; None where there is nothing.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n, d)
    y : ndarray of shape (n,) or (n, k), optional
    weight : ndarray of shape (n,), optional
    offset : ndarray of shape (n,), optional
    number : int
        Position among the blocks.
    """

    X: Rows
    y: PerRow = None
    weight: PerRow = None
    offset: PerRow = None
    number: int = 0

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])


Summand = Callable[..., tuple[Any, ...]]


class Blocks(Protocol):
    """Rows in blocks, wherever they are."""

    @property
    def n_blocks(self) -> int: ...

    @property
    def n_columns(self) -> int: ...

    def total(self, summand: Summand, *shared: Any) -> tuple[Any, ...]:
        """Σ over blocks of `summand(block, *shared)`, entry by entry of the tuple, in one pass over the rows."""
        ...

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """`function(block, *shared)` of every block, in order; the answers should be small."""
        ...

    def fold(self, function: Callable[..., T], state: T, *shared: Any, order: Iterable[int] | None = None) -> T:
        """`state = function(block, state, *shared)` block after block, in `order` (all of them, from the first)."""
        ...


def add(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sum of two tuples, entry by entry."""
    return tuple(a + b for a, b in zip(first, second, strict=True))


def combine_pairwise(parts: Iterable[T], combine: Callable[[T, T], T]) -> T:
    """All parts combined pairwise: neighbours first, then neighbouring pairs, and so on; an odd one waits.

    Only as many results as the tree has levels are held at a time.

    Examples
    --------
    >>> combine_pairwise("abcdefg", lambda a, b: f"({a}{b})")
    '(((ab)(cd))((ef)g))'
    """
    waiting: list[tuple[int, T]] = []
    for part in parts:
        size = 1
        while waiting and waiting[-1][0] == size:
            part = combine(waiting.pop()[1], part)
            size *= 2
        waiting.append((size, part))
    if not waiting:
        raise ValueError("there are no blocks of rows to sum over")
    total = waiting.pop()[1]
    while waiting:
        total = combine(waiting.pop()[1], total)
    return total


def _check_parts(X: Rows, others: dict[str, Any]) -> None:
    """Refuse what has no rows and columns of numbers, and what does not go with them row by row."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    dtype = getattr(X, "dtype", np.dtype(float))
    if len(shape) != 2 or not shape[0]:
        raise ValueError(f"X must be a table with rows and columns, got {X!r:.80}")
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"X must hold numbers, got {dtype}")
    for name, values in others.items():
        if values is None:
            continue
        if np.ndim(values) == 0 if not isinstance(values, list | tuple) else not values:
            raise ValueError(f"{name} must have one entry for each of the {shape[0]} rows, got {values!r:.80}")
        if len(values) != shape[0]:
            raise ValueError(f"{name} must have one entry for each of the {shape[0]} rows of X, got {len(values)}")
        if name != "y":
            real_array(name, values)


@dataclass(frozen=True)
class LocalBlocks:
    """Rows in memory or in memory-mapped files of this machine, a thread on each of some blocks at a time.

    Parameters
    ----------
    whole : Block
        All rows; the arrays may be memory-mapped, then a block is read when its turn comes.
    rows : int
        Rows per block.
    """

    whole: Block
    rows: int

    @classmethod
    def of(
        cls, X: Rows, y: PerRow = None, weight: PerRow = None, offset: PerRow = None, *, rows: int | None = None
    ) -> LocalBlocks:
        """Blocks of `rows` rows, by default of about 64 MiB."""
        _check_parts(X, {"y": y, "weight": weight, "offset": offset})
        all_rows = Block(sparse.csr_array(X) if sparse.issparse(X) else X, y, weight, offset)
        if rows is None:
            size = X.data.nbytes + X.indices.nbytes if sparse.issparse(all_rows.X) else X.nbytes
            rows = max(1, BLOCK_BYTES * all_rows.n_rows // max(size, 1))
        return cls(all_rows, check_whole("rows", rows, 1))

    @property
    def n_blocks(self) -> int:
        return -(-self.whole.n_rows // self.rows)

    @property
    def n_columns(self) -> int:
        return int(self.whole.X.shape[1])

    def __iter__(self) -> Iterator[Block]:
        return map(self._block, range(self.n_blocks))

    def _block(self, number: int) -> Block:
        part = slice(number * self.rows, (number + 1) * self.rows)
        X, y, weight, offset = (None if values is None else values[part] for values in self.whole[:4])
        return Block(X, y, weight, offset, number)

    def total(self, summand: Summand, *shared: Any) -> tuple[Any, ...]:
        return combine_pairwise(self._answers(summand, shared), add)

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return list(self._answers(function, shared))

    def fold(self, function: Callable[..., T], state: T, *shared: Any, order: Iterable[int] | None = None) -> T:
        numbers = list(range(self.n_blocks) if order is None else order)
        for number in count_parts(numbers, len(numbers)):
            state = function(self._block(number), state, *shared)
        return state

    def _answers(self, function: Callable[..., T], shared: tuple[Any, ...]) -> Iterable[T]:
        return count_parts(side_by_side(lambda block: function(block, *shared), self, self.n_blocks), self.n_blocks)


@dataclass(frozen=True)
class MappedBlocks:
    """Blocks that a function changes when they are used; nothing is stored.

    Parameters
    ----------
    blocks : Blocks
    change : callable
        Block → Block, at the top level of a module.
    """

    blocks: Blocks
    change: Callable[[Block], Block]

    @property
    def n_blocks(self) -> int:
        return self.blocks.n_blocks

    @property
    def n_columns(self) -> int:
        return self.blocks.n_columns

    def total(self, summand: Summand, *shared: Any) -> tuple[Any, ...]:
        return self.blocks.total(_changed, self.change, summand, *shared)

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return self.blocks.each(_changed, self.change, function, *shared)

    def fold(self, function: Callable[..., T], state: T, *shared: Any, order: Iterable[int] | None = None) -> T:
        return self.blocks.fold(_folded, state, self.change, function, *shared, order=order)


def _folded(block: Block, state: T, change: Callable[[Block], Block], function: Callable[..., T], *shared: Any) -> T:
    return function(change(block), state, *shared)


def _changed(block: Block, change: Callable[[Block], Block], function: Callable[..., Any], *shared: Any) -> Any:
    return function(change(block), *shared)


def make_rows_dense(blocks: Blocks) -> Blocks:
    """The same rows for sums that have no use for zeros: a sparse block is dense while it is worked on."""
    return MappedBlocks(blocks, _dense)


def _dense(block: Block) -> Block:
    return block._replace(X=block.X.toarray()) if sparse.issparse(block.X) else block


def slices(n_rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows, for passes that stay in the cache."""
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def widen_rows(rows: Any) -> Any:
    """float64 and C-ordered; sparse stays sparse."""
    return rows.astype(np.float64) if sparse.issparse(rows) else np.ascontiguousarray(rows, dtype=np.float64)

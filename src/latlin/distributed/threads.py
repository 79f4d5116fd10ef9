"""Tasks that run beside each other take one thread each: BLAS and compiled loops would else fight for the cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from latlin.numerics.progress import begin_pass
from latlin.numerics.threads import one_blas_thread, one_thread, thread_count

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


def counted(parts: Iterable[T], count: int) -> Iterable[T]:
    """The parts of a pass as they are, counted if there is a bar."""
    tell = begin_pass(count)
    return parts if tell is None else _telling(parts, tell)


def _telling(parts: Iterable[T], tell: Callable[[int], None]) -> Iterator[T]:
    for done, part in enumerate(parts, start=1):
        yield part
        tell(done)


@contextmanager
def listening(client: Any, name: str, count: int, tell: Callable[[int], None]) -> Iterator[None]:
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

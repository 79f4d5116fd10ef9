"""Tasks that run beside each other take one thread each: BLAS and compiled loops would else fight for the cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib import import_module
from threading import Lock
from typing import TypeVar

import numba

from latlin.numerics.pools import one_blas_thread

S = TypeVar("S")
T = TypeVar("T")
#: compiled parallel loops may be entered by one thread at a time where Numba has only its own work queue
_ALONE = Lock()


def side_by_side(function: Callable[[S], T], parts: Iterable[S], count: int) -> Iterator[T]:
    """`function` of each of `count` parts, in their order, by as many threads as compiled loops may use.

    No more parts are taken than are being worked on, and one. Where there is one thread or one part, the work is done
    here, and BLAS may use all threads.
    """
    threads = min(numba.get_num_threads() if loops_may_overlap() else 1, count)
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Compiled loops of the calling thread use one thread, whatever runs beside it."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with nullcontext() if loops_may_overlap() else _ALONE:
            yield
    finally:
        numba.set_num_threads(before)


def loops_may_overlap() -> bool:
    """Whether threads may enter compiled parallel loops at the same time: Numba's own work queue cannot bear it."""
    try:
        return numba.threading_layer() != "workqueue"
    except ValueError:
        return any(_is_there(f"numba.np.ufunc.{pool}") for pool in ("tbbpool", "omppool"))


def _is_there(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True

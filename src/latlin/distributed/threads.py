"""Tasks that run beside each other take one thread each: BLAS and compiled loops would else fight for the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from threading import Lock

import numba

#: compiled parallel loops may be entered by one thread at a time where Numba has only its own work queue
_ALONE = Lock()


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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS calls of this process use one thread each."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


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

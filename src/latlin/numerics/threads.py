"""Compiled loops: how they are made, kept for the next run, and run on how many threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Lock, Timer, local
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.dispatcher import Dispatcher
from threadpoolctl import ThreadpoolController

# --- Compilation of loops: what they have in common, and a word where somebody waits for it longer than a second.
#
# Compiled loops are kept on disk, so that this happens once per loop and version of the packages. Numba keeps them as
# long as the file of the loop stays what it was, although the loops and numbers of other files that it uses are
# compiled into it: `njit` here looks at these as well. So loops that nothing has changed survive an upgrade of the
# package, and no others.


_Function = TypeVar("_Function", bound=Callable[..., object])
#: options of a loop that only other loops call: it needs no door for Python, which would have to be compiled as well
INNER: dict[str, Any] = {"cache": True, "no_cpython_wrapper": True}
#: seconds of compilation before a word is said
PATIENCE = 1.0
SAID = "compiling loops, once: the next run finds them on disk"


def njit(**options: Any) -> Callable[[_Function], Dispatcher[_Function]]:
    """`numba.njit`, whose loop is compiled again when a loop or a number has changed that it takes from another file.

    Examples
    --------
    >>> @njit(cache=False)
    ... def twice(x):
    ...     return 2.0 * x
    >>> twice(1.5)
    3.0
    """

    def compile_later(function: _Function) -> Dispatcher[_Function]:
        # a door for C, which nobody uses, would be compiled too
        loop: Any = numba.njit(**{"no_cfunc_wrapper": True, **options})(function)
        kept: Any = getattr(getattr(loop, "_cache", None), "_cache_file", None)
        if hasattr(kept, "_version"):
            # Numba reads this first, before it unpickles what may hold classes that are no more
            kept._version = f"{kept._version}, {_describe_origins(function)}"
        return loop

    return compile_later


def _describe_origins(function: Any) -> str:
    """A word that changes with the files of the loops that are known where the function stands, and with numbers."""
    files, numbers, left = {function.__code__.co_filename}, [], [function.__globals__]
    while left:
        for name, value in list(left.pop().items()):
            if isinstance(value, Dispatcher):
                code = value.py_func.__code__
                if code.co_filename not in files:
                    files.add(code.co_filename)
                    left.append(value.py_func.__globals__)
            elif _is_frozen(value):
                numbers.append(f"{name}={value!r}")
    digests = sorted(_digest(file) for file in files - {function.__code__.co_filename})
    return sha256("\n".join([*digests, *numbers]).encode()).hexdigest()


def _is_frozen(value: Any) -> bool:
    """A number or a tuple of numbers, which Numba compiles into a loop."""
    return isinstance(value, int | float) or (type(value) is tuple and all(_is_frozen(each) for each in value))


@cache
def _digest(file: str) -> str:
    """Of the text of a file; nothing where it cannot be read, as in an archive."""
    try:
        return sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


class _Waiting(event.Listener):
    """Calls `say` once, when compilations together have taken longer than `patience` seconds."""

    def __init__(self, say: Callable[[str], None], patience: float) -> None:
        self._say, self._left, self._depth, self._begun = say, patience, 0, 0.0
        self._timer: Timer | None = None

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1 and self._left > 0.0:
            self._begun = time.perf_counter()
            self._timer = Timer(self._left, self._speak)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer, self._left = None, self._left - (time.perf_counter() - self._begun)

    def _speak(self) -> None:
        self._left = 0.0
        self._say(SAID)


@contextmanager
def announce_compiling(say: Callable[[str], None], patience: float = PATIENCE) -> Iterator[None]:
    """While the block runs, `say` a sentence if loops are compiled for longer than `patience` seconds.

    Examples
    --------
    >>> with announce_compiling(print):
    ...     total = 1 + 1
    """
    with event.install_listener("numba:compile", _Waiting(say, patience)):
        yield


# --- Threads: how many there are, when they pay, and loops over pieces that are shared out among them.
#
# Compiled loops here are serial and release the interpreter's lock; `share_out` runs pieces of them on threads that
# live as long as the call. So there is no pool that spins beside BLAS, that a fork would break or that several callers
# could not enter at once, and every loop is compiled once. Whether threads pay is decided in one place, `threads_for`.


#: nanoseconds of work from which a thread of its own pays; starting one and waiting for it takes about 100,000
WORTH = 1e6
#: multiplications of a product from which a second thread of BLAS pays
BLAS_WORTH = 2e7
#: environment variables by which users limit the threads of compiled loops
VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")

_here = local()


def thread_count() -> int:
    """How many threads the caller may use: one per core, or fewer by an environment variable or by `one_thread`."""
    return min(_allowed(), getattr(_here, "limit", _allowed()))


def threads_for(nanoseconds: float) -> int:
    """How many threads pay for work that takes one thread this long."""
    return max(1, min(thread_count(), int(nanoseconds // WORTH)))


def share_out(kernel: Callable[..., Any], count: int, nanoseconds: float, *arguments: Any) -> None:
    """`kernel(first, last, *arguments)` for all items below `count`, in as many runs as threads pay.

    Parameters
    ----------
    kernel : callable
        Compiled with `nogil=True`; treats the items first … last − 1 and writes into arrays among its arguments.
    count : int
        Number of items.
    nanoseconds : float
        What one item takes, as measured; decides whether threads pay.
    """
    runs = min(count, threads_for(count * nanoseconds))
    edges = [count * run // max(runs, 1) for run in range(runs + 1)]
    run_together(kernel, [(first, last, *arguments) for first, last in pairwise(edges)])


def run_together(kernel: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
    """`kernel(*arguments)` for the arguments of every call, each call on a thread of its own, the first one here."""
    if len(calls) == 1:
        kernel(*calls[0])
    elif calls:
        with ThreadPoolExecutor(len(calls) - 1) as pool:
            others = [pool.submit(kernel, *arguments) for arguments in calls[1:]]
            kernel(*calls[0])
            for other in others:
                other.result()


@contextmanager
def one_thread() -> Iterator[None]:
    """Loops that the calling thread starts use one thread, because others run beside it."""
    before = getattr(_here, "limit", None)
    _here.limit = 1
    try:
        yield
    finally:
        if before is None:
            del _here.limit
        else:
            _here.limit = before


def blas_threads_for(multiplications: float) -> AbstractContextManager[None]:
    """BLAS keeps to one thread for a while where its longest products are too small for more.

    Threads of BLAS spin for milliseconds after each product, on cores that everything else needs: at 1,000 × 20 a fit
    on two threads takes several times the processor time of one.
    """
    return nullcontext() if multiplications >= BLAS_WORTH else one_blas_thread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS calls of this process use one thread each, until the last of those who asked for it has ended."""
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


class _SharedLimit:
    """One limit of all BLAS libraries of the process, held by any number of callers at the same time."""

    def __init__(self) -> None:
        self._lock, self._holders = Lock(), 0
        self._before: list[tuple[Any, int]] = []

    def enter(self) -> None:
        with self._lock:
            if self._holders == 0:
                counts = [(library, library.get_num_threads() or 1) for library in _libraries()]
                self._before = [(library, count) for library, count in counts if count > 1]
                for library, _ in self._before:
                    _set_threads(library, 1)
            self._holders += 1

    def leave(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                for library, count in self._before:
                    _set_threads(library, count)
                self._before = []


_blas = _SharedLimit()


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of the process; looking for them takes milliseconds, so it is done once."""
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def _set_threads(library: Any, count: int) -> None:
    """Set the threads of a library, whichever thread asks: by its usual way threadpoolctl obeys one thread alone."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


@cache
def _allowed() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [os.environ.get(name, "") for name in VARIABLES]
    return max(1, min([cores, *(int(value) for value in limits if value.isdigit() and int(value) > 0)]))


if hasattr(os, "register_at_fork"):
    # a fork may happen while another thread holds the lock, which the child would then wait for without end
    os.register_at_fork(after_in_child=_blas.__init__)  # type: ignore[misc]

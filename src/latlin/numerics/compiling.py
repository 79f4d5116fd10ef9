"""Compilation of loops: what they have in common, and a word where somebody waits for it longer than a second.

Compiled loops are kept on disk, so that this happens once per loop and version of the packages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from numba.core import event

#: options of a loop that only other loops call: it needs no door for Python, which would have to be compiled as well
INNER: dict[str, Any] = {"cache": True, "no_cpython_wrapper": True}
#: seconds of compilation before a word is said
PATIENCE = 1.0
SAID = "compiling loops, once: the next run finds them on disk"


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
def saying_compiling(say: Callable[[str], None], patience: float = PATIENCE) -> Iterator[None]:
    """While the block runs, `say` a sentence if loops are compiled for longer than `patience` seconds.

    Examples
    --------
    >>> with saying_compiling(print):
    ...     total = 1 + 1
    """
    with event.install_listener("numba:compile", _Waiting(say, patience)):
        yield

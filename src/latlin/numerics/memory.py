"""Memory of large arrays that is used again as soon as nobody holds them.

An operating system hands out fresh memory page by page, which may take longer than the arithmetic on it: a fit that
makes a dozen vectors of a million numbers in every step spends most of its time there. Within `reuse_memory`, `room`
gives an array that was made earlier and that nothing refers to any more.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from latlin.numerics.arrays import Array

#: numbers from which on memory is worth keeping, and how many times as much as is needed may be taken
LARGE, WIDER = 100_000, 1.1
_kept: ContextVar[list[Array] | None] = ContextVar("kept", default=None)


@contextmanager
def reuse_memory() -> Iterator[None]:
    """While the block runs, large arrays from `room` take the memory of those that are not in use any more.

    Examples
    --------
    >>> with reuse_memory():
    ...     first = room(LARGE)
    ...     place = first.ctypes.data
    ...     same = room(LARGE).ctypes.data == place
    ...     del first
    ...     same, room(LARGE).ctypes.data == place
    (False, True)
    """
    # without one lock for all threads a count of references is not to be trusted
    counted = getattr(sys, "_is_gil_enabled", lambda: True)()
    token = None if _kept.get() is not None or not counted else _kept.set([])
    try:
        yield
    finally:
        if token is not None:
            _kept.reset(token)


def room(*shape: int) -> Array:
    """An array of numbers that are not set."""
    kept, size = _kept.get(), math.prod(shape)
    if kept is None or size < LARGE:
        return np.empty(shape)
    for at in range(len(kept)):
        # views count as references to what they are views of
        if size <= len(kept[at]) <= WIDER * size and _references(kept, at) == UNUSED:
            return kept[at][:size].reshape(shape)
    kept.append(np.empty(size))
    return kept[-1].reshape(shape)


def _references(kept: list[Array], at: int) -> int:
    return sys.getrefcount(kept[at])


#: references to an array that only the list has
UNUSED = _references([np.empty(0)], 0)

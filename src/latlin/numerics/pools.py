"""One pool of threads at a time: idle BLAS workers spin on the cores that compiled loops need."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS calls of this process use one thread each, for a while."""
    return _pools().limit(limits=1, user_api="blas")


@cache
def _pools() -> ThreadpoolController:
    """Looking for the libraries of a process takes milliseconds, so it is done once."""
    return ThreadpoolController()

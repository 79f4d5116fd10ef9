"""What this machine can do at best: flops of a matrix product and bytes of a copy, a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import blas

Clock = Callable[[], float]


def product_rate(clock: Clock = time.perf_counter, size: int = 1500, repeats: int = 5) -> float:
    """Flops per second of a product of large matrices (dgemm), with the threads that are allowed."""
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((size, size)))
    return 2.0 * size**3 / best(lambda: blas.dgemm(1.0, a, a), repeats, clock)


def copy_rate(clock: Clock = time.perf_counter, megabytes: int = 128, repeats: int = 5) -> float:
    """Bytes per second, read and written, of a copy that no cache holds; NumPy copies on one thread."""
    source = np.ones(megabytes * 2**17)
    target = np.empty_like(source)
    return 2.0 * source.nbytes / best(lambda: np.copyto(target, source), repeats, clock)


def best(action: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> float:
    """Least seconds of a call."""
    took = []
    for _ in range(repeats):
        start = clock()
        action()
        took.append(clock() - start)
    return min(took)

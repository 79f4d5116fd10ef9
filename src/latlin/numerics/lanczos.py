"""Lanczos' method with full orthogonalisation: a small tridiagonal picture of a large symmetric matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from latlin.numerics.arrays import Array


def lanczos(times: Callable[[Array], Array], start: Array, rank: int) -> tuple[Array, Array, Array]:
    """Orthonormal Q (dim, k), and diagonal and off-diagonal of T = QᵀAQ, k ≤ rank.

    Stops before `rank` when the Krylov space of `start` is exhausted.

    >>> a = np.diag([1.0, 2.0, 5.0])
    >>> q, diagonal, off = lanczos(lambda v: a @ v, np.ones(3), rank=3)
    >>> t = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    >>> np.linalg.eigvalsh(t).round(8).tolist()
    [1.0, 2.0, 5.0]
    """
    rank = min(rank, len(start))
    basis = np.empty((rank, len(start)))
    diagonal, off = np.empty(rank), np.empty(rank)
    basis[0] = start / np.linalg.norm(start)
    largest = 0.0
    for k in range(rank):
        image = times(basis[k])
        diagonal[k] = image @ basis[k]
        largest = max(largest, abs(diagonal[k]))
        for _ in range(2):
            image = image - basis[: k + 1].T @ (basis[: k + 1] @ image)
        off[k] = np.linalg.norm(image)
        if k + 1 == rank or off[k] <= 1e-12 * largest:
            break
        basis[k + 1] = image / off[k]
    return np.ascontiguousarray(basis[: k + 1].T), diagonal[: k + 1], off[:k]

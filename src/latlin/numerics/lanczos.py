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


def lanczos_columns(
    times: Callable[[Array], Array], start: Array, most: int, tol: float
) -> tuple[list[Array], Array, Array]:
    """Lanczos' recursion for every column of `start` at once, one product per step, without orthogonalisation.

    It ends where the residual of (QᵀAQ)⁻¹, that of conjugate gradients, is below `tol` for all columns. What vectors
    lose of their orthogonality delays functions of A a little and does not spoil them (Druskin and Knizhnerman 1991).

    Parameters
    ----------
    times : callable
        A times a matrix of the shape of `start`.
    start : ndarray of shape (dim, columns)
        Columns of length one.
    most : int
        Steps at most.

    Returns
    -------
    basis : list of ndarray of shape (dim, columns)
        Step by step.
    diagonal, off : ndarray of shape (steps, columns) and (steps − 1, columns)
        Of the tridiagonal matrices.

    >>> a = np.diag([1.0, 2.0, 5.0])
    >>> basis, diagonal, off = lanczos_columns(lambda v: a @ v, np.full((3, 1), 3**-0.5), 10, 1e-12)
    >>> len(basis), diagonal[:, 0].sum().round(8)
    (3, np.float64(8.0))
    """
    basis, diagonal = [start], []
    off: list[Array] = []
    # ρ, the last pivot, and the residual of T x = e₁ that a step leaves: ‖r_k‖ = ∏ β_j / ρ_j
    pivot, residual = np.ones(start.shape[1]), np.ones(start.shape[1])
    for k in range(most):
        image = times(basis[-1])
        diagonal.append(np.einsum("dk,dk->k", image, basis[-1]))
        image -= diagonal[-1] * basis[-1]
        if k:
            image -= off[-1] * basis[-2]
        size = np.linalg.norm(image, axis=0)
        pivot = diagonal[-1] - (off[-1] ** 2 / pivot if k else 0.0)
        residual = residual * size / np.maximum(np.abs(pivot), np.finfo(float).tiny)
        if k + 1 == most or np.all(residual <= tol) or np.any(size <= 1e-13 * np.abs(diagonal[-1])):
            break
        off.append(size)
        basis.append(image / size)
    return basis, np.array(diagonal), np.array(off).reshape(len(diagonal) - 1, start.shape[1])

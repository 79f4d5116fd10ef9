"""Conjugate gradients for many right-hand sides at once: one product with the matrix serves all columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def solve_columns(
    product: Callable[[Array], Array], rhs: Array, diagonal: Array, tol: float = 1e-2, max_iter: int = 100
) -> Array:
    """A⁻¹ B for a symmetric positive definite A, column by column, preconditioned by its diagonal.

    Parameters
    ----------
    product : callable
        A times a matrix of B's shape.
    rhs : ndarray of shape (dim, columns)
        B.
    diagonal : ndarray of shape (dim,)
        Of A.
    tol : float
        Largest residual norm relative to that of its right-hand side, both scaled by the diagonal.

    Examples
    --------
    >>> a = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> bool(np.allclose(a @ solve_columns(a.dot, np.eye(2), np.diag(a), tol=1e-10), np.eye(2)))
    True
    """
    x, r = np.zeros_like(rhs), rhs.copy()
    z = r / diagonal[:, None]
    p = z.copy()
    old = np.einsum("dk,dk->k", r, z)
    goal = tol**2 * old
    for _ in range(max_iter):
        q = product(p)
        # columns that are solved get steps of length zero
        open_columns = old > goal
        alpha = np.where(open_columns, old / np.maximum(np.einsum("dk,dk->k", p, q), np.finfo(float).tiny), 0.0)
        x += alpha * p
        r -= alpha * q
        np.divide(r, diagonal[:, None], out=z)
        new = np.einsum("dk,dk->k", r, z)
        if np.all(new <= goal):
            break
        p *= np.where(open_columns, new / np.maximum(old, np.finfo(float).tiny), 0.0)
        p += z
        old = new
    return x

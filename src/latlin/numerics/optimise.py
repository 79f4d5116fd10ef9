"""Parts of an optimiser: quasi-Newton directions, and conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import blas

from latlin.numerics.arrays import Array

# --- Limited-memory quasi-Newton directions for an ascent whose state must fit in a checkpoint.
#
# The optimiser of SciPy keeps its memory to itself; here the last steps and changes of the gradient are arrays of the
# caller's state, so that the one ascent loop can show, save and resume the fit.


def ascent_direction(gradient: Array, steps: Array, changes: Array, inverse: Array | float = 1.0) -> Array:
    """The direction −H g of the two-loop recursion, for a function to be maximised.

    Parameters
    ----------
    gradient : ndarray of shape (n,)
    steps, changes : ndarray of shape (memory, n)
        Past steps and the *falls* of the gradient along them, oldest first; each pair has a positive product.
    inverse : ndarray of shape (n,), optional
        A diagonal guess of the inverse of minus the Hessian, to which the newest pair gives its scale.

    Examples
    --------
    >>> curvature = np.array([1.0, 10.0])
    >>> steps = np.eye(2)
    >>> ascent_direction(np.array([1.0, 1.0]), steps, steps * curvature).round(3)
    array([1. , 0.1])
    """
    direction = gradient.copy()
    shares = np.empty(len(steps))
    for k in range(len(steps) - 1, -1, -1):
        shares[k] = steps[k] @ direction / (steps[k] @ changes[k])
        direction -= shares[k] * changes[k]
    direction *= inverse
    if len(steps):
        direction *= (steps[-1] @ changes[-1]) / (changes[-1] @ (inverse * changes[-1]))
    for k in range(len(steps)):
        direction += (shares[k] - changes[k] @ direction / (steps[k] @ changes[k])) * steps[k]
    return direction


def remember(steps: Array, changes: Array, step: Array, change: Array, memory: int) -> tuple[Array, Array]:
    """The memory with one more pair, if its curvature is of use, and without the oldest beyond `memory`."""
    if step @ change <= 1e-10 * np.sqrt((step @ step) * (change @ change)):
        return steps, changes
    return np.concatenate([steps[1 - memory :], step[None]]), np.concatenate([changes[1 - memory :], change[None]])


# --- Krylov methods: conjugate gradients, preconditioned by the diagonal, for one or many right-hand sides; Lanczos.
#
# SciPy's `cg` serves one right-hand side at a time and keeps an array more; here the scaled residual takes the place of
# the product, so that a vector of many millions of parameters costs four arrays of its length.


def solve(product: Callable[[Array], Array], rhs: Array, diagonal: Array, tol: float, max_iter: int) -> Array:
    """A⁻¹b for a symmetric positive definite A, to a residual of `tol`·‖b‖.

    Parameters
    ----------
    product : callable
        A times a vector, as a new array.
    rhs : ndarray of shape (dim,)
        b.
    diagonal : ndarray of shape (dim,)
        Of A, or near it.

    Examples
    --------
    >>> a = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> solve(a.dot, np.array([3.0, 4.0]), np.diag(a), tol=1e-12, max_iter=5).round(9)
    array([1., 1.])
    """
    x, r = np.zeros_like(rhs), rhs.copy()
    p = r / diagonal
    old, goal = blas.ddot(r, p), tol * blas.dnrm2(rhs)
    for _ in range(max_iter):
        q = product(p)
        curvature = blas.ddot(p, q)
        if curvature <= 0.0:
            break
        step = old / curvature
        x = blas.daxpy(p, x, a=step)
        r = blas.daxpy(q, r, a=-step)
        if blas.dnrm2(r) <= goal:
            break
        z = np.divide(r, diagonal, out=q)
        new = blas.ddot(r, z)
        p = blas.daxpy(z, blas.dscal(new / old, p))
        old = new
    return x


def solve_near(
    product: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    rhs: Array,
    tol: float,
    max_iter: int,
) -> Array | None:
    """A⁻¹b with the inverse of a matrix near A; None where A is not definite or the steps do not suffice.

    Parameters
    ----------
    product, precondition : callable
        A times a vector, and the inverse of a matrix near A times a vector.
    rhs : ndarray of shape (dim,)
        b.
    tol : float
        Residual, in the norm of the preconditioner and relative to that of b.

    Examples
    --------
    >>> a = np.array([[2.0, 0.1], [0.1, 3.0]])
    >>> solve_near(a.dot, lambda r: r / np.diag(a), np.array([2.1, 3.1]), tol=1e-12, max_iter=5).round(9)
    array([1., 1.])
    """
    x, r = np.zeros_like(rhs), rhs.copy()
    p = precondition(r)
    first = old = float(r @ p)
    for _ in range(max_iter):
        q = product(p)
        curvature = float(p @ q)
        if not curvature > 0.0:
            return None
        x += old / curvature * p
        r -= old / curvature * q
        z = precondition(r)
        new = float(r @ z)
        if new <= tol**2 * first:
            return x
        p = z + new / old * p
        old = new
    return None


def solve_columns(
    product: Callable[[Array], Array],
    rhs: Array,
    diagonal: Array,
    tol: float = 1e-2,
    max_iter: int = 100,
    start: Array | None = None,
) -> Array:
    """A⁻¹B for a symmetric positive definite A: one product with A serves all columns.

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
    start : ndarray of shape (dim, columns), optional
        Where to start; zero without it.

    Examples
    --------
    >>> a = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> bool(np.allclose(a @ solve_columns(a.dot, np.eye(2), np.diag(a), tol=1e-10), np.eye(2)))
    True
    """
    goal = tol**2 * np.einsum("dk,dk,d->k", rhs, rhs, 1.0 / diagonal)
    x, r = (np.zeros_like(rhs), rhs.copy()) if start is None else (start.copy(), rhs - product(start))
    p = r / diagonal[:, None]
    old = np.einsum("dk,dk->k", r, p)
    for _ in range(max_iter):
        q = product(p)
        curvature = np.einsum("dk,dk->k", p, q)
        # columns that are solved, and directions in which A is singular, get steps of length zero
        open_columns = (old > goal) & (curvature > np.finfo(float).eps * old)
        if not open_columns.any():
            break
        alpha = np.divide(old, curvature, out=np.zeros_like(old), where=open_columns)
        x += alpha * p
        r -= alpha * q
        z = np.divide(r, diagonal[:, None], out=q)
        new = np.einsum("dk,dk->k", r, z)
        if np.all(new <= goal):
            break
        p *= np.where(open_columns, new / np.maximum(old, np.finfo(float).tiny), 0.0)
        p += z
        old = new
    return x


# --- Lanczos' method with full orthogonalisation: a small tridiagonal picture of a large symmetric matrix.


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

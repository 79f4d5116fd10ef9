"""Compiled conjugate gradients for the step of a Newton method over K×K matrices.

The curvature of `latlin.factor.group.rotation` costs a few products of K×K matrices; compiled, a step of fifty of them
takes less time than the interpreter needs to ask for them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from latlin.numerics.linalg import Array

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})


@_compiled
def curvature_times(x: Array, latent: Array, left: Array, right: Array, columns: Array, out: Array) -> None:
    """out ← S X + Xᵀ Eᵀ + Fᵀ Xᵀ − (A_k x_k)_k, with x_k the rows of X, and S, E, F = `latent`, `left`, `right`."""
    rank = len(x)
    for k in range(rank):
        for i in range(rank):
            total = 0.0
            for j in range(rank):
                total -= columns[k, i, j] * x[k, j]
            out[k, i] = total
    for k in range(rank):
        for j in range(rank):
            s, f = latent[k, j], right[j, k]
            for i in range(rank):
                out[k, i] += s * x[j, i] + f * x[i, j]
    for j in range(rank):
        for k in range(rank):
            share = x[j, k]
            for i in range(rank):
                out[k, i] += share * left[i, j]


@_compiled
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            total += a[i, j] * b[i, j]
    return total


@_compiled
def truncated_step(
    gradient: Array,
    scale: Array,
    latent: Array,
    left: Array,
    right: Array,
    columns: Array,
    radius: float,
    tol: float,
    max_iter: int,
) -> tuple[Array, float, bool]:
    """Climb gᵀy − ½yᵀBy within ‖y‖ ≤ radius by conjugate gradients (Steihaug), B the curvature in units of `scale`.

    Returns y, the rise it promises, and whether it ends at the radius; stops at a residual of `tol`.
    """
    y, residual, direction = np.zeros_like(gradient), gradient.copy(), gradient.copy()
    pushed = np.empty_like(gradient)
    size, inside, across = _dot(residual, residual), 0.0, 0.0
    promised = 0.0
    for _ in range(max_iter):
        curvature_times(direction / scale, latent, left, right, columns, pushed)
        pushed /= scale
        length, bend = _dot(direction, direction), _dot(direction, pushed)
        step = size / bend if bend > 1e-14 * length else np.inf
        across = _dot(y, direction)
        if inside + step * (2.0 * across + step * length) >= radius * radius:
            # to the edge: ‖y + tp‖ = radius
            step = (np.sqrt(across * across + length * (radius * radius - inside)) - across) / length
            return y + step * direction, promised + step * (size - 0.5 * step * bend), True
        promised += 0.5 * step * size
        inside += step * (2.0 * across + step * length)
        y += step * direction
        residual -= step * pushed
        new = _dot(residual, residual)
        if new <= tol * tol:
            break
        direction = residual + new / size * direction
        size = new
    return y, promised, False

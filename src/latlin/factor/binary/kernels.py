"""Compiled mean-field sweeps over the rows of a binary latent factor model.

A row has the energy log p(s) + bᵀs − ½ Σ_{i≠j} J_ij s_i s_j over s in {0, 1}^K, where b (`field`) holds its projections
on the features and J (`coupling`) their inner products, both over the noise variance. A coordinate update is

    λ_i ← σ(o_i + b_i − Σ_{j≠i} J_ij λ_j),   o_i = log π_i/(1 − π_i) − ½ J_ii,

Lau (2020), eqs. 10 and 35. The projections cost O(K·D) per row, once; a sweep then costs O(K²) at most, because
the sum is kept up to date. Rows are independent: blocks of them are swept side by side, so that loops over rows
vectorise, and blocks are shared out over the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
from numba import njit

from latlin.numerics.arrays import Array
from latlin.numerics.special import exponentiate
from latlin.numerics.threads import share_out

#: rows that are swept side by side
BLOCK = 32
#: nanoseconds per row and pair of factors, by measurement
PER_PAIR = 20.0


def _by_rows(kernel: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop over blocks of rows and share the blocks out among the threads that pay."""
    compiled = njit(cache=True, nogil=True)(kernel)

    @wraps(kernel)
    def run(means: Array, *others: object) -> None:
        blocks = -(-means.shape[0] // BLOCK)
        share_out(compiled, blocks, PER_PAIR * BLOCK * means.shape[1] ** 2, means, *others)

    return run


@njit(cache=True, inline="always")
def _sigmoid(x):  # type: ignore[no-untyped-def]
    """1/(1 + e^−x); 1 and 0 where the difference is below 1e-17."""
    if x > 40.0:
        return 1.0
    if x < -40.0:
        return 0.0
    if x >= 0.0:
        return 1.0 / (1.0 + np.exp(-x))
    e = np.exp(x)
    return e / (1.0 + e)


@njit(cache=True, inline="always")
def _entropy(p):  # type: ignore[no-untyped-def]
    """−p log p − (1 − p) log(1 − p)."""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return -p * np.log(p) - (1.0 - p) * np.log1p(-p)


@njit(cache=True)
def _residual_field(b, coupling, mean, out):  # type: ignore[no-untyped-def]
    """out_i = b_i − Σ_j J_ij λ_j, the sum including j = i."""
    k = mean.size
    for i in range(k):
        out[i] = b[i]
    for j in range(k):
        m = mean[j]
        if m != 0.0:
            for i in range(k):
                out[i] -= m * coupling[j, i]


@njit(cache=True)
def _sweep(mean, rest, coupling, offset, order, max_sweeps, tol):  # type: ignore[no-untyped-def]
    """Sweeps over one row until no λ moves by more than `tol`; `rest` follows."""
    for _ in range(max_sweeps):
        largest = 0.0
        for i in order:
            new = _sigmoid(offset[i] + rest[i] + coupling[i, i] * mean[i])
            step = new - mean[i]
            if step != 0.0:
                mean[i] = new
                for j in range(mean.size):
                    rest[j] -= step * coupling[i, j]
                largest = max(largest, abs(step))
        if largest <= tol:
            break


@njit(cache=True)
def _sweep_block(mean, rest, size, coupling, offset, order, max_sweeps, tol):  # type: ignore[no-untyped-def]
    """`_sweep` of a block of rows side by side, K×rows, until none of them moves: loops over rows are vectorised."""
    k = mean.shape[0]
    x, e, step, scratch = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for _ in range(max_sweeps):
        largest = 0.0
        for i in order:
            own, constant = coupling[i, i], offset[i]
            for b in range(size):
                x[b] = constant + rest[i, b] + own * mean[i, b]
                e[b] = -abs(x[b])
            exponentiate(e, size, scratch)
            moved = 0.0
            for b in range(size):
                new = (1.0 if x[b] >= 0.0 else e[b]) / (1.0 + e[b])
                step[b] = new - mean[i, b]
                mean[i, b] = new
                moved = max(moved, abs(step[b]))
            if moved > 0.0:
                for j in range(k):
                    c = coupling[i, j]
                    for b in range(size):
                        rest[j, b] -= step[b] * c
            largest = max(largest, moved)
        if largest <= tol:
            break


@njit(cache=True)
def _flip(mean, rest, coupling, offset, gain):  # type: ignore[no-untyped-def]
    """Turn the pair of factors over, λ → 1 − λ, that raises the bound most; False when none does.

    The entropy stays, so the rise is g_i + g_j − δ_i δ_j J_ij with δ = 1 − 2λ and g_i = δ_i (o_i + b_i − Σ_{j≠i} J_ij
    λ_j).
    """
    k = mean.size
    for i in range(k):
        gain[i] = (1.0 - 2.0 * mean[i]) * (offset[i] + rest[i] + coupling[i, i] * mean[i])
    best, first, second = 1e-9, -1, -1
    for i in range(k):
        turn = 1.0 - 2.0 * mean[i]
        for j in range(i):
            rise = gain[i] + gain[j] - turn * (1.0 - 2.0 * mean[j]) * coupling[i, j]
            if rise > best:
                best, first, second = rise, i, j
    if first < 0:
        return False
    for i in (first, second):
        step = 1.0 - 2.0 * mean[i]
        mean[i] += step
        for j in range(k):
            rest[j] -= step * coupling[i, j]
    return True


@_by_rows
def sweep_rows(first, last, means, field, coupling, offset, order, max_sweeps, max_flips, tol):  # type: ignore[no-untyped-def]
    """Coordinate sweeps in place; where a row stands still, turn a pair of factors over and go on.

    Sweeps alone leave a few rows in a hundred far from their best: two factors that explain the same pixels have to
    change places at once. Every change raises the bound.

    Parameters
    ----------
    first, last : int
        The blocks of rows to sweep (given by the loop that shares them out).
    means : ndarray of shape (N, K)
        λ where the sweeps start; overwritten.
    field : ndarray of shape (N, K)
    coupling : ndarray of shape (K, K)
    offset : ndarray of shape (K,)
    order : ndarray of int
        The factors a sweep visits.
    max_sweeps : int
        Between two turns.
    max_flips : int
        Turns of a pair at most.
    tol : float
        A row stands still when no λ moved by more in a sweep.
    """
    n, k = means.shape
    for block in range(first, last):
        start = block * BLOCK
        size = min(BLOCK, n - start)
        mean, rest = np.empty((k, BLOCK)), np.empty((k, BLOCK))
        for b in range(size):
            for i in range(k):
                mean[i, b] = means[start + b, i]
                rest[i, b] = field[start + b, i]
        for i in range(k):
            for j in range(k):
                for b in range(size):
                    rest[i, b] -= coupling[i, j] * mean[j, b]
        _sweep_block(mean, rest, size, coupling, offset, order, max_sweeps, tol)
        gain, one, left = np.empty(k), np.empty(k), np.empty(k)
        for b in range(size):
            for i in range(k):
                one[i], left[i] = mean[i, b], rest[i, b]
            for _ in range(max_flips):
                if not _flip(one, left, coupling, offset, gain):
                    break
                _sweep(one, left, coupling, offset, order, max_sweeps, tol)
            for i in range(k):
                means[start + b, i] = one[i]


@_by_rows
def row_values(first, last, means, field, coupling, offset, out):  # type: ignore[no-untyped-def]
    """out_n = Σ_i λ_i (o_i + b_i) − ½ Σ_{i≠j} λ_i λ_j J_ij + Σ_i h(λ_i): the row's bound up to terms free of λ."""
    n, k = means.shape
    for row in range(first * BLOCK, min(last * BLOCK, n)):
        rest = np.empty(k)
        mean = means[row]
        _residual_field(field[row], coupling, mean, rest)
        total = 0.0
        for i in range(k):
            own = coupling[i, i] * mean[i]
            total += mean[i] * (offset[i] + 0.5 * (field[row, i] + rest[i] + own)) + _entropy(mean[i])
        out[row] = total


@_by_rows
def row_entropies(first, last, means, out):  # type: ignore[no-untyped-def]
    """out_n = Σ_i h(λ_i)."""
    n, k = means.shape
    for row in range(first * BLOCK, min(last * BLOCK, n)):
        total = 0.0
        for i in range(k):
            total += _entropy(means[row, i])
        out[row] = total

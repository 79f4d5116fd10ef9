"""Compiled passes of a Gaussian mixture over its data: responsibilities and statistics together, never N×K×D.

Rows are handled in blocks that stay in cache, features first, so that every inner loop runs along the rows of
a block and vectorises. Differences x − m_k are formed before they are squared, and moments are taken about
m_k: data far from the origin and narrow components lose no digits. One call handles one slice of rows and
releases the interpreter's lock; `latlin.mixture.sweep` spreads slices over threads.

Each pass takes log joints of the form log ρ_nk = offset_k − ½ quad_nk and returns

    Σ_n w_n log Σ_k ρ_nk,   N_k = Σ_n w_n r_nk,   Σ_n w_n r_nk (x_n − m_k),   and its second moment about m_k.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from latlin.numerics.linalg import Array
from latlin.numerics.special import exponentiate

BLOCK = 128

_plain = njit(cache=True, nogil=True)
_summing = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})


@_plain
def _load(rows: Array, start: int, size: int, block: Array) -> None:
    for b in range(size):
        for d in range(rows.shape[1]):
            block[d, b] = rows[start + b, d]


@_plain
def _responsibilities(
    joint: Array, size: int, weights: Array, start: int, top: Array, total: Array, scratch: Array
) -> float:
    """joint ← w_n r_nk from log ρ_nk; returns Σ_n w_n log Σ_k ρ_nk."""
    components = joint.shape[0]
    for b in range(size):
        top[b] = joint[0, b]
        total[b] = 0.0
    for k in range(1, components):
        for b in range(size):
            top[b] = max(top[b], joint[k, b])
    for k in range(components):
        for b in range(size):
            joint[k, b] -= top[b]
        exponentiate(joint[k], size, scratch)
        for b in range(size):
            total[b] += joint[k, b]
    sum_log = 0.0
    for b in range(size):
        sum_log += weights[start + b] * (top[b] + np.log(total[b]))
        total[b] = weights[start + b] / total[b]
    for k in range(components):
        for b in range(size):
            joint[k, b] *= total[b]
    return sum_log


@_plain
def _differences(block: Array, size: int, mean: Array, difference: Array) -> None:
    for d in range(block.shape[0]):
        m = mean[d]
        for b in range(size):
            difference[d, b] = block[d, b] - m


@_summing
def _scaled_square(difference: Array, size: int, precision: Array, offset: float, out: Array) -> None:
    """out_b = offset − ½ Σ_d λ_d δ_db²."""
    for b in range(size):
        out[b] = offset
    for d in range(difference.shape[0]):
        half = 0.5 * precision[d]
        for b in range(size):
            out[b] -= half * difference[d, b] * difference[d, b]


@_summing
def _factored_square(difference: Array, size: int, factor: Array, offset: float, out: Array, scratch: Array) -> None:
    """out_b = offset − ½ ‖F δ_b‖², F lower triangular."""
    for b in range(size):
        out[b] = offset
    for i in range(difference.shape[0]):
        for b in range(size):
            scratch[b] = factor[i, 0] * difference[0, b]
        for j in range(1, i + 1):
            f = factor[i, j]
            for b in range(size):
                scratch[b] += f * difference[j, b]
        for b in range(size):
            out[b] -= 0.5 * scratch[b] * scratch[b]


@_summing
def _add_first(difference: Array, size: int, weight: Array, first: Array) -> float:
    """first_d += Σ_b w_b δ_db; returns Σ_b w_b."""
    count = 0.0
    for b in range(size):
        count += weight[b]
    for d in range(difference.shape[0]):
        total = 0.0
        for b in range(size):
            total += weight[b] * difference[d, b]
        first[d] += total
    return count


@_summing
def _add_squares(difference: Array, size: int, weight: Array, second: Array) -> None:
    """second_d += Σ_b w_b δ_db²."""
    for d in range(difference.shape[0]):
        total = 0.0
        for b in range(size):
            total += weight[b] * difference[d, b] * difference[d, b]
        second[d] += total


@_summing
def _add_products(difference: Array, size: int, weight: Array, second: Array, scratch: Array) -> None:
    """second_ij += Σ_b w_b δ_ib δ_jb for j ≤ i."""
    for i in range(difference.shape[0]):
        for b in range(size):
            scratch[b] = weight[b] * difference[i, b]
        for j in range(i + 1):
            total = 0.0
            for b in range(size):
                total += scratch[b] * difference[j, b]
            second[i, j] += total


@_plain
def _mirror(second: Array) -> None:
    for i in range(second.shape[0]):
        for j in range(i):
            second[j, i] = second[i, j]


@_plain
def diagonal_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, precision: Array
) -> tuple[float, Array, Array, Array]:
    """Axis-aligned components: quad_nk = Σ_d λ_kd (x_nd − m_kd)²; second moments of shape (K, D)."""
    n, dim = rows.shape
    components = len(offset)
    count, first, second = np.zeros(components), np.zeros((components, dim)), np.zeros((components, dim))
    block, difference = np.empty((dim, BLOCK)), np.empty((dim, BLOCK))
    joint = np.empty((components, BLOCK))
    top, total, scratch = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    sum_log = 0.0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _scaled_square(difference, size, precision[k], offset[k], joint[k])
        sum_log += _responsibilities(joint, size, weights, start, top, total, scratch)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            count[k] += _add_first(difference, size, joint[k], first[k])
            _add_squares(difference, size, joint[k], second[k])
    return sum_log, count, first, second


@_plain
def pooled_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, precision: Array
) -> tuple[float, Array, Array, Array]:
    """As `diagonal_pass`, with one second moment Σ_nk w_n r_nk (x_n − m_k)(x_n − m_k)ᵀ of shape (D, D)."""
    n, dim = rows.shape
    components = len(offset)
    count, first, second = np.zeros(components), np.zeros((components, dim)), np.zeros((dim, dim))
    block, difference = np.empty((dim, BLOCK)), np.empty((dim, BLOCK))
    joint = np.empty((components, BLOCK))
    top, total, scratch = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    sum_log = 0.0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _scaled_square(difference, size, precision[k], offset[k], joint[k])
        sum_log += _responsibilities(joint, size, weights, start, top, total, scratch)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            count[k] += _add_first(difference, size, joint[k], first[k])
            _add_products(difference, size, joint[k], second, scratch)
    _mirror(second)
    return sum_log, count, first, second


@_plain
def full_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, factor: Array
) -> tuple[float, Array, Array, Array]:
    """Full components: quad_nk = ‖F_k (x_n − m_k)‖², F_k lower triangular; second moments (K, D, D)."""
    n, dim = rows.shape
    components = len(offset)
    count, first, second = np.zeros(components), np.zeros((components, dim)), np.zeros((components, dim, dim))
    block, difference = np.empty((dim, BLOCK)), np.empty((dim, BLOCK))
    joint = np.empty((components, BLOCK))
    top, total, scratch = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    sum_log = 0.0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _factored_square(difference, size, factor[k], offset[k], joint[k], scratch)
        sum_log += _responsibilities(joint, size, weights, start, top, total, scratch)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            count[k] += _add_first(difference, size, joint[k], first[k])
            _add_products(difference, size, joint[k], second[k], scratch)
    for k in range(components):
        _mirror(second[k])
    return sum_log, count, first, second


@_plain
def diagonal_joint(rows: Array, offset: Array, mean: Array, precision: Array) -> Array:
    """log ρ_nk of axis-aligned components, shape (N, K)."""
    n, dim = rows.shape
    components = len(offset)
    out = np.empty((n, components))
    block, difference, joint = np.empty((dim, BLOCK)), np.empty((dim, BLOCK)), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _scaled_square(difference, size, precision[k], offset[k], joint)
            for b in range(size):
                out[start + b, k] = joint[b]
    return out


@_plain
def full_joint(rows: Array, offset: Array, mean: Array, factor: Array) -> Array:
    """log ρ_nk of full components, shape (N, K)."""
    n, dim = rows.shape
    components = len(offset)
    out = np.empty((n, components))
    block, difference = np.empty((dim, BLOCK)), np.empty((dim, BLOCK))
    joint, scratch = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _factored_square(difference, size, factor[k], offset[k], joint, scratch)
            for b in range(size):
                out[start + b, k] = joint[b]
    return out

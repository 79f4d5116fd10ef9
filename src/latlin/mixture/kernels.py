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
from numpy.typing import NDArray

from latlin.numerics.linalg import Array
from latlin.numerics.special import exponentiate
from latlin.numerics.threads import INNER, njit

PIECE = 128

_plain = njit(cache=True, nogil=True)
_inner = njit(**INNER)
_summing = njit(**INNER, fastmath={"reassoc", "contract", "nsz"})


@_inner
def _load(rows: Array, start: int, size: int, block: Array) -> None:
    for b in range(size):
        for d in range(rows.shape[1]):
            block[d, b] = rows[start + b, d]


@_inner
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


@_inner
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


@_inner
def _mirror(second: Array) -> None:
    for i in range(second.shape[0]):
        for j in range(i):
            second[j, i] = second[i, j]


@_plain
def diagonal_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, precision: Array
) -> tuple[float, Array, Array, Array]:
    """Axis-aligned components: quad_nk = Σ_d λ_kd (x_nd − m_kd)²; second moments of shape (K, D)."""
    second = np.zeros(mean.shape)
    sum_log, count, first = _aligned_pass(rows, weights, offset, mean, precision, second, False)
    return sum_log, count, first, second


@_plain
def pooled_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, precision: Array
) -> tuple[float, Array, Array, Array]:
    """As `diagonal_pass`, with one second moment Σ_nk w_n r_nk (x_n − m_k)(x_n − m_k)ᵀ of shape (D, D)."""
    second = np.zeros((rows.shape[1], rows.shape[1]))
    sum_log, count, first = _aligned_pass(rows, weights, offset, mean, precision, second, True)
    _mirror(second)
    return sum_log, count, first, second


@_inner
def _aligned_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, precision: Array, second: Array, pooled: bool
) -> tuple[float, Array, Array]:
    """One pass with axis-aligned components; adds to `second` the products of all, or the squares of each."""
    n, dim = rows.shape
    components = len(offset)
    count, first = np.zeros(components), np.zeros((components, dim))
    block, difference = np.empty((dim, PIECE)), np.empty((dim, PIECE))
    joint = np.empty((components, PIECE))
    top, total, scratch = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
    sum_log = 0.0
    for start in range(0, n, PIECE):
        size = min(PIECE, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _scaled_square(difference, size, precision[k], offset[k], joint[k])
        sum_log += _responsibilities(joint, size, weights, start, top, total, scratch)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            count[k] += _add_first(difference, size, joint[k], first[k])
            if pooled:
                _add_products(difference, size, joint[k], second, scratch)
            else:
                _add_squares(difference, size, joint[k], second[k])
    return sum_log, count, first


@_plain
def full_pass(
    rows: Array, weights: Array, offset: Array, mean: Array, factor: Array
) -> tuple[float, Array, Array, Array]:
    """Full components: quad_nk = ‖F_k (x_n − m_k)‖², F_k lower triangular; second moments (K, D, D)."""
    n, dim = rows.shape
    components = len(offset)
    count, first, second = np.zeros(components), np.zeros((components, dim)), np.zeros((components, dim, dim))
    block, difference = np.empty((dim, PIECE)), np.empty((dim, PIECE))
    joint = np.empty((components, PIECE))
    top, total, scratch = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
    sum_log = 0.0
    for start in range(0, n, PIECE):
        size = min(PIECE, n - start)
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
    block, difference, joint = np.empty((dim, PIECE)), np.empty((dim, PIECE)), np.empty(PIECE)
    for start in range(0, n, PIECE):
        size = min(PIECE, n - start)
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
    block, difference = np.empty((dim, PIECE)), np.empty((dim, PIECE))
    joint, scratch = np.empty(PIECE), np.empty(PIECE)
    for start in range(0, n, PIECE):
        size = min(PIECE, n - start)
        _load(rows, start, size, block)
        for k in range(components):
            _differences(block, size, mean[k], difference)
            _factored_square(difference, size, factor[k], offset[k], joint, scratch)
            for b in range(size):
                out[start + b, k] = joint[b]
    return out


# --- Compiled pieces of a mixture for rows with missing entries, and the implicit derivative of a gamma draw.


Flags = NDArray[np.bool_]
Labels = NDArray[np.intp]

_LOG_2PI = 1.8378770664093453


@_inner
def _sweep_out(matrix: Array, pivot: int) -> float:
    """Sweep one variable out of a symmetric matrix in place; returns the log of its pivot.

    After sweeping the set m out of Λ: Λ_oo − Λ_om Λ_mm⁻¹ Λ_mo stands in oo, Λ_mm⁻¹ Λ_mo in mo, −Λ_mm⁻¹ in mm.
    """
    dim = matrix.shape[0]
    d = matrix[pivot, pivot]
    for i in range(dim):
        if i == pivot:
            continue
        ratio = matrix[i, pivot] / d
        for j in range(dim):
            if j != pivot:
                matrix[i, j] -= ratio * matrix[pivot, j]
    for i in range(dim):
        if i != pivot:
            matrix[i, pivot] /= d
            matrix[pivot, i] /= d
    matrix[pivot, pivot] = -1.0 / d
    return np.log(d)


@_inner
def _fill(row: Array, mean: Array, swept: Array, missing: Flags, difference: Array) -> float:
    """δ = x − m with δ_m = −Λ_mm⁻¹ Λ_mo δ_o; returns δ_oᵀ(Λ_oo − Λ_om Λ_mm⁻¹ Λ_mo)δ_o."""
    dim = len(row)
    quad = 0.0
    for i in range(dim):
        difference[i] = 0.0 if missing[i] else row[i] - mean[i]
    for i in range(dim):
        total = 0.0
        for j in range(dim):
            if not missing[j]:
                total += swept[i, j] * difference[j]
        if not missing[i]:
            quad += difference[i] * total
    for i in range(dim):
        if missing[i]:
            total = 0.0
            for j in range(dim):
                if not missing[j]:
                    total -= swept[i, j] * difference[j]
            difference[i] = total
    return quad


@_inner
def _normalise(joint: Array, weight: float) -> float:
    """joint ← w r from log ρ; returns w log Σ ρ."""
    top, total = joint[0], 0.0
    for k in range(1, len(joint)):
        top = max(top, joint[k])
    for k in range(len(joint)):
        joint[k] = np.exp(joint[k] - top)
        total += joint[k]
    share = weight / total
    for k in range(len(joint)):
        joint[k] *= share
    return weight * (top + np.log(total))


@_inner
def _accumulate(difference: Array, r: float, swept: Array, missing: Flags, first: Array, second: Array) -> None:
    """first += r δ, second += r (δδᵀ + Λ_mm⁻¹ on the missing block)."""
    dim = len(difference)
    for i in range(dim):
        first[i] += r * difference[i]
        for j in range(dim):
            second[i, j] += r * difference[i] * difference[j]
            if missing[i] and missing[j]:
                second[i, j] -= r * swept[i, j]


@_plain
def incomplete_pass(
    rows: Array, weights: Array, patterns: Flags, labels: Labels, offset: Array, mean: Array, precision: Array
) -> tuple[float, Array, Array, Array]:
    """The pass of `mixture_kernels.full_pass` with the missing entries of each row integrated out.

    Given z_n = k the missing entries are Gaussian with precision Λ_mm = E[Λ_k]_mm about their regression on the
    observed ones, so log ρ_nk gains ½|m| log 2π − ½ log|Λ_mm| and the second moments gain Λ_mm⁻¹.

    Parameters
    ----------
    rows : ndarray of shape (N, D)
        Sorted by pattern; missing entries are ignored.
    patterns : bool ndarray of shape (P, D)
        Which entries are missing.
    labels : int ndarray of shape (N,)
        Pattern of each row, ascending.
    """
    n, dim = rows.shape
    components = len(offset)
    count, first, second = np.zeros(components), np.zeros((components, dim)), np.zeros((components, dim, dim))
    swept = np.empty((components, dim, dim))
    differences = np.empty((components, dim))
    base, joint = np.empty(components), np.empty(components)
    sum_log = 0.0
    current = -1
    for i in range(n):
        missing = patterns[labels[i]]
        if labels[i] != current:
            current = labels[i]
            for k in range(components):
                for a in range(dim):
                    for b in range(dim):
                        swept[k, a, b] = precision[k, a, b]
                base[k] = offset[k]
                for d in range(dim):
                    if missing[d]:
                        base[k] += 0.5 * (_LOG_2PI - _sweep_out(swept[k], d))
        for k in range(components):
            joint[k] = base[k] - 0.5 * _fill(rows[i], mean[k], swept[k], missing, differences[k])
        sum_log += _normalise(joint, weights[i])
        for k in range(components):
            count[k] += joint[k]
            if joint[k] > 0.0:
                _accumulate(differences[k], joint[k], swept[k], missing, first[k], second[k])
    return sum_log, count, first, second


LARGE_SHAPE = 1e5


@_inner
def _slope_by_series(a: float, log_y: float, digamma_above: float) -> float:
    y = np.exp(log_y)
    term, harmonic = 1.0, 0.0
    plain, weighted = 1.0, 0.0
    for n in range(1, 10**7):
        term *= y / (a + n)
        harmonic += 1.0 / (a + n)
        plain += term
        weighted += term * harmonic
        if a + n > y and term * (1.0 + harmonic) < 1e-17 * plain:
            break
    return -((log_y - digamma_above) * plain - weighted) / a


@_inner
def _slope_by_cube(a: float, log_y: float) -> float:
    """Wilson and Hilferty: (y/α)^⅓ = c is normal, 1 − 1/(9α) + z/(3√α), with z held."""
    c = np.exp((log_y - np.log(a)) / 3.0)
    z = 3.0 * np.sqrt(a) * (c - 1.0 + 1.0 / (9.0 * a))
    return 1.0 / a + 3.0 / c * (1.0 / (9.0 * a * a) - z / (6.0 * a * np.sqrt(a)))


@_plain
def gamma_log_slopes(shape: Array, log_value: Array, digamma_above: Array) -> Array:
    """∂ ln y/∂α of y = F⁻¹_α(u) at fixed u, for y ~ Gamma(α, 1); arrays of shape (S, K), (K,) for α and ψ(α+1).

    Implicit derivative −(∂F/∂α)/(y f) (corrects the finite difference of Gutteridge (2021), eq. 5.26) from the
    series F = yᵅe⁻ʸ/Γ(α+1) Σ_n c_n, c_n = yⁿ/((α+1)…(α+n)):

        ∂ ln y/∂α = −(1/α) [(ln y − ψ(α+1)) Σ c_n − Σ c_n Σ_{j≤n} 1/(α+j)].

    The relative error is about machine precision over the probability of a larger draw. Above α = 10⁵, where the
    series is long, the cube-root approximation is used (relative error below 1e-6).
    """
    out = np.empty_like(log_value)
    for s in range(log_value.shape[0]):
        for k in range(log_value.shape[1]):
            if shape[k] > LARGE_SHAPE:
                out[s, k] = _slope_by_cube(shape[k], log_value[s, k])
            else:
                out[s, k] = _slope_by_series(shape[k], log_value[s, k], digamma_above[k])
    return out

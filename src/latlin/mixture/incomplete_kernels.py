"""Compiled pieces of a mixture for rows with missing entries, and the implicit derivative of a gamma draw."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latlin.numerics.linalg import Array

Flags = NDArray[np.bool_]
Labels = NDArray[np.intp]

_compiled = njit(cache=True, nogil=True)
_LOG_2PI = 1.8378770664093453


@_compiled
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


@_compiled
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


@_compiled
def _normalise(joint: Array, weight: float) -> float:
    """joint ← w r from log ρ; returns w log Σ ρ."""
    top = joint.max()
    joint[:] = np.exp(joint - top)
    total = joint.sum()
    joint *= weight / total
    return weight * (top + np.log(total))


@_compiled
def _accumulate(difference: Array, r: float, swept: Array, missing: Flags, first: Array, second: Array) -> None:
    """first += r δ, second += r (δδᵀ + Λ_mm⁻¹ on the missing block)."""
    dim = len(difference)
    for i in range(dim):
        first[i] += r * difference[i]
        for j in range(dim):
            second[i, j] += r * difference[i] * difference[j]
            if missing[i] and missing[j]:
                second[i, j] -= r * swept[i, j]


@_compiled
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
                swept[k] = precision[k]
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


@_compiled
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


@_compiled
def _slope_by_cube(a: float, log_y: float) -> float:
    """Wilson and Hilferty: (y/α)^⅓ = c is normal, 1 − 1/(9α) + z/(3√α), with z held."""
    c = np.exp((log_y - np.log(a)) / 3.0)
    z = 3.0 * np.sqrt(a) * (c - 1.0 + 1.0 / (9.0 * a))
    return 1.0 / a + 3.0 / c * (1.0 / (9.0 * a * a) - z / (6.0 * a * np.sqrt(a)))


@_compiled
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

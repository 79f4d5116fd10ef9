"""Compiled sums of group factor analysis: small K×K work for every feature and every row, in one pass each.

Features with the same prior precisions and the same pattern of missing rows form a class c, rows with the same pattern
of missing features a pattern r. The loadings of feature d have covariance B_c diag(s_d) B_cᵀ, see `loading_step`.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latlin.numerics.linalg import Array

Labels = NDArray[np.int64]

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})


@_compiled
def outer_sums(rows: Array, weights: Array, labels: Labels, n_labels: int) -> Array:
    """Σ_{i: label i = r} weight_i v_i v_iᵀ for every label r, shape (n_labels, K, K)."""
    n, rank = rows.shape
    total = np.zeros((n_labels, rank, rank))
    for i in range(n):
        sums = total[labels[i]]
        for k in range(rank):
            share = weights[i] * rows[i, k]
            for l in range(rank):
                sums[k, l] += share * rows[i, l]
    return total


@_compiled
def weighted_sums(values: Array, weights: Array, labels: Labels, n_labels: int) -> Array:
    """Σ_{d: label d = c} weight_d v_d for every label c, shape (n_labels, K)."""
    total = np.zeros((n_labels, values.shape[1]))
    for d in range(values.shape[0]):
        for k in range(values.shape[1]):
            total[labels[d], k] += weights[d] * values[d, k]
    return total


@_compiled
def multiply_by_label(matrices: Array, labels: Labels, rows: Array) -> Array:
    """A_{label i} v_i for every row, with symmetric A."""
    n, rank = rows.shape
    product = np.zeros((n, rank))
    for i in range(n):
        a = matrices[labels[i]]
        for k in range(rank):
            for l in range(rank):
                product[i, l] += rows[i, k] * a[k, l]
    return product


@_compiled
def loading_step(
    cross: Array, precision: Array, basis: Array, values: Array, labels: Labels, mean: Array, spread: Array
) -> None:
    """The posterior N(w_d, B diag(s_d) Bᵀ) of every feature's loadings, written to `mean` and `spread`.

    With BᵀSB = diag(λ) and BᵀAB = I for S = Σ⟨zzᵀ⟩ and A = diag⟨α⟩ of its class:
    (τS + A)⁻¹ = B diag(s) Bᵀ with s = 1/(τλ + 1), and w = B(τs ∘ Bᵀy) with y = Σ x⟨z⟩.
    """
    n, rank = cross.shape
    turned = np.empty(rank)
    for d in range(n):
        b, tau = basis[labels[d]], precision[d]
        turned[:] = 0.0
        for k in range(rank):
            for l in range(rank):
                turned[l] += cross[d, k] * b[k, l]
        for l in range(rank):
            spread[d, l] = 1.0 / (tau * values[labels[d], l] + 1.0)
            turned[l] *= tau * spread[d, l]
        for k in range(rank):
            total = 0.0
            for l in range(rank):
                total += b[k, l] * turned[l]
            mean[d, k] = total


@_compiled
def squared_errors(
    squares: Array, cross: Array, mean: Array, spread: Array, second: Array, turned: Array, labels: Labels
) -> Array:
    """Σ_i ⟨(x_i − wᵀz_i)²⟩ of every feature: Σx² − 2wᵀy + wᵀSw + Σ_l s_l (BᵀSB)_ll."""
    n, rank = mean.shape
    errors = np.empty(n)
    for d in range(n):
        s, total = second[labels[d]], squares[d]
        for k in range(rank):
            product = 0.0
            for l in range(rank):
                product += s[k, l] * mean[d, l]
            total += mean[d, k] * (product - 2.0 * cross[d, k]) + spread[d, k] * turned[labels[d], k]
        errors[d] = max(total, 1e-15 * squares[d])
    return errors

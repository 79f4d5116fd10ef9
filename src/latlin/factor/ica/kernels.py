"""Compiled posteriors of Gaussian-scale-mixture sources, row by row.

A row has the likelihood exp(−½zᵀGz + bᵀz) of its K sources z, G the same for every row. Either the sources of a row are
kept together, with Gaussian q(z) and given prior precisions w_k (`joint_rows`), or each source is kept together with
its own scale u, q(z_k, u_k) = q(z_k | u_k) q(u_k), and q(u_k) is a table on a grid (`single_rows`),
Lau (2020), eq. 12. Rows go in runs; sums are added per run and then in order, so the numbers do not depend on
the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

RUN = 256
#: nanoseconds per row and cubed number of sources, and per row and point of the grid, by measurement
JOINT, SINGLE = 4.0, 8.0


def n_runs(rows: int) -> int:
    """How many runs cover the rows."""
    return -(-rows // RUN)


@njit(cache=True)
def _factorise(a, root):  # type: ignore[no-untyped-def]
    """Lower triangular L with LLᵀ = A; returns log det A."""
    k = a.shape[0]
    log_det = 0.0
    for i in range(k):
        for j in range(i + 1):
            total = a[i, j]
            for l in range(j):
                total -= root[i, l] * root[j, l]
            if i == j:
                root[i, i] = np.sqrt(max(total, 1e-300))
                log_det += 2.0 * np.log(root[i, i])
            else:
                root[i, j] = total / root[j, j]
    return log_det


@njit(cache=True)
def _invert(root, inverse):  # type: ignore[no-untyped-def]
    """L⁻¹, lower triangular."""
    k = root.shape[0]
    for j in range(k):
        inverse[j, j] = 1.0 / root[j, j]
        for i in range(j + 1, k):
            total = 0.0
            for l in range(j, i):
                total -= root[i, l] * inverse[l, j]
            inverse[i, j] = total / root[i, i]


@njit(cache=True, nogil=True)
def joint_rows(begin, end, field, precision, weights, means, variances, spread, log_dets):  # type: ignore[no-untyped-def]
    """q(z_n) = N(S_n b_n, S_n) with S_n = (G + diag w_n)⁻¹.

    Parameters
    ----------
    begin, end : int
        Runs of rows.
    field : ndarray of shape (N, K)
        b.
    precision : ndarray of shape (K, K)
        G.
    weights : ndarray of shape (N, K)
        w.
    means, variances : ndarray of shape (N, K)
        Out: S_n b_n and the diagonals of S_n.
    spread : ndarray of shape (runs, K, K)
        Out: sums of S_n, one per run.
    log_dets : ndarray of shape (runs,)
        Out: sums of log det S_n.
    """
    n, k = field.shape
    for run in range(begin, end):
        a, root, inverse = np.empty((k, k)), np.zeros((k, k)), np.zeros((k, k))
        half = np.empty(k)
        spread[run] = 0.0
        log_dets[run] = 0.0
        for row in range(run * RUN, min((run + 1) * RUN, n)):
            for i in range(k):
                for j in range(k):
                    a[i, j] = precision[i, j]
                a[i, i] += weights[row, i]
            log_dets[run] -= _factorise(a, root)
            _invert(root, inverse)
            for i in range(k):
                total = 0.0
                for j in range(i + 1):
                    total += inverse[i, j] * field[row, j]
                half[i] = total
            for i in range(k):
                mean = 0.0
                for l in range(i, k):
                    mean += inverse[l, i] * half[l]
                means[row, i] = mean
                for j in range(i + 1):
                    total = 0.0
                    for l in range(i, k):
                        total += inverse[l, i] * inverse[l, j]
                    spread[run, i, j] += total
                    if j == i:
                        variances[row, i] = total
                    else:
                        spread[run, j, i] += total


@njit(cache=True, nogil=True)
def single_rows(begin, end, field, constant, share, grid, log_grid, out):  # type: ignore[no-untyped-def]
    """Moments under q(u) ∝ exp(c_j + ½b²r_j) on the grid and q(z | u) = N(b r, r), r = 1/(u + h).

    Parameters
    ----------
    begin, end : int
        Runs of rows.
    field : ndarray of shape (N,)
        b.
    constant, share, grid, log_grid : ndarray of shape (J,)
        c, r, u and log u.
    out : ndarray of shape (6, N)
        log Σ_j exp(…), ⟨z⟩, ⟨z²⟩, ⟨u⟩, ⟨log u⟩, ⟨uz²⟩.
    """
    count = grid.size
    for run in range(begin, end):
        weight = np.empty(count)
        for row in range(run * RUN, min((run + 1) * RUN, field.size)):
            b = field[row]
            half = 0.5 * b * b
            top = -np.inf
            for j in range(count):
                weight[j] = constant[j] + half * share[j]
                top = max(top, weight[j])
            mass, first, second, mean_u, log_u, product = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(count):
                if weight[j] < top - 45.0:
                    continue
                w = np.exp(weight[j] - top)
                r = share[j]
                square = r + b * b * r * r
                mass += w
                first += w * r
                second += w * square
                mean_u += w * grid[j]
                log_u += w * log_grid[j]
                product += w * grid[j] * square
            out[0, row] = top + np.log(mass)
            out[1, row] = b * first / mass
            out[2, row] = second / mass
            out[3, row] = mean_u / mass
            out[4, row] = log_u / mass
            out[5, row] = product / mass

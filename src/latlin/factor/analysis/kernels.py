"""Compiled passes over the long arrays of streaming factor analysis.

Loadings are K×d (Fᵀ), rows are b×d. A pass walks over chunks of coordinates that fit in the cache, runs of chunks in
parallel; sums over the coordinates of a chunk are added in float64, per run and in a fixed order, so the
numbers do not depend on the number of threads. Storage may be float32. `fastmath` here lets the compiler
vectorise sums inside a chunk; the tests compare every pass with plain float64 NumPy.

With rows y_i = x_i − c_old of a block of b observations after n others, Welford's scatter of the block is
YᵀCY with C = I − 11ᵀ/(n+b); every statistic below uses this same C, so that the joint moment matrix of
(d, m) stays positive semidefinite (Brownlie (2021), §3.1.3 and after (3.38), corrected).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.threads import INNER, njit, share_out

CHUNK = 512
RUN = 8192
#: nanoseconds per loading of a pass with a block of a few rows, by measurement
PER_NUMBER = 1.0
MAX_LOG_STEP = 1.0

Floats = NDArray[np.floating]


def n_runs(dim: int) -> int:
    """How many runs of chunks cover `dim` coordinates."""
    return -(-dim // RUN)


def _by_runs(kernel: Callable[..., None]) -> Callable[..., None]:
    """Compile a pass over runs of coordinates and share the runs out among the threads that pay."""
    compiled = njit(cache=True, fastmath=True, nogil=True)(kernel)

    @wraps(kernel)
    def run(first: Floats, *others: Any) -> None:
        rank, dim = first.shape
        share_out(compiled, n_runs(dim), PER_NUMBER * RUN * rank, first, *others)

    return run


# Loops of one chunk become part of their callers: called as functions they took a third longer.


@njit(**INNER, inline="always", fastmath=True)
def _add(out, factor, x):  # type: ignore[no-untyped-def]
    """out ← out + factor·x."""
    for j in range(out.size):
        out[j] += factor * x[j]


@njit(**INNER, inline="always", fastmath=True)
def _add_four(out, factors, rows, first, lo, hi):  # type: ignore[no-untyped-def]
    """out ← out + Σ factors[l]·rows[l, lo:hi] for l = first … first + 3: one pass over `out` in place of four."""
    w0, w1, w2, w3 = factors[first], factors[first + 1], factors[first + 2], factors[first + 3]
    x0, x1 = rows[first, lo:hi], rows[first + 1, lo:hi]
    x2, x3 = rows[first + 2, lo:hi], rows[first + 3, lo:hi]
    for j in range(out.size):
        out[j] += w0 * x0[j] + w1 * x1[j] + w2 * x2[j] + w3 * x3[j]


@njit(**INNER, inline="always", fastmath=True)
def _combine(out, factors, rows, number, lo, hi):  # type: ignore[no-untyped-def]
    """out ← out + Σ_{l < number} factors[l]·rows[l, lo:hi]."""
    whole = number - number % 4
    for first in range(0, whole, 4):
        _add_four(out, factors, rows, first, lo, hi)
    for l in range(whole, number):
        _add(out, factors[l], rows[l, lo:hi])


@njit(**INNER, inline="always", fastmath=True)
def _dot(x, y):  # type: ignore[no-untyped-def]
    """xᵀy of one chunk, summed in the storage's precision in vector lanes of a few terms each."""
    total = x.dtype.type(0.0)
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@_by_runs
def project_chunks(begin, end, loadings, noise, mean, rows, partial):  # type: ignore[no-untyped-def]
    """partial[r] = FᵀΨ⁻¹(x_i − c) summed over the coordinates of run r, shape (runs, K, b)."""
    rank, dim = loadings.shape
    for r in range(begin, end):
        partial[r] = 0.0
        for lo in range(r * RUN, min((r + 1) * RUN, dim), CHUNK):
            hi = min(lo + CHUNK, dim)
            centre, variance = mean[lo:hi], noise[lo:hi]
            weighted = np.empty(hi - lo, dtype=loadings.dtype)
            for i in range(rows.shape[0]):
                row = rows[i, lo:hi]
                for j in range(hi - lo):
                    weighted[j] = (row[j] - centre[j]) / variance[j]
                for k in range(rank):
                    partial[r, k, i] += _dot(loadings[k, lo:hi], weighted)


@njit(**INNER, inline="always", fastmath=True)
def _chunk_gram(loadings, noise, lo, hi, partial, scaled):  # type: ignore[no-untyped-def]
    """Add FᵀΨ⁻¹F over the coordinates lo … hi to the lower triangle of `partial`; `scaled` is room for K+1 chunks."""
    rank, width = loadings.shape[0], hi - lo
    root, variance = scaled[rank], noise[lo:hi]
    one = loadings.dtype.type(1.0)
    for j in range(width):
        root[j] = one / np.sqrt(variance[j])
    for k in range(rank):
        row, out = loadings[k, lo:hi], scaled[k, :width]
        for j in range(width):
            out[j] = row[j] * root[j]
        for l in range(k + 1):
            partial[k, l] += _dot(out, scaled[l])


@_by_runs
def gram_chunks(begin, end, loadings, noise, partial):  # type: ignore[no-untyped-def]
    """partial[r] = lower triangle of FᵀΨ⁻¹F over run r, shape (runs, K, K)."""
    dim = loadings.shape[1]
    for r in range(begin, end):
        partial[r] = 0.0
        scaled = np.empty((loadings.shape[0] + 1, CHUNK), dtype=loadings.dtype)
        for lo in range(r * RUN, min((r + 1) * RUN, dim), CHUNK):
            _chunk_gram(loadings, noise, lo, min(lo + CHUNK, dim), partial[r], scaled)


@njit(**INNER, inline="always", fastmath=True)
def _centre(mean, rows, count, lo, hi, centred, variance, first):  # type: ignore[no-untyped-def]
    """centred = Y over a chunk, variance = diag(YᵀCY)/b; the running mean moves on; `first` is room for ΣY."""
    b = rows.shape[0]
    centre = mean[lo:hi]
    share, each = 1.0 / (count + b), 1.0 / b
    first[:] = 0.0
    variance[:] = 0.0
    for i in range(b):
        row, y = rows[i, lo:hi], centred[i]
        for j in range(hi - lo):
            difference = np.float64(row[j]) - centre[j]
            first[j] += difference
            variance[j] += difference * difference
            y[j] = difference
    for j in range(hi - lo):
        variance[j] = (variance[j] - first[j] * first[j] * share) * each
        centre[j] += first[j] * share


@njit(**INNER, fastmath=True)
def _em_room(loadings, rows):  # type: ignore[no-untyped-def]
    """Arrays of a chunk's length for `_em_chunk` to write in; made once per run, as making them takes time too."""
    rank, kind = loadings.shape[0], loadings.dtype
    narrow = np.empty(CHUNK, dtype=kind), np.empty(CHUNK, dtype=kind), np.empty(CHUNK, dtype=kind)
    wide = np.empty(CHUNK), np.empty(CHUNK)
    return np.empty((rank + 1, CHUNK), dtype=kind), np.empty((rows.shape[0], CHUNK), dtype=kind), narrow, wide


@njit(**INNER, inline="always", fastmath=True)
def _em_chunk(loadings, noise, mean, rows, mix, weights, keep, count, floor, tiny, partial, lo, hi, room):  # type: ignore[no-untyped-def]
    """One M-step of online EM with its parameter expansion, fused with the mean and the next FᵀΨ⁻¹F.

    F ← mix·F + weights·Y;  ψ ← r²ψ + (1−r²) diag(YᵀCY)/b + Σ_k (rF_k,old − F_k,new)(rF_k,old + F_k,new), at least the
    floor, where r² = 1 − γ and r = `keep` is exact in the storage's precision: the products lose no digits to
    cancellation. `mix` is lower triangular, so factors from the last to the first can be replaced in place. Returns
    how many met the floor.
    """
    rank, width = loadings.shape[0], hi - lo
    scaled, centred, (new, residual, size), (variance, first) = room
    _centre(mean, rows, count, lo, hi, centred, variance, first)
    residual[:] = 0.0
    size[:] = 0.0
    for k in range(rank - 1, -1, -1):
        old, y = loadings[k, lo:hi], centred[0]
        g, weight = mix[k, k], weights[k, 0]
        for j in range(width):
            new[j] = g * old[j] + weight * y[j]
        _combine(new[:width], weights[k, 1:], centred[1:], rows.shape[0] - 1, 0, width)
        _combine(new[:width], mix[k], loadings, k, lo, hi)
        for j in range(width):
            residual[j] += (keep * old[j] - new[j]) * (keep * old[j] + new[j])
            size[j] += new[j] * new[j]
            old[j] = new[j]
    psi = noise[lo:hi]
    share = np.float64(keep) * keep
    hits = 0
    for j in range(width):
        left = share * psi[j] + (1.0 - share) * variance[j] + residual[j]
        least = max(floor * (left + size[j]), tiny)
        hits += left < least
        psi[j] = max(left, least)
    _chunk_gram(loadings, noise, lo, hi, partial, scaled)
    return hits


@_by_runs
def em_chunks(begin, end, loadings, noise, mean, rows, mix, weights, keep, count, floor, tiny, partial, floored):  # type: ignore[no-untyped-def]
    """`_em_chunk` over all coordinates; `floored[r]` counts those of run r that met the floor."""
    dim = loadings.shape[1]
    for r in range(begin, end):
        partial[r] = 0.0
        floored[r] = 0
        room = _em_room(loadings, rows)
        for lo in range(r * RUN, min((r + 1) * RUN, dim), CHUNK):
            floored[r] += _em_chunk(
                loadings, noise, mean, rows, mix, weights, keep, count, floor, tiny, partial[r],
                lo, min(lo + CHUNK, dim), room,
            )  # fmt: skip


@njit(**INNER, fastmath=True)
def _gather(mean, rows, weights, count, lo, hi, combined, variance):  # type: ignore[no-untyped-def]
    """combined = weights·Y, variance = diag(YᵀCY)/b over a chunk; the running mean moves on."""
    centred = np.empty((rows.shape[0], hi - lo), dtype=combined.dtype)
    _centre(mean, rows, count, lo, hi, centred, variance, np.empty(hi - lo))
    for k in range(combined.shape[0]):
        _combine(combined[k], weights[k], centred, rows.shape[0], 0, hi - lo)


@njit(**INNER, fastmath=True)
def _residual(loadings, second, lo, hi, combined, product, variance):  # type: ignore[no-untyped-def]
    """product = H F; variance ← diag E[(d − Fh)(d − Fh)ᵀ] = variance − 2 F·A + F·(HF), A = combined."""
    rank = loadings.shape[0]
    for k in range(rank):
        _combine(product[k], second[k], loadings, rank, lo, hi)
        f, hf, a = loadings[k, lo:hi], product[k], combined[k]
        for j in range(hi - lo):
            variance[j] += f[j] * (np.float64(hf[j]) - 2.0 * a[j])


@njit(**INNER, fastmath=True)
def _grow(variance, step, tiny):  # type: ignore[no-untyped-def]
    """ψ ← ψ exp(step), the step at most one in absolute value; returns how many met the floor."""
    hits = 0
    for j in range(variance.size):
        value = variance[j] * np.exp(min(max(step[j], -MAX_LOG_STEP), MAX_LOG_STEP))
        hits += value < tiny
        variance[j] = max(value, tiny)
    return hits


@njit(**INNER, fastmath=True)
def _scaled_chunk(loadings, noise, mean, rows, second, weights, rate, count, tiny, partial, lo, hi):  # type: ignore[no-untyped-def]
    """F ← F + rate (Ψ + ½FFᵀ)∇_F, β ← β + 2 rate ∇_β: A − ½(HF + F) and E[(d − Fh)²]/ψ − 1."""
    rank = loadings.shape[0]
    combined = np.zeros((rank, hi - lo), dtype=loadings.dtype)
    product = np.zeros((rank, hi - lo), dtype=loadings.dtype)
    residual = np.zeros(hi - lo)
    _gather(mean, rows, weights, count, lo, hi, combined, residual)
    _residual(loadings, second, lo, hi, combined, product, residual)
    for k in range(rank):
        f, hf, a = loadings[k, lo:hi], product[k], combined[k]
        for j in range(hi - lo):
            f[j] += rate * (a[j] - 0.5 * (hf[j] + f[j]))
    psi = noise[lo:hi]
    for j in range(hi - lo):
        residual[j] = rate * (residual[j] / psi[j] - 1.0)
    hits = _grow(psi, residual, tiny)
    _chunk_gram(loadings, noise, lo, hi, partial, np.empty((rank + 1, hi - lo), dtype=loadings.dtype))
    return hits


@_by_runs
def scaled_gradient_chunks(  # type: ignore[no-untyped-def]
    begin, end, loadings, noise, mean, rows, second, weights, rate, count, tiny, partial, floored
):
    """`_scaled_chunk` over all coordinates; `floored[r]` counts those of run r that met the floor."""
    dim = loadings.shape[1]
    for r in range(begin, end):
        partial[r] = 0.0
        floored[r] = 0
        for lo in range(r * RUN, min((r + 1) * RUN, dim), CHUNK):
            floored[r] += _scaled_chunk(
                loadings, noise, mean, rows, second, weights, rate, count, tiny, partial[r], lo, min(lo + CHUNK, dim)
            )


@njit(**INNER, fastmath=True)
def _gradient_chunk(loadings, noise, mean, rows, second, weights, rate, count, tiny, partial, lo, hi):  # type: ignore[no-untyped-def]
    """F ← F + rate ∇_F, β ← β + rate ∇_β with (3.27)–(3.29): Ψ⁻¹(A − HF) and ½(E[(d − Fh)²]/ψ − 1)."""
    rank = loadings.shape[0]
    combined = np.zeros((rank, hi - lo), dtype=loadings.dtype)
    product = np.zeros((rank, hi - lo), dtype=loadings.dtype)
    residual = np.zeros(hi - lo)
    _gather(mean, rows, weights, count, lo, hi, combined, residual)
    _residual(loadings, second, lo, hi, combined, product, residual)
    psi = noise[lo:hi]
    for k in range(rank):
        f, hf, a = loadings[k, lo:hi], product[k], combined[k]
        for j in range(hi - lo):
            f[j] += rate * (a[j] - hf[j]) / psi[j]
    for j in range(hi - lo):
        residual[j] = 0.5 * rate * (residual[j] / psi[j] - 1.0)
    hits = _grow(psi, residual, tiny)
    _chunk_gram(loadings, noise, lo, hi, partial, np.empty((rank + 1, hi - lo), dtype=loadings.dtype))
    return hits


@_by_runs
def gradient_chunks(begin, end, loadings, noise, mean, rows, second, weights, rate, count, tiny, partial, floored):  # type: ignore[no-untyped-def]
    """`_gradient_chunk` over all coordinates; `floored[r]` counts those of run r that met the floor."""
    dim = loadings.shape[1]
    for r in range(begin, end):
        partial[r] = 0.0
        floored[r] = 0
        for lo in range(r * RUN, min((r + 1) * RUN, dim), CHUNK):
            floored[r] += _gradient_chunk(
                loadings, noise, mean, rows, second, weights, rate, count, tiny, partial[r], lo, min(lo + CHUNK, dim)
            )


@njit(**INNER, fastmath=True)
def _adam(first, second, gradient, betas, corrections):  # type: ignore[no-untyped-def]
    """The moments m, v move towards the gradient, which becomes the direction m̂/(√v̂ + ε)."""
    for j in range(gradient.size):
        m = betas[0] * first[j] + (1.0 - betas[0]) * gradient[j]
        v = betas[1] * second[j] + (1.0 - betas[1]) * gradient[j] * gradient[j]
        first[j], second[j] = m, v
        gradient[j] = corrections[0] * m / (np.sqrt(corrections[1] * v) + 1e-8)


@njit(**INNER, fastmath=True)
def _adam_chunk(  # type: ignore[no-untyped-def]
    loadings, noise, mean, rows, second, weights, rate, count, tiny, partial, moments, betas, corrections, lo, hi
):
    """Adam's step on F and β = log ψ with (3.27)–(3.29); `moments` has shape (2, K+1, d), β last."""
    rank = loadings.shape[0]
    combined = np.zeros((rank, hi - lo), dtype=loadings.dtype)
    product = np.zeros((rank, hi - lo), dtype=loadings.dtype)
    residual, gradient = np.zeros(hi - lo), np.empty(hi - lo)
    _gather(mean, rows, weights, count, lo, hi, combined, residual)
    _residual(loadings, second, lo, hi, combined, product, residual)
    psi = noise[lo:hi]
    for k in range(rank):
        hf, a = product[k], combined[k]
        for j in range(hi - lo):
            gradient[j] = (np.float64(a[j]) - hf[j]) / psi[j]
        _adam(moments[0, k, lo:hi], moments[1, k, lo:hi], gradient, betas, corrections)
        _add(loadings[k, lo:hi], rate, gradient)
    for j in range(hi - lo):
        residual[j] = 0.5 * (residual[j] / psi[j] - 1.0)
    _adam(moments[0, rank, lo:hi], moments[1, rank, lo:hi], residual, betas, corrections)
    for j in range(hi - lo):
        residual[j] *= rate
    hits = _grow(psi, residual, tiny)
    _chunk_gram(loadings, noise, lo, hi, partial, np.empty((rank + 1, hi - lo), dtype=loadings.dtype))
    return hits


@_by_runs
def adam_chunks(  # type: ignore[no-untyped-def]
    begin,
    end,
    loadings,
    noise,
    mean,
    rows,
    second,
    weights,
    rate,
    count,
    tiny,
    partial,
    floored,
    moments,
    betas,
    corrections,
):
    """`_adam_chunk` over all coordinates; `floored[r]` counts those of run r that met the floor."""
    dim = loadings.shape[1]
    for r in range(begin, end):
        partial[r] = 0.0
        floored[r] = 0
        for lo in range(r * RUN, min((r + 1) * RUN, dim), CHUNK):
            floored[r] += _adam_chunk(
                loadings,
                noise,
                mean,
                rows,
                second,
                weights,
                rate,
                count,
                tiny,
                partial[r],
                moments,
                betas,
                corrections,
                lo,
                min(lo + CHUNK, dim),
            )


@_by_runs
def average_chunks(begin, end, target, source, weight):  # type: ignore[no-untyped-def]
    """target ← target + weight·(source − target) for two-dimensional arrays."""
    dim = source.shape[1]
    for lo in range(begin * RUN, min(end * RUN, dim), CHUNK):
        hi = min(lo + CHUNK, dim)
        for k in range(source.shape[0]):
            out, row = target[k, lo:hi], source[k, lo:hi]
            for j in range(hi - lo):
                out[j] += weight * (row[j] - out[j])

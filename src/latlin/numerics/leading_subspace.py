"""The leading eigenvectors of HᵀΓH, many at once, by subspace iteration with a polynomial filter.

With A = HᵀΓH, λ_K its K-th eigenvalue and T_d a Chebyshev polynomial, T_d(2A/λ_K − 1) grows what is above λ_K, the more
the further, and leaves what is below within ±1. A filtered basis is made orthonormal and turned to the eigenvectors of
A inside it. Columns far above λ_K would drown the others: they get one product with A and are kept out of the others'
products. All of it is products of H with a few columns at a time and matrix products; beside the basis, in place, only
H times it, N×K, is formed. A basis that has been found for other weights Γ is a good start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.rows import Rows

Array = NDArray[np.float64]
#: columns filtered at once
COLUMNS = 48
#: rows turned at once
ROWS = 2048
#: of the filter, at most, and the growth of its smallest column that makes do with a lower one
DEGREE, GROWTH = 5, 1e3
#: multiple of λ_K from which a column is kept out of the others' products
FAR = 8.0
#: smallest pivot of a Cholesky factor that is trusted
INDEPENDENT = 1e-4
#: eigenvalues below this share of the largest are zeros
ZERO = 1e-12


class Leading(NamedTuple):
    """Orthonormal columns near the leading eigenvectors, and their Rayleigh quotients in falling order."""

    basis: Array
    values: Array


def first_leading(rows: Rows, weights: Array, rank: int) -> Leading:
    """From random directions, always the same."""
    basis = np.random.default_rng(0).standard_normal((rows.shape[1], rank))
    for columns in _blocks(0, rank):
        basis[:, columns] = _orthonormal(basis[:, : columns.start], _product(rows, weights, basis[:, columns]))
    return _improved(rows, weights, _turned(rows, weights, basis))


def better_leading(rows: Rows, weights: Array, now: Leading) -> Leading:
    """One filtered step from a basis, which is kept."""
    return _improved(rows, weights, _turned(rows, weights, now.basis.copy()))


def _improved(rows: Rows, weights: Array, now: Leading) -> Leading:
    """The same step, in place."""
    basis, cut = now.basis, float(now.values[-1])
    if cut <= ZERO * now.values[0]:
        return now
    far = int(np.sum(now.values > FAR * cut))
    for columns in _blocks(0, far):
        basis[:, columns] = _orthonormal(basis[:, : columns.start], _product(rows, weights, basis[:, columns]))
    for columns in _blocks(far, basis.shape[1]):
        degree = _degree(float(now.values[columns.stop - 1]) / cut)
        image = _filtered(rows, weights, basis[:, columns], basis[:, :far], cut, degree)
        basis[:, columns] = _orthonormal(basis[:, : columns.start], image)
    return _turned(rows, weights, basis)


def _degree(ratio: float) -> int:
    """The lowest degree d with T_d(2 ratio − 1) ≥ `GROWTH`, or `DEGREE`."""
    # T_d(x) = cosh(d arcosh x) for x ≥ 1
    rate = np.arccosh(max(2.0 * ratio - 1.0, 1.0))
    return int(np.clip(np.ceil(np.arccosh(GROWTH) / max(rate, 1e-3)), 1, DEGREE))


def _blocks(start: int, stop: int) -> list[slice]:
    return [slice(i, min(i + COLUMNS, stop)) for i in range(start, stop, COLUMNS)]


def _product(rows: Rows, weights: Array, block: Array) -> Array:
    image = rows.block_times(np.ascontiguousarray(block))
    image *= weights[:, None]
    return rows.block_transposed(image)


def _filtered(rows: Rows, weights: Array, block: Array, far: Array, cut: float, degree: int) -> Array:
    """T_d(2A/cut − 1) times a block, A without the far columns, by T_{k+1}(x) = 2x T_k(x) − T_{k−1}(x)."""
    last = _without(far, block.copy())
    this = (2.0 / cut) * _without(far, _product(rows, weights, last)) - last
    for _ in range(degree - 1):
        following = _without(far, _product(rows, weights, this))
        following *= 4.0 / cut
        following -= 2.0 * this
        following -= last
        last, this = this, following
    return this


def _without(before: Array, block: Array) -> Array:
    """What is orthogonal to some orthonormal columns, in place."""
    if before.shape[1]:
        block -= before @ (before.T @ block)
    return block


def _orthonormal(before: Array, block: Array) -> Array:
    """Orthonormal columns for a block, orthogonal to those before it; twice, as once is not enough in rounding."""
    for _ in range(2):
        block = _orthonormal_columns(_without(before, block))
    return block


def _orthonormal_columns(block: Array) -> Array:
    """By the Cholesky factor of the Gram matrix of unit columns, or by reflections where they depend on each other."""
    scale = np.sqrt(np.einsum("dk,dk->k", block, block))
    if np.all(scale > 0.0):
        gram = (block.T @ block) / np.outer(scale, scale)
        try:
            factor = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            return np.linalg.qr(block)[0]
        if factor.diagonal().min() > INDEPENDENT:
            return block @ (np.linalg.inv(factor).T / scale[:, None])
    return np.linalg.qr(block)[0]


def _turned(rows: Rows, weights: Array, basis: Array) -> Leading:
    """The eigenvectors of EᵀAE inside a basis E, which is overwritten."""
    image = rows.block_times(basis)
    inner = np.zeros((basis.shape[1],) * 2)
    for i in range(0, len(image), ROWS):
        part = image[i : i + ROWS]
        inner += part.T @ (weights[i : i + ROWS, None] * part)
    values, vectors = np.linalg.eigh(inner)
    vectors = np.ascontiguousarray(vectors[:, ::-1])
    for i in range(0, len(basis), ROWS):
        basis[i : i + ROWS] = basis[i : i + ROWS] @ vectors
    return Leading(basis, np.maximum(values[::-1], 0.0))

"""The leading eigenvectors of HᵀΓH, many at once, by subspace iteration with a polynomial filter.

With A = HᵀΓH, λ_K its K-th eigenvalue and T_d a Chebyshev polynomial, T_d(2A/λ_K − 1) grows what is above λ_K, the more
the further, and leaves what is below within ±1. A filtered basis is made orthonormal and turned to the eigenvectors of
A inside it. Columns far above λ_K would drown the others: they get one product with A and are kept out of the others'
products. All of it is products of H with a few columns at a time and matrix products, in place. With fewer rows than
columns the same is done with Γ½HHᵀΓ½, whose eigenvectors U give HᵀΓ½U. A basis that has been found for other weights Γ
is a good start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from latlin.densities.structured.rows import ProjectionRows, use_one_pool
from latlin.numerics.arrays import Array

#: columns filtered at once
COLUMNS = 32
#: rows turned at once
ROWS = 2048
#: of the filter, at most, and the growth of its smallest column that makes do with a lower one
DEGREE, GROWTH = 5, 1e3
#: multiple of λ_K from which a column is kept out of the others' products
FAR = 8.0
#: smallest pivot of a Cholesky factor that is trusted
INDEPENDENT = 1e-4
#: largest inner product with a column before that is left
LEFT = 1e-13
#: eigenvalues below this share of the largest are zeros
ZERO = 1e-12
#: share of the largest eigenvalue from which the smallest leaves HᵀΓ½U orthogonal to twelve digits
SAFE = 1e-4


class Leading(NamedTuple):
    """Orthonormal columns near the leading eigenvectors, and their Rayleigh quotients in falling order."""

    basis: Array
    values: Array


class Operator(Protocol):
    """A symmetric matrix by its products."""

    @property
    def size(self) -> int: ...

    def times(self, block: Array) -> Array:
        """Its product with a narrow matrix, a new array."""
        ...

    def inner(self, basis: Array) -> Array:
        """EᵀAE of a basis E."""
        ...


@dataclass(frozen=True)
class ColumnProducts:
    """A = HᵀΓH."""

    rows: ProjectionRows
    weights: Array

    @property
    def size(self) -> int:
        return self.rows.shape[1]

    def times(self, block: Array) -> Array:
        image = self.rows.times_columns(np.ascontiguousarray(block))
        image *= self.weights[:, None]
        return self.rows.transposed_columns(image)

    def inner(self, basis: Array) -> Array:
        image, total = self.rows.times_columns(basis), np.zeros((basis.shape[1],) * 2)
        for i in range(0, len(image), ROWS):
            part = image[i : i + ROWS]
            total += part.T @ (self.weights[i : i + ROWS, None] * part)
        return total


@dataclass(frozen=True)
class SiteProducts:
    """A = Γ½HHᵀΓ½."""

    rows: ProjectionRows
    root: Array

    @property
    def size(self) -> int:
        return self.rows.shape[0]

    def times(self, block: Array) -> Array:
        return self.seen(self.rows.transposed_columns(self.root[:, None] * block))

    def inner(self, basis: Array) -> Array:
        return np.hstack([basis.T @ self.times(basis[:, columns]) for columns in _blocks(0, basis.shape[1])])

    def seen(self, block: Array) -> Array:
        """Γ½H of columns."""
        image = self.rows.times_columns(np.ascontiguousarray(block))
        image *= self.root[:, None]
        return image

    def columns(self, found: Leading) -> Leading:
        """From eigenvectors U of A to those of HᵀΓH: HᵀΓ½U, whose squared lengths are the eigenvalues."""
        basis, safe = np.empty((self.rows.shape[1], len(found.values))), found.values[-1] > SAFE * found.values[0]
        for columns in _blocks(0, len(found.values)):
            block = self.rows.transposed_columns(self.root[:, None] * found.basis[:, columns])
            scaled = block / np.sqrt(found.values[columns]) if safe else _orthonormal(basis[:, : columns.start], block)
            basis[:, columns] = scaled
        return Leading(basis, found.values)


def start_leading(rows: ProjectionRows, weights: Array, rank: int) -> Leading:
    """From random directions, always the same."""
    with use_one_pool(rows):
        if not rank < rows.shape[0] < rows.shape[1]:
            return _started(ColumnProducts(rows, weights), rank)
        sites = SiteProducts(rows, np.sqrt(weights))
        return sites.columns(_started(sites, rank))


def improve_leading(rows: ProjectionRows, weights: Array, now: Leading) -> Leading:
    """One filtered step from a basis, which is kept."""
    with use_one_pool(rows):
        if not len(now.values) < rows.shape[0] < rows.shape[1]:
            operator = ColumnProducts(rows, weights)
            return _improved(operator, _turned(operator, now.basis.copy()))
        return _better_by_sites(SiteProducts(rows, np.sqrt(weights)), now)


def _better_by_sites(sites: SiteProducts, now: Leading) -> Leading:
    rows = sites.rows
    basis = np.empty((rows.shape[0], len(now.values)))
    for columns in _blocks(0, basis.shape[1]):
        basis[:, columns] = _orthonormal(basis[:, : columns.start], sites.seen(now.basis[:, columns]))
    return sites.columns(_improved(sites, _turned(sites, basis)))


def _started(operator: Operator, rank: int) -> Leading:
    basis = np.random.default_rng(0).standard_normal((operator.size, rank))
    for columns in _blocks(0, rank):
        basis[:, columns] = _orthonormal(basis[:, : columns.start], operator.times(basis[:, columns]))
    return _improved(operator, _turned(operator, basis))


def _improved(operator: Operator, now: Leading) -> Leading:
    """A filtered step, in place."""
    basis, cut = now.basis, float(now.values[-1])
    if cut <= ZERO * now.values[0]:
        return now
    far = int(np.sum(now.values > FAR * cut))
    for columns in _blocks(0, far):
        basis[:, columns] = _orthonormal(basis[:, : columns.start], operator.times(basis[:, columns]))
    for columns in _blocks(far, basis.shape[1]):
        degree = _degree(float(now.values[columns.stop - 1]) / cut)
        image = _filtered(operator, basis[:, columns], basis[:, :far], cut, degree)
        basis[:, columns] = _orthonormal(basis[:, : columns.start], image)
    return _turned(operator, basis)


def _degree(ratio: float) -> int:
    """The lowest degree d with T_d(2 ratio − 1) ≥ `GROWTH`, or `DEGREE`."""
    # T_d(x) = cosh(d arcosh x) for x ≥ 1
    rate = np.arccosh(max(2.0 * ratio - 1.0, 1.0))
    return int(np.clip(np.ceil(np.arccosh(GROWTH) / max(rate, 1e-3)), 1, DEGREE))


def _blocks(start: int, stop: int) -> Iterator[slice]:
    return (slice(i, min(i + COLUMNS, stop)) for i in range(start, stop, COLUMNS))


def _filtered(operator: Operator, block: Array, far: Array, cut: float, degree: int) -> Array:
    """T_d(2A/cut − 1) times a block, A without the far columns, by T_{k+1}(x) = 2x T_k(x) − T_{k−1}(x)."""
    last = _without(far, block.copy())
    this = _without(far, operator.times(last))
    this *= 2.0 / cut
    this -= last
    for _ in range(degree - 1):
        following = _without(far, operator.times(this))
        following *= 4.0 / cut
        following -= last
        following -= this
        following -= this
        last, this = this, following
    return this


def _without(before: Array, block: Array) -> Array:
    """What is orthogonal to some orthonormal columns, in place."""
    if before.shape[1]:
        block -= before @ (before.T @ block)
    return block


def _orthonormal(before: Array, block: Array) -> Array:
    """Orthonormal columns for a block, orthogonal to those before it; again where rounding has spoilt that."""
    block = _orthonormal_columns(_without(before, block))
    # a random combination shows what is left, at the price of one column
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), block.shape[1])
    if np.linalg.norm(before.T @ (block @ signs)) > LEFT * np.sqrt(len(signs)):
        block = _without(before, block)
    return _orthonormal_columns(block)


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


def _turned(operator: Operator, basis: Array) -> Leading:
    """The eigenvectors of EᵀAE inside a basis E, which is overwritten."""
    values, vectors = np.linalg.eigh(operator.inner(basis))
    vectors = np.ascontiguousarray(vectors[:, ::-1])
    for i in range(0, len(basis), ROWS):
        basis[i : i + ROWS] = basis[i : i + ROWS] @ vectors
    return Leading(basis, np.maximum(values[::-1], 0.0))

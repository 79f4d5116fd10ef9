"""The rows h_n of all sites, in the coordinates an engine works in, with the products a full covariance needs.

Dense rows are one C-ordered array, left as it came where columns are only scaled. Sparse rows stay sparse or, whitened
by a full matrix, are made dense a block at a time, so that nothing of size N×D is formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, lapack

from latlin.densities.precision import DiagonalWhitening, Whitening
from latlin.inference.forms.sites import Sites, join_parts
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.numerics.arrays import Array, empty_array
from latlin.numerics.linalg import gram, rough_gram, rough_whitened_squares, whitened_squares
from latlin.numerics.options import dense_operator
from latlin.numerics.threads import njit
from latlin.numerics.weighted_gram import WeightedGram

Index = NDArray[np.int64]
PIECE = 1024
#: share of non-zeros from which a row counts as dense
DENSE_SHARE = 1.0 / 16.0
#: largest scale of a column, and the inverse of the smallest, up to which rows are left unscaled
FARTHEST = 1e100


class Projections(Protocol):
    """N rows of length D."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def times(self, u: Array) -> Array:
        """H u."""
        ...

    def transposed_times(self, r: Array) -> Array:
        """Hᵀ r."""
        ...

    def gram(self, weights: Array) -> Array:
        """Upper triangle of Hᵀ diag(weights) H."""
        ...

    def variances(self, factor: Array) -> Array:
        """h_nᵀ(CᵀC)⁻¹h_n."""
        ...

    def block(self, span: slice) -> Array:
        """Some of the rows, dense and C-ordered."""
        ...


@dataclass(frozen=True)
class DenseProjections:
    rows: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def times(self, u: Array) -> Array:
        return blas.dgemv(1.0, self.rows.T, u, trans=1) if self.rows.size else np.zeros(len(self.rows))

    def transposed_times(self, r: Array) -> Array:
        return blas.dgemv(1.0, self.rows.T, r) if self.rows.size else np.zeros(self.shape[1])

    def gram(self, weights: Array) -> Array:
        return gram(self.rows, weights)

    def rough_gram(self, weights: Array) -> Array:
        return rough_gram(self.rows, weights)

    def variances(self, factor: Array) -> Array:
        return whitened_squares(factor, self.rows)

    def rough_variances(self, factor: Array) -> Array:
        return rough_whitened_squares(factor, self.rows)

    def block(self, span: slice) -> Array:
        return self.rows[span]


@dataclass(frozen=True)
class ScaledProjections:
    """Dense rows h_n ∘ scale without a copy of the rows: vectors and matrices of length D carry the scale."""

    rows: Array
    scale: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def times(self, u: Array) -> Array:
        return blas.dgemv(1.0, self.rows.T, self.scale * u, trans=1)

    def transposed_times(self, r: Array) -> Array:
        return self.scale * blas.dgemv(1.0, self.rows.T, r)

    def gram(self, weights: Array) -> Array:
        return self._scaled(gram(self.rows, weights))

    def rough_gram(self, weights: Array) -> Array:
        return self._scaled(rough_gram(self.rows, weights))

    def _scaled(self, total: Array) -> Array:
        total *= self.scale[:, None]
        total *= self.scale
        return total

    def variances(self, factor: Array) -> Array:
        # (h∘scale)ᵀ(CᵀC)⁻¹(h∘scale) = ‖(C diag(scale)⁻¹)⁻ᵀh‖²
        return whitened_squares(np.asfortranarray(factor / self.scale), self.rows)

    def rough_variances(self, factor: Array) -> Array:
        return rough_whitened_squares(np.asfortranarray(factor / self.scale), self.rows)

    def block(self, span: slice) -> Array:
        return self.rows[span] * self.scale


@dataclass(frozen=True)
class RoughProjections:
    """Dense rows whose products with matrices are in single precision, for steps that others correct."""

    exact: DenseProjections | ScaledProjections

    @property
    def shape(self) -> tuple[int, int]:
        return self.exact.shape

    def times(self, u: Array) -> Array:
        return self.exact.times(u)

    def transposed_times(self, r: Array) -> Array:
        return self.exact.transposed_times(r)

    def gram(self, weights: Array) -> Array:
        return self.exact.rough_gram(weights)

    def variances(self, factor: Array) -> Array:
        return self.exact.rough_variances(factor)

    def block(self, span: slice) -> Array:
        return self.exact.block(span)


@dataclass(frozen=True)
class SparseProjections:
    """Sparse rows in their own coordinates, or scaled ones; their products cost pairs of non-zeros."""

    rows: sparse.csr_array

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    @cached_property
    def _split(self) -> SplitRows:
        return split_rows(self.rows)

    def times(self, u: Array) -> Array:
        return self.rows @ u

    @cached_property
    def _transposed(self) -> sparse.csc_array:
        """Hᵀ with the same entries in memory; making it takes longer than a product where rows are few."""
        return self.rows.T

    def transposed_times(self, r: Array) -> Array:
        return self._transposed @ r

    def gram(self, weights: Array) -> Array:
        return pair_gram(self._split, weights)

    def variances(self, factor: Array) -> Array:
        return pair_squares(self._split, lapack.dpotri(factor, lower=0)[0])

    def block(self, span: slice) -> Array:
        return self.rows[span].toarray()


@dataclass(frozen=True)
class WhitenedProjections:
    """Sparse rows h_n of which h_nL, with a full L, is made dense a block at a time."""

    rows: sparse.csr_array
    whitening: Whitening

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def times(self, u: Array) -> Array:
        return self.rows @ self.whitening.apply(u)

    def transposed_times(self, r: Array) -> Array:
        return np.ravel(self.whitening.rows((self.rows.T @ r)[None, :]))

    def gram(self, weights: Array) -> Array:
        total = np.zeros((self.shape[1],) * 2, order="F")
        for span, block in self._blocks():
            total += gram(block, weights[span])
        return total

    def variances(self, factor: Array) -> Array:
        return np.concatenate([whitened_squares(factor, block) for _, block in self._blocks()])

    def block(self, span: slice) -> Array:
        return self.whitening.rows(self.rows[span])

    def _blocks(self) -> Iterator[tuple[slice, Array]]:
        for start in range(0, self.shape[0], PIECE):
            span = slice(start, start + PIECE)
            yield span, self.block(span)


@dataclass(frozen=True)
class ScaledRows:
    """Sparse rows h_n ∘ scale; products with their transpose are taken along the constraints.

    Parameters
    ----------
    sums : WeightedGram
        The rows h_n and sums over them.
    scale : ndarray of shape (dim,)
    normal : ndarray of shape (dim, k)
        Orthonormal, across the constraints.
    """

    sums: WeightedGram
    scale: Array
    normal: Array

    @property
    def rows(self) -> sparse.csr_array:
        """H."""
        return self.sums.rows

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    @cached_property
    def own(self) -> bool:
        """Whether the sites are on the coordinates themselves, H = I."""
        n, d = self.rows.shape
        return n == d == self.rows.nnz and bool(np.all(self.rows.data == 1.0)) and _counts_up(self.rows)

    def times(self, u: Array) -> Array:
        w = self.scale * u
        return w if self.own else self.rows @ w

    def seen(self, w: Array) -> Array:
        """Hw, unscaled; w itself where H = I."""
        return w if self.own else self.rows @ w

    def transposed_times(self, r: Array) -> Array:
        seen = r if self.own else self.sums.columns @ r
        return self.along(np.multiply(self.scale, seen, out=empty_array(len(self.scale))))

    def summed(self, r: Array) -> Array:
        """Hᵀr, unscaled."""
        return np.array(r) if self.own else self.sums.columns @ r

    def along(self, v: Array) -> Array:
        """The part of a vector of coordinates that is along the constraints."""
        return v - self.normal @ (self.normal.T @ v) if self.normal.shape[1] else v

    def gram(self, weights: Array) -> Array:
        scaled = self.rows @ sparse.diags_array(self.scale)
        return np.asfortranarray((scaled.T @ sparse.diags_array(weights) @ scaled).toarray())

    def variances(self, factor: Array) -> Array:
        raise NotImplementedError("the sparse form has variances of its own")

    def block(self, span: slice) -> Array:
        return self.rows[span].toarray() * self.scale


def _counts_up(rows: sparse.csr_array) -> bool:
    """Whether row n has one entry, in column n."""
    places = np.arange(rows.shape[0] + 1)
    return np.array_equal(rows.indptr, places) and np.array_equal(rows.indices, places[:-1])


def stacked_rows(model: LatentLinearModel) -> Any:
    """Rows of all site factors in the model's own coordinates: one dense array, or CSR if any factor is sparse."""
    parts = [_rows(factor, model.dim) for factor in model.sites]
    if not parts:
        return np.zeros((0, model.dim))
    if len(parts) == 1:
        return parts[0]
    if any(sparse.issparse(part) for part in parts):
        return sparse.csr_array(sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)


def _rows(factor: SiteFactor, dim: int) -> Any:
    if factor.H is None:
        return sparse.eye_array(dim, format="csr")
    if isinstance(factor.H, np.ndarray) or sparse.issparse(factor.H):
        return factor.H
    # a LinearOperator: a full covariance needs its rows one by one
    rows = np.ascontiguousarray(dense_operator(factor.H))
    if not np.all(np.isfinite(rows)):
        raise ValueError("SiteFactor H must be finite, got an operator whose products are not")
    return rows


def stacked_sites(model: LatentLinearModel) -> Sites:
    """The sites of a model, in the order of its factors."""
    counts = [model.site_count(factor) for factor in model.sites]
    ends = np.cumsum([0, *counts])
    spans = [slice(int(a), int(b)) for a, b in pairwise(ends)]
    weights = [_filled(f.weight, 1.0, n) for f, n in zip(model.sites, counts, strict=True)]
    offsets = [_filled(f.offset, 0.0, n) for f, n in zip(model.sites, counts, strict=True)]
    blocks = tuple((span, factor.potential) for span, factor in zip(spans, model.sites, strict=True))
    extra = None
    if any(f.extra_variance is not None for f in model.sites):
        extra = join_parts([_filled(f.extra_variance, 0.0, n) for f, n in zip(model.sites, counts, strict=True)])
    return Sites(blocks, join_parts(weights), join_parts(offsets), extra)


def _filled(value: Array | None, default: float, count: int) -> Array:
    return np.full(count, default) if value is None else np.broadcast_to(value, count).copy()


def whitened_projections(rows: Any, whitening: Whitening) -> Projections:
    """Rows hL, sparse ones in the way that keeps them sparse or makes a block of them dense at a time."""
    if not sparse.issparse(rows):
        if isinstance(whitening, DiagonalWhitening) and rows.size and _is_moderate(whitening.scale):
            return ScaledProjections(np.ascontiguousarray(rows), whitening.scale)
        return DenseProjections(np.ascontiguousarray(whitening.rows(rows)))
    if isinstance(whitening, DiagonalWhitening):
        return SparseProjections(whitening.rows(rows))
    if _is_coordinates(rows):
        return DenseProjections(np.ascontiguousarray(whitening.rows(rows)))
    return WhitenedProjections(rows, whitening)


def _is_moderate(scale: Array) -> bool:
    """Scales other than one, of which products of unscaled rows neither overflow nor vanish."""
    return bool(np.any(scale != 1.0) and scale.min() > 1.0 / FARTHEST and scale.max() < FARTHEST)


def _is_coordinates(rows: Any) -> bool:
    return sparse.issparse(rows) and rows.shape[0] == rows.shape[1] == rows.nnz


class SplitRows(NamedTuple):
    """Rows of a CSR matrix, the dense ones apart."""

    indptr: Index
    indices: Index
    data: Array
    thin: Index
    thick: Index
    block: Array


def split_rows(rows: sparse.csr_array) -> SplitRows:
    """Sparse rows as arrays, and the dense ones as one C-ordered block."""
    counts = np.diff(rows.indptr)
    dense = counts > DENSE_SHARE * rows.shape[1]
    thin, thick = np.flatnonzero(~dense), np.flatnonzero(dense)
    kept = rows[thin]
    block = np.ascontiguousarray(rows[thick].toarray()) if len(thick) else np.zeros((0, rows.shape[1]))
    return SplitRows(kept.indptr.astype(np.int64), kept.indices.astype(np.int64), kept.data, thin, thick, block)


def pair_gram(split: SplitRows, weights: Array) -> Array:
    """Upper triangle of Σ_n weights_n h_n h_nᵀ (nothing below it is meant)."""
    total = gram(split.block, weights[split.thick])
    _add_pairs(split.indptr, split.indices, split.data, weights[split.thin], total)
    return total


def pair_squares(split: SplitRows, matrix: Array) -> Array:
    """h_nᵀ A h_n of every row, for a symmetric A given by its upper triangle."""
    squares = np.empty(len(split.thin) + len(split.thick))
    squares[split.thin] = _row_squares(split.indptr, split.indices, split.data, matrix)
    if len(split.thick):
        image = blas.dsymm(1.0, matrix, split.block.T, lower=0)
        squares[split.thick] = np.einsum("dn,nd->n", image, split.block)
    return squares


@njit(cache=True)
def _add_pairs(indptr: Index, indices: Index, data: Array, weights: Array, total: Array) -> None:
    for n in range(len(weights)):
        for i in range(indptr[n], indptr[n + 1]):
            scaled, row = weights[n] * data[i], indices[i]
            for j in range(indptr[n], indptr[n + 1]):
                if indices[j] >= row:
                    total[row, indices[j]] += scaled * data[j]


@njit(cache=True)
def _row_squares(indptr: Index, indices: Index, data: Array, matrix: Array) -> Array:
    squares = np.zeros(len(indptr) - 1)
    for n in range(len(squares)):
        total = 0.0
        for i in range(indptr[n], indptr[n + 1]):
            here = indices[i]
            inner = 0.5 * data[i] * matrix[here, here]
            for j in range(indptr[n], i):
                there = indices[j]
                inner += data[j] * matrix[min(here, there), max(here, there)]
            total += 2.0 * data[i] * inner
        squares[n] = total
    return squares

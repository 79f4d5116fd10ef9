"""Rows of several kinds, one below the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.densities.structured.rows import (
    DenseRows,
    LoadingsByProducts,
    Pattern,
    ProjectionRows,
    SparseRows,
    Terms,
    row_dots,
)
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState, generator

# --- Rows known only through products with vectors.


@dataclass(frozen=True)
class OperatorRows(LoadingsByProducts):
    """A linear operator with products only.

    A diagonal F needs the squares of H. An operator that has them (an attribute `squares`, the operator H∘H) gives them
    exactly; otherwise random signs Z do, F h_n ≈ (FZ)ᵀh_n/√P, which keeps images linear and inner products of an image
    with itself non-negative.

    Parameters
    ----------
    operator : LinearOperator of shape (n, dim)
    signs : ndarray of shape (dim, P)
        Z, used when the operator has no `squares`.
    scale : ndarray of shape (dim,)
        H is the operator times diag(scale).
    """

    operator: LinearOperator
    signs: Array
    scale: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    @property
    def squares(self) -> LinearOperator | None:
        return getattr(self.operator, "squares", None)

    def times(self, u: Array) -> Array:
        return np.asarray(self.operator.matvec(self.scale * u), float)

    def transposed(self, r: Array) -> Array:
        return self.scale * np.asarray(self.operator.rmatvec(r), float)

    def times_columns(self, block: Array) -> Array:
        return np.ascontiguousarray(self.operator.matmat(self.scale[:, None] * block), float)

    def transposed_columns(self, block: Array) -> Array:
        return self.scale[:, None] * np.asarray(self.operator.rmatmat(block), float)

    def energy(self, weights: Array) -> Array:
        if self.squares is not None:
            return self.scale**2 * np.asarray(self.squares.rmatvec(weights), float)
        back = self.transposed_columns(weights[:, None] * self.times_columns(self.signs))
        return np.maximum(np.mean(self.signs * back, axis=1), 0.0)

    def scaled_image(self, scale: Array) -> Array:
        if self.squares is not None:
            return scale
        return self.times_columns(scale[:, None] * self.signs) / np.sqrt(self.signs.shape[1])

    def scaled_inner(self, a: Array, b: Array) -> Array:
        if self.squares is not None:
            return np.asarray(self.squares.matvec(self.scale**2 * a * b), float)
        return row_dots(a, b)

    def scaled_pull(self, terms: Terms) -> Array:
        if self.squares is not None:
            return np.sum([image * self.energy(weights) for weights, image in terms], axis=0)
        weighted = np.sum([weights[:, None] * image for weights, image in terms], axis=0)
        return np.sum(self.signs * self.transposed_columns(weighted), axis=1) / np.sqrt(self.signs.shape[1])

    def squares_outside(self, basis: Array, inside: Array) -> Array:
        if self.squares is not None:
            norms = np.asarray(self.squares.matvec(self.scale**2), float)
            return np.maximum(norms - row_dots(inside, inside), 0.0)
        # ‖(I − EEᵀ)h‖² = ⟨(hᵀ(I − EEᵀ)z)²⟩ over random signs z
        outside = self.signs - basis @ (basis.T @ self.signs)
        image = self.times_columns(outside)
        return row_dots(image, image) / self.signs.shape[1]

    def factor_image(self, pattern: Pattern, values: Array) -> Array:
        raise ValueError("a banded or sparse covariance needs the entries of H, and H is a LinearOperator")

    def factor_inner(self, pattern: Pattern, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def factor_pull(self, pattern: Pattern, terms: Terms) -> Array:
        raise NotImplementedError


def make_projection_rows(matrix: Any, scale: Array, probes: int = 64, random_state: RandomState = 0) -> ProjectionRows:
    """The rows of H diag(scale), for a dense, sparse or operator H.

    Parameters
    ----------
    matrix : ndarray, sparse matrix or LinearOperator of shape (n, dim)
    scale : ndarray of shape (dim,)
    probes : int
        Number of random sign vectors that stand in for the squares of an operator which does not know them.
    random_state : int or Generator
        Draws these.
    """
    plain = bool(np.all(scale == 1.0))
    if isinstance(matrix, LinearOperator):
        signs = generator(random_state).choice(np.array([-1.0, 1.0]), (matrix.shape[1], probes))
        return OperatorRows(matrix, signs, scale)
    if sparse.issparse(matrix):
        csr = sparse.csr_array(matrix)
        data = csr.data.astype(float, copy=False) if plain else csr.data * scale[csr.indices]
        return SparseRows(sparse.csr_array((data, csr.indices, csr.indptr), shape=csr.shape))
    dense = np.ascontiguousarray(matrix, float)
    return DenseRows(dense if plain else dense * scale)


@dataclass(frozen=True)
class StackedRows:
    """Several kinds of rows, one below the other; an image is the tuple of their images."""

    parts: tuple[ProjectionRows, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    def _split(self, weights: Array) -> list[Array]:
        ends = np.cumsum([0, *(part.shape[0] for part in self.parts)])
        return [weights[a:b] for a, b in pairwise(ends)]

    def _per_part(self, terms: Terms) -> list[Terms]:
        spread = [(self._split(weights), image) for weights, image in terms]
        return [[(weights[i], image[i]) for weights, image in spread] for i in range(len(self.parts))]

    def times(self, u: Array) -> Array:
        return np.concatenate([part.times(u) for part in self.parts])

    def transposed(self, r: Array) -> Array:
        return np.sum([p.transposed(piece) for p, piece in zip(self.parts, self._split(r), strict=True)], axis=0)

    def times_columns(self, block: Array) -> Array:
        return np.concatenate([part.times_columns(block) for part in self.parts])

    def transposed_columns(self, block: Array) -> Array:
        pieces = zip(self.parts, self._split(block), strict=True)
        return np.sum([part.transposed_columns(piece) for part, piece in pieces], axis=0)

    def energy(self, weights: Array) -> Array:
        return np.sum([p.energy(piece) for p, piece in zip(self.parts, self._split(weights), strict=True)], axis=0)

    def scaled_image(self, scale: Array) -> tuple[Any, ...]:
        return tuple(part.scaled_image(scale) for part in self.parts)

    def scaled_inner(self, a: Any, b: Any) -> Array:
        return np.concatenate([p.scaled_inner(x, y) for p, x, y in zip(self.parts, a, b, strict=True)])

    def scaled_pull(self, terms: Terms) -> Array:
        pairs = zip(self.parts, self._per_part(terms), strict=True)
        return np.sum([part.scaled_pull(own) for part, own in pairs], axis=0)

    def loadings_image(self, loadings: Array) -> tuple[Any, ...]:
        return tuple(part.loadings_image(loadings) for part in self.parts)

    def loadings_inner(self, a: Any, b: Any) -> Array:
        return np.concatenate([p.loadings_inner(x, y) for p, x, y in zip(self.parts, a, b, strict=True)])

    def loadings_pull(self, terms: Terms) -> Array:
        pairs = zip(self.parts, self._per_part(terms), strict=True)
        return np.sum([part.loadings_pull(own) for part, own in pairs], axis=0)

    def squares_outside(self, basis: Array, inside: Array) -> Array:
        pieces = zip(self.parts, self._split(inside), strict=True)
        return np.concatenate([part.squares_outside(basis, piece) for part, piece in pieces])

    def factor_image(self, pattern: Pattern, values: Array) -> tuple[Any, ...]:
        return tuple(part.factor_image(pattern, values) for part in self.parts)

    def factor_inner(self, pattern: Pattern, a: Any, b: Any) -> Array:
        return np.concatenate([p.factor_inner(pattern, x, y) for p, x, y in zip(self.parts, a, b, strict=True)])

    def factor_pull(self, pattern: Pattern, terms: Terms) -> Array:
        pairs = zip(self.parts, self._per_part(terms), strict=True)
        return np.sum([part.factor_pull(pattern, own) for part, own in pairs], axis=0)

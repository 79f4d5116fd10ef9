"""Rows known only through products with vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator

from latlin.densities.structured.patterns import Pattern
from latlin.densities.structured.rows import LoadingsByProducts, Terms, row_dots
from latlin.numerics.arrays import Array


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

    def block_times(self, block: Array) -> Array:
        return np.ascontiguousarray(self.operator.matmat(self.scale[:, None] * block), float)

    def block_transposed(self, block: Array) -> Array:
        return self.scale[:, None] * np.asarray(self.operator.rmatmat(block), float)

    def energy(self, weights: Array) -> Array:
        if self.squares is not None:
            return self.scale**2 * np.asarray(self.squares.rmatvec(weights), float)
        back = self.block_transposed(weights[:, None] * self.block_times(self.signs))
        return np.maximum(np.mean(self.signs * back, axis=1), 0.0)

    def scaled_image(self, scale: Array) -> Array:
        if self.squares is not None:
            return scale
        return self.block_times(scale[:, None] * self.signs) / np.sqrt(self.signs.shape[1])

    def scaled_inner(self, a: Array, b: Array) -> Array:
        if self.squares is not None:
            return np.asarray(self.squares.matvec(self.scale**2 * a * b), float)
        return row_dots(a, b)

    def scaled_pull(self, terms: Terms) -> Array:
        if self.squares is not None:
            return np.sum([image * self.energy(weights) for weights, image in terms], axis=0)
        weighted = np.sum([weights[:, None] * image for weights, image in terms], axis=0)
        return np.sum(self.signs * self.block_transposed(weighted), axis=1) / np.sqrt(self.signs.shape[1])

    def squares_outside(self, basis: Array, inside: Array) -> Array:
        if self.squares is not None:
            norms = np.asarray(self.squares.matvec(self.scale**2), float)
            return np.maximum(norms - row_dots(inside, inside), 0.0)
        # ‖(I − EEᵀ)h‖² = ⟨(hᵀ(I − EEᵀ)z)²⟩ over random signs z
        outside = self.signs - basis @ (basis.T @ self.signs)
        image = self.block_times(outside)
        return row_dots(image, image) / self.signs.shape[1]

    def factor_image(self, pattern: Pattern, values: Array) -> Array:
        raise ValueError("a banded or sparse covariance needs the entries of H, and H is a LinearOperator")

    def factor_inner(self, pattern: Pattern, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def factor_pull(self, pattern: Pattern, terms: Terms) -> Array:
        raise NotImplementedError

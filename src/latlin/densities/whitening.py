"""Linear maps w = μ + L u that turn a Gaussian N(w | μ, LLᵀ) into N(u | 0, I).

L is diagonal, the transposed Cholesky factor of a covariance, or the inverse factor of a precision; each kind knows
its own products. A row h of a dense or sparse matrix becomes hL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import blas

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import check_square
from latlin.numerics.stored import storable


class Whitening(Protocol):
    """L of Σ = LLᵀ."""

    @property
    def log_det(self) -> float:
        """log |det L|."""
        ...

    def apply(self, u: Array) -> Array:
        """L u, for a vector or the columns of a matrix."""
        ...

    def solve(self, w: Array) -> Array:
        """L⁻¹ w, for a vector or the columns of a matrix."""
        ...

    def rows(self, h: Any) -> Any:
        """h L for the rows of a dense array, or of a sparse matrix (kept sparse where L is diagonal)."""
        ...


@storable
@dataclass(frozen=True)
class DiagonalWhitening:
    """L = diag(scale)."""

    scale: Array

    def check_stored(self) -> None:
        if self.scale.ndim != 1:
            raise ValueError(f"scale must be a vector, got an array of shape {self.scale.shape}")

    @property
    def log_det(self) -> float:
        return float(np.log(self.scale).sum())

    def apply(self, u: Array) -> Array:
        return (self.scale * u.T).T

    def solve(self, w: Array) -> Array:
        return (w.T / self.scale).T

    def rows(self, h: Any) -> Any:
        if np.all(self.scale == 1.0):
            return h
        if sparse.issparse(h):
            return (h @ sparse.diags_array(self.scale)).tocsr()
        return h * self.scale


@storable
@dataclass(frozen=True)
class CovarianceWhitening:
    """L = Cᵀ with C upper triangular, Σ = CᵀC."""

    factor: Array

    def check_stored(self) -> None:
        check_square("factor", self.factor)

    @property
    def log_det(self) -> float:
        return float(np.log(np.abs(np.diagonal(self.factor))).sum())

    def apply(self, u: Array) -> Array:
        columns = u if u.ndim == 2 else u[:, None]
        return blas.dtrmm(1.0, self.factor, columns, lower=0, trans_a=1).reshape(u.shape)

    def solve(self, w: Array) -> Array:
        columns = w if w.ndim == 2 else w[:, None]
        return blas.dtrsm(1.0, self.factor, columns, lower=0, trans_a=1).reshape(w.shape)

    def rows(self, h: Any) -> Any:
        # (hL)ᵀ = C hᵀ
        return np.ascontiguousarray(blas.dtrmm(1.0, self.factor, _dense(h).T, lower=0).T)


@storable
@dataclass(frozen=True)
class PrecisionWhitening:
    """L = C⁻¹ with C upper triangular, Σ⁻¹ = CᵀC."""

    factor: Array

    def check_stored(self) -> None:
        check_square("factor", self.factor)

    @property
    def log_det(self) -> float:
        return -float(np.log(np.abs(np.diagonal(self.factor))).sum())

    def apply(self, u: Array) -> Array:
        columns = u if u.ndim == 2 else u[:, None]
        return blas.dtrsm(1.0, self.factor, columns, lower=0).reshape(u.shape)

    def solve(self, w: Array) -> Array:
        columns = w if w.ndim == 2 else w[:, None]
        return blas.dtrmm(1.0, self.factor, columns, lower=0).reshape(w.shape)

    def rows(self, h: Any) -> Any:
        # (hL)ᵀ = C⁻ᵀ hᵀ
        return np.ascontiguousarray(blas.dtrsm(1.0, self.factor, _dense(h).T, lower=0, trans_a=1).T)


def _dense(h: Any) -> Array:
    return h.toarray() if sparse.issparse(h) else np.asarray(h, float)

"""Whitened coordinates w = μ + Lu, and full covariances by the Cholesky factor of a precision in them.

S = L (CᵀC)⁻¹ Lᵀ
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import blas

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, check_square, cholesky, gram, whitened_squares
from latlin.numerics.stored import storable

# --- Linear maps w = μ + L u that turn a Gaussian N(w | μ, LLᵀ) into N(u | 0, I).
#
# L is diagonal, the transposed Cholesky factor of a covariance, or the inverse factor of a precision; each kind knows
# its own products. A row h of a dense or sparse matrix becomes hL.


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


PIECE = 1024


@storable
@dataclass(frozen=True)
class PrecisionCovariance:
    """S = L P⁻¹ Lᵀ with P = CᵀC.

    Parameters
    ----------
    whitening : Whitening
        L.
    precision : Cholesky
        Factor of P.
    """

    whitening: Whitening
    precision: Cholesky

    @property
    def dim(self) -> int:
        return len(self.precision.factor)

    def check_stored(self) -> None:
        """Refuse parts of different lengths."""
        if np.shape(self.whitening.apply(np.zeros(self.dim))) != (self.dim,):
            raise ValueError(f"the whitening must be of {self.dim} coordinates")

    @property
    def log_det(self) -> float:
        return 2.0 * self.whitening.log_det - self.precision.log_det

    def diagonal(self) -> Array:
        # row d of LC⁻¹ has the squares that sum to S_dd
        root = self.whitening.apply(self.precision.unwhiten(np.eye(self.dim)))
        return np.einsum("de,de->d", root, root)

    def dense(self) -> Array:
        half = self.whitening.apply(self.precision.inverse())
        return self.whitening.apply(half.T)

    def times(self, v: Array) -> Array:
        """S v."""
        return self.whitening.apply(self.precision.solve(np.ravel(self.whitening.rows(v[None, :]))))

    def project(self, rows: Any) -> Array:
        parts = [self._project_block(rows[i : i + PIECE]) for i in range(0, rows.shape[0], PIECE)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _project_block(self, rows: Any) -> Array:
        if isinstance(self.whitening, DiagonalWhitening) and isinstance(rows, np.ndarray):
            # ‖C⁻ᵀ(h∘scale)‖ = ‖(C diag(scale)⁻¹)⁻ᵀh‖
            factor = np.asfortranarray(self.precision.factor / self.whitening.scale)
            return whitened_squares(factor, np.ascontiguousarray(rows, float))
        whitened = self.whitening.rows(rows)
        dense = whitened.toarray() if sparse.issparse(whitened) else np.ascontiguousarray(whitened, float)
        return whitened_squares(self.precision.factor, dense)

    def quadratic(self, deviations: Array) -> Array:
        root = self.precision.factor @ self.whitening.solve(deviations.T)
        return np.einsum("dn,dn->n", root, root)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((self.dim, count))
        return self.whitening.apply(self.precision.unwhiten(noise)).T


# --- The precision P = I + LᵀΓL of a Gaussian process in coordinates whitened by its kernel matrix K = LLᵀ.


@storable
@dataclass(frozen=True)
class KernelPrecision:
    """P = I + LᵀΓL through the factor of B; its own Cholesky factor is formed only if it is asked for.

    Parameters
    ----------
    kernel_factor : ndarray of shape (n, n)
        C = Lᵀ, upper triangular.
    root : ndarray of shape (n,)
        Γ^½.
    inner : Cholesky
        Of B.
    """

    kernel_factor: Array
    root: Array
    inner: Cholesky

    @property
    def log_det(self) -> float:
        return self.inner.log_det

    def solve(self, b: Array) -> Array:
        """P⁻¹b = b − LᵀΓ^½B⁻¹Γ^½Lb for one vector or the columns of a matrix."""
        columns = b if b.ndim == 2 else b[:, None]
        root = self.root[:, None]
        back = root * self.inner.solve(root * blas.dtrmm(1.0, self.kernel_factor, columns, trans_a=1))
        return (columns - blas.dtrmm(1.0, self.kernel_factor, back)).reshape(b.shape)

    @cached_property
    def factor(self) -> Array:
        p = gram(self.kernel_factor.T, self.root**2)
        p[np.diag_indices(len(p))] += 1.0
        return cholesky(p, overwrite=True).factor

    def whiten(self, b: Array) -> Array:
        return Cholesky(self.factor, 0.0).whiten(b)

    def unwhiten(self, b: Array) -> Array:
        return Cholesky(self.factor, 0.0).unwhiten(b)

    def inverse(self) -> Array:
        return Cholesky(self.factor, 0.0).inverse()


def kernel_weights(K: Array, root: Array, inner: Cholesky, nu: Array) -> Array:
    """α = (K + Γ⁻¹)⁻¹Γ⁻¹ν = Γ^½B⁻¹Γ^−½ν, so that the posterior mean is Kα.

    That cancels nothing where γ is large; sites of small γ, also of none, keep to ν − Γ^½B⁻¹Γ^½Kν.
    """
    weak = root**2 * np.diagonal(K) < 1.0
    right = np.divide(nu, root, out=np.zeros_like(nu), where=~weak)
    if not weak.any():
        return root * inner.solve(right)
    own = np.where(weak, nu, 0.0)
    return own + root * inner.solve(right - root * blas.dgemv(1.0, K.T, own))


# --- A full covariance whose diagonal is already known, as it is after every fit of a Gaussian process.


@storable
@dataclass(frozen=True)
class MarginalCovariance(PrecisionCovariance):
    """S = L P⁻¹ Lᵀ with its diagonal; anything else goes through the factor of P.

    Parameters
    ----------
    marginal : ndarray of shape (dim,)
        Variances of the coordinates.
    """

    precision: Cholesky | KernelPrecision  # type: ignore[assignment]
    marginal: Array

    @property
    def dim(self) -> int:
        return len(self.marginal)

    def diagonal(self) -> Array:
        return self.marginal.copy()

    def project(self, rows: Any) -> Array:
        return self.diagonal() if _is_identity(rows, self.dim) else super().project(rows)


def _is_identity(rows: Any, dim: int) -> bool:
    if not sparse.issparse(rows) or rows.shape != (dim, dim) or rows.nnz != dim:
        return False
    return bool(
        np.all(rows.indices == np.arange(dim)) and np.all(rows.data == 1.0) and np.all(np.diff(rows.indptr) == 1)
    )


# --- A covariance that differs from a multiple of the prior only in a subspace: S = L (Q M⁻¹ Qᵀ + c²(I − QQᵀ)) Lᵀ.
#
# With c = 1 it is the posterior of a Gaussian prior LLᵀ after few sites, which inform only the span of their
# projections. Nothing of size D×D is formed unless asked for.


@storable
@dataclass(frozen=True)
class SubspaceCovariance:
    """S = L (Q M⁻¹ Qᵀ + c²(I − QQᵀ)) Lᵀ.

    Parameters
    ----------
    whitening : Whitening
        L, D×D.
    basis : ndarray of shape (dim, rank)
        Q, orthonormal columns.
    inner : Cholesky
        Factor of the precision M, rank×rank.
    complement : float
        c, the standard deviation off the subspace.
    """

    whitening: Whitening
    basis: Array
    inner: Cholesky
    complement: float = 1.0

    @property
    def dim(self) -> int:
        return self.basis.shape[0]

    @property
    def log_det(self) -> float:
        off = 2.0 * (self.dim - self.basis.shape[1]) * np.log(self.complement)
        return 2.0 * self.whitening.log_det - self.inner.log_det + float(off)

    def diagonal(self) -> Array:
        return self.project(sparse.eye_array(self.dim, format="csr"))

    def dense(self) -> Array:
        c2 = self.complement**2
        core = self.inner.inverse() - c2 * np.eye(self.basis.shape[1])
        middle = self.basis @ core @ self.basis.T + c2 * np.eye(self.dim)
        return self.whitening.apply(self.whitening.apply(middle).T)

    def times(self, v: Array) -> Array:
        """S v."""
        h = np.ravel(self.whitening.rows(v[None, :]))
        inside = self.basis.T @ h
        return self.whitening.apply(
            self.basis @ self.inner.solve(inside) + self.complement**2 * (h - self.basis @ inside)
        )

    def project(self, rows: Any) -> Array:
        h = self.whitening.rows(rows)
        inside = np.ascontiguousarray((h @ self.basis).T)
        root = self.inner.whiten(inside)
        squares = h.multiply(h) if sparse.issparse(h) else h * h
        total = np.asarray(squares.sum(axis=1)).ravel()
        outside = np.maximum(total - np.einsum("kn,kn->n", inside, inside), 0.0)
        return np.einsum("kn,kn->n", root, root) + self.complement**2 * outside

    def quadratic(self, deviations: Array) -> Array:
        u = self.whitening.solve(deviations.T)
        inside = self.basis.T @ u
        root = self.inner.factor @ inside
        outside = u - self.basis @ inside
        inner, outer = np.einsum("kn,kn->n", root, root), np.einsum("dn,dn->n", outside, outside)
        return inner + outer / self.complement**2

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((self.dim, count))
        inside = self.basis.T @ noise
        coloured = self.inner.unwhiten(rng.standard_normal(inside.shape))
        u = self.complement * (noise - self.basis @ inside) + self.basis @ coloured
        return self.whitening.apply(u).T

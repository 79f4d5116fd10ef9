"""A covariance that differs from a multiple of the prior only in a subspace: S = L (Q M⁻¹ Qᵀ + c²(I − QQᵀ)) Lᵀ.

With c = 1 it is the posterior of a Gaussian prior LLᵀ after few sites, which inform only the span of their projections.
Nothing of size D×D is formed unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.densities.whitening import Whitening
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky


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

"""The precision P = I + LᵀΓL of a Gaussian process in coordinates whitened by its kernel matrix K = LLᵀ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky, gram


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

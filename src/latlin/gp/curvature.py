"""What the sites add to a Gaussian process, R = (K + Γ⁻¹)⁻¹, without an inverse of K.

    S = K − K R K,   R = |Γ|^½ (J + |Γ|^½ K |Γ|^½)⁻¹ |Γ|^½,   J = sign Γ (1 where γ = 0)

With γ ≥ 0 the inner matrix is B = I + Γ^½KΓ^½, whose eigenvalues are at least one however singular K is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import linalg

from latlin.densities.kernel_precision import kernel_weights
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky


class Curvature(Protocol):
    """R, however it is stored."""

    def weights(self, K: Array, nu: Array, x: Array) -> Array:
        """α = K⁻¹x of the posterior mean x, from the sites' pulls ν."""
        ...

    def squares(self, k: Array) -> Array:
        """kᵀRk for the columns of an N×M matrix."""
        ...

    def product(self, k: Array) -> Array:
        """kᵀRk as an M×M matrix."""
        ...


@dataclass(frozen=True)
class PositiveCurvature:
    """All γ ≥ 0: through the Cholesky factor of B."""

    root: Array
    inner: Cholesky

    def weights(self, K: Array, nu: Array, x: Array) -> Array:
        return kernel_weights(K, self.root, self.inner, nu)

    def squares(self, k: Array) -> Array:
        half = self._half(k)
        return np.einsum("nm,nm->m", half, half)

    def product(self, k: Array) -> Array:
        half = self._half(k)
        return half.T @ half

    def _half(self, k: Array) -> Array:
        return self.inner.whiten(self.root[:, None] * k)


@dataclass(frozen=True)
class MixedCurvature:
    """Some γ < 0 (outliers under a heavy-tailed likelihood): R itself."""

    matrix: Array
    gamma: Array

    def weights(self, K: Array, nu: Array, x: Array) -> Array:
        return nu - self.gamma * x

    def squares(self, k: Array) -> Array:
        return np.einsum("nm,nm->m", k, self.matrix @ k)

    def product(self, k: Array) -> Array:
        return k.T @ self.matrix @ k


def curvature(K: Array, gamma: Array) -> Curvature:
    """R of a kernel matrix and site precisions."""
    root = np.sqrt(np.abs(gamma))
    inner = root[:, None] * K * root
    if np.all(gamma >= 0.0):
        inner[np.diag_indices(len(root))] += 1.0
        return PositiveCurvature(root, cholesky(inner, name="I + Γ^½KΓ^½"))
    inner[np.diag_indices(len(root))] += np.where(gamma < 0.0, -1.0, 1.0)
    matrix = root[:, None] * linalg.inv(inner) * root
    return MixedCurvature(0.5 * (matrix + matrix.T), gamma)

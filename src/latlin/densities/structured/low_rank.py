"""S = ΘΘᵀ + diag(d²), as in factor analysis; log det S is not concave in (Θ, d), so optima may be local.

Challis (2013), §4.3.1.2 and B.1.1, corrected: the gradients of ½ log det S are d ∘ diag(S⁻¹) and S⁻¹Θ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import qr

from latlin.densities.structured.loadings import Image, Loadings
from latlin.densities.structured.rows import ProjectionRows, product, row_dots
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

#: ε: an entry of d can be driven to zero (a Heywood case), where S would be singular but for this
SMALLEST = 1e-4


class Decomposed(NamedTuple):
    """[D⁻¹Θ; I] = [Q₁; Q₂]R, so that S⁻¹ = D⁻¹(I − Q₁Q₁ᵀ)D⁻¹ and det S = (det D det R)²; no inverse is formed."""

    scale: Array
    upper: Array
    lower: Array
    triangle: Array

    @property
    def inverse_diagonal(self) -> Array:
        return np.maximum(1.0 - row_dots(self.upper, self.upper), 0.0) / self.scale**2


@storable
class LowRankStructure(Loadings):
    """S = ΘΘᵀ + diag(d²), d_j = √(t_j² + ε²); θ holds Θ and t.

    Parameters
    ----------
    dim, rank : int
        Θ is dim×rank.
    """

    concave = False

    def __init__(self, dim: int, rank: int) -> None:
        self.dim, self.rank, self.size = dim, rank, dim * (rank + 1)

    def spread(self, scale: Array) -> Array:
        return self.joined(np.zeros((self.dim, self.rank)), np.sqrt(np.maximum(scale**2 - SMALLEST**2, 0.0)))

    def split(self, theta: Array) -> tuple[Array, Array]:
        loadings, t = super().split(theta)
        return loadings, np.sqrt(t**2 + SMALLEST**2)

    def trace(self, theta: Array) -> float:
        return super().trace(theta) + self.dim * SMALLEST**2

    def image(self, theta: Array, rows: ProjectionRows) -> Image:
        # ∂d/∂t = t/d
        return super().image(theta, rows)._replace(slope=theta[-self.dim :] / self.split(theta)[1])

    def factor(self, theta: Array) -> sparse.csr_array:
        loadings, scale = self.split(theta)
        return sparse.csr_array(sparse.vstack([sparse.csr_array(loadings.T), sparse.diags_array(scale)]))

    def flat(self, factor: Any) -> Array:
        dense = factor.toarray() if sparse.issparse(factor) else np.asarray(factor, float)
        d = np.diagonal(dense[self.rank :])
        return self.joined(dense[: self.rank].T, np.sqrt(np.maximum(d**2 - SMALLEST**2, 0.0)))

    def _decomposed(self, theta: Array) -> Decomposed:
        loadings, scale = self.split(theta)
        q, r = qr(np.vstack([loadings / scale[:, None], np.eye(self.rank)]), mode="economic", check_finite=False)
        return Decomposed(scale, np.ascontiguousarray(q[: self.dim]), q[self.dim :], r)

    def log_det(self, theta: Array) -> float:
        if not np.all(np.isfinite(theta)):
            return -np.inf
        parts = self._decomposed(theta)
        return 2.0 * float(np.log(parts.scale).sum() + np.log(np.abs(np.diagonal(parts.triangle))).sum())

    def log_det_gradient(self, theta: Array) -> Array:
        parts = self._decomposed(theta)
        # S⁻¹Θ = D⁻¹Q₁Q₂ᵀ; by t: (∂d/∂t) d (S⁻¹)_jj = t (S⁻¹)_jj
        toward = product(parts.upper, np.ascontiguousarray(parts.lower.T)) / parts.scale[:, None]
        return 2.0 * self.joined(toward, theta[-self.dim :] * parts.inverse_diagonal)

    def log_det_curvature(self, theta: Array) -> Array:
        """Not the Hessian, which is not diagonal, but its scale for d: 2 diag(S⁻¹)."""
        inverse = self._decomposed(theta).inverse_diagonal
        return np.concatenate([np.zeros(self.dim * self.rank), 2.0 * inverse])

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        parts = self._decomposed(theta)
        z = deviations / parts.scale[:, None]
        outside = z - parts.upper @ (parts.upper.T @ z)
        return np.sum(z * outside, axis=0)

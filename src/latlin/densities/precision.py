"""A full covariance through the Cholesky factor of a precision in whitened coordinates: S = L (CᵀC)⁻¹ Lᵀ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.densities.whitening import Whitening
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, whitened_squares

BLOCK = 1024


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

    def project(self, rows: Any) -> Array:
        parts = [self._project_block(rows[i : i + BLOCK]) for i in range(0, rows.shape[0], BLOCK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _project_block(self, rows: Any) -> Array:
        whitened = self.whitening.rows(rows)
        dense = whitened.toarray() if sparse.issparse(whitened) else np.ascontiguousarray(whitened, float)
        return whitened_squares(self.precision.factor, dense)

    def quadratic(self, deviations: Array) -> Array:
        root = self.precision.factor @ self.whitening.solve(deviations.T)
        return np.einsum("dn,dn->n", root, root)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((self.dim, count))
        return self.whitening.apply(self.precision.unwhiten(noise)).T

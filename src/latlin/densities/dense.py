"""A full covariance as the matrix itself, with its log determinant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import blas

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.numerics.stored import storable

BLOCK = 1024


@storable
@dataclass(frozen=True)
class DenseCovariance:
    """S by its upper triangle.

    Parameters
    ----------
    upper : ndarray of shape (dim, dim)
        Fortran-ordered; what is below the diagonal is not meant.
    log_det : float
        log det S.
    """

    upper: Array
    log_det: float

    @property
    def dim(self) -> int:
        return len(self.upper)

    def diagonal(self) -> Array:
        return np.diagonal(self.upper).copy()

    def dense(self) -> Array:
        return symmetrise(self.upper)

    def times(self, v: Array) -> Array:
        """S v, for a vector or the columns of a matrix."""
        columns = v if v.ndim == 2 else v[:, None]
        return blas.dsymm(1.0, self.upper, columns, lower=0).reshape(v.shape)

    def project(self, rows: Any) -> Array:
        parts = [self._project_block(rows[i : i + BLOCK]) for i in range(0, rows.shape[0], BLOCK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _project_block(self, rows: Any) -> Array:
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        return np.einsum("dn,nd->n", self.times(dense.T), dense)

    def quadratic(self, deviations: Array) -> Array:
        root = self._factor.whiten(np.asfortranarray(deviations.T))
        return np.einsum("dn,dn->n", root, root)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        # S = CᵀC
        return rng.standard_normal((count, self.dim)) @ self._factor.factor

    @cached_property
    def _factor(self) -> Cholesky:
        return cholesky(self.upper, name="the covariance")

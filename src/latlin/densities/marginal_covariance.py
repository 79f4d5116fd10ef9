"""A full covariance whose diagonal is already known, as it is after every fit of a Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.densities.precision import PrecisionCovariance
from latlin.numerics.arrays import Array


@dataclass(frozen=True)
class MarginalCovariance(PrecisionCovariance):
    """S = L P⁻¹ Lᵀ with its diagonal; anything else goes through the factor of P.

    Parameters
    ----------
    marginal : ndarray of shape (dim,)
        Variances of the coordinates.
    """

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

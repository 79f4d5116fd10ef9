"""Stacks of small matrices, one a component: factors and inverses."""

from __future__ import annotations

import numpy as np

from latlin.numerics.linalg import Array


def root(a: Array) -> Array:
    """Lower triangular L with a = L Lᵀ, along the last two axes."""
    return np.asarray(np.linalg.cholesky(a), dtype=np.float64)


def inverse(a: Array) -> Array:
    """a⁻¹ along the last two axes."""
    return np.asarray(np.linalg.inv(a), dtype=np.float64)


def log_det_of_root(factor: Array) -> Array:
    """ln|L Lᵀ| along the last two axes."""
    return 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)

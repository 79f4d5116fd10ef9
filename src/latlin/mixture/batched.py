"""Stacks of small matrices, one per component: factors and inverses."""

from __future__ import annotations

import warnings

import numpy as np

from latlin.numerics.alerts import NumericalWarning
from latlin.numerics.linalg import Array

JITTER = 1e-13


def root(a: Array) -> Array:
    """Lower triangular L with a = L Lᵀ, along the last two axes.

    Matrices that rounding has made indefinite (one far row, features many digits apart) get 1e-13 of their
    diagonal added, with a `NumericalWarning`.
    """
    try:
        return np.asarray(np.linalg.cholesky(a), dtype=np.float64)
    except np.linalg.LinAlgError:
        diagonal = np.diagonal(a, axis1=-2, axis2=-1)
        warnings.warn(
            f"a scale matrix was not positive definite in floating point (diagonal {diagonal.min():.2g} to "
            f"{diagonal.max():.2g}); {JITTER:g} of its diagonal was added. Rescale or clip far rows",
            NumericalWarning,
            stacklevel=2,
        )
    jittered = a + JITTER * diagonal[..., None] * np.eye(a.shape[-1])
    return np.asarray(np.linalg.cholesky(jittered), dtype=np.float64)


def inverse(a: Array) -> Array:
    """a⁻¹ along the last two axes."""
    return np.asarray(np.linalg.inv(a), dtype=np.float64)


def log_det_of_root(factor: Array) -> Array:
    """ln|L Lᵀ| along the last two axes."""
    return 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)

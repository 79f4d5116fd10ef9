"""Anderson mixing: extrapolate a fixed-point iteration x ← F(x) from its last residuals F(x) − x."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from latlin.numerics.arrays import Array


def mix(points: Array, residuals: Array, damping: float = 1.0) -> Array:
    """The next iterate from past points and their residuals, one a row, the newest last.

    With differences ΔX, ΔF of consecutive rows, θ = argmin ‖f − ΔF θ‖ and the iterate is x + βf − (ΔX + βΔF) θ, β being
    the damping. A single row gives the plain step x + βf.
    """
    newest = points[-1] + damping * residuals[-1]
    if len(points) == 1:
        return newest
    dx, df = np.diff(points, axis=0), np.diff(residuals, axis=0)
    # SciPy's BLAS throughout: NumPy's would wake its own threads in the middle of an engine's loop
    gram = blas.dgemm(1.0, df.T, df.T, trans_a=1)
    # a ridge at rounding level keeps θ bounded when differences are nearly parallel
    gram[np.diag_indices(len(gram))] += 1e-14 * np.trace(gram) + np.finfo(float).tiny
    theta = lapack.dgesv(gram, blas.dgemv(1.0, df.T, residuals[-1], trans=1))[2]
    return newest - blas.dgemv(1.0, (dx + damping * df).T, theta)

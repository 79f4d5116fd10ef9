"""Anderson mixing: extrapolate a fixed-point iteration x ← F(x) from its last residuals F(x) − x."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mix(points: Array, residuals: Array) -> Array:
    """The next iterate from past points and their residuals, one a row, the newest last.

    With differences ΔX, ΔF of consecutive rows, θ = argmin ‖f − ΔF θ‖ and the iterate is x + f − (ΔX + ΔF) θ. A single
    row gives the plain step x + f.
    """
    newest = points[-1] + residuals[-1]
    if len(points) == 1:
        return newest
    dx, df = np.diff(points, axis=0), np.diff(residuals, axis=0)
    gram = df @ df.T
    # a ridge at rounding level keeps θ bounded when differences are nearly parallel
    gram[np.diag_indices(len(gram))] += 1e-14 * np.trace(gram) + np.finfo(float).tiny
    theta = np.linalg.solve(gram, df @ residuals[-1])
    return newest - theta @ (dx + df)

"""Varimax: the rotation of the loadings that makes the squares of each factor as unequal as it can."""

from __future__ import annotations

import numpy as np

from latlin.factor.fit import fix_signs
from latlin.numerics.linalg import Array


def varimax(loadings: Array, *, tol: float = 1e-10, max_iter: int = 500) -> Array:
    """Rotate K×d loadings to the maximum of Σ_k var_i(F_ik²), by SVDs of its gradient."""
    f = loadings.T
    rotation = np.eye(f.shape[1])
    value = 0.0
    for _ in range(max_iter):
        turned = f @ rotation
        gradient = f.T @ (turned**3 - turned * (turned**2).mean(axis=0))
        u, singular, vt = np.linalg.svd(gradient)
        rotation = u @ vt
        if singular.sum() <= value * (1.0 + tol):
            break
        value = float(singular.sum())
    turned = (f @ rotation).T
    order = np.argsort(-(turned**2).sum(axis=1), kind="stable")
    return fix_signs(turned[order])


ROTATIONS = {"varimax": varimax}

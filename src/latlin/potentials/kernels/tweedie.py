"""The compiled series for the normaliser of compound Poisson–gamma densities, Dunn and Smyth (2005).

a(y) = (1/y) Σ_{j≥1} W_j,  log W_j = j log z − log j! − log Γ(−jα),  α = (2 − p)/(1 − p) < 0,
log z = −α log y + α log(p − 1) − (1 − α) log φ − log(2 − p).

The terms rise to j ≈ y^{2−p}/((2 − p)φ) and fall on either side; the sum runs from there until they are e^{−37} of it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from latlin.numerics.arrays import Array

DROP = 37.0


@njit(cache=True, error_model="numpy", nogil=True)
def log_series(y: Array, power: Array, dispersion: Array) -> Array:
    """log a(y) of shape (sites,), for y ≥ 0; zero at y = 0, where the mass is e^{−rate} alone."""
    out = np.zeros_like(y)
    for i in range(y.size):
        if y[i] == 0.0:
            continue
        p, phi = power[i], dispersion[i]
        alpha = (2.0 - p) / (1.0 - p)
        log_z = -alpha * math.log(y[i]) + alpha * math.log(p - 1.0) - (1.0 - alpha) * math.log(phi) - math.log(2.0 - p)
        top = max(1.0, math.floor(y[i] ** (2.0 - p) / ((2.0 - p) * phi)))
        peak = top * log_z - math.lgamma(top + 1.0) - math.lgamma(-top * alpha)
        total = 1.0
        for side in (-1.0, 1.0):
            j = top + side
            while j >= 1.0:
                drop = j * log_z - math.lgamma(j + 1.0) - math.lgamma(-j * alpha) - peak
                total += math.exp(drop)
                if drop < -DROP:
                    break
                j += side
        out[i] = peak + math.log(total) - math.log(y[i])
    return out

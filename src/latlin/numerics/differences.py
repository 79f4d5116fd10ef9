"""Derivatives of a vectorised function that gives only its values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array

#: half-width of the stencil in units of the function's own scale, and its number of points on either side
STEP, HALF = 0.4, 6


def _stencils() -> Array:
    """Weights (3, 2·HALF + 1) of the central formulas of highest order for f′, f″ and f‴."""
    points = np.arange(-HALF, HALF + 1) / HALF
    orders = np.arange(points.size)
    rhs = np.zeros((points.size, 3))
    for derivative, factorial in ((1, 1.0), (2, 2.0), (3, 6.0)):
        rhs[derivative, derivative - 1] = factorial
    return np.asarray(np.linalg.solve(points[None, :] ** orders[:, None], rhs).T, dtype=float)


def three_derivatives(f: Callable[[Array], Array], x: Array, scale: ArrayLike) -> tuple[Array, Array, Array]:
    """f′, f″ and f‴ at x by central differences over x ± 0.4·scale, 13 points.

    For an f that is analytic within a distance `scale` of x the errors are near 1e-12, 1e-11 and 1e-9
    in units of |f| and `scale`.

    >>> first, second, third = three_derivatives(np.exp, np.array([0.5]), 1.0)
    >>> bool(abs(third[0] - np.exp(0.5)) < 1e-8)
    True
    """
    h = STEP * np.asarray(scale, dtype=float)
    points = np.arange(-HALF, HALF + 1) / HALF
    values = np.stack([f(x + h * point) for point in points])
    with np.errstate(invalid="ignore"):  # NaN where f is infinite: there is no derivative
        values = values - values[HALF]
    first, second, third = np.tensordot(_stencils(), values, axes=1)
    return first / h, second / h**2, third / h**3


def central_slope(f: Callable[[float], Array], step: float = 0.005) -> Array:
    """df/dt at t = 0 by the central formula of order six; its error is step⁶ f⁽⁷⁾/140 and 1e-16 f/step.

    >>> bool(abs(central_slope(lambda t: np.exp(np.array([t])))[0] - 1) < 1e-12)
    True
    """
    near, middle, far = (f(k * step) - f(-k * step) for k in (1, 2, 3))
    return np.asarray((45.0 * near - 9.0 * middle + far) / (60.0 * step))

"""Derivatives by differences, and inverses of increasing functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array

# --- Derivatives of a vectorised function that gives only its values.


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


# --- Quantiles from distribution functions, elementwise, between two ends that hold them.


#: most steps of a search, and its accuracy: relative in x, or of the distribution function
STEPS, NEAR = 100, 1e-12


def invert(
    cdf: Callable[[Array], Array], pdf: Callable[[Array], Array], q: ArrayLike, low: Array, high: Array
) -> Array:
    """x with cdf(x) = q: Newton's method, kept in the bracket by bisection; the lower end where it has q and more.

    Examples
    --------
    >>> invert(lambda x: x**2, lambda x: 2.0 * x, 0.25, np.array([0.0]), np.array([1.0]))
    array([0.5])
    """
    low, high = np.array(low, float), np.array(high, float)
    q = np.broadcast_to(np.asarray(q, float), low.shape)
    # such as zero, where amounts have a mass
    x = np.where(at_end := cdf(low) >= q, low, 0.5 * (low + high))
    for _ in range(STEPS):
        excess = cdf(x) - q
        low, high = np.where(excess < 0.0, x, low), np.where(excess < 0.0, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = x - excess / pdf(x)
        new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
        # no nearer than the distribution function is accurate
        there = at_end | (np.abs(excess) <= NEAR)
        new = np.where(there, x, new)
        if np.all(there | (np.abs(new - x) <= NEAR * (np.abs(x) + high - low))):
            break
        x = new
    return new


def invert_whole(cdf: Callable[[Array], Array], q: ArrayLike, low: Array, high: Array) -> Array:
    """The smallest whole number k with cdf(k) ≥ q, for ends with cdf(low − 1) < q ≤ cdf(high).

    Examples
    --------
    >>> invert_whole(lambda k: (k + 1.0) / 10.0, 0.35, np.array([0.0]), np.array([9.0]))
    array([3.])
    """
    below, high = np.array(low, float) - 1.0, np.array(high, float)
    q = np.broadcast_to(np.asarray(q, float), high.shape)
    while np.any(high - below > 1.0):
        middle = np.floor(0.5 * (below + high))
        short = cdf(middle) < q
        below, high = np.where(short, middle, below), np.where(short, high, middle)
    return high

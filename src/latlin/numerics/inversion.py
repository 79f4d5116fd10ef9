"""Quantiles from distribution functions, elementwise, between two ends that hold them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array

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

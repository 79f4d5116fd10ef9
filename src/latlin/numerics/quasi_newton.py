"""Limited-memory quasi-Newton directions for an ascent whose state must fit in a checkpoint.

The optimiser of SciPy keeps its memory to itself; here the last steps and changes of the gradient are arrays of the
caller's state, so that the one ascent loop can show, save and resume the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from latlin.numerics.arrays import Array

# --- Backtracking along a direction of ascent.


Point = TypeVar("Point")


def backtrack(
    evaluate: Callable[[float], tuple[float, Point]],
    current: float,
    slope: float,
    *,
    slack: float = 0.0,
    sufficient: float = 1e-4,
    shrink: float = 0.5,
    max_halvings: int = 40,
) -> tuple[float, float, Point] | None:
    """The first step length 1, ½, ¼, … that raises an objective enough (Armijo's rule).

    Parameters
    ----------
    evaluate : callable
        step length → (objective, point there). An objective of −inf marks a point outside the domain.
    current : float
        Objective at step length 0.
    slope : float
        Directional derivative at 0; its share `sufficient` must be gained. May be 0 to ask for no loss only.
    slack : float
        Loss that counts as rounding.

    Returns
    -------
    (step length, objective, point), or None when no step of the sequence helps.
    """
    length = 1.0
    for _ in range(max_halvings):
        objective, point = evaluate(length)
        if objective >= current + sufficient * length * max(slope, 0.0) - slack:
            return length, objective, point
        length *= shrink
    return None


def ascent_direction(gradient: Array, steps: Array, changes: Array, inverse: Array | float = 1.0) -> Array:
    """The direction −H g of the two-loop recursion, for a function to be maximised.

    Parameters
    ----------
    gradient : ndarray of shape (n,)
    steps, changes : ndarray of shape (memory, n)
        Past steps and the *falls* of the gradient along them, oldest first; each pair has a positive product.
    inverse : ndarray of shape (n,), optional
        A diagonal guess of the inverse of minus the Hessian, to which the newest pair gives its scale.

    Examples
    --------
    >>> curvature = np.array([1.0, 10.0])
    >>> steps = np.eye(2)
    >>> ascent_direction(np.array([1.0, 1.0]), steps, steps * curvature).round(3)
    array([1. , 0.1])
    """
    direction = gradient.copy()
    shares = np.empty(len(steps))
    for k in range(len(steps) - 1, -1, -1):
        shares[k] = steps[k] @ direction / (steps[k] @ changes[k])
        direction -= shares[k] * changes[k]
    direction *= inverse
    if len(steps):
        direction *= (steps[-1] @ changes[-1]) / (changes[-1] @ (inverse * changes[-1]))
    for k in range(len(steps)):
        direction += (shares[k] - changes[k] @ direction / (steps[k] @ changes[k])) * steps[k]
    return direction


def remember(steps: Array, changes: Array, step: Array, change: Array, memory: int) -> tuple[Array, Array]:
    """The memory with one more pair, if its curvature is of use, and without the oldest beyond `memory`."""
    if step @ change <= 1e-10 * np.sqrt((step @ step) * (change @ change)):
        return steps, changes
    return np.concatenate([steps[1 - memory :], step[None]]), np.concatenate([changes[1 - memory :], change[None]])

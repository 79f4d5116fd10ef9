"""The direction of limited-memory BFGS, from past steps and changes of the gradient (Nocedal's two loops)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def ascent_direction(gradient: Array, steps: Array, changes: Array, inverse: Array) -> Array:
    """An ascent direction for a gradient.

    Parameters
    ----------
    gradient : ndarray of shape (size,)
    steps, changes : ndarray of shape (memory, size)
        Past steps and the falls of the gradient along them, the newest last; every product step·change is positive.
    inverse : ndarray of shape (size,)
        A diagonal guess of the inverse of minus the Hessian.
    """
    direction = gradient.copy()
    rates = 1.0 / np.einsum("mk,mk->m", steps, changes)
    weights = np.zeros(len(steps))
    for i in reversed(range(len(steps))):
        weights[i] = rates[i] * (steps[i] @ direction)
        direction -= weights[i] * changes[i]
    direction *= inverse
    if len(steps):
        # the newest pair says how far the guess is off, as a whole
        direction *= (steps[-1] @ changes[-1]) / (changes[-1] @ (inverse * changes[-1]))
    for i in range(len(steps)):
        direction += (weights[i] - rates[i] * (changes[i] @ direction)) * steps[i]
    return direction


def remember(past: Array, newest: Array, memory: int) -> Array:
    """`past` with one more row, the oldest dropped when there are more than `memory`."""
    return np.concatenate([past, newest[None]])[-memory:]

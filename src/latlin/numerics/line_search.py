"""Backtracking along a direction of ascent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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

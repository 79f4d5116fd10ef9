"""Decisions: the action whose loss, averaged over what is not known, is least (Challis (2013), eq. 2.1.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics.arrays import Array

Loss = Callable[[Any, NDArray[Any]], ArrayLike] | ArrayLike


def loss_table(actions: Sequence[Any], loss: Loss, outcomes: NDArray[Any]) -> Array:
    """Loss of each action (first axis) at each outcome (any shape)."""
    if callable(loss):
        parts = [np.broadcast_to(np.asarray(loss(action, outcomes), float), outcomes.shape) for action in actions]
        table = np.stack(parts)
    else:
        table = np.asarray(loss, float)
        if table.shape != (len(actions), len(outcomes)):
            raise ValueError(
                f"loss must be a function of (action, y) or a table of shape ({len(actions)}, {len(outcomes)}), "
                f"one row per action and one column per class, got shape {table.shape}"
            )
    if np.any(np.isnan(table)):
        raise ValueError("loss gave NaN; it must give a number for every action and outcome")
    return table


def chosen(actions: Sequence[Any], expected: Array) -> NDArray[Any]:
    """The action of least expected loss for each column of (actions, n)."""
    return np.asarray(actions)[np.argmin(expected, axis=0)]


def check_actions(actions: Sequence[Any]) -> list[Any]:
    """At least one action."""
    listed = list(actions)
    if not listed:
        raise ValueError("actions must name at least one action, got none")
    return listed

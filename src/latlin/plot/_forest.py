"""Coefficients with their intervals, one a line: the forest plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latlin.plot._axes import BLUE, GREY, Axes, given_or_new


def forest(
    coefficients: Any,
    ax: Axes | None = None,
    *,
    coverage: float = 0.9,
    most: int = 30,
    sort: bool = True,
    intercept: bool = False,
    color: str = BLUE,
    label: str | None = None,
    shift: float = 0.0,
) -> Axes:
    """Mean and central interval of each coefficient; those whose interval holds zero are hollow.

    Parameters
    ----------
    coefficients : fitted estimator, its `summary()`, or rows
        Rows are dicts with name, mean, low and high.
    ax : matplotlib Axes, optional
    coverage : float
        Of the intervals, where an estimator is given.
    most : int
        Coefficients at most: the largest in absolute mean.
    sort : bool
        Largest on top; else in the order given.
    intercept : bool
        Show the intercept too.
    color, label, shift :
        Of the marks; a shift (in lines) sets several models beside each other.

    Returns
    -------
    matplotlib Axes
    """
    rows = [row for row in _rows(coefficients, coverage) if intercept or row["name"].lower() != "intercept"]
    order = np.argsort([-abs(row["mean"]) for row in rows], kind="stable")[:most]
    chosen = [rows[i] for i in (order if sort else np.sort(order))]
    ax = given_or_new(ax, 6.0, 1.2 + 0.28 * len(chosen))
    mean, low, high = (np.array([row[key] for row in chosen]) for key in ("mean", "low", "high"))
    place = np.arange(len(chosen)) + shift
    is_clear = (low > 0.0) | (high < 0.0)
    ax.hlines(place, low, high, color=color, lw=1.6, label=label)
    ax.scatter(mean, place, s=26, zorder=3, edgecolors=color, facecolors=np.where(is_clear, color, "white"))
    ax.axvline(0.0, color=GREY, lw=0.8, zorder=0)
    ax.set_yticks(np.arange(len(chosen)), [row["name"] for row in chosen])
    ax.set_ylim(len(chosen) - 0.5, -0.5)
    ax.set_xlabel("coefficient")
    return ax


def _rows(coefficients: Any, coverage: float) -> Sequence[Mapping[str, Any]]:
    table = coefficients.summary(coverage) if hasattr(coefficients, "summary") else coefficients
    rows = list(getattr(table, "rows", table))
    if not rows:
        raise ValueError("coefficients must hold at least one row")
    return rows

"""Predictive intervals beside what was observed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latlin.plot._axes import BLUE, VERMILION, Axes, given_or_new


def intervals(
    y: ArrayLike,
    interval: ArrayLike,
    ax: Axes | None = None,
    *,
    coverage: float | None = None,
    most: int = 200,
) -> Axes:
    """One line a row, from low to high, in rising order of its middle; the observed value on it, or off it.

    Parameters
    ----------
    y : array of shape (n,)
    interval : array of shape (n, 2)
        As `predict_interval` returns it.
    ax : matplotlib Axes, optional
    coverage : float, optional
        What the intervals promise; the title then sets it beside what they hold.
    most : int
        Rows drawn at most, evenly spread; the coverage in the title is that of all rows.

    Returns
    -------
    matplotlib Axes
    """
    seen, ends = np.asarray(y, float), np.asarray(interval, float)
    if ends.shape != (*seen.shape, 2) or seen.ndim != 1:
        raise ValueError(f"interval must have shape (n, 2) for y of length n, got {ends.shape} for {seen.shape}")
    is_inside = (ends[:, 0] <= seen) & (seen <= ends[:, 1])
    order = np.argsort(ends.mean(axis=1), kind="stable")
    order = order[np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).astype(int))]
    ax = given_or_new(ax)
    place = np.arange(len(order))
    ax.vlines(place, ends[order, 0], ends[order, 1], color=BLUE, lw=1.0, alpha=0.5)
    for part, color, mark, label in ((is_inside, BLUE, "o", "inside"), (~is_inside, VERMILION, "x", "outside")):
        ax.scatter(place[part[order]], seen[order][part[order]], s=14, color=color, marker=mark, label=label, zorder=3)
    promised = "" if coverage is None else f" (promised {100 * coverage:.0f} %)"
    ax.set_title(f"{100 * is_inside.mean():.0f} % of {len(seen)} rows inside{promised}")
    ax.set_xlabel("row, in order of its prediction")
    ax.set_ylabel("observed")
    ax.legend(frameon=False)
    return ax

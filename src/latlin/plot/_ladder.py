"""The bounds of several engines on one model, one above the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.plot._axes import BLUE, GREEN, ORANGE, Axes, given_or_new

#: what a number is worth → its mark: a bound may only be too low, an exact one is it, an approximation may be off
MARKS = {"lower bound": (">", BLUE), "exact": ("D", GREEN), "approximation": ("o", ORANGE)}


def ladder(comparison: Any, ax: Axes | None = None) -> Axes:
    """Log evidence by engine, in the order of the comparison, the mark by its kind.

    Parameters
    ----------
    comparison : Comparison
        Of `latlin.compare`; or its rows: dicts with engine, log evidence and kind.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    rows = [row for row in getattr(comparison, "rows", comparison) if row["kind"] in MARKS]
    if not rows:
        raise ValueError("comparison must hold at least one engine with an evidence")
    ax = given_or_new(ax, 6.0, 1.0 + 0.4 * len(rows))
    values = np.array([row["log evidence"] for row in rows], float)
    for kind, (mark, color) in MARKS.items():
        place = np.flatnonzero([row["kind"] == kind for row in rows])
        if place.size:
            ax.scatter(values[place], place, marker=mark, s=46, color=color, label=kind, zorder=3)
    bounds = [value for value, row in zip(values, rows, strict=True) if row["kind"] == "lower bound"]
    if bounds:
        ax.axvline(max(bounds), color=BLUE, lw=0.8, ls=":", zorder=0)
    ax.set_yticks(np.arange(len(rows)), [row["engine"] for row in rows])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlabel("log evidence, nat")
    ax.legend(frameon=False)
    return ax

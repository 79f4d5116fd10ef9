"""How a fit got there: the evidence (or its bound) after each step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.options import float_array, table_rows
from latlin.plot._axes import BLUE, GREEN, ORANGE, VERMILION, Axes, checked, given_or_new


@checked()
def trace(fitted: Any, ax: Axes | None = None, *, label: str | None = None, color: str = BLUE) -> Axes:
    """The objective against the step.

    Parameters
    ----------
    fitted : Posterior, fitted estimator or array
        Whatever has a `trace` or `trace_`, or the numbers themselves.
    ax : matplotlib Axes, optional
    label, color :
        Of the line.

    Returns
    -------
    matplotlib Axes
    """
    values = getattr(fitted, "trace", getattr(fitted, "trace_", fitted))
    values = float_array("fitted", values)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"fitted must have a trace of at least one number, got shape {values.shape}")
    ax = given_or_new(ax)
    ax.plot(np.arange(1, len(values) + 1), values, "-o", ms=3, lw=1.4, color=color, label=label)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("step")
    ax.set_ylabel("objective, nat")
    return ax


# --- The evidence as a function of a hyperparameter.


@checked()
def evidence(
    values: ArrayLike,
    log_evidence: ArrayLike,
    ax: Axes | None = None,
    *,
    name: str = "prior scale",
    kind: str | None = None,
    chosen: float | None = None,
    logarithmic: bool = True,
    label: str | None = None,
    color: str = BLUE,
) -> Axes:
    """Log evidence against a hyperparameter, with its best value and, if given, the one that was chosen.

    Parameters
    ----------
    values, log_evidence : arrays of shape (n,)
    ax : matplotlib Axes, optional
    name : str
        Of the hyperparameter.
    kind : str, optional
        "exact", "lower bound" or "approximation": what kind of number it is.
    chosen : float, optional
        A value to mark, such as `prior_scale_` of a fit with `prior_scale="auto"`.
    logarithmic : bool
        Scale of the abscissa.
    label, color :
        Of the line.

    Returns
    -------
    matplotlib Axes
    """
    at, height = np.asarray(values, float), np.asarray(log_evidence, float)
    if at.shape != height.shape or at.ndim != 1 or not at.size:
        raise ValueError(f"values and log_evidence must be vectors of one length, got {at.shape} and {height.shape}")
    order = np.argsort(at)
    ax = given_or_new(ax)
    ax.plot(at[order], height[order], "-o", ms=3, lw=1.4, color=color, label=label)
    best = int(np.nanargmax(height))
    ax.annotate(f"{at[best]:.3g}", (at[best], height[best]), xytext=(0, 6), textcoords="offset points", ha="center")
    if chosen is not None:
        ax.axvline(chosen, color=VERMILION, lw=1.0, ls="--", label=f"chosen: {chosen:.3g}")
    if logarithmic:
        ax.set_xscale("log")
    ax.margins(y=0.12)
    ax.set_xlabel(name)
    ax.set_ylabel("log evidence, nat" + (f" ({kind})" if kind else ""))
    return ax


# --- The bounds of several engines on one model, one above the other.

#: kind of a number → its mark: a bound may only be too low, an exact one is it, an approximation may be off
MARKS = {"lower bound": (">", BLUE), "exact": ("D", GREEN), "approximation": ("o", ORANGE)}


@checked()
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
    told = table_rows("comparison", comparison, ("engine", "log evidence", "kind"))
    rows = [row for row in told if row["kind"] in MARKS]
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

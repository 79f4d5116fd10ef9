"""Predicted probabilities against what happened."""

from __future__ import annotations

from numpy.typing import ArrayLike

from latlin.diagnostics.reliability import reliability_curve
from latlin.plot._axes import BLUE, GREY, Axes, given_or_new


def reliability(
    happened: ArrayLike,
    probability: ArrayLike,
    ax: Axes | None = None,
    *,
    bins: int = 10,
    label: str | None = None,
    color: str = BLUE,
) -> Axes:
    """Observed frequency of groups of rows against the mean probability they were given, with 90 % intervals.

    Parameters
    ----------
    happened : array of shape (n,)
        0 or 1.
    probability : array of shape (n,)
        Of rows the model has not seen, if the curve is to mean anything.
    ax : matplotlib Axes, optional
    bins : int
    label, color :
        Of the marks.

    Returns
    -------
    matplotlib Axes
    """
    curve = reliability_curve(happened, probability, bins=bins)
    ax = given_or_new(ax, 4.5, 4.5)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, lw=0.8, ls="--", zorder=0)
    ax.vlines(curve.predicted, curve.low, curve.high, color=color, lw=1.4)
    ax.plot(curve.predicted, curve.observed, "-o", ms=4, lw=1.0, color=color, label=label)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set_xlabel("predicted probability")
    ax.set_ylabel("observed frequency")
    return ax

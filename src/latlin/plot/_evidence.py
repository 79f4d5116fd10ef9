"""The evidence as a function of a hyperparameter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latlin.plot._axes import BLUE, VERMILION, Axes, given_or_new


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
    """Log evidence against a hyperparameter, with its best value and, if told, the one that was chosen.

    Parameters
    ----------
    values, log_evidence : arrays of shape (n,)
    ax : matplotlib Axes, optional
    name : str
        Of the hyperparameter.
    kind : str, optional
        "exact", "lower bound" or "approximation": what the number is worth.
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

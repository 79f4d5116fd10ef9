"""How a fit got there: the evidence (or its bound) after each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.plot._axes import BLUE, Axes, given_or_new


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
    values = np.asarray(values, float)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"fitted must have a trace of at least one number, got shape {values.shape}")
    ax = given_or_new(ax)
    ax.plot(np.arange(1, len(values) + 1), values, "-o", ms=3, lw=1.4, color=color, label=label)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("step")
    ax.set_ylabel("objective, nat")
    return ax

"""Ranks of the truth among posterior draws: flat when the posteriors are right."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from latlin.diagnostics.calibration import Calibration
from latlin.plot._axes import BLUE, GREY, Axes, given_or_new


def calibration_ranks(
    calibration: Calibration,
    parameter: int | str = 0,
    ax: Axes | None = None,
    *,
    bins: int = 20,
    color: str = BLUE,
) -> Axes:
    """Histogram of the ranks of one parameter, with the band that holds 99 % of the bars of exact posteriors.

    Parameters
    ----------
    calibration : Calibration
        From `latlin.diagnostics.calibration.calibrate`.
    parameter : int or str
        Index or name.
    ax : matplotlib Axes, optional
    bins : int
    color :
        Of the bars.

    Returns
    -------
    matplotlib Axes
    """
    if isinstance(parameter, str) and parameter not in calibration.names:
        raise ValueError(f"parameter must be one of {', '.join(calibration.names)}, got {parameter!r}")
    index = calibration.names.index(parameter) if isinstance(parameter, str) else parameter
    edges = np.ceil(np.linspace(0, calibration.n_draws + 1, bins + 1)) - 0.5
    ranks = calibration.ranks[:, index]
    ax = given_or_new(ax)
    ax.hist(ranks, edges, color=color, alpha=0.7)
    low, high = binom.interval(0.99, len(ranks), 1.0 / bins)
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0)
    ax.axhline(len(ranks) / bins, color=GREY, lw=0.8, ls="--")
    ax.set_xlabel(f"rank of the truth, {calibration.names[index]}")
    ax.set_ylabel("runs")
    return ax

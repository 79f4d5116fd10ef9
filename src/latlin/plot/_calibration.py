"""Predicted probabilities against what happened."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from scipy.stats import binom

from latlin.diagnostics.calibration import Calibration, reliability_curve
from latlin.numerics.options import float_array, whole
from latlin.plot._axes import BLUE, GREY, Axes, checked, given_or_new


@checked()
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


# --- Ranks of the truth among posterior draws: flat when the posteriors are right.


@checked(calibration="ranks")
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
    index = calibration.names.index(parameter) if isinstance(parameter, str) else whole("parameter", parameter)
    if index >= len(calibration.names):
        raise ValueError(f"parameter must be below {len(calibration.names)}, got {index}")
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


# --- Where observations fall in their predicted distributions: flat when the family fits.


@checked()
def pit(residuals: Any, ax: Axes | None = None, *, bins: int = 20, color: str = BLUE) -> Axes:
    """Histogram of probability integral transforms Φ(residual), with the band of 99 % of the bars of a true model.

    Parameters
    ----------
    residuals : array of shape (n,), or LeaveOneOut
        Randomised quantile residuals, as `quantile_residuals` of an estimator gives them for rows it has not seen; or
        what `AdditiveModel.loo()` returned, whose rows were left out one by one.
    ax : matplotlib Axes, optional
    bins : int
    color :
        Of the bars.

    Returns
    -------
    matplotlib Axes
    """
    values = np.asarray(residuals.pit) if hasattr(residuals, "pit") else ndtr(float_array("residuals", residuals))
    if values.ndim != 1 or not len(values):
        raise ValueError("residuals must be of rows, got groups that were left out")
    ax = given_or_new(ax)
    ax.hist(values, np.linspace(0.0, 1.0, bins + 1), color=color, alpha=0.7)
    low, high = binom.interval(0.99, len(values), 1.0 / bins)
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0)
    ax.axhline(len(values) / bins, color=GREY, lw=0.8, ls="--")
    ax.set_xlabel("probability integral transform")
    ax.set_ylabel("rows")
    return ax

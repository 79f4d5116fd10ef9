"""How a fit got there and how good it is: evidence after each step, and probabilities against what happened."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from scipy.stats import binom

from latlin.diagnostics.calibration import Calibration, reliability_curve
from latlin.numerics.options import check_table_rows, check_whole, float_array
from latlin.plot._axes import BLUE, GREEN, GREY, ORANGE, VERMILION, Axes, check_arguments, take_axes


@check_arguments()
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
    ax = take_axes(ax)
    ax.plot(np.arange(1, len(values) + 1), values, "-o", ms=3, lw=1.4, color=color, label=label)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("step")
    ax.set_ylabel("objective, nat")
    return ax


# --- The evidence as a function of a hyperparameter.


@check_arguments()
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
    ax = take_axes(ax)
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


@check_arguments()
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
    listed = check_table_rows("comparison", comparison, ("engine", "log evidence", "kind"))
    rows = [row for row in listed if row["kind"] in MARKS]
    if not rows:
        raise ValueError("comparison must hold at least one engine with an evidence")
    ax = take_axes(ax, 6.0, 1.0 + 0.4 * len(rows))
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


# --- Predicted probabilities against what happened.


@check_arguments()
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
    ax = take_axes(ax, 4.5, 4.5)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, lw=0.8, ls="--", zorder=0)
    ax.vlines(curve.predicted, curve.low, curve.high, color=color, lw=1.4)
    ax.plot(curve.predicted, curve.observed, "-o", ms=4, lw=1.0, color=color, label=label)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set_xlabel("predicted probability")
    ax.set_ylabel("observed frequency")
    return ax


# --- Ranks of the truth among posterior draws: flat when the posteriors are right.


@check_arguments(calibration="ranks")
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
    index = calibration.names.index(parameter) if isinstance(parameter, str) else check_whole("parameter", parameter)
    if index >= len(calibration.names):
        raise ValueError(f"parameter must be below {len(calibration.names)}, got {index}")
    edges = np.ceil(np.linspace(0, calibration.n_draws + 1, bins + 1)) - 0.5
    ranks = calibration.ranks[:, index]
    ax = take_axes(ax)
    ax.hist(ranks, edges, color=color, alpha=0.7)
    low, high = binom.interval(0.99, len(ranks), 1.0 / bins)
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0)
    ax.axhline(len(ranks) / bins, color=GREY, lw=0.8, ls="--")
    ax.set_xlabel(f"rank of the truth, {calibration.names[index]}")
    ax.set_ylabel("runs")
    return ax


# --- Where observations fall in their predicted distributions: flat when the family fits.


@check_arguments()
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
    ax = take_axes(ax)
    ax.hist(values, np.linspace(0.0, 1.0, bins + 1), color=color, alpha=0.7)
    low, high = binom.interval(0.99, len(values), 1.0 / bins)
    ax.axhspan(low, high, color=GREY, alpha=0.2, lw=0)
    ax.axhline(len(values) / bins, color=GREY, lw=0.8, ls="--")
    ax.set_xlabel("probability integral transform")
    ax.set_ylabel("rows")
    return ax

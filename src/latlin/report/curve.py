"""The page of a smooth curve, or of a Gaussian process: the curve with its band, the rows, and what it says."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from latlin.numerics.arrays import Array
from latlin.report.charts import Chart
from latlin.report.markup import figure, number, opening, page_of, section
from latlin.report.technical import technical_part
from latlin.version import __version__

#: places of a curve, rows drawn at most, and coverage of the band
PLACES, MOST_ROWS, COVERAGE = 160, 1500, 0.9


class Curve(NamedTuple):
    """The mean of y along one feature, others at their medians, with the ends of a central interval."""

    name: str
    x: Array
    mean: Array
    low: Array
    high: Array


def render_curves(
    curves: list[Curve], rows: tuple[Array, Array] | None, model: Any, target: str, title: str | None = None
) -> str:
    """The page of a smooth model, as text.

    Parameters
    ----------
    curves : list of Curve
        One per feature.
    rows : (x, y) or None
        Observations, drawn where there is one feature.
    model : fitted estimator
        With `log_evidence_`, `evidence_kind_` and `hyperparameters_`.
    target, title : str
    """
    heading = title or f"{target} along {', '.join(curve.name for curve in curves)}"
    parts = [_head(model, heading, rows, [conclusion(curve, target) for curve in curves])]
    for curve in curves:
        drawn = figure(_chart(curve, rows if len(curves) == 1 else None, target), _caption(len(curves)))
        parts.append(section(f"{target} by {curve.name}", drawn))
    parts.append(technical_part(model))
    return page_of(heading, "".join(parts), __version__)


def curves_of_process(model: Any, X: Any, names: list[str]) -> list[Curve]:
    """One curve per input of a Gaussian process regressor, the others at their medians."""
    rows = np.asarray(X, float)
    found = []
    for j, name in enumerate(names):
        x = np.linspace(rows[:, j].min(), rows[:, j].max(), PLACES)
        places = np.tile(np.median(rows, axis=0), (PLACES, 1))
        places[:, j] = x
        # a model of a data frame is asked by one
        asked = type(X)(places, columns=X.columns) if hasattr(X, "iloc") else places
        found.append(Curve(name, x, *band(*model.predict_latent(asked, return_std=True))))
    return found


def band(mean: Array, std: Array) -> tuple[Array, Array, Array]:
    """Mean, and the ends of the central interval of a Gaussian."""
    half = float(ndtri(0.5 + 0.5 * COVERAGE)) * std
    return mean, mean - half, mean + half


def conclusion(curve: Curve, target: str) -> str:
    """Where a curve goes, in words.

    Examples
    --------
    >>> x = np.linspace(0, 10, 11)
    >>> print(conclusion(Curve("day", x, x, x - 1, x + 1), "weight"))
    Between day 0 and 10.0, weight goes from 0 (−1.00 to 1.00) to 10.0 (9.00 to 11.0). It is highest near 10.0 and
    lowest near 0.
    """
    top, bottom = int(np.argmax(curve.mean)), int(np.argmin(curve.mean))
    ends = [
        f"{number(curve.mean[k].item(), 3)} ({number(curve.low[k].item(), 3)} to {number(curve.high[k].item(), 3)})"
        for k in (0, -1)
    ]
    first, last = number(curve.x[0].item(), 3), number(curve.x[-1].item(), 3)
    said = f"Between {curve.name} {first} and {last}, {target} goes from {ends[0]} to {ends[1]}."
    if np.max(curve.low) <= np.min(curve.high):
        return f"{said} A level line lies within the band: the data do not show clearly that {target} changes."
    high, low = (number(curve.x[k].item(), 3) for k in (top, bottom))
    return f"{said} It is highest near {high} and lowest near {low}."


def _caption(count: int) -> str:
    others = "" if count == 1 else " Other inputs are at their medians."
    return f"Mean and {100 * COVERAGE:.0f} % interval of the curve itself, at each place; dots are rows.{others}"


def _head(model: Any, title: str, rows: tuple[Array, Array] | None, found: list[str]) -> str:
    entries = [
        ("Rows", str(len(rows[1])) if rows is not None else "–", ""),
        ("Fit", "converged" if getattr(model, "converged_", True) else "not converged", ""),
    ]
    lead = f"A smooth curve by latlin {__version__}."
    return opening(title, lead, found, entries)


def _chart(curve: Curve, rows: tuple[Array, Array] | None, target: str) -> str:
    low, high = float(curve.low.min()), float(curve.high.max())
    if rows is not None:
        low, high = min(low, float(np.min(rows[1]))), max(high, float(np.max(rows[1])))
    alt = f"{target} by {curve.name}: {conclusion(curve, target)}"
    chart = Chart((float(curve.x[0]), float(curve.x[-1])), (low, high), curve.name, target, alt)
    if rows is not None:
        kept = np.unique(np.linspace(0, len(rows[0]) - 1, min(len(rows[0]), MOST_ROWS)).astype(int))
        chart.marks(list(zip(rows[0][kept].tolist(), rows[1][kept].tolist(), strict=True)), "dot", 2.0)
    chart.line(list(zip(curve.x.tolist(), curve.mean.tolist(), strict=True)), "curve")
    for edge in (curve.low, curve.high):
        chart.line(list(zip(curve.x.tolist(), edge.tolist(), strict=True)), "diagonal")
    return chart.render()

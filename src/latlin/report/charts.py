"""The figures of the report."""

from __future__ import annotations

import numpy as np

from latlin.report.assess import Assessment
from latlin.report.svg import Chart

AXES = {
    "probability": ("predicted probability", "observed frequency"),
    "confidence": ("probability of the class chosen", "how often it was right"),
    "coverage": ("promised coverage", "rows inside"),
}


def calibration_chart(assessment: Assessment) -> str:
    """Promised against observed, with 90 % intervals; the diagonal is what an honest model does."""
    names = AXES.get(assessment.curve_kind, ("predicted", "observed"))
    groups = assessment.curve
    said = "; ".join(f"{100 * g['predicted']:.0f} % promised, {100 * g['observed']:.0f} % observed" for g in groups)
    chart = Chart((0.0, 1.0), (0.0, 1.0), *names, alt=f"Calibration on held-out rows: {said}.")
    chart.line([(0.0, 0.0), (1.0, 1.0)], "diagonal")
    for group in groups:
        chart.whisker(group["predicted"], group["low"], group["high"])
    points = [(group["predicted"], group["observed"]) for group in groups]
    chart.line(points, "curve")
    chart.marks(points, "mark")
    return chart.render()


def pit_chart(assessment: Assessment) -> str:
    """Shares of probability integral transforms: even if the model is right, U-shaped where it is too sure."""
    shares = np.array(assessment.pit)
    bars = len(shares)
    even, error = 1.0 / bars, 2.0 * float(np.sqrt((1.0 - 1.0 / bars) / bars / assessment.rows))
    top = float(max(shares.max(), even + 2.0 * error))
    ends = f"shares from {shares.min():.3f} to {shares.max():.3f}, {even:.3f} if even"
    alt = f"Histogram of probability integral transforms: {ends}."
    chart = Chart((0.0, 1.0), (0.0, top), "probability integral transform", "share of held-out rows", alt=alt)
    for height in (even - error, even, even + error):
        chart.line([(0.0, height), (1.0, height)], "diagonal")
    edges = np.linspace(0.0, 1.0, bars + 1)
    steps = [(float(edge), float(share)) for place, share in enumerate(shares) for edge in edges[place : place + 2]]
    chart.line([(0.0, 0.0), *steps, (1.0, 0.0)], "curve")
    return chart.render()


def scatter_chart(assessment: Assessment, target: str) -> str:
    """Held-out predictions against what was observed."""
    points = [(point[0], point[1]) for point in assessment.points if np.all(np.isfinite(point))]
    values = np.array(points or [(0.0, 1.0)]).ravel()
    ends = (float(values.min()), float(values.max()))
    alt = f"Observed against predicted {target} for {len(points)} held-out rows."
    chart = Chart(ends, ends, "predicted", "observed", alt=alt)
    chart.line([(ends[0], ends[0]), (ends[1], ends[1])], "diagonal")
    chart.marks(points, "dot", 2.2)
    return chart.render()


def trace_chart(trace: list[float]) -> str:
    """The objective after each step."""
    steps = [(float(step + 1), value) for step, value in enumerate(trace)]
    alt = f"The objective rose from {trace[0]:.6g} to {trace[-1]:.6g} in {len(trace)} steps shown."
    chart = Chart((1.0, float(max(len(trace), 2))), (min(trace), max(trace)), "step", "objective, nat", alt=alt)
    chart.line(steps, "curve")
    chart.marks(steps if len(steps) <= 40 else steps[-1:], "mark", 2.5)
    return chart.render()

"""The figures of the report."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from latlin.report.assess import Assessment

# --- Small drawings for the page, as inline SVG that takes its colours from the style sheet (light or dark).

Point = tuple[float, float]
#: width of a letter of an axis' label
LETTER = 6.4


def shorten(words: str, most: int) -> str:
    """At most so many letters, with an ellipsis where some are left out.

    Examples
    --------
    >>> shorten("age", 10), shorten("a_very_long_name", 10)
    ('age', 'a_very_lo…')
    """
    return words if len(words) <= most else words[: most - 1] + "…"


def strip(low: float, mean: float, high: float, ends: tuple[float, float], label: str) -> str:
    """An interval on a common axis, stretched to the width of its cell; clear of zero in the strong colour."""
    span = ends[1] - ends[0] or 1.0
    at_low, at_mean, at_high, at_zero = (200.0 * (x - ends[0]) / span for x in (low, mean, high, 0.0))
    name = "clear" if low > 0.0 or high < 0.0 else "unclear"
    return (
        f'<svg class="strip {name}" viewBox="0 0 200 16" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}"><line class="zero" x1="{at_zero:.2f}" x2="{at_zero:.2f}" y1="0" y2="16"/>'
        f'<rect x="{at_low:.2f}" y="6" width="{max(at_high - at_low, 0.8):.2f}" height="4"/>'
        f'<line class="mean" x1="{at_mean:.2f}" x2="{at_mean:.2f}" y1="2" y2="14"/></svg>'
    )


def strip_axis(ends: tuple[float, float]) -> str:
    """The numbers below intervals on a common axis: both ends, and zero where it has room.

    Examples
    --------
    >>> strip_axis((0.0, 3.0))
    '<div class="axis"><span style="left:0%">0</span><span style="left:100%">3</span></div>'
    """
    at_zero = -100.0 * ends[0] / (ends[1] - ends[0])
    places = [(0.0, ends[0]), *([(at_zero, 0.0)] if 20.0 < at_zero < 80.0 else []), (100.0, ends[1])]
    spans = (f'<span style="left:{at:.3g}%">{f"{value:.2g}".replace("-", "−")}</span>' for at, value in places)
    return f'<div class="axis">{"".join(spans)}</div>'


class Chart:
    """Axes with ticks on which lines, marks and whiskers are drawn, in data units."""

    width, height = 360.0, 260.0
    right, top, bottom = 12.0, 10.0, 40.0

    def __init__(self, x: Point, y: Point, x_label: str, y_label: str, alt: str) -> None:
        self.x, self.y, self.alt = _widened(x), _widened(y), alt
        self.parts: list[str] = []
        self.left = 34.0 + 6.6 * max(map(len, tick_labels(*self.y)), default=0)
        self._axes(x_label, y_label)

    def line(self, points: Sequence[Point], name: str) -> None:
        """A polygon line of CSS class `name`."""
        path = " ".join(f"{self._at_x(x):.2f},{self._at_y(y):.2f}" for x, y in points)
        self.parts.append(f'<polyline class="{name}" points="{path}"/>')

    def marks(self, points: Sequence[Point], name: str, radius: float = 3.5) -> None:
        """Filled circles."""
        self.parts += [
            f'<circle class="{name}" cx="{self._at_x(x):.2f}" cy="{self._at_y(y):.2f}" r="{radius:g}"/>'
            for x, y in points
        ]

    def whisker(self, x: float, low: float, high: float) -> None:
        """A vertical interval."""
        at = f"{self._at_x(x):.2f}"
        self.parts.append(
            f'<line class="whisker" x1="{at}" x2="{at}" y1="{self._at_y(low):.2f}" y2="{self._at_y(high):.2f}"/>'
        )

    def render(self) -> str:
        """The SVG element."""
        return (
            f'<svg class="chart" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.alt)}">{"".join(self.parts)}</svg>'
        )

    def _at_x(self, value: float) -> float:
        inner = self.width - self.left - self.right
        return self.left + inner * (value - self.x[0]) / (self.x[1] - self.x[0])

    def _at_y(self, value: float) -> float:
        inner = self.height - self.top - self.bottom
        return self.height - self.bottom - inner * (value - self.y[0]) / (self.y[1] - self.y[0])

    def _axes(self, x_label: str, y_label: str) -> None:
        floor, right = self.height - self.bottom, self.width - self.right
        for value, words in zip(ticks(*self.x), tick_labels(*self.x), strict=True):
            at = f"{self._at_x(value):.2f}"
            self.parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{self.top:g}" y2="{floor:g}"/>')
            self.parts.append(f'<text x="{at}" y="{floor + 15:g}" text-anchor="middle">{words}</text>')
        for value, words in zip(ticks(*self.y), tick_labels(*self.y), strict=True):
            high = self._at_y(value)
            self.parts.append(f'<line class="grid" x1="{self.left:g}" x2="{right:g}" y1="{high:.2f}" y2="{high:.2f}"/>')
            self.parts.append(f'<text x="{self.left - 6:g}" y="{high + 4:.2f}" text-anchor="end">{words}</text>')
        middle = (self.top + floor) / 2
        self.parts.append(
            f'<text class="label" x="{(self.left + right) / 2:g}" y="{self.height - 6:g}" text-anchor="middle">'
            f"{escape(shorten(x_label, int((right - self.left) / LETTER)))}</text>"
            f'<text class="label" transform="translate(12 {middle:g}) rotate(-90)" text-anchor="middle">'
            f"{escape(shorten(y_label, int((floor - self.top) / LETTER)))}</text>"
        )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between the ends.

    Examples
    --------
    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [float(f"{step * i:.12g}") for i in range(first, last + 1)]


def tick_labels(low: float, high: float) -> list[str]:
    """The ticks with as many decimals as tell them apart.

    Examples
    --------
    >>> tick_labels(-232.945, -232.928)
    ['−232.945', '−232.940', '−232.935', '−232.930']
    """
    values = ticks(low, high)
    step = values[1] - values[0] if len(values) > 1 else 1.0
    decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    return [f"{value:.{decimals}f}".replace("-", "−") for value in values]


def _widened(ends: Point) -> Point:
    """Ends that differ."""
    low, high = float(ends[0]), float(ends[1])
    if not np.isfinite([low, high]).all():
        return 0.0, 1.0
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
        pad = max(abs(low), 1.0) * 0.5
        return low - pad, high + pad
    return low, high


AXES = {
    "probability": ("predicted probability", "observed frequency"),
    "confidence": ("probability of the class chosen", "how often it was right"),
    "coverage": ("promised coverage", "rows inside"),
    "quantile": ("promised share below", "rows below"),
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
    chart = Chart((1.0, float(max(len(trace), 2))), (min(trace), max(trace)), "step", "objective", alt=alt)
    chart.line(steps, "curve")
    chart.marks(steps if len(steps) <= 40 else steps[-1:], "mark", 2.5)
    return chart.render()

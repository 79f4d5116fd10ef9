"""Axes and colours; the palette of Okabe and Ito, which colour-blind readers can tell apart."""

from __future__ import annotations

from typing import Any

Axes = Any  # a matplotlib.axes.Axes; matplotlib is imported where it is used

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#666666",
)
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)


def given_or_new(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: install latlin[plot]") from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]

"""Axes, colours and arguments of plots; the palette of Okabe and Ito, which colour-blind readers can tell apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from latlin.numerics.options import check_list, check_mapping, check_number, check_whole, float_array

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


def take_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: install latlin[plot]") from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


# --- One place decides what each argument of a plot can be, by its name.


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {value!r:.80}")


def _term(name: str, value: Any) -> None:
    _text(name, value)
    if not value:
        raise ValueError(f"{name} must name a term of the model, got {value!r}")


def _axes(name: str, value: Any) -> None:
    for each in np.ravel(value) if name == "axes" else [value]:
        if not hasattr(each, "plot"):
            raise ValueError(f"{name} must be axes of matplotlib, got {each!r:.80}")


def _color(name: str, value: Any) -> None:
    from matplotlib.colors import is_color_like

    if not is_color_like(value):
        raise ValueError(f"{name} must be a colour of matplotlib, got {value!r:.80}")


def _rows(name: str, value: Any) -> None:
    array = float_array(name, value)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} must be rows of numbers, got shape {array.shape}")


def _names(name: str, value: Any) -> None:
    for each in check_list(name, value, "texts"):
        _text(name, each)


ARGUMENTS: dict[str, Callable[[str, Any], Any]] = {
    "X": _rows,
    "ax": _axes,
    "axes": _axes,
    "bins": lambda name, value: check_whole(name, value, 1),
    "chosen": check_number,
    "color": _color,
    "column": _text,
    "coordinates": lambda name, value: [
        check_whole(name, each, -(2**31)) for each in check_list(name, value, "integers")
    ],
    "coverage": lambda name, value: check_number(name, value, above=0.0, below=1.0),
    "feature": check_whole,
    "features": lambda name, value: [check_whole(name, each) for each in check_list(name, value, "two integers")],
    "group": _term,
    "interval": float_array,
    "kind": _text,
    "log_evidence": float_array,
    "most": lambda name, value: check_whole(name, value, 1),
    "name": _text,
    "names": _names,
    "places": check_mapping,
    "points": lambda name, value: check_whole(name, value, 2),
    "raw": float_array,
    "shift": lambda name, value: check_number(name, value, least=-1e6, most=1e6),
    "term": _term,
    "values": float_array,
    "y": float_array,
}

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


def check_arguments(**needed: str) -> Callable[[Callable[Given, Drawn]], Callable[Given, Drawn]]:
    """A plot whose arguments are looked at before anything is drawn.

    Parameters
    ----------
    needed :
        Name of an argument → an attribute that it must have, such as `model="components_"`.
    """

    def decorate(plot: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
        signature = inspect.signature(plot)

        @wraps(plot)
        def checked(*args: Given.args, **options: Given.kwargs) -> Drawn:
            for name, value in signature.bind(*args, **options).arguments.items():
                if name in needed and not hasattr(value, needed[name]):
                    raise ValueError(f"{name} must be fitted and have {needed[name]!r}, got {value!r:.80}")
                optional = signature.parameters[name].default is None
                if name in ARGUMENTS and not (optional and value is None):
                    ARGUMENTS[name](name, value)
            return plot(*args, **options)

        return checked

    return decorate

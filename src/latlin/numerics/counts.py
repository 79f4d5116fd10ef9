"""Arguments that count something."""

from __future__ import annotations

from numbers import Integral
from typing import Any


def whole(name: str, value: Any, least: int = 0) -> int:
    """`value` as an int of at least `least`, or a ValueError that names the argument.

    >>> whole("n_samples", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)

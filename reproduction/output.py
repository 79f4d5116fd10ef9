"""Where the entries write, and the figures they draw."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def new_figure(entry: str, width: float, height: float) -> Any:
    """An empty matplotlib figure, or a sentence that says what is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"{entry} needs matplotlib: install latlin[plot]") from error
    return Figure(figsize=(width, height), layout="constrained")


def made(folder: str | os.PathLike[str]) -> Path:
    """The folder, created if it was not there."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    return target

"""What the entries write: Markdown tables and figures, into one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_table(path: Path, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """A Markdown table with a heading; floats with five significant digits."""
    cells = [[f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    lines = [list(columns), ["---"] * len(columns), *cells]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    path.write_text(f"# {title}\n\n{body}\n", encoding="utf8")
    return path


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

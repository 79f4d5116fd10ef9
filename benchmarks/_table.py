"""What every benchmark shares: the machine, the clock and a table."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def environment(*packages: str) -> str:
    """One line: Python, versions of packages (or "not installed"), cores and thread limits."""
    shown = [f"Python {platform.python_version()}"]
    for name in ("latlin", "numpy", "scipy", *packages):
        try:
            shown.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            shown.append(f"{name} not installed")
    limits = [f"{k}={os.environ[k]}" for k in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS") if k in os.environ]
    return ", ".join([*shown, f"{os.cpu_count()} cores", *limits])


def seconds(action: Callable[[], Any], repeats: int = 3, warm: bool = True) -> tuple[float, Any]:
    """Best wall time of `repeats` calls (after one that warms caches and compilers) and the last result."""
    if warm:
        action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - start)
    return min(times), result


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; floats with four significant digits."""
    cells = [[f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    lines = [list(columns), ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

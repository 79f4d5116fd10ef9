"""Seconds of the first call and of later ones, peak memory, kernels compiled: of one trial in this process."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _limits import product_rate
from _task import Trial

#: calls after the first: `CALLS` to `MOST`, longer than `SHORT` together, none once `ENOUGH` seconds are over
CALLS, MOST, SHORT = 3, 100, 0.5
ENOUGH = {"small": 2.0, "full": 4.0}
#: a first call that takes longer than this is the only one; the second number is for trials that count something else
#: than the seconds of a call
PATIENCE = {"small": (15.0, 3.0), "full": (120.0, 60.0)}


def measure(trial: Trial, size: str, fill: bool = False) -> dict[str, Any]:
    """The numbers of a `Record`; with `fill` only how many kernels were compiled, if any were.

    The first call includes what is loaded or compiled on first use. Memory is the highest resident size during the
    second call less that before it, where the system lets it be reset (Linux); it leaves out data, libraries and
    compiled code. A call that stands alone is measured itself, with what it loads.
    """
    began = time.time()
    first, memory, result = watched(trial.action)
    compiled = new_kernels(began)
    if fill and compiled:
        return {"compiled": compiled}
    times = []
    if first <= PATIENCE[size][trial.cost is not None] or (compiled and trial.cost is None):
        del result
        return_free_memory()
        seconds, memory, result = watched(trial.action)
        times.append(seconds)
        while len(times) < MOST and sum(times) < ENOUGH[size] and (len(times) < CALLS or sum(times) < SHORT):
            seconds, result = clock(trial.action)
            times.append(seconds)
    steady = min(times) if times else None
    return {
        "first": first,
        "steady": steady,
        "calls": 1 + len(times),
        "compiled": compiled,
        "cost": trial.cost(result) if trial.cost else (steady or first),
        "memory": memory,
        "process": status("VmHWM") or None,
        "accuracy": {**trial.judge(result), **rate(trial, result, steady or first)},
    }


def rate(trial: Trial, result: Any, seconds: float) -> dict[str, float]:
    """The share of this machine's rate of matrix products that was reached, for trials that know their flops."""
    return {"share of dgemm": trial.flops(result) / seconds / product_rate()} if trial.flops else {}


def watched(action: Callable[[], Any]) -> tuple[float, float | None, Any]:
    """Seconds, the rise of the highest resident size in MiB where it can be had, and the result."""
    can, before = reset_peak(), status("VmRSS")
    seconds, result = clock(action)
    return seconds, max(status("VmHWM") - before, 0.0) if can else None, result


def clock(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds by the wall, and the result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def status(name: str) -> float:
    """A size in MiB that the kernel keeps about this process; zero where it keeps none."""
    file = Path("/proc/self/status")
    found = re.search(rf"{name}:\s+(\d+) kB", file.read_text(encoding="utf8")) if file.exists() else None
    return int(found[1]) / 1024.0 if found else 0.0


def reset_peak() -> bool:
    """Let the highest resident size start again from the present one; whether that was possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf8")
    except OSError:
        return False
    return True


def return_free_memory() -> None:
    """What the first call left unused goes back to the system (glibc), or a second one would seem to need nothing."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def new_kernels(since: float) -> int:
    """Compiled functions that Numba wrote to its cache after a time."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    spec = find_spec("latlin")
    root = Path(folder) if folder else Path(spec.origin).parent if spec and spec.origin else None
    return sum(path.stat().st_mtime >= since for path in root.rglob("*.nbc")) if root else 0

"""Where and with what a run was made: machine, threads, versions, revision, date."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ALWAYS = ("latlin", "numpy", "scipy", "numba", "scikit-learn")


def machine(caches: str) -> dict[str, Any]:
    """All that a reader needs to judge the seconds."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "revision": revision(),
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
        "caches": caches,
        "versions": versions(ALWAYS),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in sorted(packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cpu() -> str:
    """The model of the processor."""
    file = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", file.read_text(encoding="utf8")) if file.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def memory() -> float | None:
    """GiB, where the system says."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def revision() -> str:
    """Of the repository, with a plus sign if files differ from it; empty outside one."""
    folder = Path(__file__).parent
    try:
        name = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src"], cwd=folder.parent).returncode
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name + ("+" if changed else "")

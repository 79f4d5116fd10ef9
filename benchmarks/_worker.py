"""The process that runs one task.

`_worker.py list FILE SIZE` and `_worker.py run|fill FILE SIZE NUMBER`.

Both write JSON to the file named by the last argument. `fill` measures too, but ends after the first call if that had
to compile: then Numba's cache is filled, and the next process measures.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from _measure import measure
from _task import Task


def version_of(package: str) -> str:
    """Of an installed distribution; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def described(task: Task, stem: str) -> dict[str, Any]:
    """What is known before it runs."""
    words = {name: getattr(task, name) for name in ("case", "method", "package", "role", "unit", "note")}
    return {"workload": stem, **words, "version": version_of(task.package)}


def outcome(task: Task, stem: str, size: str, fill: bool) -> dict[str, Any]:
    """The fields of a record; what goes wrong becomes its status and note."""
    found = described(task, stem)
    try:
        return {**found, **measure(task.prepare(), size, fill)}
    except (ImportError, FileNotFoundError) as error:
        return {**found, "status": "absent", "note": one_line(error)}
    except Exception as error:
        return {**found, "status": "failed", "note": f"{type(error).__name__}: {one_line(error)}"}


def one_line(error: Exception) -> str:
    """The message without line breaks and folders, not too long."""
    words = str(getattr(error, "strerror", None) or error).split()
    name = f": {Path(error.filename).name}" if isinstance(error, FileNotFoundError) and error.filename else ""
    return (" ".join(words) + name)[:200]


def main(what: str, stem: str, size: str, *rest: str) -> None:
    """Write the list of tasks, or the record of one."""
    warnings.simplefilter("ignore")
    tasks: list[Task] = importlib.import_module(stem).tasks(size)
    if what == "list":
        answer: Any = [described(task, stem) for task in tasks]
    else:
        answer = outcome(tasks[int(rest[0])], stem, size, what == "fill")
    Path(rest[-1]).write_text(json.dumps(answer), encoding="utf8")


if __name__ == "__main__":
    main(*sys.argv[1:])

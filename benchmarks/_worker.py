"""The process that runs one task: `_worker.py list FILE SIZE` and `_worker.py run FILE SIZE NUMBER`.

Both write JSON to the file named by the last argument.
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


def outcome(task: Task, stem: str, size: str) -> dict[str, Any]:
    """The fields of a record; what goes wrong becomes its status and note."""
    found = described(task, stem)
    try:
        return {**found, **measure(task.prepare(), size)}
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
    answer = [described(t, stem) for t in tasks] if what == "list" else outcome(tasks[int(rest[0])], stem, size)
    Path(rest[-1]).write_text(json.dumps(answer), encoding="utf8")


if __name__ == "__main__":
    main(*sys.argv[1:])

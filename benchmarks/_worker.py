"""The process that runs the tasks of one file.

`_worker.py FILE SIZE` imports the file and writes the list of its tasks, one line of JSON. Then every line of its
standard input, `run|fill NUMBER ANSWER`, is done by a fork of it, which writes JSON to the file ANSWER and what goes
wrong beside it. So each task has memory, caches and threads of its own, and libraries are imported once per file. The
fork's number is said as soon as it is there, and its exit code when it has ended.

`fill` measures too, but ends after the first call if that had to compile: then Numba's cache is filled, and the next
process measures.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from contextlib import suppress
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


def main(stem: str, size: str) -> None:
    """Write the list of tasks, and do what is asked until nobody asks any more."""
    said = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf8")
    redirect(os.devnull, os.O_WRONLY, 1)  # what tasks print is for nobody
    warnings.simplefilter("ignore")
    tasks: list[Task] = importlib.import_module(stem).tasks(size)
    said.write(json.dumps([described(task, stem) for task in tasks]) + "\n")
    for line in sys.stdin:
        what, number, answer = line.rstrip("\n").split(" ", 2)
        fork = os.fork()
        if fork == 0:
            redirect(os.devnull, os.O_RDONLY, 0)
            redirect(answer + ".errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 2)
            os.setpgid(0, 0)
            found = outcome(tasks[int(number)], stem, size, what == "fill")
            Path(answer).write_text(json.dumps(found), encoding="utf8")
            return
        # whoever comes first: the group has to be there before anybody ends it
        with suppress(OSError):
            os.setpgid(fork, fork)
        said.write(f"{fork}\n")
        said.write(f"{os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])}\n")


def redirect(file: str, flags: int, descriptor: int) -> None:
    """Let a descriptor of this process mean a file."""
    opened = os.open(file, flags)
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""All tasks of a benchmark file, each in a process of its own with a time limit: records, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from _record import Record, with_ratios
from _task import SIZES

FOLDER = Path(__file__).parent
#: files in this folder that are not benchmarks
NOT_BENCHMARKS = {"run", "accuracy_reference", "profiles"}
#: seconds for one task and for one file
LIMITS = {"small": (90.0, 300.0), "full": (1800.0, 7200.0)}


class Failure(NamedTuple):
    """Why a process gave no answer."""

    status: str
    note: str


def benchmarks() -> list[str]:
    """Names of the files, in alphabetical order."""
    return sorted(p.stem for p in FOLDER.glob("[a-z]*.py") if p.stem not in NOT_BENCHMARKS)


def records(stem: str, size: str, cold: bool = False) -> Iterator[Record]:
    """The records of one file, as they come; ratios are missing, since they need all of a case."""
    last = time.monotonic()
    for record in answers(stem, size, cold):
        now = time.monotonic()
        yield replace(record, wall=now - last)
        last = now


def answers(stem: str, size: str, cold: bool) -> Iterator[Record]:
    """Records without the seconds that they took in all."""
    each, whole = LIMITS[size]
    end = time.monotonic() + whole
    listed = ask(["list", stem, size], each, cold)
    if isinstance(listed, Failure):
        yield Record(stem, "all", "all", status=listed.status, note=listed.note)
        return
    for number, task in enumerate(listed):
        left = end - time.monotonic()
        if not task["version"]:
            yield Record(**task | {"status": "absent", "note": f"{task['package']} is not installed"})
        elif left <= 0.0:
            yield Record(**task | {"status": "out of time", "note": f"the file's {whole:.0f} s were used up"})
        else:
            found = answer(stem, size, number, min(each, left), cold)
            failed = isinstance(found, Failure)
            yield Record(**(task | {"status": found.status, "note": found.note} if failed else found))


def answer(stem: str, size: str, number: int, limit: float, cold: bool) -> Any:
    """The record of a task. With a warm cache a run that had to compile only fills it, and a second one counts."""
    words = [stem, size, str(number)]
    if cold:
        return ask(["run", *words], limit, cold)
    found = ask(["fill", *words], limit, cold)
    again = not isinstance(found, Failure) and found.get("compiled")
    return ask(["run", *words], limit, cold) if again else found


def ask(words: list[str], limit: float, cold: bool) -> Any:
    """The answer of a worker, or a `Failure`; it and what it started are ended when the time is over."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        environment = dict(os.environ) | ({"NUMBA_CACHE_DIR": folder} if cold else {})
        command = [sys.executable, str(FOLDER / "_worker.py"), *words, str(answer)]
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        try:
            _, errors = process.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                return Failure("out of time", f"stopped after {limit:.0f} s")
            raise
        if process.returncode or not answer.exists():
            return explained(process.returncode, errors)
        return json.loads(answer.read_text(encoding="utf8"))


def explained(code: int, errors: str) -> Failure:
    """A crash in words: the last line of the error, or the signal."""
    last = errors.strip().splitlines()[-1][:200] if errors.strip() else f"ended with code {code}"
    if last.startswith(("ImportError", "ModuleNotFoundError")):
        return Failure("absent", last.partition(": ")[2])
    return Failure("failed", last)


def run_alone(file: str, main: Callable[[], None]) -> None:
    """A benchmark file as a script: with --size its records as a table, otherwise its own `main`."""
    from _page import workload_table

    if "--size" not in sys.argv:
        main()
        return
    size = (sys.argv[sys.argv.index("--size") + 1 :] or [""])[0]
    if size not in SIZES:
        sys.exit(f"--size: {size!r}, expected one of {', '.join(SIZES)}")
    found = []
    for record in records(Path(file).stem, size):
        found.append(record)
        sys.stderr.write(line(record) + "\n")
    sys.stdout.write(workload_table(with_ratios(found)) + "\n")


def line(record: Record) -> str:
    """One record for people who wait."""
    text = f"{record.workload}: {record.case}: {record.method}: "
    if record.status != "ok":
        return text + f"{record.status} ({record.note})"
    steady = "" if record.steady is None else f", then {record.steady:.3g} s"
    return text + f"first {record.first:.3g} s{steady}"

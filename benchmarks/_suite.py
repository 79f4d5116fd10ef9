"""All tasks of a benchmark file, each in a process of its own with a time limit: records, whatever happens."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

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
    with Worker(stem, size, cold) as worker:
        listed = worker.tasks(each)
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
                found = answer(worker, number, min(each, left))
                failed = isinstance(found, Failure)
                yield Record(**(task | {"status": found.status, "note": found.note} if failed else found))


def answer(worker: Worker, number: int, limit: float) -> Any:
    """The record of a task. With a warm cache a run that had to compile only fills it, and a second one counts."""
    if worker.cold:
        return worker.ask("run", number, limit)
    found = worker.ask("fill", number, limit)
    again = not isinstance(found, Failure) and found.get("compiled")
    return worker.ask("run", number, limit) if again else found


class Worker:
    """A process that has imported a file and runs each of its tasks in a fork of itself.

    Parameters
    ----------
    stem, size : str
        The file and the size of its tasks.
    cold : bool
        Every task has a process that imported the file with an empty Numba cache.
    """

    def __init__(self, stem: str, size: str, cold: bool = False) -> None:
        self.stem, self.size, self.cold = stem, size, cold
        #: where forks are not safe, as with Apple's BLAS, every task has such a process as well
        self._once = cold or sys.platform != "linux"
        self._listed: Any = None
        self._running: subprocess.Popen[bytes] | None = None
        self._used = False

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def tasks(self, limit: float) -> Any:
        """What the file lists, or a `Failure`."""
        if self._running is None:
            self._begin(limit)
        return self._listed

    def ask(self, what: str, number: int, limit: float) -> Any:
        """The answer of a task, or a `Failure`; it and what it started are ended when the time is over."""
        if self._once and self._used:
            self._end()
        listed = self.tasks(limit)
        if isinstance(listed, Failure):
            return listed
        self._used = True
        process, file = self._process(), Path(self._folder.name) / "answer.json"
        file.unlink(missing_ok=True)
        process.stdin.write(f"{what} {number} {file}\n".encode())
        fork = int(process.stdout.readline() or 0)
        try:
            code = self._heard(limit)
        except BaseException:
            end_group(fork)
            raise
        if code is None:
            end_group(fork)
            process.stdout.readline()
            return out_of_time(limit)
        if not code or int(code) or not file.exists():
            return explained(int(code or process.wait()), read_words(Path(f"{file}.errors")))
        return json.loads(file.read_text(encoding="utf8"))

    def _begin(self, limit: float) -> None:
        """Start the process and hear what it lists."""
        folder = Path(self._folder.name)
        cache = {"NUMBA_CACHE_DIR": tempfile.mkdtemp(dir=folder)} if self.cold else {}
        with open(folder / "errors", "wb") as errors:
            self._running = subprocess.Popen(
                [sys.executable, str(FOLDER / "_worker.py"), self.stem, self.size],
                env=dict(os.environ) | cache,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                process_group=0,
            )
        line, self._used = self._heard(limit), False
        if line is None:
            self._listed = out_of_time(limit)
        elif line:
            self._listed = json.loads(line)
        else:
            code = self._process().wait()
            self._listed = explained(code, read_words(folder / "errors"))

    def _heard(self, limit: float) -> bytes | None:
        """The next line that the process says, empty if it has ended; None where it says none in time."""
        said = self._process().stdout
        ready, _, _ = select.select([said], [], [], limit)
        return said.readline() if ready else None

    def _process(self) -> Any:
        assert self._running is not None  # begun before anything is asked
        return self._running

    def _end(self) -> None:
        if self._running is not None:
            end_group(self._running.pid)
            self._running.communicate()
            self._running = None


def end_group(leader: int) -> None:
    """End a process and what it has started, if they are still there."""
    if leader > 0:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def read_words(file: Path) -> str:
    """What a process wrote to its standard error, if anything."""
    return file.read_text(encoding="utf8", errors="replace") if file.exists() else ""


def out_of_time(limit: float) -> Failure:
    return Failure("out of time", f"stopped after {limit:.0f} s")


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

"""What one method did on one case of a workload: the record, its ratio to a reference, and files of records."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

FORMAT = 1
#: what a method is in a comparison; the words of `Record.role`
ROLES = ("latlin", "peer", "yardstick")


@dataclass(frozen=True)
class Record:
    """One method on one case.

    Attributes
    ----------
    workload, case, method : str
        The file, the problem with its sizes, and what was run on it.
    package, version : str
        Whose method it is.
    role : {"latlin", "peer", "yardstick"}
        A peer answers the same question. A yardstick does less, or is a limit: its time is a measure, not a rival.
    status : {"ok", "absent", "failed", "out of time"}
        Why there are no numbers, where there are none; `note` has the sentence.
    first, steady : float or None
        Seconds of the first call in a fresh process, and the best of the calls after it.
    calls, compiled : int
        Calls made, and kernels that the first one compiled because Numba's cache did not have them.
    cost, unit : float or None, str
        What is compared: the steady seconds, unless the workload counts something else.
    memory, process : float or None
        Peak resident MiB of a steady call above what was there before it, and of the whole process.
    accuracy : dict
        What was reached, by name.
    wall : float
        Seconds that all of it took: starting the process, filling the cache, data, calls and judging.
    run : int
        Which run of the file it belongs to.
    ratio, against : float or None, str
        Cost over that of the method `against`; below one is better.
    """

    workload: str
    case: str
    method: str
    package: str = "latlin"
    version: str = ""
    role: str = "latlin"
    status: str = "ok"
    first: float | None = None
    steady: float | None = None
    calls: int = 0
    compiled: int = 0
    cost: float | None = None
    unit: str = "s"
    memory: float | None = None
    process: float | None = None
    accuracy: dict[str, float | str] = field(default_factory=dict)
    note: str = ""
    wall: float = 0.0
    run: int = 0
    ratio: float | None = None
    against: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.case, self.method


def with_ratios(records: Iterable[Record]) -> list[Record]:
    """The records, each with its cost over that of the reference of its case; the reference itself has ratio one."""
    cases: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        cases.setdefault(record.key[:2], []).append(record)
    return [_compared(record, reference(case)) for case in cases.values() for record in case]


def reference(case: Sequence[Record]) -> Record | None:
    """The peer with the least cost, or else the yardstick with the least."""
    for role in ("peer", "yardstick"):
        able = [r for r in case if r.role == role and r.status == "ok" and r.cost]
        if able:
            return min(able, key=lambda r: r.cost or 0.0)
    return None


def _compared(record: Record, base: Record | None) -> Record:
    if base is None or not base.cost or record.cost is None:
        return replace(record, ratio=None, against="")
    return replace(record, ratio=record.cost / base.cost, against=base.method)


def merge(old: Sequence[Record], new: Sequence[Record], finished: Collection[str] = ()) -> list[Record]:
    """New records in place of old ones of the same cases, and of all cases of workloads that are finished.

    Workloads come in alphabetical order, ratios are made anew.
    """
    cases = {r.key[:2] for r in new}
    kept = [r for r in old if r.key[:2] not in cases and r.workload not in finished]
    return with_ratios(sorted([*kept, *new], key=lambda r: r.workload))


def write_atomically(path: Path, text: str) -> None:
    """All of the text or nothing: a reader never sees half a file, and a broken run leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save(path: Path, size: str, runs: Sequence[dict[str, Any]], records: Sequence[Record]) -> None:
    """One JSON file: format, size, the machine and versions of every run, the records."""
    content = {"format": FORMAT, "size": size, "runs": list(runs), "records": [asdict(r) for r in records]}
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> tuple[list[dict[str, Any]], list[Record]]:
    """Runs and records of a file; none where there is no file."""
    if not path.exists():
        return [], []
    content = json.loads(path.read_text(encoding="utf8"))
    if content.get("format") != FORMAT:
        raise ValueError(f"{path.name}: format {content.get('format')!r}, expected {FORMAT}; run the benchmarks again")
    names = {f.name for f in fields(Record)}
    return content["runs"], [Record(**{k: v for k, v in r.items() if k in names}) for r in content["records"]]

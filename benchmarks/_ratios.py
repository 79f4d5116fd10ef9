"""Ratios kept from an earlier run, and what has got worse since: a check that holds on other machines too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _record import Record, write_atomically

#: a ratio may grow by this factor before it counts as worse: timings of one machine differ by a third from day to day
FACTOR = 1.5
Ratios = dict[str, dict[str, dict[str, float]]]


class Change(NamedTuple):
    """A method whose ratio is worse than it was, or that has none any more."""

    workload: str
    case: str
    method: str
    before: float
    now: float | None
    reason: str


def ratios_of(records: Sequence[Record]) -> Ratios:
    """Workload → case → method of latlin → ratio."""
    found: Ratios = {}
    for r in records:
        if r.role == "latlin" and r.ratio is not None:
            found.setdefault(r.workload, {}).setdefault(r.case, {})[r.method] = float(f"{r.ratio:.4g}")
    return found


def worse(stored: Ratios, records: Sequence[Record], factor: float = FACTOR) -> list[Change]:
    """What grew by more than the factor, failed or ran out of time. Cases that were not run are left alone."""
    now = {r.key: r for r in records}
    found = []
    for workload, cases in stored.items():
        for case, methods in cases.items():
            for method, before in methods.items():
                record = now.get((workload, case, method))
                change = record and _change(record, before, factor)
                if change:
                    found.append(change)
    return found


def _change(record: Record, before: float, factor: float) -> Change | None:
    if record.status in ("failed", "out of time"):
        return Change(*record.key, before, None, f"{record.status}: {record.note}")
    if record.ratio is not None and record.ratio > factor * before:
        times = record.ratio / before
        return Change(*record.key, before, record.ratio, f"{times:.2g} times what it was, against {record.against}")
    return None


def read(path: Path, size: str) -> Ratios:
    """The ratios kept for a size; none where there is no file."""
    return json.loads(path.read_text(encoding="utf8")).get(size, {}) if path.exists() else {}


def accept(path: Path, size: str, records: Sequence[Record]) -> None:
    """Keep the ratios of the workloads that have any; those of other workloads and sizes stay."""
    content = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
    content[size] = dict(sorted((content.get(size, {}) | ratios_of(records)).items()))
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def report(changes: Sequence[Change], factor: float = FACTOR) -> str:
    """What got worse, in lines for people."""
    if not changes:
        return f"no ratio is more than {factor:g} times what was accepted"
    lines = [f"{len(changes)} worse than accepted (factor {factor:g}):"]
    for c in changes:
        numbers = f"{c.before:.3g} → {'none' if c.now is None else f'{c.now:.3g}'}"
        lines.append(f"  {c.workload}: {c.case}: {c.method}: {numbers}, {c.reason}")
    return "\n".join(lines)

"""Records as the page of the documentation: where latlin is ahead and where not, then a folded table per workload."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from _record import Record
from _table import table

#: ratios between these two are called level
LEVEL = (0.9, 1.1)
NONE = "–"
Reasons = Mapping[str, Mapping[str, Any]]


class Result(NamedTuple):
    """What one size left: its runs and its records."""

    size: str
    runs: Sequence[Mapping[str, Any]]
    records: Sequence[Record]


def page(results: Sequence[Result], reasons: Reasons, questions: Mapping[str, str]) -> str:
    """The whole page.

    Parameters
    ----------
    results : sequence of Result
        Small first; a case that is in two of them is shown as the later one has it.
    reasons : mapping
        Workload → title, why, text: what only people can write.
    questions : mapping
        Workload → the first sentence of its file; every file has a section, with numbers or without.
    """
    chosen = latest(results)
    sections = [
        section(stem, [r for r in chosen if r.workload == stem], reasons.get(stem, {}), question)
        for stem, question in questions.items()
    ]
    return "\n\n".join([HEAD, conditions(results), overview(chosen, reasons), HOW_TO_READ, *sections]) + "\n"


def latest(results: Sequence[Result]) -> list[Record]:
    """All records, a case once: from the last result that has it."""
    owner = {r.key[:2]: i for i, result in enumerate(results) for r in result.records}
    return [r for i, result in enumerate(results) for r in result.records if owner[r.key[:2]] == i]


def questions_of(folder: Path, stems: Sequence[str]) -> dict[str, str]:
    """First paragraph of every file's docstring."""
    found = {}
    for stem in stems:
        text = ast.get_docstring(ast.parse((folder / f"{stem}.py").read_text(encoding="utf8"))) or ""
        found[stem] = " ".join(text.partition("\n\n")[0].split())
    return found


def conditions(results: Sequence[Result]) -> str:
    """Machine, versions and date of every run that a record belongs to."""
    lines = []
    for result in results:
        alike = together(result.runs, {r.run for r in result.records})
        for numbers in alike:
            run = result.runs[numbers[0]] | {"versions": united(result.runs[i]["versions"] for i in numbers)}
            here = [r for r in result.records if r.run in numbers]
            whole = "" if len(alike) == 1 else f" ({', '.join(sorted({r.workload for r in here}))})"
            lines.append(f"* Size {result.size}, {run['date']}{whole}: {described(run)}{duration(here)}")
    if not lines:
        return "No run is stored yet: `make bench` makes one."
    return "\n\n".join(["<details>\n<summary>Machine, versions and dates</summary>", "\n".join(lines), "</details>"])


def together(runs: Sequence[Mapping[str, Any]], used: Collection[int]) -> list[list[int]]:
    """Numbers of the runs in use, those of one kind together: a run that was resumed is one run."""
    kinds: dict[str, list[int]] = {}
    for number in sorted(used):
        kind = {k: v for k, v in runs[number].items() if k not in ("versions", "finished")}
        kinds.setdefault(repr(sorted(kind.items())), []).append(number)
    return list(kinds.values())


def united(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Versions of all, in alphabetical order."""
    return dict(sorted({name: number for versions in found for name, number in versions.items()}.items()))


def wall_of(records: Sequence[Record]) -> dict[str, float]:
    """Workload → seconds that it took in all, where they are known."""
    stems = dict.fromkeys(r.workload for r in records)
    walls = {stem: sum(r.wall for r in records if r.workload == stem) for stem in stems}
    return {stem: wall for stem, wall in walls.items() if wall}


def duration(records: Sequence[Record]) -> str:
    """How long it took in all; nothing where that is not known."""
    total = sum(wall_of(records).values())
    return f" It took {total / 60.0:.1f} minutes." if total >= 60.0 else f" It took {total:.0f} s." if total else ""


def described(run: Mapping[str, Any]) -> str:
    """One run in a sentence."""
    threads = ", ".join(f"{k}={v}" for k, v in run["threads"].items()) or "as many threads as cores"
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    memory = f"{run['memory']:g} GiB, " if run["memory"] else ""
    revision = f", revision {run['revision']}" if run["revision"] else ""
    return (
        f"{run['cpu']}, {run['cores']} cores, {memory}{run['system']}; {threads}; Numba's cache {run['caches']}; "
        f"Python {run['python']}, {versions}{revision}."
    )


def overview(records: Sequence[Record], reasons: Reasons) -> str:
    """One row per workload: with what it is compared, the range of ratios, ahead or not; why where it is behind."""
    rows = []
    for stem in dict.fromkeys(r.workload for r in records):
        here = [r for r in records if r.workload == stem]
        leads, reason = leading(here), reasons.get(stem, {})
        title = reason.get("title", stem)
        rows.append(
            [
                f"[{title}](#{slug(title)})",
                ", ".join(dict.fromkeys(base.method for _, base in leads)) or "nothing else installed does this",
                spread([lead.ratio for lead, _ in leads]),
                "; ".join([_explained(standing(leads), reason), *troubles(here)]),
            ]
        )
    shown = table(["workload", "against", "ratio", "latlin is"], rows) if rows else ""
    return "\n\n".join(part for part in ("## Where latlin is ahead, and where it is not", shown) if part)


def _explained(words: str, reason: Mapping[str, Any]) -> str:
    """Where latlin is behind, with the reason; elsewhere it is in the section of the workload."""
    return f"{words}: {reason.get('why', 'no reason is written down')}" if "**behind**" in words else words


def leading(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The first method of latlin in every case, with what it is compared with."""
    found = []
    for case in dict.fromkeys(r.case for r in records):
        here = {r.method: r for r in records if r.case == case}
        lead = next((r for r in here.values() if r.role == "latlin"), None)
        if lead is not None and lead.ratio is not None:
            found.append((lead, here[lead.against]))
    return found


def spread(ratios: Sequence[float | None]) -> str:
    """From the least to the largest."""
    known = sorted(r for r in ratios if r is not None)
    ends = list(dict.fromkeys(f"{r:.2g}" for r in (known[0], known[-1]))) if known else [NONE]
    return " to ".join(ends)


def standing(leads: Sequence[tuple[Record, Record]]) -> str:
    """In how many cases latlin is ahead of its peers, and the cases where it is not."""
    rivals = [(lead, base) for lead, base in leads if base.role == "peer"]
    if not rivals:
        return "alone; the ratio is to a yardstick" if leads else "alone"
    ahead = sum(verdict(lead) == "ahead" for lead, _ in rivals)
    behind = [lead.case for lead, _ in rivals if verdict(lead) == "behind"]
    level = [lead.case for lead, _ in rivals if verdict(lead) == "level"]
    parts = [f"ahead in {ahead} of {len(rivals)}"]
    parts += [f"level in {'; '.join(level)}"] if level else []
    parts += [f"**behind** in {'; '.join(behind)}"] if behind else []
    return ", ".join(parts)


def troubles(records: Sequence[Record]) -> list[str]:
    """Cases whose first method of latlin has no number, and cases where no peer that is installed has one."""
    failed, silent = [], []
    for case in dict.fromkeys(r.case for r in records):
        here = [r for r in records if r.case == case]
        lead = next((r for r in here if r.role == "latlin"), here[0])
        peers = [r for r in here if r.role == "peer" and r.status != "absent"]
        if lead.status != "ok":
            failed.append(f"{case} ({lead.status})")
        elif peers and not any(r.status == "ok" for r in peers):
            silent.append(f"{case} ({', '.join(dict.fromkeys(r.status for r in peers))})")
    parts = [f"**no result** in {', '.join(failed)}"] if failed else []
    return parts + ([f"no peer has a result in {', '.join(silent)}"] if silent else [])


def verdict(record: Record) -> str:
    """Of a record that has a ratio."""
    assert record.ratio is not None
    return "ahead" if record.ratio < LEVEL[0] else "level" if record.ratio <= LEVEL[1] else "behind"


def unexplained(records: Sequence[Record], reasons: Reasons) -> list[str]:
    """Workloads with a case behind a peer and no sentence that says why."""
    stems = dict.fromkeys(r.workload for r in records)
    found = []
    for stem in stems:
        leads = leading([r for r in records if r.workload == stem])
        behind = any(base.role == "peer" and verdict(lead) == "behind" for lead, base in leads)
        if behind and not reasons.get(stem, {}).get("why"):
            found.append(stem)
    return found


def section(stem: str, records: Sequence[Record], reason: Mapping[str, Any], question: str) -> str:
    """Heading of one workload; its question unfolds to the table and the text."""
    shown = workload_table(records) if records else "Not measured yet."
    folded = f"<details>\n<summary>{escape(question.replace(chr(96), ''))}</summary>"
    where = f"`{stem}.py`.{duration(records)} {reason.get('why', '')}".strip()
    parts = [f"## {reason.get('title', stem)}", folded, where, shown, reason.get("text", "").strip(), "</details>"]
    return "\n\n".join(part for part in parts if part)


def workload_table(records: Sequence[Record]) -> str:
    """One row per method; columns that would be empty are left out."""
    names = list(dict.fromkeys(name for r in records for name in r.accuracy))
    heads = ["case", "method", "first, s", "steady, s", "cost", "ratio", "memory, MiB", *names, "note"]
    rows = [row_of(r, names) for r in records]
    used = [i for i in range(len(heads)) if any(row[i] not in ("", NONE) for row in rows)]
    return table([heads[i] for i in used], [[row[i] for i in used] for row in rows])


def row_of(record: Record, names: Sequence[str]) -> list[str]:
    """The cells of a record."""
    who = record.method if record.role != "yardstick" else f"{record.method} (yardstick)"
    counted = record.cost is not None and record.cost not in (record.steady, record.first)
    note = record.note if record.status == "ok" else f"{record.status}: {record.note}"
    if record.compiled:
        note = f"{note}; " * bool(note) + f"first call compiled {record.compiled} kernels"
    return [
        record.case,
        who,
        number(record.first),
        number(record.steady),
        f"{number(record.cost)} {record.unit}" if counted else "",
        f"{record.ratio:.3g}" if record.ratio is not None else NONE,
        f"{record.memory:.0f}" if record.memory is not None else NONE,
        *(reached(record.accuracy.get(name)) for name in names),
        note.replace("|", "/"),
    ]


def number(value: float | None) -> str:
    """Three digits."""
    return NONE if value is None else f"{value:.3g}" if abs(value) < 1000.0 else f"{value:.0f}"


def reached(value: float | str | None) -> str:
    """Three digits of what is small, more of what is large, such as a log evidence; words as they are."""
    if value is None or isinstance(value, str):
        return value or NONE
    return f"{value:.3g}" if abs(value) < 1.0 else f"{value:.6g}" if abs(value) < 1e5 else f"{value:.1f}"


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


HEAD = """# Benchmarks

*Made by `make bench` from what `benchmarks/run.py` measured. Edit `benchmarks/reasons.toml`, not this page.*

`benchmarks/` has one file per workload. Each method runs in a process of its own, next to its peers where they are
installed; speed is shown here and never tested by a clock. Take ratios seriously and seconds as an example.
[How to run them, and what the columns mean](developer/benchmarks.md)."""

HOW_TO_READ = """A ratio is latlin's cost over that of the fastest peer that is installed, or of a yardstick where there
is no peer: *below one is faster*. A peer answers the same question; a yardstick does less (a point estimate, a pass
through memory). Each case is represented by its first method of latlin. Open a question below for its numbers.
`run.py`, `profiles.py` and `accuracy_reference.py` are tools:
[how to run them](developer/benchmarks.md)."""

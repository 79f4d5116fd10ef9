"""All benchmarks, one after another: results as JSON, the page of the documentation, a check of the ratios.

    python benchmarks/run.py [--size small|full] [--only FILE …] [--resume] [--cold] [--accept]
    python benchmarks/run.py --check | --page [--size small|full]

Every method runs in a process of its own with a time limit. What is absent, fails or takes too long is recorded as such
and stops nothing. Results are written after every method; `--only` replaces those of the files it names, and `--resume`
leaves out files that were finished at this revision, so that a run which was interrupted goes on. At the end it says
how long every file took and how long it should (`budget` in `reasons.toml`, small size). `--cold` starts every process
with an empty Numba cache. The check compares ratios with those in `ratios.json` and ends with code 1 if one got worse;
`--accept` keeps the new ones. `--check` and `--page` measure nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _machine import ALWAYS, machine, versions
from _page import Reasons, Result, page, questions_of, unexplained, wall_of
from _ratios import FACTOR, accept, read, report, worse
from _record import Record, load, merge, save, write_atomically
from _suite import FOLDER, benchmarks, line, records
from _table import table
from _task import SIZES

RESULTS = FOLDER / "results"
RATIOS = FOLDER / "ratios.json"
REASONS = FOLDER / "reasons.toml"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
Run = dict[str, Any]
Stored = tuple[list[Run], list[Record]]


def measure(size: str, stems: Sequence[str], cold: bool, resume: bool) -> None:
    """Run the files and keep what they give, after every method."""
    path, began, run = RESULTS / f"{size}.json", time.monotonic(), machine("cold" if cold else "warm")
    old = load(path)
    done = finished(old, run) if resume else set()
    stems = [stem for stem in stems if stem not in done]
    planned = f" of {sum(budgets().get(stem, 0.0) for stem in stems):.0f}" if size == "small" else ""
    new: list[Record] = []
    for number, stem in enumerate(stems):
        for record in records(stem, size, cold):
            new.append(record)
            elapsed = time.monotonic() - began
            say(f"[{number + 1}/{len(stems)}, {elapsed:4.0f}{planned} s] {line(record)}")
            keep(path, size, old, (run, new), stems[:number])
        keep(path, size, old, (run, new), stems[: number + 1])
    say(taken(load(path)[1], budgets() if size == "small" else {}))


def finished(stored: Stored, run: Run) -> set[str]:
    """Workloads of which every record comes from a run that finished them, at this revision and with such caches."""
    runs, records = stored
    whole = {
        number: set(r.get("finished", ()))
        for number, r in enumerate(runs)
        if (r["revision"], r["caches"]) == (run["revision"], run["caches"])
    }
    stems = {r.workload for r in records}
    return stems - {r.workload for r in records if r.workload not in whole.get(r.run, ())}


def budgets() -> dict[str, float]:
    """Seconds that a file may take at the small size."""
    return {stem: words["budget"] for stem, words in reasons().items() if "budget" in words}


def taken(found: Sequence[Record], planned: Mapping[str, float]) -> str:
    """How long every file took, next to its budget, and the sum."""
    walls = wall_of(found)
    rows = [[stem, f"{wall:.0f}", f"{planned[stem]:.0f}" if stem in planned else ""] for stem, wall in walls.items()]
    over = [stem for stem, wall in walls.items() if wall > planned.get(stem, wall)]
    said = table(["file", "seconds", "planned"], rows)
    total = f"{len(walls)} files, {sum(walls.values()):.0f} s = {sum(walls.values()) / 60.0:.1f} minutes in all"
    return "\n".join([said, total, *([f"longer than planned: {', '.join(over)}"] if over else [])])


def keep(path: Path, size: str, old: Stored, new: tuple[Run, list[Record]], finished: Sequence[str]) -> None:
    """Old and new records in one file, each with its run; runs without a record are dropped."""
    run = {**new[0], "versions": versions({*ALWAYS, *(r.package for r in new[1])}), "finished": list(finished)}
    merged = merge(old[1], [replace(r, run=len(old[0])) for r in new[1]], finished)
    used = sorted({r.run for r in merged})
    save(path, size, [[*old[0], run][i] for i in used], [replace(r, run=used.index(r.run)) for r in merged])


def stored() -> list[Result]:
    """What there is, small first."""
    found = [Result(size, *load(RESULTS / f"{size}.json")) for size in SIZES]
    return [result for result in found if result.records]


def reasons() -> Reasons:
    return tomllib.loads(REASONS.read_text(encoding="utf8"))


def write_page() -> None:
    """The page of everything that is stored."""
    write_atomically(PAGE, page(stored(), reasons(), questions_of(FOLDER, benchmarks())))
    say(f"wrote {PAGE.relative_to(FOLDER.parent)}")


def check(size: str, factor: float) -> int:
    """Say what got worse; 1 if anything did."""
    _, found = load(RESULTS / f"{size}.json")
    changes = worse(read(RATIOS, size), found, factor)
    say(report(changes, factor))
    for stem in unexplained(found, reasons()):
        say(f"{stem} is behind a peer; write why in {REASONS.name}")
    return int(bool(changes))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """What the words ask for; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", nargs="+", choices=benchmarks(), metavar="FILE", help="names without .py")
    parser.add_argument("--resume", action="store_true", help="leave out files finished at this revision")
    parser.add_argument("--cold", action="store_true", help="empty Numba cache in every process")
    parser.add_argument("--check", action="store_true", help="compare stored results with accepted ratios only")
    parser.add_argument("--page", action="store_true", help="write the page from stored results only")
    parser.add_argument("--accept", action="store_true", help="keep the ratios of the stored results")
    parser.add_argument("--factor", type=float, default=FACTOR, help="how much a ratio may grow")
    options = parser.parse_args(words)
    if not (options.check or options.page):
        measure(options.size, options.only or benchmarks(), options.cold, options.resume)
    if not options.check:
        write_page()
    if options.page:
        return 0
    code = check(options.size, options.factor)
    if options.accept:
        accept(RATIOS, options.size, load(RESULTS / f"{options.size}.json")[1])
        return 0
    return code


if __name__ == "__main__":
    # ended from outside, it ends the process that measures too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())

"""What latlin does with its time, workload by workload: samples of every method, summed up in words on one page.

    python benchmarks/profiles.py [--only FILE …] [--again] [--stacks FOLDER] [--page]

Every method of latlin in every benchmark (small size) runs on one thread, a process a file, once to load compiled code
and then under `_sampler.Sampler` for a second of processor time; long ones run once. Shares hold on a busy machine too,
since processor time is counted. Results stay in `results/profiles.json`; what is there is not run again without
`--again`. `--stacks` also writes folded stacks, which programs that draw flame graphs read. Where products of matrices
or memory bandwidth are the limit, the page says which fraction of this machine's rate was reached.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _limits import copy_rate, product_rate
from _machine import THREADS, machine
from _page import described
from _record import write_atomically
from _sampler import GROUPS, Place, Sampler
from _suite import FOLDER, benchmarks
from _table import table
from _task import Task, Trial

KEPT = FOLDER / "results" / "profiles.json"
PAGE = FOLDER.parent / "docs" / "developer" / "profiles.md"
#: processor seconds to sample, and the most that a first call may take before it is the one that is sampled
ENOUGH, LONG = 1.0, 4.0
#: places kept of a method, and shown of a workload
KEEP, SHOW = 12, 5
Profile = dict[str, Any]


def profile(task: Task, stacks: Path | None = None) -> Profile:
    """Processor seconds of a call, shares by group, and the places with most of it."""
    trial = task.prepare()
    sampler, seconds, calls, result = sampled(trial)
    if seconds <= LONG:
        sampler, seconds, calls, result = sampled(trial, ENOUGH)
    found = sampler.places()
    if stacks is not None:
        stacks.write_text("\n".join(sampler.stacks()) + "\n", encoding="utf8")
    total = sum(found.values()) or 1.0
    groups: Counter[str] = Counter()
    for place, amount in found.items():
        groups[place.group] += amount / total
    return {
        "seconds": seconds / calls,
        "groups": {name: round(share, 4) for name, share in groups.most_common()},
        "places": [[*place, round(amount / total, 4)] for place, amount in found.most_common(KEEP)],
        "limits": limits(trial, result, seconds / calls),
    }


def sampled(trial: Trial, enough: float = 0.0) -> tuple[Sampler, float, int, Any]:
    """A sampler that has seen calls of the action, once or for so many processor seconds; seconds, calls, a result."""
    calls, began = 0, time.process_time()
    with Sampler() as sampler:
        while calls == 0 or time.process_time() - began < enough:
            result = trial.action()
            calls += 1
    return sampler, time.process_time() - began, calls, result


def limits(trial: Trial, result: Any, seconds: float) -> dict[str, float]:
    """Fractions of this machine's rates that a call reached, by processor time on one thread."""
    found = {}
    if trial.flops:
        found["dgemm"] = trial.flops(result) / seconds / product_rate(time.process_time)
    if trial.moved:
        found["copy"] = trial.moved(result) / seconds / copy_rate(time.process_time)
    return found


def run_file(stem: str, known: Sequence[str], stacks: str) -> None:
    """Names of a file's tasks, then their profiles without those that are known: lines of JSON."""
    warnings.simplefilter("ignore")
    tasks = {f"{task.case}: {task.method}": task for task in listed(stem)}
    show([*tasks])
    for number, (key, task) in enumerate(tasks.items()):
        if key not in known:
            folder = Path(stacks) / f"{stem}-{number}.folded" if stacks else None
            show({"key": key, **answer(task, folder)})
    os._exit(0)


def show(found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def answer(task: Task, stacks: Path | None) -> Profile:
    """The profile with its names, or why there is none."""
    names = {"case": task.case, "method": task.method}
    try:
        return names | profile(task, stacks)
    except Exception as error:
        return names | {"failed": f"{type(error).__name__}: {error}"[:200]}


def listed(stem: str) -> list[Task]:
    """latlin's own methods; what runs in other processes cannot be seen from this one."""
    tasks: list[Task] = importlib.import_module(stem).tasks("small")
    return [task for task in tasks if task.package == "latlin" and "process" not in task.method]


def measure(stems: Sequence[str], again: bool, stacks: str) -> None:
    """Profile what is not kept yet, writing after every method."""
    kept = load()
    for stem in stems:
        found = {p["key"]: p for p in kept["profiles"].get(stem, []) if "failed" not in p and not again}
        keys: list[str] = []
        for one in ask(stem, [*found], stacks):
            if isinstance(one, list):
                keys = one
                continue
            found[one["key"]] = one
            kept["profiles"][stem] = [found[key] for key in keys if key in found]
            kept["run"] = machine("warm") | {"threads": {THREADS[0]: "1"}}
            write_atomically(KEPT, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
            sys.stdout.write(f"{stem}: {one['key']}: {one.get('failed') or one['places'][0]}\n")
            sys.stdout.flush()


def ask(stem: str, known: Sequence[str], stacks: str) -> Iterator[Any]:
    """What a process of its own says, on one thread."""
    command = [sys.executable, __file__, "--task", stem, *known, "--stacks", stacks]
    environment = dict(os.environ) | dict.fromkeys(THREADS, "1")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line[:1] in "[{":
                    yield json.loads(line)
        finally:
            process.terminate()


def load() -> dict[str, Any]:
    return json.loads(KEPT.read_text(encoding="utf8")) if KEPT.exists() else {"run": None, "profiles": {}}


def page(kept: Mapping[str, Any], words: Mapping[str, Mapping[str, Any]]) -> str:
    """The summary: groups and limits of all workloads, then methods and places of each."""
    profiles = {stem: good for stem, some in sorted(kept["profiles"].items()) if (good := able(some))}
    head = f"{HEAD}\n\n{kept['run']['date']}: {described(kept['run'])}" if kept["run"] else HEAD
    parts = [head, "## All workloads", overview(profiles, words), fractions(profiles, words)]
    for stem, some in profiles.items():
        reason = words.get(stem, {})
        remark = reason.get("profile", "").strip()
        parts += [f"## {reason.get('title', stem)}", methods(some), places(some), *([remark] if remark else [])]
    return "\n\n".join(part for part in parts if part) + "\n"


def able(some: Sequence[Profile]) -> list[Profile]:
    return [p for p in some if "failed" not in p]


def mean_groups(some: Sequence[Profile]) -> dict[str, float]:
    """Shares by group, every method counting alike."""
    return {g: sum(p["groups"].get(g, 0.0) for p in some) / len(some) for g in GROUPS}


def overview(profiles: Mapping[str, Sequence[Profile]], words: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per workload and one column per group, in per cent."""
    shares = {stem: mean_groups(some) for stem, some in profiles.items()}
    used = [g for g in GROUPS if any(share[g] >= 0.01 for share in shares.values())]
    rows = [[words.get(stem, {}).get("title", stem), *(cent(share[g]) for g in used)] for stem, share in shares.items()]
    return table(["share of processor time, %", *used], rows)


def fractions(profiles: Mapping[str, Sequence[Profile]], words: Mapping[str, Mapping[str, Any]]) -> str:
    """Where the machine is the limit: the fraction of its rate."""
    rows = [
        [words.get(stem, {}).get("title", stem), p["case"], p["method"], *rates(p["limits"])]
        for stem, some in profiles.items()
        for p in some
        if p["limits"]
    ]
    heads = ["workload", "case", "method", "of dgemm, %", "of a copy, %"]
    return f"{LIMITS}\n\n{table(heads, rows)}" if rows else ""


def rates(found: Mapping[str, float]) -> list[str]:
    return [f"{100.0 * found[name]:.0f}" if name in found else "" for name in ("dgemm", "copy")]


def methods(some: Sequence[Profile]) -> str:
    """One row per method and one column per group, those that are nowhere above two per cent left out."""
    used = [g for g in GROUPS if any(p["groups"].get(g, 0.0) >= 0.02 for p in some)]
    rows = [[p["case"], p["method"], *(cent(p["groups"].get(g, 0.0)) for g in used)] for p in some]
    return table(["case", "method", *used], rows)


def places(some: Sequence[Profile]) -> str:
    """The five places with most of the time, every method counting alike."""
    found: Counter[Place] = Counter()
    for p in some:
        for group, called, where, share in p["places"]:
            found[Place(group, called, where)] += share / len(some)
    lines = [f"{i}. {cent(share)} %: {said(place)}" for i, (place, share) in enumerate(found.most_common(SHOW), 1)]
    return "\n".join(lines)


def said(place: Place) -> str:
    what = f"`{place.called}` in " if place.called not in ("", "arithmetic", "indexing") else ""
    return f"{place.group}, {what}`{place.where}`"


def cent(share: float) -> str:
    return f"{100.0 * share:.0f}" if share >= 0.005 else ""


def write_page() -> None:
    words = tomllib.loads((FOLDER / "reasons.toml").read_text(encoding="utf8"))
    write_atomically(PAGE, page(load(), words))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=benchmarks(), metavar="FILE", help="names without .py")
    parser.add_argument("--again", action="store_true", help="also what is kept already")
    parser.add_argument("--stacks", type=str, default="", metavar="FOLDER", help="write folded stacks there")
    parser.add_argument("--page", action="store_true", help="only write the page of what is kept")
    parser.add_argument("--task", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.task:
        run_file(options.task[0], options.task[1:], options.stacks)
    if not options.page:
        measure(options.only or benchmarks(), options.again, options.stacks)
    write_page()


HEAD = """# Where the time goes

*Made by `benchmarks/profiles.py`; edit `benchmarks/reasons.toml`, not this page.*

Every method of latlin in the [benchmarks](../benchmarks.md), at the small size and on one thread, is sampled a thousand
times per second of processor time, after a first call that loads compiled code. A sample is the expression that runs,
so that calls into BLAS, LAPACK, NumPy and compiled kernels are told apart; this page is the summary of the flame graphs
(`--stacks` writes what draws them). *Array arithmetic* is NumPy on whole arrays, *special functions* are exponentials,
logarithms and the like on arrays, *copies* make or move arrays, *validation* checks arguments, *Python* is the rest:
calls, loops, small objects, and arrays so small that Python is most of their price."""

LIMITS = """Where the machine sets the limit, this is how much of it was reached on one thread: flops that the method
cannot do without (products of matrices and factorisations, counted by formulas in the benchmark) per second of
processor time, over the rate of a product of 1500 × 1500 matrices; for streams, bytes that must be read and written,
over the rate of a copy."""


if __name__ == "__main__":
    main()

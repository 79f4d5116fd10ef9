"""Logistic regression, full Gaussian KL, when the rows outgrow memory: N = 10⁵ … 10⁷, 100 single-precision features.

The same fit, by the same sums over blocks of rows (64 MiB each), with the rows in memory, in a memory-mapped file, read
by Dask's threads, and read by one and two worker processes of one thread each. A pass costs N·D² flops for variances
of projections and N·D² for the weighted Gram matrix; the yardstick is the machine's rate for products of matrices.
What is moved are the sums that leave a worker and the parameters that every pass sends.

    python benchmarks/scale.py --rows 100000 1000000
    python benchmarks/scale.py --rows 10000000 --data /folder/with/space
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from _limits import product_rate
from _record import write_atomically
from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin.distributed.blocks import BLOCK_BYTES, LocalBlocks
from latlin.distributed.clusters import WORKER_SETTINGS
from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows
from latlin.linear import BayesianLogisticRegression

COLUMNS = 100
ROWS = (100_000, 1_000_000)
PIECE = 100_000
#: rows of a block: 64 MiB of single-precision features
BLOCK = BLOCK_BYTES // (4 * COLUMNS)
WAYS = ("in memory", "memory-mapped", "Dask threads", "1 process", "2 processes")


def write_data(folder: Path, n: int) -> None:
    """Features and labels, a piece at a time, unless they are there."""
    done = folder / "rows.json"
    if done.exists() and json.loads(done.read_text()) == n:
        return
    rng = np.random.default_rng(0)
    w = rng.standard_normal(COLUMNS) / np.sqrt(COLUMNS)
    X = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (n, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int8, (n,))
    for start in range(0, n, PIECE):
        rows = rng.standard_normal((min(PIECE, n - start), COLUMNS), np.float32)
        X[start : start + PIECE] = rows
        y[start : start + PIECE] = rng.random(len(rows)) < 1.0 / (1.0 + np.exp(-(rows @ w.astype(np.float32))))
    X.flush(), y.flush()
    done.write_text(json.dumps(n))


class Counted:
    """Blocks that time the passes over them, and count the bytes of parameters that these send."""

    def __init__(self, blocks: Any) -> None:
        self.blocks, self.sent = blocks, 0
        self.times: list[float] = []

    @property
    def n_blocks(self) -> int:
        return self.blocks.n_blocks

    @property
    def n_columns(self) -> int:
        return self.blocks.n_columns

    def _pass(self, how: Callable[..., Any], *words: Any) -> Any:
        self.sent += len(pickle.dumps(words))
        start = time.perf_counter()
        found = how(*words)
        self.times.append(time.perf_counter() - start)
        return found

    def total(self, *words: Any) -> Any:
        return self._pass(self.blocks.total, *words)

    def each(self, *words: Any) -> Any:
        return self._pass(self.blocks.each, *words)

    def fold(self, function: Any, state: Any, *shared: Any, order: Any = None) -> Any:
        return self.blocks.fold(function, state, *shared, order=order)


@contextmanager
def opened(way: str, folder: Path) -> Iterator[tuple[Any, Any]]:
    """Blocks, and the client where there is one."""
    if way in ("in memory", "memory-mapped"):
        mode = None if way == "in memory" else "r"
        X, y = (np.load(folder / f"{name}.npy", mmap_mode=mode) for name in "xy")
        yield LocalBlocks.of(X, y, rows=BLOCK), None
        return
    X, y = (read_rows(folder / f"{name}.npy", rows=BLOCK).X for name in "xy")
    if way == "Dask threads":
        yield open_blocks(X, y), None
        return
    import dask

    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(WORKER_SETTINGS),
        LocalCluster(n_workers=int(way.split()[0]), processes=True, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield open_blocks(X, y, client=client), client


def fit(blocks: Any) -> dict[str, Any]:
    """A fit to its end: seconds, passes and the median of the last half, parameters sent, the bound."""
    counted, start = Counted(blocks), time.perf_counter()
    model = BayesianLogisticRegression(engine="gkl", prior_scale=1.0).fit(counted)
    took, count = time.perf_counter() - start, len(counted.times)
    each = float(np.median(counted.times[count // 2 :]))
    bound = float(model.log_evidence_)
    return {"seconds": took, "passes": count, "a pass": each, "sent": counted.sent, "bound": bound}


def left_workers(client: Any) -> int:
    """Bytes of sums that have left the workers so far."""
    return 0 if client is None else sum(client.run(_outgoing).values())


def _outgoing(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


class Peak:
    """The highest memory of its own that this process has while it lasts: pages of files are not counted."""

    def __enter__(self) -> Peak:
        self.highest, self._over = _own_memory(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.highest = max(self.highest, _own_memory())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _own_memory() -> float:
    """MiB of anonymous pages (Linux), else of the largest resident set so far."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker_peak(client: Any) -> float:
    """The largest resident set of a worker so far, in MiB."""
    return 0.0 if client is None else max(client.run(_resident).values())


def _resident() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cell(way: str, n: int, folder: Path) -> dict[str, Any]:
    """One line of the table: a fit, after everything has been read once."""
    with opened(way, folder) as (blocks, client):
        blocks.total(touch)
        before = left_workers(client)
        with Peak() as peak:
            found = fit(blocks)
        moved = found["sent"] + left_workers(client) - before
        memory = max(peak.highest, worker_peak(client))
    rate = 2.0 * n * COLUMNS**2 / found["a pass"]
    return found | {"way": way, "rows": n, "moved": moved / found["passes"], "rate": rate, "memory": memory}


def touch(block: Any) -> tuple[Any, ...]:
    """Reads a block once, one number per page."""
    return (float(block.X[:: 4096 // (4 * COLUMNS), 0].sum()),)


def overhead(processes: int = 2, blocks: tuple[int, int] = (16, 272)) -> tuple[float, float]:
    """Seconds that a pass costs beyond the work of its blocks, and seconds more for every block, on two processes."""
    import dask.array as da

    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    took = []
    with LocalCluster(n_workers=processes, **options) as cluster, Client(cluster, set_as_default=False) as client:
        for count in blocks:
            empty = open_blocks(da.zeros((count, 1), chunks=(1, 1)), client=client)
            took.append(seconds(lambda empty=empty: empty.total(nothing, np.zeros((COLUMNS, COLUMNS))), 3)[0])
    each = (took[1] - took[0]) / (blocks[1] - blocks[0])
    return took[0] - each * blocks[0], each


def nothing(block: Any, shared: np.ndarray) -> tuple[Any, ...]:
    """Sums of the size of a real pass, without its work."""
    return 0.0, shared[0], shared


def in_process(way: str, n: int, folder: Path) -> dict[str, Any]:
    """The line, from a process of its own."""
    command = [sys.executable, __file__, "--cell", way, "--rows", str(n), "--data", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(
        f"{n} rows, {way}: {found['seconds']:.3g} s in {found['passes']} passes, {found['a pass']:.3g} s each\n"
    )
    return found


def lines(cells: list[dict[str, Any]], machine: float) -> list[tuple[Any, ...]]:
    """Cells as lines, with throughput over that in memory, and efficiency over one process."""
    found = []
    for c in cells:
        base = {k["way"]: k["a pass"] for k in cells if k["rows"] == c["rows"]}
        share = base.get("in memory", np.nan) / c["a pass"]
        efficiency = base["1 process"] / c["a pass"] / 2.0 if c["way"] == "2 processes" and "1 process" in base else "–"
        speed = (c["seconds"], c["passes"], c["a pass"], f"{share:.2f}", efficiency, f"{c['rate'] / machine:.2f}")
        rest = (f"{c['moved'] / 1e6:.2f}", f"{c['memory']:.0f}", f"{c['bound']:.4f}")
        found.append((f"{c['rows']:.0e}", c["way"], *speed, *rest))
    return found


HEADINGS = (
    "rows",
    "where",
    "seconds",
    "passes",
    "s per pass",
    "throughput ÷ in memory",
    "efficiency of 2",
    "share of dgemm",
    "MB moved per pass",
    "peak MiB",
    "bound",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--data", type=Path, help="folder for the rows, which stay there; a temporary one unless told")
    parser.add_argument("--overhead", action="store_true", help="also measure what Dask costs per pass and a block")
    parser.add_argument("--write", type=Path, help="also write the tables into this page, between its marks")
    parser.add_argument("--cell", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(cell(options.cell, options.rows[0], options.data)))
        return
    machine = product_rate()
    print(environment("numba", "dask"), f"{machine / 1e9:.0f} Gflop/s (dgemm)\n", sep=", ")
    cells = []
    for n in options.rows:
        with folder_for(n, options.data) as folder:
            cells += [in_process(way, n, folder) for way in options.ways]
    said = table(HEADINGS, lines(cells, machine))
    if options.overhead:
        pass_, block = overhead()
        said += f"\n\nDask, two processes: {1e3 * pass_:.3g} ms per pass and {1e3 * block:.3g} ms per block."
        said += predicted(cells, pass_, block)
    print(said)
    if options.write:
        write_page(options.write, f"{environment('numba', 'dask')}, {machine / 1e9:.0f} Gflop/s (dgemm).\n\n{said}")


def predicted(cells: list[dict[str, Any]], pass_: float, block: float) -> str:
    """What the model of cost says of the runs on processes, from one process and the middle number of rows."""
    workers = {"1 process": 1, "2 processes": 2}
    known = [c for c in cells if c["way"] in workers]
    if not known:
        return ""
    middle = sorted({c["rows"] for c in known})[len({c["rows"] for c in known}) // 2]
    first = min((c for c in known if c["rows"] == middle), key=lambda c: workers[c["way"]])
    row = (first["a pass"] - pass_ - block * -(-first["rows"] // BLOCK)) * workers[first["way"]] / first["rows"]
    told = [
        (
            f"{c['rows']:.0e}",
            c["way"],
            c["a pass"],
            row * c["rows"] / workers[c["way"]] + pass_ + block * -(-c["rows"] // BLOCK),
        )
        for c in known
    ]
    return "\n\n" + table(("rows", "where", "s per pass", "model"), told)


def write_page(page: Path, said: str) -> None:
    """Put the tables between the marks of the page."""
    before, _, rest = page.read_text(encoding="utf8").partition("<!-- measured -->\n")
    _, mark, after = rest.partition("<!-- end of measured -->")
    write_atomically(page, f"{before}<!-- measured -->\n{said}\n{mark}{after}")


@contextmanager
def folder_for(n: int, data: Path | None) -> Iterator[Path]:
    """Where the rows are, written if they are not yet."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if data is None else data / f"{n}"
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder, n)
        yield folder


def trial(n: int, way: str) -> Trial:
    """The fit of one way; what it opened stays open as long as the process."""
    stay = [folder_for(n, Path(os.environ["LATLIN_SCALE_DATA"]) if "LATLIN_SCALE_DATA" in os.environ else None)]
    stay.append(opened(way, stay[0].__enter__()))
    blocks, client = stay[1].__enter__()
    before = left_workers(client)

    def judge(found: dict[str, Any]) -> dict[str, float | str]:
        moved = found["sent"] + (left_workers(client) - before) / max(len(calls), 1)
        for manager in reversed(stay):
            manager.__exit__(None, None, None)
        rate = 2.0 * n * COLUMNS**2 / found["a pass"]
        return {
            "bound": found["bound"],
            "passes": str(found["passes"]),
            "Gflop/s": rate / 1e9,
            "share of dgemm": rate / product_rate(),
            "MB moved per pass": moved / found["passes"] / 1e6,
        }

    calls: list[dict[str, Any]] = []

    def action() -> dict[str, Any]:
        calls.append(fit(blocks))
        return calls[-1]

    return Trial(action, judge, cost=lambda found: found["a pass"])


def tasks(size: str) -> list[Task]:
    """Out of core against rows in memory, and two processes against one."""
    found = []
    for n in {"small": (4 * BLOCK,), "full": (100_000, 1_000_000, 10_000_000)}[size]:
        case = f"out of core, {n} × {COLUMNS}"
        for way in ("memory-mapped", "Dask threads", "in memory"):
            found.append(task(case, way, n, "in memory"))
        case = f"processes of one thread, {n} × {COLUMNS}"
        for way in ("2 processes", "1 process"):
            found.append(task(case, way, n, "1 process"))
    return found


def task(case: str, way: str, n: int, yardstick: str) -> Task:
    """What is compared is per pass over the rows."""
    role = "yardstick" if way == yardstick else "latlin"
    return Task(case, f"latlin, {way}", partial(trial, n, way), role=role, unit="s per pass")


if __name__ == "__main__":
    run_alone(__file__, main)

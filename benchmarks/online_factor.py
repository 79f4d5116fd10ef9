"""One online EM update of a float32 stream against memory bandwidth: d = 10⁵ … 10⁷, K = 10, and peak memory.

The yardstick reads and writes the bytes of an update and computes next to nothing: one pass that reads loadings and
vectors (the E-step must see them before it knows the latents), one that reads and writes them.
Run: python benchmarks/online_factor.py [--largest 10000000] [--factors 10] [--repeats 7]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit, prange

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin.factor.analysis.stream import FactorStream

WIDTH = 4096


@njit(parallel=True, fastmath=True)
def touch(loadings, vectors, row, scale):  # type: ignore[no-untyped-def]
    """Read everything; then read, scale and write it."""
    rank, dim = loadings.shape
    total = np.zeros((dim + WIDTH - 1) // WIDTH)
    for c in prange(total.size):
        lo, hi = c * WIDTH, min((c + 1) * WIDTH, dim)
        mean, noise, x = vectors[0, lo:hi], vectors[1, lo:hi], row[lo:hi]
        found = 0.0
        for j in range(hi - lo):
            found += mean[j] + noise[j] + x[j]
        for k in range(rank):
            f = loadings[k, lo:hi]
            for j in range(hi - lo):
                found += f[j]
        total[c] = found
    for c in prange(total.size):
        lo, hi = c * WIDTH, min((c + 1) * WIDTH, dim)
        mean, noise, x = vectors[0, lo:hi], vectors[1, lo:hi], row[lo:hi]
        for j in range(hi - lo):
            mean[j] = scale * mean[j] + x[j]
            noise[j] = scale * noise[j]
        for k in range(rank):
            f = loadings[k, lo:hi]
            for j in range(hi - lo):
                f[j] = scale * f[j]
    return total.sum()


def stream_of(dim: int, rank: int) -> tuple[FactorStream, np.random.Generator]:
    """A stream past its warm-up."""
    rng = np.random.default_rng(0)
    stream = FactorStream(dim, rank, dtype=np.float32)
    for _ in range(stream.warm_up):
        stream.update(rng.standard_normal(dim, dtype=np.float32))
    return stream, rng


def peak(dim: int, rank: int) -> float:
    """Peak memory of a child that starts a stream and updates it three times, less that of one with d = 1000."""
    sizes = []
    for d in (1000, dim):
        call = [sys.executable, __file__, "--child", str(d), "--factors", str(rank)]
        sizes.append(float(subprocess.run(call, capture_output=True, text=True, check=True).stdout))
    return sizes[1] - sizes[0]


def child(dim: int, rank: int) -> None:
    stream, rng = stream_of(dim, rank)
    for _ in range(3):
        stream.update(rng.standard_normal(dim, dtype=np.float32))
    status = Path("/proc/self/status").read_text(encoding="utf8")
    sys.stdout.write(str(1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])))


def measure(dim: int, rank: int, repeats: int) -> list[object]:
    stream, rng = stream_of(dim, rank)
    row = rng.standard_normal(dim, dtype=np.float32)
    update, _ = seconds(lambda: stream.update(row), repeats)
    state = stream.state
    vectors = np.stack([state.mean, state.noise])
    yardstick, _ = seconds(lambda: touch(state.loadings, vectors, row, np.float32(1.0)), repeats)
    moved = bytes_of(dim, rank) / 1e9
    return [f"{dim:.0e}", update, yardstick, update / yardstick, moved / yardstick]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--factors", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--child", type=int, default=0)
    arguments = parser.parse_args()
    rank = arguments.factors
    if arguments.child:
        child(arguments.child, rank)
        return
    sizes = [d for d in (100_000, 1_000_000, 10_000_000) if d <= arguments.largest]
    rows = [measure(d, rank, arguments.repeats) for d in sizes]
    sys.stdout.write(f"{environment('numba')}\nK = {rank}, float32, best of {arguments.repeats}\n\n")
    columns = ["d", "seconds per observation", "yardstick", "ratio", "yardstick GB/s"]
    sys.stdout.write(table(columns, rows) + "\n\n")
    largest = sizes[-1]
    used = peak(largest, rank)
    copies = used / (4 * largest)
    text = f"peak memory at d = {largest:.0e}, warm-up included: {used / 1e9:.3f} GB"
    sys.stdout.write(f"{text} = {copies:.1f} vectors = {copies / rank:.2f} d·K·4 bytes\n")


def tasks(size: str) -> list[Task]:
    """One update of a float32 stream past its warm-up, over a pass that moves the same bytes."""
    found = []
    for dim in {"small": [100_000, 1_000_000], "full": [10_000_000]}[size]:
        case = f"d = {dim:,}, K = 10"
        found.append(Task(case, "latlin, one update", partial(update_trial, dim, 10)))
        found.append(Task(case, "a pass over the same bytes", partial(pass_trial, dim, 10), "numba", "yardstick"))
    return found


def update_trial(dim: int, rank: int) -> Trial:
    stream, rng = stream_of(dim, rank)
    row = rng.standard_normal(dim, dtype=np.float32)
    return Trial(lambda: stream.update(row), moved=lambda _: bytes_of(dim, rank))


def bytes_of(dim: int, rank: int) -> float:
    """Loadings and vectors read by one pass, read and written by another, in single precision."""
    return 4.0 * dim * (3 * rank + 8)


def pass_trial(dim: int, rank: int) -> Trial:
    loadings, vectors = np.ones((rank, dim), np.float32), np.ones((2, dim), np.float32)
    row, moved = np.ones(dim, np.float32), bytes_of(dim, rank) / 1e9
    touch(loadings, vectors, row, np.float32(1.0))

    def judge(_: float) -> dict[str, float | str]:
        return {"GB/s": moved / seconds(lambda: touch(loadings, vectors, row, np.float32(1.0)), 5)[0]}

    return Trial(lambda: touch(loadings, vectors, row, np.float32(1.0)), judge)


if __name__ == "__main__":
    run_alone(__file__, main)

"""A small fit by sums over blocks whose process can be made to die in the middle of it; run as a script, it does.

python mortal_fit.py fit FOLDER: fits the rows in FOLDER on threads, with a checkpoint at every step, and dies once.
python mortal_fit.py serve: a scheduler and a worker in one process; prints its address.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows
from latlin.numerics.ascent import Checkpoint, Measure, Rules, ascend

STEPS = 8


class Point(NamedTuple):
    w: np.ndarray
    step: int


class Trap(NamedTuple):
    """Dies in this step at this block; only once if there is a file to remember it by."""

    step: int = 4
    block: int = 2
    memory: Path | None = None

    def spring(self, step, block):
        if (step, block) != (self.step, self.block):
            return
        if self.memory is not None and self.memory.exists():
            return
        if self.memory is not None:
            self.memory.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(NamedTuple):
    """Changes nothing, but dies when it comes to the second block for the fifth time; a file counts the visits."""

    visits: Path

    def __call__(self, block):
        if block.number == 1:
            with open(self.visits, "ab") as file:
                file.write(b".")
            if self.visits.stat().st_size == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        return block


def sums(block, point, trap):
    if trap is not None:
        trap.spring(point.step, block.number)
    p = 1.0 / (1.0 + np.exp(-block.X @ point.w))
    value = np.sum(block.y * np.log(p) + (1.0 - block.y) * np.log1p(-p))
    return value, block.X.T @ (block.y - p), (block.X.T * (p * (1.0 - p))) @ block.X


def fit(blocks, trap=None, checkpoint=None):
    """Cautious Newton steps of a logistic regression: slow enough to be interrupted."""

    def step(point):
        value, gradient, curvature = blocks.total(sums, point, trap)
        w = point.w + 0.5 * np.linalg.solve(curvature + np.eye(len(point.w)), gradient - point.w)
        return Point(w, point.step + 1), Measure(value, float(np.abs(gradient).max()))

    keep = None if checkpoint is None else Checkpoint(checkpoint, "mortal fit", every=0.0)
    start = Point(np.zeros(blocks.n_columns), 0)
    return ascend(step, start, Rules(max_iter=STEPS), checkpoint=keep, warn=False).state.w


def write_rows(folder):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", (rng.random(400) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(float))


def read_blocks(folder, client=None):
    return open_blocks(read_rows(folder / "x.npy", rows=60).X, read_rows(folder / "y.npy", rows=60).X, client=client)


def serve():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, processes=False, threads_per_worker=1, host="tcp://127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(300.0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        folder = Path(sys.argv[2])
        fit(read_blocks(folder), Trap(), folder / "checkpoint.npz")

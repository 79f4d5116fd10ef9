"""A soak: processes, threads and a cluster fit, save, load and predict at the same time while processes are killed.

    python tools/soak.py                        ten minutes with 8 processes and 8 threads, on Dask and locally
    python tools/soak.py --seconds 20 --processes 2 --threads 2 --no-cluster

Every number is held against the answer of this process alone, which is found first. Failures are another number, an
error other than a cluster's sentence, and something that takes longer than `--patience` seconds. It ends by itself and
says how much was done.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, linear, potentials
from latlin.factor import FactorAnalysis
from latlin.gp import GaussianProcessRegressor
from latlin.mixture import BayesianGaussianMixture

Array = np.ndarray
RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 5))
Y = X @ [1.0, -1.0, 0.5, 0.0, 2.0] + 0.3 * RNG.standard_normal(240)
#: agreement with the answer of one process; sums in other orders differ in their last digits
CLOSE: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-9}
SPAWN = multiprocessing.get_context("spawn")


def _posterior(folder: Path) -> Array:
    model = LatentLinearModel([GaussianFactor(dim=5), SiteFactor(X, potentials.Logit(Y > 0))])
    infer(model, "gkl").save(folder / "posterior")
    return latlin.load(folder / "posterior").project(X[:7]).mean


def _regression(folder: Path) -> Array:
    linear.BayesianLinearRegression().fit(X, Y).save(folder / "regression")
    return latlin.load(folder / "regression").predict(X[:7])


def _classes(folder: Path) -> Array:
    linear.BayesianLogisticRegression().fit(X, Y > 0).save(folder / "classes")
    return latlin.load(folder / "classes").predict_proba(X[:7])


def _process(folder: Path) -> Array:
    GaussianProcessRegressor(max_iter=5).fit(X[:60], Y[:60]).save(folder / "process")
    return latlin.load(folder / "process").predict(X[:7])


def _factors(folder: Path) -> Array:
    FactorAnalysis(1).fit(X).save(folder / "factors")
    return latlin.load(folder / "factors").score_samples(X[:7])


def _mixture(folder: Path) -> Array:
    BayesianGaussianMixture(2, random_state=0).fit(X).save(folder / "mixture")
    return latlin.load(folder / "mixture").score_samples(X[:7])


TASKS: dict[str, Callable[[Path], Array]] = {
    "posterior": _posterior,
    "regression": _regression,
    "classes": _classes,
    "process": _process,
    "factors": _factors,
    "mixture": _mixture,
}
#: fits of rows in blocks, which a cluster may hold
BLOCK_FITS: dict[str, Callable[[Any], Any]] = {
    "classes": lambda rows: linear.BayesianLogisticRegression(prior_scale=1.0).fit(rows),
    "regression": lambda rows: linear.BayesianLinearRegression(prior_scale=1.0, noise_scale=0.3).fit(rows),
    "counts": lambda rows: linear.BayesianPoissonRegression(prior_scale=1.0, engine="laplace").fit(rows),
}
TARGETS = {"classes": (Y > 0).astype(float), "regression": Y, "counts": np.round(np.exp(0.3 * Y))}
Report = tuple[str, str]


def fit_blocks(name: str, client: Any, folder: Path) -> Array:
    """What a fit of blocks predicts after it was saved and loaded; without a client the blocks are here."""
    import dask.array as da

    from latlin.distributed.opening import open_blocks

    rows, y = (X, TARGETS[name]) if client is None else (da.from_array(X, (60, 5)), da.from_array(TARGETS[name], 60))
    opened = open_blocks(rows, y) if client is None else open_blocks(rows, y, client=client)
    BLOCK_FITS[name](opened).save(folder / name)
    return latlin.load(folder / name).predict(X[:7])


def attempt(
    name: str, task: Callable[[Path], Array], right: Array, folder: Path, allowed: tuple[type[Exception], ...] = ()
) -> Report:
    """One task, and what came of it: its name and "right", or what is wrong."""
    try:
        found = task(folder)
    except allowed:
        return name, "a sentence"
    except Exception as error:
        return name, f"{type(error).__name__}: {error}"
    same = np.allclose(found, right, **CLOSE)
    return name, "right" if same else f"another number, by {np.abs(np.subtract(found, right)).max():.3g}"


def work(place: str, right: dict[str, Array], seed: int, until: float, said: Any) -> None:
    """Tasks in random order until the time is over, and at least one."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            name = str(rng.choice(list(TASKS)))
            said.put((place, *attempt(name, TASKS[name], right[name], Path(folder))))
            if time.time() >= until:
                return


def work_on_cluster(right: dict[str, Array], seconds: float, ready: Any, said: Any, patience: float) -> None:
    """Fits on a cluster of this machine until the time is over; before every third a worker is told to die soon."""
    import distributed

    warnings.simplefilter("ignore")
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0, "threads_per_worker": 1}
    rng, took = np.random.default_rng(3), 1.0
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed.LocalCluster(n_workers=3, processes=True, silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        said.put(("cluster", *attempt_on_cluster("classes", client, right, Path(folder))))  # imports on every worker
        ready.set()
        until, count = time.time() + seconds, 0
        while time.time() < until:
            name, started, count = str(rng.choice(list(BLOCK_FITS))), time.time(), count + 1
            killer = threading.Timer(float(rng.uniform(0.0, took)), _kill_worker, (cluster, rng, said))
            if count % 3 == 0:
                killer.start()
            said.put(("cluster", *attempt_on_cluster(name, client, right, Path(folder))))
            took = min(time.time() - started, 5.0)
            if count % 3 == 0:
                killer.join()
            client.wait_for_workers(1, timeout=patience)


def attempt_on_cluster(name: str, client: Any, right: dict[str, Array], folder: Path) -> Report:
    """One fit, and what came of it; a cluster may give up in words."""
    from latlin.distributed.clusters import ClusterError

    return attempt(name, lambda place: fit_blocks(name, client, place), right[name], folder, (ClusterError,))


def _kill_worker(cluster: Any, rng: np.random.Generator, said: Any) -> None:
    """Kill one of the cluster's workers; its nanny starts another."""
    # a worker that dies while it starts is not replaced: one stays, as a pass waits where there is none
    pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid and nanny.status.name == "running"]
    if len(pids) > 1:
        os.kill(int(rng.choice(pids)), signal.SIGKILL)
        said.put(("cluster", "worker", "killed"))


class Processes:
    """So many processes at work; one is killed and replaced now and then."""

    def __init__(self, count: int, right: dict[str, Array], until: float, said: Any) -> None:
        self._right, self._until, self._said, self._started = right, until, said, 0
        self._alive = [self._start() for _ in range(count)]

    def _start(self) -> Any:
        self._started += 1
        made = SPAWN.Process(target=work, args=("process", self._right, self._started, self._until, self._said))
        made.start()
        return made

    def kill_one(self, rng: np.random.Generator) -> None:
        """SIGKILL to a process of ours, and another in its place."""
        place = int(rng.integers(len(self._alive)))
        self._alive[place].kill()
        self._alive[place].join()
        self._alive[place] = self._start()

    def end(self, patience: float) -> list[str]:
        """Wait; what did not end."""
        for process in self._alive:
            process.join(patience)
        late = [process for process in self._alive if process.is_alive()]
        for process in late:
            process.kill()
        return [f"a process did not end within {patience:g} s" for _ in late]


#: reports of what is allowed
ALLOWED = ("right", "a sentence", "killed")


def soak(options: argparse.Namespace) -> tuple[Counter[str], list[str]]:
    """What was done, and what was wrong."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        right = {name: task(Path(folder)) for name, task in TASKS.items()}
        alone = {name: fit_blocks(name, None, Path(folder)) for name in BLOCK_FITS}
    # a queue of a killed process may stay locked: each kind of worker has its own
    near: queue.Queue[Any] = queue.Queue()
    with SPAWN.Manager() as manager:
        far, clustered, ready = manager.Queue(), manager.Queue(), manager.Event()
        beside = SPAWN.Process(
            target=work_on_cluster, args=(alone, options.seconds, ready, clustered, options.patience)
        )
        if options.cluster:
            beside.start()
            if not ready.wait(options.patience):
                beside.kill()
                return Counter(), ["the cluster did not answer a first fit"]
        wrong = _work_side_by_side(options, right, near, far)
        if options.cluster:
            beside.join(options.patience)
            wrong += ["the cluster did not end"] * beside.is_alive()
            if beside.is_alive():
                beside.kill()
        reports = [*_emptied(near), *_emptied(far), *_emptied(clustered)]
    done = Counter(" ".join(report) for report in reports if report[2] in ALLOWED)
    return done, wrong + [" ".join(report) for report in reports if report[2] not in ALLOWED]


def _work_side_by_side(options: argparse.Namespace, right: dict[str, Array], near: Any, far: Any) -> list[str]:
    """Threads here and processes beside, of which one is killed now and then; what did not end."""
    rng, until = np.random.default_rng(1), time.time() + options.seconds
    processes = Processes(options.processes, right, until, far)
    threads = [
        threading.Thread(target=work, args=("thread", right, 100 + k, until, near), daemon=True)
        for k in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    while time.time() < until:
        time.sleep(min(options.kill_every, max(until - time.time(), 0.0)))
        if options.processes and time.time() < until:
            processes.kill_one(rng)
            near.put(("process", "worker", "killed"))
    late = processes.end(options.patience)
    for thread in threads:
        thread.join(options.patience)
        late += ["a thread did not end"] * thread.is_alive()
    return late


def _emptied(said: Any) -> list[tuple[str, str, str]]:
    found = []
    while True:
        try:
            found.append(said.get_nowait())
        except queue.Empty:
            return found


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fit, save, load and predict at the same time while workers die.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=10.0, help="seconds between two kills of a process")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds that one task may take at most")
    parser.add_argument("--no-cluster", dest="cluster", action="store_false")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    started = time.perf_counter()
    done, wrong = soak(arguments(words))
    for what, count in sorted(done.items()):
        print(f"{count:6d} {what}")
    print("\n".join(wrong[:50]))
    print(f"{sum(done.values())} done, {len(wrong)} wrong, {time.perf_counter() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

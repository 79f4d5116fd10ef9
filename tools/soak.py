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


def _blocks(folder: Path) -> Array:
    from latlin.distributed.opening import open_blocks

    rows = linear.BayesianLogisticRegression(prior_scale=1.0).fit(open_blocks(X, (Y > 0).astype(float)))
    rows.save(folder / "blocks")
    return latlin.load(folder / "blocks").predict_proba(X[:7])


TASKS: dict[str, Callable[[Path], Array]] = {
    "posterior": _posterior,
    "regression": _regression,
    "classes": _classes,
    "process": _process,
    "factors": _factors,
    "mixture": _mixture,
}
Report = tuple[str, str]


def attempt(name: str, task: Callable[[Path], Array], right: Array, folder: Path) -> Report:
    """One task, and what came of it: its place and "right", or what is wrong."""
    try:
        found = task(folder)
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


def work_on_cluster(right: Array, until: float, said: Any, patience: float) -> None:
    """Fits on a cluster of this machine, whose workers are killed now and then."""
    import dask.array as da

    import distributed
    from latlin.distributed.clusters import ClusterError
    from latlin.distributed.opening import open_blocks

    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0, "threads_per_worker": 1}
    rng = np.random.default_rng(3)
    with (
        distributed.LocalCluster(n_workers=2, processes=True, silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        while time.time() < until:
            killer = threading.Timer(float(rng.uniform(0.1, 2.0)), _kill_worker, (client, rng))
            killer.start()
            rows = open_blocks(
                da.from_array(X, chunks=(60, 5)), da.from_array((Y > 0).astype(float), chunks=60), client=client
            )
            try:
                found = linear.BayesianLogisticRegression(prior_scale=1.0).fit(rows).predict_proba(X[:7])
                came = "right" if np.allclose(found, right, **CLOSE) else "another number"
            except ClusterError:
                came = "a sentence"
            except Exception as error:
                came = f"{type(error).__name__}: {error}"
            killer.join()
            said.put(("cluster", "blocks", came))
            client.wait_for_workers(1, timeout=patience)


def _kill_worker(client: Any, rng: np.random.Generator) -> None:
    """Kill one of the cluster's workers; its nanny starts another."""
    pids = list(client.run(os.getpid).values())
    if pids:
        os.kill(int(rng.choice(pids)), signal.SIGKILL)


class Processes:
    """So many processes at work; one is killed and replaced now and then."""

    def __init__(self, count: int, right: dict[str, Array], until: float, said: Any) -> None:
        self._right, self._until, self._said, self._started = right, until, said, 0
        self.killed = 0
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
        self.killed += 1
        self._alive[place] = self._start()

    def end(self, patience: float) -> list[str]:
        """Wait; what did not end."""
        for process in self._alive:
            process.join(patience)
        late = [process for process in self._alive if process.is_alive()]
        for process in late:
            process.kill()
        return [f"a process did not end within {patience:g} s" for _ in late]


def soak(options: argparse.Namespace) -> tuple[Counter[str], list[str]]:
    """What was done, and what was wrong."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        right = {name: task(Path(folder)) for name, task in TASKS.items()}
        alone = _blocks(Path(folder))
    rng = np.random.default_rng(1)
    # a queue of a killed process may stay locked: each kind of worker has its own
    near: queue.Queue[Any] = queue.Queue()
    with SPAWN.Manager() as manager:
        far, until = manager.Queue(), time.time() + options.seconds
        processes = Processes(options.processes, right, until, far)
        threads = [
            threading.Thread(target=work, args=("thread", right, 100 + k, until, near), daemon=True)
            for k in range(options.threads)
        ]
        if options.cluster:
            beside = (alone, until, near, options.patience)
            threads.append(threading.Thread(target=work_on_cluster, args=beside, daemon=True))
        for thread in threads:
            thread.start()
        while time.time() < until:
            time.sleep(min(options.kill_every, max(until - time.time(), 0.0)))
            if options.processes and time.time() < until:
                processes.kill_one(rng)
        wrong = processes.end(options.patience)
        for thread in threads:
            thread.join(options.patience)
            wrong += ["a thread did not end"] * thread.is_alive()
        reports = [*_emptied(near), *_emptied(far)]
    done = Counter(f"{place} {name} {came}" for place, name, came in reports if came in ("right", "a sentence"))
    done["processes killed"] = processes.killed
    return done, wrong + [" ".join(report) for report in reports if report[2] not in ("right", "a sentence")]


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

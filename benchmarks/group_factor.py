"""Group factor analysis: N = 1000, four views of 250, K = 20, against mofapy2 where it is installed.

Factors act in random subsets of the views. Seconds an iteration and to convergence are for complete data; the held-out
error is that of the last view, which is missing in a tenth of the rows of a second fit.

Run: python benchmarks/group_factor.py [--rows 1000] [--features 250] [--factors 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin.factor import GroupFactorAnalysis

#: rows whose last view is missing in the fit that measures prediction
HELD_OUT = 0.1


def draw(n: int, size: int, rank: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Four views of a model with half as many factors as are fitted, and the mean of the last one."""
    rng = np.random.default_rng(seed)
    active = rng.random((rank // 2, 4)) < 0.6
    z = rng.standard_normal((n, rank // 2))
    means = [z @ (rng.standard_normal((rank // 2, size)) * active[:, m, None]) for m in range(4)]
    return [mean + rng.standard_normal((n, size)) for mean in means], means[-1]


def latlin_fit(views: list[np.ndarray], rank: int, noise: str, prune: bool) -> Any:
    return GroupFactorAnalysis(rank, noise=noise, prune=prune, random_state=0).fit(views)


def mofa_fit(views: list[np.ndarray], rank: int, iterations: int) -> tuple[np.ndarray, int]:
    """Reconstruction of the last view, and the iterations taken by its own rule of convergence."""
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()):
        model = entry_point()
        model.set_data_options(scale_views=False)
        model.set_data_matrix([[view] for view in views])
        model.set_model_options(factors=rank, spikeslab_weights=False, ard_weights=True, ard_factors=False)
        model.set_train_options(iter=iterations, convergence_mode="fast", seed=0, quiet=True)
        model.build()
        model.run()
    nodes = model.model.getNodes()
    z, w = nodes["Z"].getExpectations()["E"], nodes["W"].getExpectations()[-1]["E"]
    spent = np.nan_to_num(np.asarray(model.model.getTrainingStats()["time"], dtype=float))
    return z @ w.T + np.nanmean(views[-1], axis=0), int((spent > 0.0).sum())


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def measure_latlin(views: list[np.ndarray], holes: list[np.ndarray], truth: np.ndarray, rank: int) -> list[list[Any]]:
    rows = []
    hidden = np.isnan(holes[-1]).all(axis=1)
    latlin_fit([view[:, :5] for view in views], 3, "feature", False)
    for noise in ("feature", "view"):
        for prune in (False, True):
            seconds, model = min(
                (timed(lambda n=noise, p=prune: latlin_fit(views, rank, n, p)) for _ in range(2)), key=_first
            )
            partial = latlin_fit(holes, rank, noise, prune)
            predicted = partial.predict_view(3, holes)[hidden]
            error = float(np.sqrt(np.mean((predicted - truth[hidden]) ** 2)))
            name = f"latlin, noise per {noise}" + ("" if prune else ", all factors kept")
            rows.append([name, seconds / model.n_iter_, seconds, model.n_iter_, model.n_factors_, error])
    return rows


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]


def measure_mofa(
    views: list[np.ndarray], holes: list[np.ndarray], truth: np.ndarray, rank: int, iterations: int
) -> list[list[Any]]:
    hidden = np.isnan(holes[-1]).all(axis=1)
    seconds, (_, count) = timed(lambda: mofa_fit(views, rank, iterations))
    rebuilt, _ = mofa_fit(holes, rank, iterations)
    error = float(np.sqrt(np.mean((rebuilt[hidden] - truth[hidden]) ** 2)))
    return [["mofapy2", seconds / count, seconds, count, rank, error]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--features", type=int, default=250)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mofa-iterations", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    views, truth = draw(arguments.rows, arguments.features, arguments.factors, arguments.seed)
    holes = [view.copy() for view in views]
    holes[-1][: int(HELD_OUT * arguments.rows)] = np.nan
    rows = measure_latlin(views, holes, truth, arguments.factors)
    try:
        rows += measure_mofa(views, holes, truth, arguments.factors, arguments.mofa_iterations)
        note = ""
    except ImportError:
        note = "\nmofapy2 is not installed: pip install mofapy2 to compare\n"
    sys.stdout.write(f"{environment('numba', 'mofapy2')}\n")
    sys.stdout.write(f"N = {arguments.rows}, four views of {arguments.features}, K = {arguments.factors}\n\n")
    columns = [
        "fit",
        "seconds per iteration",
        "seconds",
        "iterations",
        "factors left",
        "error of the held-out view's mean",
    ]
    sys.stdout.write(table(columns, rows) + "\n" + note)


def tasks(size: str) -> list[Task]:
    """Complete data for the seconds; a tenth of the last view hidden for the error."""
    n, d, k = {"small": (500, 100, 10), "full": (1000, 250, 20)}[size]
    case = f"{n} rows, four views of {d}, K = {k}"
    ours = [
        Task(case, f"latlin, noise per {noise}", partial(our_trial, n, d, k, noise)) for noise in ("feature", "view")
    ]
    return [*ours, Task(case, "mofapy2", partial(their_trial, n, d, k), package="mofapy2", role="peer")]


def with_holes(n: int, d: int, k: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    views, truth = draw(n, d, k, 0)
    holes = [view.copy() for view in views]
    holes[-1][: int(HELD_OUT * n)] = np.nan
    return views, holes, truth


def our_trial(n: int, d: int, k: int, noise: str) -> Trial:
    views, holes, truth = with_holes(n, d, k)
    hidden = np.isnan(holes[-1]).all(axis=1)

    def judge(model: Any) -> dict[str, float | str]:
        predicted = latlin_fit(holes, k, noise, True).predict_view(3, holes)[hidden]
        return {
            "error of the hidden view": float(np.sqrt(np.mean((predicted - truth[hidden]) ** 2))),
            "factors left": str(model.n_factors_),
            "iterations": str(model.n_iter_),
        }

    return Trial(lambda: latlin_fit(views, k, noise, True), judge)


def their_trial(n: int, d: int, k: int) -> Trial:
    views, holes, truth = with_holes(n, d, k)
    hidden = np.isnan(holes[-1]).all(axis=1)

    def judge(result: tuple[np.ndarray, int]) -> dict[str, float | str]:
        rebuilt, _ = mofa_fit(holes, k, 1000)
        error = float(np.sqrt(np.mean((rebuilt[hidden] - truth[hidden]) ** 2)))
        return {"error of the hidden view": error, "factors left": str(k), "iterations": str(result[1])}

    return Trial(lambda: mofa_fit(views, k, 1000), judge)


if __name__ == "__main__":
    run_alone(__file__, main)

"""Every covariance on the logistic problems of Challis (2013), §5.2, as Tables 5.2, 5.4 and 5.5 have them.

Data: w ~ N(0, I); covariates standard normal, mixed by the identity plus one standard normal entry per row, scaled to
unit variance; labels from the model. For D = 250, 500, 1000, N = D/2, D, 5D and K = 0.05 D, 0.1 D: seconds, bound per
datum, ‖m − w‖ (the plain norm; the tables print another quantity), and the mean log probability of 10 D held-out labels
(5 D at D = 1000), mean ± standard error over the seeds. Natural index order, as there. "Sub, smallest eigenvalues" has
the subspace of the text, "Sub" ours. A finished data set is kept in the folder and not fitted again; the pages of
`python -m reproduction table-5.2 --out FOLDER` read the same files.

    python benchmarks/covariances.py [--out FOLDER] [--dims 250 500 1000] [--seeds 10] [--until 08:00]
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer
from latlin.datasets import correlated_logistic
from latlin.potentials import Logit
from reproduction import table_5_2, table_5_4, table_5_5
from reproduction.covariance_tables import Plan, engines, kept_scores, scores

Array = np.ndarray
PLANS = {entry.FULL.dim: entry.FULL for entry in (table_5_4, table_5_2, table_5_5)}
COLUMNS = ["D", "N", "K", "covariance", "seconds", "bound/N", "‖m − w‖", "held-out log p", "data sets"]


def measured(folder: Path, plan: Plan, until: str) -> dict[tuple[int, int], list[dict[str, Array]]]:
    """Scores of all data sets by (N, K), one data set of every column after the other, until the time is up."""
    found: dict[tuple[int, int], list[dict[str, Array]]] = {column: [] for column in plan.columns}
    for seed in range(plan.seeds):
        for column in plan.columns:
            if time.strftime("%H:%M") >= until:
                return found
            found[column].append(kept_scores(folder, plan, seed, *column))
            print(f"D = {plan.dim}, N, K = {column}, data set {seed}", flush=True)
    return found


def lines(plan: Plan, found: dict[tuple[int, int], list[dict[str, Array]]]) -> Iterator[list[object]]:
    """A row a column of the table and covariance."""
    for (n, k), runs in found.items():
        for name in runs[0] if runs else ():
            values = np.array([run[name] for run in runs])
            # the tables' distance is 100 √‖m − w‖ / D
            values[:, 2] = (plan.dim * values[:, 2] / 100.0) ** 2
            yield [plan.dim, n, k, name, *map(_shown, values.T), len(values)]


def _shown(values: Array) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("latlin-reproduction"), help="folder of finished data sets")
    parser.add_argument("--dims", type=int, nargs="+", default=list(PLANS), choices=list(PLANS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--until", default="24:00", help="time of day after which no other data set is begun")
    options = parser.parse_args()
    print(environment())
    scores(correlated_logistic(20, 30, 5, 0), 2)
    rows = []
    for dim in options.dims:
        plan = PLANS[dim]._replace(seeds=options.seeds)
        rows += lines(plan, measured(options.out, plan, options.until))
    print(table(COLUMNS, rows))
    with (options.out / "covariances.csv").open("w", encoding="utf8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def tasks(size: str) -> list[Task]:
    """Every covariance on the same data sets; the ratio is to the full one."""
    d, n, k, seeds = {"small": (150, 150, 15, 1), "full": (500, 250, 50, 3)}[size]
    case = f"D = {d}, N = {n}, K = {k}" + (f", {seeds} data sets" if seeds > 1 else "")
    found = []
    for name in engines(k):
        role = "yardstick" if name == "Full" else "latlin"
        found.append(Task(case, name, partial(trial, d, n, k, seeds, name), role=role))
    return found


def trial(d: int, n: int, k: int, seeds: int, name: str) -> Trial:
    sets = [correlated_logistic(d, n, 10 * d, seed) for seed in range(seeds)]
    models = [LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(s.x, Logit(s.y))]) for s in sets]

    def judge(posts: list[Posterior]) -> dict[str, float | str]:
        there = [post.project(s.new_x) for post, s in zip(posts, sets, strict=True)]
        held_out = [
            Logit(s.new_y).tilted_moments(q.mean, q.variance).log_z.mean() for q, s in zip(there, sets, strict=True)
        ]
        bounds = [post.log_evidence / n if post.evidence_kind == "lower bound" else np.nan for post in posts]
        return {
            "bound / N": "–" if np.isnan(bounds).any() else float(np.mean(bounds)),
            "held-out log p": float(np.mean(held_out)),
        }

    return Trial(lambda: [infer(model, engines(k)[name]) for model in models], judge)


if __name__ == "__main__":
    run_alone(__file__, main)

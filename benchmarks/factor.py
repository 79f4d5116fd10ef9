"""Factor analysis in memory against scikit-learn: N = 10,000, d = 500, K = 20, to the same log-likelihood.

Run: python benchmarks/factor.py [--rows 10000] [--features 500] [--factors 20] [--repeats 3]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import FactorAnalysis as SklearnFactorAnalysis

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial, by
from latlin.factor import FactorAnalysis


def draw(n: int, d: int, rank: int, seed: int = 0) -> np.ndarray:
    """Rows of a factor model with standard normal loadings and noise variances in (0.5, 2)."""
    rng = np.random.default_rng(seed)
    loadings, noise = rng.standard_normal((rank, d)), rng.uniform(0.5, 2.0, d)
    return rng.standard_normal((n, rank)) @ loadings + np.sqrt(noise) * rng.standard_normal((n, d))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    X = draw(arguments.rows, arguments.features, arguments.factors)
    rank, repeats = arguments.factors, arguments.repeats
    runs = {
        "latlin ml": lambda: FactorAnalysis(rank).fit(X),
        "latlin em": lambda: FactorAnalysis(rank, method="em").fit(X),
        "latlin online-em, one pass": lambda: FactorAnalysis(rank, method="online-em", random_state=0).fit(X),
        "latlin isotropic": lambda: FactorAnalysis(rank, noise="isotropic").fit(X),
        "scikit-learn randomized": lambda: SklearnFactorAnalysis(rank, random_state=0).fit(X),
        "scikit-learn lapack": lambda: SklearnFactorAnalysis(rank, svd_method="lapack").fit(X),
    }
    timed = {name: seconds(run, repeats, warm="latlin" in name) for name, run in runs.items()}
    fastest = min(time for name, (time, _) in timed.items() if "scikit" in name)
    rows = [
        [name, time, fastest / time, f"{model.score(X) * len(X):.4f}", model.n_iter_]
        for name, (time, model) in timed.items()
    ]
    sys.stdout.write(f"{environment('scikit-learn', 'numba')}\n")
    sys.stdout.write(f"N = {arguments.rows}, d = {arguments.features}, K = {rank}, best of {repeats}\n\n")
    columns = ["fit", "seconds", "× faster than scikit-learn's faster", "log-likelihood", "iterations"]
    sys.stdout.write(table(columns, rows) + "\n")


def tasks(size: str) -> list[Task]:
    """Every fit to its own convergence, on rows of a factor model."""
    n, d, k = {"small": (5000, 200, 10), "full": (10_000, 500, 20)}[size]
    fits = {
        "latlin ml": lambda: FactorAnalysis(k),
        "latlin em": lambda: FactorAnalysis(k, method="em"),
        "latlin online-em, one pass": lambda: FactorAnalysis(k, method="online-em", random_state=0),
        "scikit-learn randomized": lambda: SklearnFactorAnalysis(k, random_state=0),
        "scikit-learn lapack": lambda: SklearnFactorAnalysis(k, svd_method="lapack"),
    }

    def prepare(make: Callable[[], Any]) -> Trial:
        X = draw(n, d, k)
        direct = isinstance(make(), FactorAnalysis) and make().method != "online-em"
        return Trial(
            lambda: make().fit(X),
            lambda fit: {"log-likelihood a row": float(fit.score(X))},
            # the covariance once, then products of it with the loadings
            flops=(lambda fit: n * d**2 + 2.0 * d**2 * k * fit.n_iter_) if direct else None,
        )

    return [Task(f"{n} × {d}, K = {k}", name, partial(prepare, make), **by(name)) for name, make in fits.items()]


if __name__ == "__main__":
    run_alone(__file__, main)

"""Intervals of small data sets: hyperparameters maximised, penalised and integrated.

    python benchmarks/hyperparameters.py [--repeats 25]

One line per problem and manner: the share of held-out observations inside central 90 % intervals, the held-out log
density in nat per row, and the seconds of a fit. The problems: nine to thirty rows of the diabetes data by a linear
model, fifteen and twenty rows by a Gaussian process with one length scale per input, and 39 rows of 300 features with
one prior scale per feature, where scikit-learn's `ARDRegression` stands beside.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import ARDRegression

from _suite import run_alone
from _task import Task, Trial
from latlin.gp import GaussianProcessRegressor
from latlin.linear import BayesianLinearRegression
from latlin.priors import Flat

Array = NDArray[np.float64]
MANNERS: dict[str, dict[str, Any]] = {
    "maximised, no priors": {"hyperparameters": "maximise", "priors": Flat()},
    "maximised": {"hyperparameters": "maximise"},
    "default": {},
    "integrated": {"hyperparameters": "integrate"},
}


class Split(NamedTuple):
    """Rows to learn from and rows held out."""

    X: Array
    y: Array
    new: Array
    held_out: Array


class Score(NamedTuple):
    """Coverage, log density per row, seconds."""

    coverage: float
    log_density: float
    seconds: float


def diabetes(rows: int, columns: int, seed: int) -> Split:
    """Some rows and columns of the diabetes data."""
    X, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(seed)
    order, chosen = rng.permutation(len(y)), rng.permutation(X.shape[1])[:columns]
    train, test = order[:rows], order[rows : rows + 200]
    return Split(X[train][:, chosen], y[train], X[test][:, chosen], y[test])


def surface(rows: int, columns: int, seed: int) -> Split:
    """A smooth function of two of the inputs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (rows + 200, columns))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(rows + 200)
    return Split(X[:rows], y[:rows], X[rows:], y[rows:])


def wide(rows: int, columns: int, seed: int) -> Split:
    """Six of many features matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows + 200, columns))
    y = X[:, :6] @ rng.standard_normal(6) + 0.5 * rng.standard_normal(rows + 200)
    return Split(X[:rows], y[:rows], X[rows:], y[rows:])


def score(model: Any, split: Split) -> Score:
    """Fit and ask."""
    started = time.perf_counter()
    model.fit(split.X, split.y)
    seconds = time.perf_counter() - started
    low, high = model.predict_quantiles(split.new, [0.05, 0.95]).T
    inside = np.mean((split.held_out > low) & (split.held_out < high))
    return Score(float(inside), float(np.mean(model.log_predictive_density(split.new, split.held_out))), seconds)


def score_peer(split: Split) -> Score:
    """scikit-learn's relevance determination on the same rows."""
    started = time.perf_counter()
    peer = ARDRegression().fit(split.X, split.y)
    seconds = time.perf_counter() - started
    mean, sd = peer.predict(split.new, return_std=True)
    inside = np.mean(np.abs(split.held_out - mean) < norm.ppf(0.95) * sd)
    return Score(float(inside), float(norm.logpdf(split.held_out, mean, sd).mean()), seconds)


def problems() -> Iterator[tuple[str, Callable[[int], Split], Callable[..., Any], tuple[str, ...]]]:
    """Name, data by seed, estimator by options, manners that apply."""
    for rows, columns in ((9, 4), (12, 6), (16, 8), (16, 10), (30, 10)):
        name = f"linear, {rows} x {columns} of diabetes"
        yield name, partial(diabetes, rows, columns), BayesianLinearRegression, tuple(MANNERS)
    for rows, columns in ((15, 2), (20, 2), (20, 4)):
        kernel = ConstantKernel(1.0) * RBF(np.ones(columns))
        some = tuple(MANNERS)[:3]
        name = f"process, {rows} x {columns}, one length per input"
        yield name, partial(surface, rows, columns), partial(GaussianProcessRegressor, kernel), some
    relevances = partial(BayesianLinearRegression, ard=True)
    yield "relevances, 39 x 300", partial(wide, 39, 300), relevances, tuple(MANNERS)[:2]


def tasks(size: str) -> list[Task]:
    """One split of each problem in every manner; coverage and log density of the held-out rows."""
    found = []
    for name, data, build, manners in problems():
        if size == "small" and not name.startswith("linear"):
            continue
        for manner in manners:
            found.append(Task(name, f"latlin {manner}", partial(trial, data, build, manner)))
    return found


def trial(data: Callable[[int], Split], build: Callable[..., Any], manner: str) -> Trial:
    """A fit to the first split."""
    split = data(0)

    def judge(found: Score) -> dict[str, float]:
        coverage, density, _ = found
        return {"coverage of 90 %": float(coverage), "log density": float(density)}

    return Trial(lambda: score(build(**MANNERS[manner]), split), judge)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    print(f"{'problem':40}{'manner':24}{'coverage':>10}{'log density':>14}{'seconds':>10}")
    for name, data, build, manners in problems():
        splits = [data(seed) for seed in range(repeats)]
        rows = {manner: [score(build(**MANNERS[manner]), split) for split in splits] for manner in manners}
        if name.startswith("relevances"):
            rows["scikit-learn"] = [score_peer(split) for split in splits]
        for manner, found in rows.items():
            coverage, density, seconds = np.mean(found, axis=0)
            print(f"{name:40}{manner:24}{coverage:10.3f}{density:14.3f}{seconds:10.3f}", flush=True)


if __name__ == "__main__":
    run_alone(__file__, main)

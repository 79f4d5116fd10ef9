"""Mixed-data factor analysis: one sweep of EM on 10,000 rows × 30 columns of four kinds, K = 5.

The E-step is that of a sweep, warm, two inner steps for every row; from scratch it is run to convergence.

Run: python benchmarks/mixed_factor.py [--rows 10000] [--columns 30] [--factors 5]
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import numpy as np

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin.factor.mixed.fit import MixedProblem, begin, make_engine
from latlin.potentials import Gaussian

FAMILIES = ("gaussian", "logit", "poisson", "ordinal")


def draw(n: int, c: int, rank: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Real, binary, count and ordinal columns in turn, a tenth of the entries missing; and their kinds."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(c) % 4
    eta = rng.standard_normal((n, rank)) @ (0.8 * rng.standard_normal((rank, c)))
    columns = {
        0: eta + rng.standard_normal((n, c)),
        1: rng.random((n, c)) < 1.0 / (1.0 + np.exp(-eta)),
        2: rng.poisson(np.exp(np.minimum(0.5 * eta, 4.0))),
        3: np.digitize(eta + rng.logistic(size=(n, c)), [-1.0, 0.5]),
    }
    rows = np.select([kinds == kind for kind in columns], list(columns.values())).astype(float)
    rows[rng.random((n, c)) < 0.1] = np.nan
    return rows, kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--factors", type=int, default=5)
    arguments = parser.parse_args()
    rows, kinds = draw(arguments.rows, arguments.columns, arguments.factors)
    lines = []
    for name in ("gkl", "laplace", "ep"):
        engine = make_engine(name, Gaussian(0.0, 1.0))
        families = tuple(FAMILIES[kind] for kind in kinds)
        problem = MixedProblem(rows, families, np.where(kinds == 3, 3, 0), engine, True, 1.0, 1e-3)
        start = begin(problem, arguments.factors, np.random.default_rng(0))
        scratch, (state, _) = seconds(lambda p=problem, s=start: p.expect(s, 100, 1e-4), 1, warm=False)
        warm, _ = seconds(lambda p=problem, s=state: p.expect(s, 2, 1e-4), 2, warm=False)
        columns, _ = seconds(lambda p=problem, s=state: p.maximise(s), 2, warm=False)
        whole, _ = seconds(lambda p=problem, s=state: p.step(s), 1, warm=False)
        lines.append([name, scratch, warm, columns, whole])
    sys.stdout.write(f"{environment('numba')}\n")
    sys.stdout.write(f"{arguments.rows} rows × {arguments.columns} columns, K = {arguments.factors}\n\n")
    heads = ["rows by", "E-step from scratch, s", "E-step of a sweep, s", "M-step, s", "whole sweep, s"]
    sys.stdout.write(table(heads, lines) + "\n")


def tasks(size: str) -> list[Task]:
    """One whole sweep, from a state that has been through one E-step."""
    n, c, k = {"small": (2000, 20, 3), "full": (10_000, 30, 5)}[size]
    case = f"one sweep, {n} × {c}, K = {k}"
    roles = {"gkl": "latlin", "ep": "latlin", "laplace": "yardstick"}
    return [Task(case, name, partial(trial, n, c, k, name), role=role) for name, role in roles.items()]


def trial(n: int, c: int, k: int, name: str) -> Trial:
    rows, kinds = draw(n, c, k)
    engine = make_engine(name, Gaussian(0.0, 1.0))
    families = tuple(FAMILIES[kind] for kind in kinds)
    problem = MixedProblem(rows, families, np.where(kinds == 3, 3, 0), engine, True, 1.0, 1e-3)
    state, _ = problem.expect(begin(problem, k, np.random.default_rng(0)), 100, 1e-4)
    return Trial(lambda: problem.step(state))


if __name__ == "__main__":
    run_alone(__file__, main)

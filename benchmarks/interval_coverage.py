"""How often central posterior intervals hold the truth, engine by engine: simulation-based calibration.

Run: python benchmarks/interval_coverage.py [runs [engine …]]. Prints one table a problem, as the guide's page on
trust shows them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from _suite import run_alone
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.diagnostics import Calibration, calibrate

ROWS = np.random.default_rng(0)
FEW, SHORT, WIDE = ROWS.normal(size=(20, 5)), ROWS.normal(size=(15, 3)), ROWS.normal(size=(8, 10))
ENGINES = ("laplace", "mean-field", "lvb", "ep", "gkl", "ai-kl")


def logistic(rng: np.random.Generator) -> tuple[Any, LatentLinearModel]:
    w = 2.0 * rng.normal(size=5)
    y = rng.random(20) < 1.0 / (1.0 + np.exp(-FEW @ w))
    return w, LatentLinearModel([GaussianFactor(cov=4.0, dim=5), SiteFactor(FEW, potentials.Logit(y))])


def robust(rng: np.random.Generator) -> tuple[Any, LatentLinearModel]:
    w = rng.normal(size=3)
    y = SHORT @ w + 0.5 * rng.standard_t(3, size=15)
    return w, LatentLinearModel([GaussianFactor(dim=3), SiteFactor(SHORT, potentials.StudentT(3.0, y, 0.5))])


def sparse(rng: np.random.Generator) -> tuple[Any, LatentLinearModel]:
    w = rng.laplace(size=10)
    y = WIDE @ w + 0.5 * rng.normal(size=8)
    prior = SiteFactor(None, potentials.Laplace(np.zeros(10)))
    return w, LatentLinearModel([prior, SiteFactor(WIDE, potentials.Gaussian(y, 0.5))])


PROBLEMS = {
    "logistic regression, 20 × 5": logistic,
    "Student t noise, 15 × 3": robust,
    "Laplace prior, 8 × 10": sparse,
}


def row(engine: str, simulate: Callable[..., Any], runs: int) -> str:
    """A line of the table, or why there is none."""
    try:
        found: Calibration = calibrate(lambda model: infer(model, engine), simulate, n_runs=runs, random_state=0)
    except ValueError as error:
        return f"| {engine} | does not apply: {str(error).split(';')[0]} |"
    cells = [f"{found.coverage(level).mean():.3f}" for level in found.levels]
    return f"| {engine} | {' | '.join(cells)} | {found.p_values().min() * len(found.names):.2g} |"


def main() -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    engines = sys.argv[2:] or ENGINES
    for title, simulate in PROBLEMS.items():
        sys.stdout.write(
            f"\n{title}, {runs} runs\n| engine | 50% | 80% | 90% | 95% | χ² p |\n|---|---|---|---|---|---|\n"
        )
        for engine in engines:
            sys.stdout.write(row(engine, simulate, runs) + "\n")
            sys.stdout.flush()


def tasks(size: str) -> list[Task]:
    """Every engine on all three problems; seconds are those of all simulated fits, ratios to Laplace's method."""
    runs = {"small": 10, "full": 400}[size]
    found = []
    for engine in ("gkl", *(e for e in ENGINES if e != "gkl")):
        role = "yardstick" if engine == "laplace" else "latlin"
        found.append(Task(f"{runs} runs per problem", engine, partial(trial, engine, runs), role=role))
    return found


def trial(engine: str, runs: int) -> Trial:
    def calibrated(simulate: Callable[..., Any]) -> Calibration | None:
        try:
            return calibrate(lambda model: infer(model, engine), simulate, n_runs=runs, random_state=0)
        except ValueError:
            return None

    def judge(found: dict[str, Calibration | None]) -> dict[str, float | str]:
        return {
            f"90 % intervals, {name.split(',')[0]}": "does not apply" if c is None else float(c.coverage(0.9).mean())
            for name, c in found.items()
        }

    return Trial(lambda: {name: calibrated(simulate) for name, simulate in PROBLEMS.items()}, judge)


if __name__ == "__main__":
    run_alone(__file__, main)

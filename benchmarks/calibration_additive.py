"""Are the intervals of additive models right on average? Simulation-based calibration (Talts and others 2018).

    python benchmarks/calibration_additive.py [--runs 400] [--first 0] [--engine auto] [--only groups smooth]

Parameters are drawn from the prior, data from the parameters, and the model is fitted: the posterior probability below
the true value is then uniform. One line per quantity: the mean of these probabilities (½), their standard deviation
(0.289), the share inside central 50 % and 90 % intervals, and the p-value of a Kolmogorov–Smirnov test.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import kstest

from _suite import run_alone
from _task import Task, Trial
from latlin.additive import AdditiveModel
from latlin.priors import HalfNormal

Levels = dict[str, float]


def groups(rng: np.random.Generator, engine: str) -> Levels:
    """A logistic model with 20 groups of 6 rows and one slope."""
    sd, intercept, slope = abs(rng.normal()), rng.normal(), rng.normal()
    effect, g, x = sd * rng.standard_normal(20), np.repeat(np.arange(20), 6), rng.normal(size=120)
    y = rng.random(120) < expit(intercept + slope * x + effect[g])
    priors = {"Intercept": 1.0, "x": 1.0, "sd(g)": HalfNormal(1.0)}
    model = AdditiveModel("y ~ x + (1 | g)", "bernoulli", engine=engine, priors=priors, hyperparameters="integrate")
    model.fit({"y": y.astype(float), "x": x, "g": g})
    return {
        "intercept": below(model, None, 0, intercept),
        "slope": below(model, None, 1, slope),
        "one effect": below(model, "g", 3, effect[3]),
        "sd": float(model.hyperparameters_.marginals["sd(g)"].cdf(sd)),
    }


def smooth(rng: np.random.Generator, engine: str) -> Levels:
    """Counts along a line with a random walk of 40 steps."""
    frame = {"t": np.arange(40), "y": np.zeros(40)}
    priors = {"Intercept": 1.0, "sd(rw1(t))": HalfNormal(1.0)}
    model = AdditiveModel("y ~ rw1(t)", "poisson", engine=engine, priors=priors, hyperparameters="integrate")
    structure = _structure(frame)
    values, vectors = np.linalg.eigh(structure)
    field = vectors[:, 1:] @ (rng.standard_normal(39) / np.sqrt(values[1:]))
    sd, intercept = abs(rng.normal()), rng.normal()
    frame["y"] = rng.poisson(np.exp(intercept + sd * field))
    model.fit(frame)
    return {
        "intercept": below(model, None, 0, intercept),
        "one place": below(model, "rw1(t)", 10, sd * field[10]),
        "sd": float(model.hyperparameters_.marginals["sd(rw1(t))"].cdf(sd)),
    }


def _structure(frame: dict[str, Any]) -> np.ndarray:
    """The scaled precision of the walk, by hand."""
    steps = np.diff(np.eye(len(frame["t"])), axis=0)
    R = steps.T @ steps
    spread = np.diagonal(np.linalg.pinv(R, hermitian=True))
    return np.asarray(R * np.exp(np.mean(np.log(spread))))


def below(model: AdditiveModel, term: str | None, place: int, truth: float) -> float:
    """The posterior probability below the true value of an effect."""
    rows, _ = model._functions(term, None)
    return float(np.asarray(model.posterior_.project(rows[[place]]).cdf(np.array([truth])))[0])


CASES = {"groups": groups, "smooth": smooth}


def levels_of(name: str, runs: int, engine: str, first: int = 0) -> Iterator[Levels]:
    for seed in range(first, first + runs):
        yield CASES[name](np.random.default_rng(seed), engine)


def tasks(size: str) -> list[Task]:
    """Both models; seconds are those of all simulated fits."""
    runs = {"small": 5, "full": 400}[size]
    return [Task(f"{name}, {runs} runs", "latlin.additive", partial(trial, name, runs)) for name in CASES]


def trial(name: str, runs: int) -> Trial:
    def judge(found: list[Levels]) -> dict[str, float | str]:
        return {
            f"p, {quantity}": float(kstest([levels[quantity] for levels in found], "uniform").pvalue)
            for quantity in found[0]
        }

    return Trial(lambda: list(levels_of(name, runs, "auto")), judge)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--only", nargs="*", default=list(CASES))
    options = parser.parse_args()
    print("| model | quantity | mean | sd | in 50 % | in 90 % | p |")
    print("|---|---|---|---|---|---|---|")
    for name in options.only:
        found = list(levels_of(name, options.runs, options.engine, options.first))
        for quantity in found[0]:
            u = np.array([levels[quantity] for levels in found])
            inside = "".join(f" {100 * np.mean(np.abs(u - 0.5) < 0.5 * share):.0f} |" for share in (0.5, 0.9))
            p = kstest(u, "uniform").pvalue
            print(f"| {name} | {quantity} | {u.mean():.3f} | {u.std():.3f} |{inside} {p:.3f} |", flush=True)


if __name__ == "__main__":
    run_alone(__file__, main)

"""Gaussian processes with sparse priors: Vecchia's density against GPBoost, and Matérn processes on a line.

Vecchia: binary labels on the unit square, logit link, Matérn 3/2 with variance and length learnt, 20 neighbours, the
Laplace approximation on both sides; GPBoost at its defaults. Held-out log probability is the mean over 1,000 labels,
and the seconds of prediction are apart from those of the fit. Line: counts at irregular times, Matérn 5/2, one fit at a
fixed kernel, and one with the kernel learnt.

    python benchmarks/gp_sparse.py [--rows 2000 10000] [--times 10000 1000000] [--peers]
"""

from __future__ import annotations

import argparse
import resource
import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial, by
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor

NEIGHBOURS, HELD_OUT = 20, 1000
PLANE = ConstantKernel(1.0) * Matern(0.2, nu=1.5)
LINE = ConstantKernel(1.0) * Matern(5.0, nu=2.5)


def labels(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and held-out inputs and labels on the unit square."""
    rng = np.random.default_rng(0)
    x = rng.random((n + HELD_OUT, 2))
    f = 1.5 * np.sin(8.0 * x[:, 0]) * np.cos(6.0 * x[:, 1]) + np.sin(20.0 * x[:, 0] + 3.0 * x[:, 1])
    y = (rng.random(len(f)) < 1.0 / (1.0 + np.exp(-f))).astype(int)
    return x[:n], y[:n], x[n:], y[n:]


def counts(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Irregular times and counts."""
    rng = np.random.default_rng(0)
    t = np.sort(1000.0 * rng.random((n, 1)), axis=0)
    return t, rng.poisson(np.exp(np.sin(t[:, 0] / 3.0) + 0.5 * np.cos(1.1 * t[:, 0]))).astype(float)


def score(p: np.ndarray, y: np.ndarray) -> float:
    """Mean log probability of labels."""
    return float(np.mean(np.log(np.where(y == 1, p, 1.0 - p))))


def fit_ours(x: np.ndarray, y: np.ndarray) -> GaussianProcessClassifier:
    model = GaussianProcessClassifier(
        PLANE, engine="laplace", approximation="vecchia", hyperparameters="maximise", random_state=0
    )
    return model.fit(x, y)


def fit_gpboost(x: np.ndarray, y: np.ndarray) -> Any:
    import gpboost

    model = gpboost.GPModel(
        gp_coords=x,
        cov_function="matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        likelihood="bernoulli_logit",
    )
    model.fit(y=y.astype(float))
    return model


def probabilities_gpboost(model: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict(gp_coords_pred=x, predict_var=False, predict_response=True)["mu"])


def fit_line(t: np.ndarray, y: np.ndarray, learn: bool) -> GaussianProcessRegressor:
    manner = "maximise" if learn else "fixed"
    model = GaussianProcessRegressor(
        LINE, likelihood="poisson", engine="laplace", approximation="state-space", hyperparameters=manner
    )
    return model.fit(t, y)


def timed(action: Any) -> tuple[Any, float, float]:
    """A result, its seconds by the clock, and those of this process."""
    clock, process = time.perf_counter(), time.process_time()
    found = action()
    return found, time.perf_counter() - clock, time.process_time() - process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[2000, 10_000])
    parser.add_argument("--times", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--peers", action="store_true", help="also run GPBoost, where it is installed")
    options = parser.parse_args()
    print(environment("scikit-learn", "gpboost"))
    small = labels(300)
    fit_ours(*small[:2])  # compiled
    found: list[tuple[Any, ...]] = []
    for n in options.rows:
        x, y, new, held = labels(n)
        model, clock, process = timed(partial(fit_ours, x, y))
        p, predicting, _ = timed(lambda model=model, new=new: model.predict_proba(new)[:, 1])
        found.append((n, "latlin vecchia", clock, process, predicting, score(p, held)))
        if options.peers:
            peer, clock, process = timed(partial(fit_gpboost, x, y))
            p, predicting, _ = timed(partial(probabilities_gpboost, peer, new))
            found.append((n, "gpboost", clock, process, predicting, score(p, held)))
    heads = ("N", "method", "seconds", "processor seconds", "seconds of prediction", "held-out log probability")
    print(table(heads, found))
    lines: list[tuple[Any, ...]] = []
    for n in options.times:
        t, y = counts(n)
        for learn in (False, True):
            model, clock, process = timed(partial(fit_line, t, y, learn))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            lines.append((n, "learnt" if learn else "fixed", clock, process, float(model.log_evidence_), peak))
    print(table(("times", "kernel", "seconds", "processor seconds", "log evidence", "peak GiB"), lines))


def tasks(size: str) -> list[Task]:
    """Labels on a square against GPBoost, and counts on a line."""
    rows = {"small": [2000], "full": [2000, 10_000, 50_000]}[size]
    times = {"small": [10_000], "full": [10_000, 100_000, 1_000_000]}[size]
    found = []
    for n in rows:
        case = f"N = {n}, labels on a square, {NEIGHBOURS} neighbours, kernel learnt"
        found.append(Task(case, "latlin vecchia", partial(our_trial, n)))
        found.append(Task(case, "gpboost", partial(their_trial, n), **by("gpboost")))
    found += [Task(f"{n} counts on a line, kernel learnt", "latlin line", partial(line_trial, n)) for n in times]
    return found


def our_trial(n: int) -> Trial:
    x, y, new, held = labels(n)
    return Trial(
        lambda: fit_ours(x, y),
        lambda fit: {
            "log evidence": float(fit.log_evidence_),
            "held-out log probability": score(fit.predict_proba(new)[:, 1], held),
        },
    )


def their_trial(n: int) -> Trial:
    import gpboost  # noqa: F401  where it is absent the suite says so

    x, y, new, held = labels(n)
    return Trial(
        lambda: fit_gpboost(x, y),
        lambda fit: {"held-out log probability": score(probabilities_gpboost(fit, new), held)},
    )


def line_trial(n: int) -> Trial:
    t, y = counts(n)
    return Trial(lambda: fit_line(t, y, True), lambda fit: {"log evidence": float(fit.log_evidence_)})


if __name__ == "__main__":
    run_alone(__file__, main)

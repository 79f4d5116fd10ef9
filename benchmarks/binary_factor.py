"""Binary factors: seconds per step by size, and against a plain-loop version of the document's formulas.

    python benchmarks/binary_factor.py [--seeds 0]

The plain version is what Lau (2020), §1 describes: factor by factor over all rows, second moments in loops
over rows and factors, the trace of an N×N matrix for the free energy (corrected as in `latlin.factor.binary.model`).
Both take the same data, the same start and the same 30 sweeps at most a step. `--seeds 20` also counts the features
found.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin.factor import BinaryFactorAnalysis
from latlin.factor.binary import model
from latlin.factor.binary.latents import BernoulliField
from latlin.factor.binary.model import BinaryOptions, begin_state, update_all
from latlin.numerics.ascent import Rules
from latlin.numerics.threads import one_blas_thread
from reproduction.binary_features import images, n_found

SWEEPS = 30


def draws(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    features = (rng.random((k, d)) < 0.3).astype(float)
    return (rng.random((n, k)) < 0.2) @ features + 0.1 * rng.standard_normal((n, d))


def options(k: int, ard: bool, sweeps: int = SWEEPS) -> BinaryOptions:
    prior = model.RelevantFeatures() if ard else model.PointFeatures()
    return BinaryOptions(k, prior, BernoulliField(sweeps, 0, 1e-4), ("random",), 1, None, 1e-6, Rules(), False)


def plain_e_step(x, mu, sigma, pi, lam):  # type: ignore[no-untyped-def]
    """Sweeps (10) factor by factor until the free energy stands still, and the free energy."""
    n, d = x.shape
    old = -np.inf
    for _ in range(SWEEPS):
        lam = np.clip(lam, 1e-15, 1.0 - 1e-15)
        residual = x - lam @ mu.T
        energy = np.sum(lam * np.log(pi / lam)) + np.sum((1 - lam) * np.log((1 - pi) / (1 - lam)))
        energy -= n * d * np.log(sigma) + 0.5 * n * d * np.log(2 * np.pi)
        energy -= np.trace(residual @ residual.T) / (2 * sigma**2)
        energy -= np.sum((lam - lam**2) @ np.diag(mu.T @ mu)) / (2 * sigma**2)
        if abs(energy - old) <= 1e-15:
            break
        old = energy
        for i in range(mu.shape[1]):
            others = np.delete(lam, i, 1) @ np.delete(mu, i, 1).T
            drive = np.log(pi[i] / (1 - pi[i])) + (x - others) @ mu[:, i] / sigma**2
            lam[:, i] = 1.0 / (1.0 + np.exp(-(drive - mu[:, i] @ mu[:, i] / (2 * sigma**2))))
    return lam, energy


def plain_m_step(x, lam):  # type: ignore[no-untyped-def]
    """Features, noise and probabilities; the second moments one row and pair at a time."""
    n, d = x.shape
    k = lam.shape[1]
    second = np.zeros((n, k, k))
    for row in range(n):
        for i in range(k):
            for j in range(k):
                second[row, i, j] = lam[row, i] * lam[row, j]
        second[row] += np.diag(lam[row] - lam[row] ** 2)
    total = second.sum(axis=0)
    mu = (np.linalg.inv(total) @ lam.T @ x).T
    error = np.trace(x.T @ x) + np.trace(mu.T @ mu @ total) - 2 * np.trace(lam.T @ x @ mu)
    return mu, np.sqrt(error / (n * d)), lam.mean(axis=0)


def loops(n: int, steps: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """The compiled and the plain steps on the 4×4 images from one start; both return their bound."""
    x, _ = images(0, n)
    start = np.random.default_rng(0).uniform(0.25, 0.75, (n, 8))

    def plain() -> float:
        lam = start.copy()
        mu, sigma, pi = plain_m_step(x, lam)
        for _ in range(steps):
            lam, energy = plain_e_step(x, mu, sigma, pi, lam)
            mu, sigma, pi = plain_m_step(x, lam)
        return energy

    settings = options(8, ard=False)
    data = model.make_data(x, 1e-6)

    def compiled() -> float:
        with one_blas_thread():
            state = begin_state(data, start, settings)
            for _ in range(steps):
                state = update_all(data, state, settings)
            return model.bound(data, state, settings.prior)

    return compiled, plain


def against_loops(n: int = 400, steps: int = 10) -> list[object]:
    """Seconds per step of both, and how far their bounds are apart."""
    compiled, plain = loops(n, steps)
    slow, theirs = seconds(plain, 1)
    fast, ours = seconds(compiled, 5)
    return [n, 16, 8, fast / steps, slow / steps, slow / fast, ours, theirs]


def one_of_size(n: int, d: int, k: int, ard: bool) -> Callable[[], object]:
    """One step, past the first."""
    x = draws(n, d, k)
    data, settings = model.make_data(x, 1e-6), options(k, ard)
    state = begin_state(data, np.random.default_rng(0).uniform(0.25, 0.75, (n, k)), settings)
    state = update_all(data, state, settings)

    def step() -> object:
        with one_blas_thread():
            return update_all(data, state, settings)

    return step


def by_size(n: int, d: int, k: int, ard: bool) -> list[object]:
    best, _ = seconds(one_of_size(n, d, k, ard), 3)
    return [n, d, k, "relevances" if ard else "maximum likelihood", best, 1e9 * best / (n * k * (d + k))]


def count_features(seeds: int) -> None:
    rows = []
    for seed in range(seeds):
        x, _ = images(1000 + seed)
        start = time.perf_counter()
        eight = BinaryFactorAnalysis(8, random_state=seed).fit(x)
        many = BinaryFactorAnalysis(24, random_state=seed).fit(x)
        found = n_found(eight.components_), many.n_active_, n_found(many.components_)
        rows.append([seed, *found, time.perf_counter() - start])
    print(table(["seed", "found, K = 8", "active, K = 24", "found, K = 24", "seconds"], rows))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=0)
    arguments = parser.parse_args()
    print(environment("scikit-learn", "numba"))
    head = ["N", "D", "K", "s/step", "plain loops", "ratio", "bound", "plain's bound"]
    print(table(head, [against_loops()]))
    sizes = [(n, d, k) for n in (400, 20_000) for d in (16, 256) for k in (8, 64)]
    rows = [by_size(*size, ard) for size in sizes for ard in (False, True)]
    print(table(["N", "D", "K", "features", "s/step", "ns/(N·K·(D+K))"], rows))
    if arguments.seeds:
        count_features(arguments.seeds)


def tasks(size: str) -> list[Task]:
    """Ten steps against plain loops, then one step by size."""
    n = {"small": 200, "full": 400}[size]
    case = f"ten steps, {n} × 16, K = 8"
    found = [
        Task(case, "latlin", partial(loop_trial, n, True)),
        Task(case, "plain NumPy loops", partial(loop_trial, n, False), package="numpy", role="peer"),
    ]
    sizes = {"small": [(5000, 64, 16)], "full": [(20_000, 256, 8), (20_000, 256, 64)]}[size]
    for n, d, k in sizes:
        case = f"one step, {n} × {d}, K = {k}"
        found += [Task(case, kind, partial(step_trial, n, d, k, kind)) for kind in ("maximum likelihood", "relevances")]
    return found


def loop_trial(n: int, compiled: bool) -> Trial:
    quick, slow = loops(n, 10)
    return Trial(quick if compiled else slow, lambda bound: {"bound": float(bound)})


def step_trial(n: int, d: int, k: int, kind: str) -> Trial:
    step = one_of_size(n, d, k, kind == "relevances")
    return Trial(step)


if __name__ == "__main__":
    run_alone(__file__, main)

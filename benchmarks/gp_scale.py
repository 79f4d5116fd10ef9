"""Gaussian process classification with many rows: inducing points against GPyTorch's stochastic variational process.

Five inputs, the decision of `gp.py`, constant × squared exponential kernel with one length per input, learnt. GPyTorch
learns kernel, inducing inputs and posterior by Adam on batches of 1,024 rows (its manual's learning rate of 0.01, and
0.05, which does better here); its link is probit, its numbers are of single precision. Held-out log probability is the
mean over 5,000 rows. A pass is one sum over all rows; a kernel step is one evaluation of the bound and its gradient.

    python benchmarks/gp_scale.py [--rows 20000 100000] [--points 150 500] [--peers] [--epochs 10]
    python benchmarks/gp_scale.py --rows 1000000 --points 200
    python benchmarks/gp_scale.py --real [--sets boston_housing …]
    python benchmarks/gp_scale.py --scaling --rows 10000 30000 100000 300000 1000000 --points 200

`--scaling` fits rows of memory maps, each case in a process of its own whose peak memory is shown, and writes
`gp_scale.png`.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from _suite import run_alone
from _table import environment, table
from _task import DATA, Task, Trial, by
from latlin.distributed.blocks import LocalBlocks
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Inducing, Vecchia

KERNEL = ConstantKernel(4.0) * RBF([2.0] * 5)
BATCH = 1024
RATES = (0.01, 0.05)
REAL = ("boston_housing", "concrete_strength", "energy_efficiency", "wine_quality_red", "power_plant")
#: blocks of the rows
PARTS = 16


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5))
    f = 2.0 * np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    return x, (f + 0.7 * rng.logistic(size=n) > 0.0).astype(int)


def held_out(probability: Any) -> float:
    """Mean log probability of held-out labels, from a function of their inputs."""
    x, y = data(5000, seed=1)
    p = np.clip(probability(x), 1e-12, 1.0 - 1e-12)
    return float(np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))


@dataclass(frozen=True)
class Counted(LocalBlocks):
    """Blocks that count the passes over them."""

    passes: list[str] = field(default_factory=list)

    def total(self, summand: Any, *shared: Any) -> tuple[Any, ...]:
        self.passes.append(summand.__name__)
        return super().total(summand, *shared)

    def each(self, function: Any, *shared: Any) -> list[Any]:
        self.passes.append(function.__name__)
        return super().each(function, *shared)


def fit_ours(x: np.ndarray, y: np.ndarray, points: int) -> GaussianProcessClassifier:
    model = GaussianProcessClassifier(
        KERNEL, approximation=Inducing(points), hyperparameters="maximise", random_state=0
    )
    return model.fit(x, y)


def fit_blocks(x: np.ndarray, y: np.ndarray, points: int) -> tuple[GaussianProcessClassifier, int, int]:
    """The same on blocks of rows, whose passes are counted: the fit, passes over all rows, and kernel steps there."""
    plain = LocalBlocks.of(x, y, rows=-(-len(x) // PARTS))
    blocks = Counted(plain.whole, plain.rows)
    model = GaussianProcessClassifier(
        KERNEL, approximation=Inducing(points), hyperparameters="maximise", random_state=0
    )
    model.fit(blocks)
    return model, len(blocks.passes), blocks.passes.count("slopes_of")


def fit_gpytorch(x: np.ndarray, y: np.ndarray, points: int, epochs: int, rate: float) -> tuple[Any, list[Any]]:
    """A function from inputs to probabilities, and (seconds, held-out log probability) after each epoch."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    inputs, labels = (torch.tensor(values, dtype=torch.float32) for values in (x, y))

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            chosen = inputs[torch.randperm(len(inputs))[:points]]
            posterior = gpytorch.variational.CholeskyVariationalDistribution(points)
            super().__init__(gpytorch.variational.VariationalStrategy(self, chosen, posterior))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

        def forward(self, rows: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    model, likelihood = Process(), gpytorch.likelihoods.BernoulliLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(inputs))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=rate)

    def probability(rows: np.ndarray) -> np.ndarray:
        model.eval()
        with torch.no_grad():
            found = likelihood(model(torch.tensor(rows, dtype=torch.float32))).probs.numpy().astype(float)
        model.train()
        return np.asarray(found)

    curve, spent = [], 0.0
    model.train()
    for _ in range(epochs):
        began = time.perf_counter()
        for batch in torch.randperm(len(inputs)).split(BATCH):
            optimiser.zero_grad()
            loss = -bound(model(inputs[batch]), labels[batch])
            loss.backward()
            optimiser.step()
        spent += time.perf_counter() - began
        curve.append((spent, held_out(probability)))
    return probability, curve


def of_ours(model: GaussianProcessClassifier) -> float:
    return held_out(lambda x: model.predict_proba(x)[:, 1])


def real(name: str) -> list[tuple[Any, ...]]:
    """All processes on a real set: held-out log density, and how often intervals of 90 % hold it."""
    values = np.genfromtxt(DATA / f"{name}.csv.gz", delimiter=",", skip_header=1)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    order = np.random.default_rng(0).permutation(len(values))
    n = min(int(0.7 * len(values)), 900)
    train, test = values[order[:n]], values[order[n : n + 500]]
    kernel = ConstantKernel(1.0) * RBF(np.full(values.shape[1] - 1, 2.0))
    rows: list[tuple[Any, ...]] = []
    cases = (("exact", "exact"), ("100 points", Inducing(100)), ("auto", Inducing()), ("Vecchia", Vecchia()))
    for label, approximation in cases:
        model = GaussianProcessRegressor(
            kernel, approximation=approximation, hyperparameters="maximise", random_state=0
        )
        model.fit(train[:, :-1], train[:, -1])
        low, high = model.predict_interval(test[:, :-1]).T
        score = float(model.log_predictive_density(test[:, :-1], test[:, -1]).mean())
        inside = float(np.mean((low <= test[:, -1]) & (test[:, -1] <= high)))
        rows.append((name, n, label, len(getattr(model.process_.fitter, "Z", train)), score, inside))
    return rows


def scaling(rows: list[int], points: int) -> list[tuple[Any, ...]]:
    """Seconds, peak memory and score of a fit from a memory map, by rows; each in a process of its own."""
    found = []
    for n in rows:
        with TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
            write_rows(n, folder)
            found.append((n, *pool.submit(fit_mapped, folder, points).result()))
    draw(found, points)
    return found


def write_rows(n: int, folder: str) -> None:
    """Rows and labels as files, a million numbers at a time."""
    x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", float, (n, 5))
    y = np.lib.format.open_memmap(f"{folder}/y.npy", "w+", int, (n,))
    for first in range(0, n, 200_000):
        last = min(first + 200_000, n)
        x[first:last], y[first:last] = data(last - first, seed=2 + first)


def fit_mapped(folder: str, points: int) -> tuple[float, float, float]:
    """Seconds, peak GiB of this process, and the held-out score."""
    x, y = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "xy")
    began = time.perf_counter()
    model = GaussianProcessClassifier(
        KERNEL, approximation=Inducing(points), hyperparameters="maximise", random_state=0
    )
    model.fit(LocalBlocks.of(x, y, rows=min(-(-len(x) // PARTS), 20_000)))
    took = time.perf_counter() - began
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, of_ours(model)


def draw(found: list[tuple[Any, ...]], points: int) -> None:
    """Seconds and memory over rows, to `gp_scale.png`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    for place, column, label in ((1, 1, "seconds"), (2, 2, "peak GiB")):
        axes = figure.add_subplot(1, 2, place)
        axes.loglog([row[0] for row in found], [row[column] for row in found], "o-")
        axes.set(xlabel="rows", ylabel=label, title=f"{points} inducing points" if place == 1 else "")
    figure.savefig("gp_scale.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[20_000])
    parser.add_argument("--points", type=int, nargs="*", default=[150])
    parser.add_argument("--peers", action="store_true", help="also run GPyTorch, where it is installed")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--real", action="store_true", help="exact process, inducing points and Vecchia on five real sets"
    )
    parser.add_argument("--sets", nargs="*", default=list(REAL), choices=REAL, help="which of them")
    parser.add_argument("--scaling", action="store_true", help="seconds and memory from 10⁴ to 10⁶ rows, and a plot")
    options = parser.parse_args()
    print(environment("scikit-learn", "gpytorch", "torch"))
    if options.real:
        heads = ("set", "rows", "process", "points", "held-out log density", "inside 90 % intervals")
        print(table(heads, [row for name in options.sets for row in real(name)]))
        return
    if options.scaling:
        print(table(("N", "seconds", "peak GiB", "held-out log probability"), scaling(options.rows, options.points[0])))
        return
    found: list[tuple[Any, ...]] = []
    for n in options.rows:
        x, y = data(n)
        for points in options.points:
            began = time.perf_counter()
            model, passes, steps = fit_blocks(x, y, points)
            took = time.perf_counter() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            found.append((n, points, "latlin", took, of_ours(model), f"{passes / max(steps, 1):.1f}", peak))
            for rate in RATES if options.peers else ():
                _, curve = fit_gpytorch(x, y, points, options.epochs, rate)
                found += [
                    (n, points, f"GPyTorch, rate {rate}, epoch {e + 1}", *at, "–", "–") for e, at in enumerate(curve)
                ]
    heads = ("N", "points", "method", "seconds", "held-out log probability", "passes per kernel step", "peak GiB")
    print(table(heads, found))


def tasks(size: str) -> list[Task]:
    """A learnt kernel, and GPyTorch's best of a few epochs; the large case in blocks shows memory."""
    cases = {"small": [(10_000, 100, 2)], "full": [(20_000, 150, 20), (100_000, 500, 20)]}[size]
    found = []
    for n, points, epochs in cases:
        case = f"N = {n}, {points} inducing points, kernel learnt"
        found.append(Task(case, "latlin inducing", partial(our_trial, n, points)))
        found += [
            Task(case, f"gpytorch, rate {rate}", partial(their_trial, n, points, epochs, rate), **by("gpytorch"))
            for rate in RATES
        ]
    if size == "full":
        found.append(Task("N = 1000000, 200 inducing points", "latlin inducing", partial(our_trial, 1_000_000, 200)))
    return found


def our_trial(n: int, points: int) -> Trial:
    x, y = data(n)
    return Trial(
        lambda: fit_ours(x, y, points),
        lambda fit: {"log evidence": float(fit.log_evidence_), "held-out log probability": of_ours(fit)},
    )


def their_trial(n: int, points: int, epochs: int, rate: float) -> Trial:
    import gpytorch  # noqa: F401  where it is absent the suite says so

    x, y = data(n)
    return Trial(
        lambda: fit_gpytorch(x, y, points, epochs, rate),
        lambda found: {"held-out log probability": max(score for _, score in found[1])},
    )


if __name__ == "__main__":
    run_alone(__file__, main)

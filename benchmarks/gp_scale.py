"""Gaussian process classification with many rows: inducing points against stochastic variational processes.

Five inputs, the decision of `gp.py`, constant × squared exponential kernel with one length per input, learnt. GPyTorch
and GPflow learn kernel, inducing inputs and posterior on batches of 1,024 rows: by Adam (GPyTorch's manual has a
learning rate of 0.01; 0.05 does better here), and GPflow also by natural gradients of 0.1 with Adam for the kernel.
Their link is probit, GPyTorch's numbers are of single precision. Each is followed for some epochs, or until it took
`--limit` seconds, and timed to its own final score, the mean of the last quarter of its curve. Held-out log probability
is the mean over 5,000 rows. A pass is one sum over all rows; a kernel step is one evaluation of the bound and its
gradient: it costs the rows, a Gram matrix and variances per covariance it tries, and slopes: products of n·M² on n
sampled rows.

    python benchmarks/gp_scale.py [--rows 20000 100000] [--points 150 500] [--peers] [--epochs 5] [--limit 300]
    python benchmarks/gp_scale.py --rows 1000000 --points 200
    python benchmarks/gp_scale.py --real [--sets boston_housing …]
    python benchmarks/gp_scale.py --scaling --rows 10000 30000 100000 300000 1000000 --points 200

`--scaling` fits rows of memory maps, each case in a process of its own whose peak memory is shown, and draws seconds of
the processor and memory over rows (`--plot`).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from _suite import run_alone
from _table import environment, table
from _task import DATA, Task, Trial, by
from latlin.distributed.blocks import LocalBlocks
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Inducing, Vecchia, inducing_fit

KERNEL = ConstantKernel(4.0) * RBF([2.0] * 5)
BATCH, QUARTERS = 1024, 4
RATES = (0.01, 0.05)
REAL = ("boston_housing", "concrete_strength", "energy_efficiency", "wine_quality_red", "power_plant")
RESULTS = Path(__file__).parent / "results"
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


class Followed(NamedTuple):
    """A stochastic fit: a function from inputs to probabilities, and its curve.

    Attributes
    ----------
    probability : callable
    curve : list of (epochs, seconds, seconds of the processor, held-out score)
        After each quarter of an epoch.
    """

    probability: Callable[[np.ndarray], np.ndarray]
    curve: list[tuple[float, float, float, float]]

    @property
    def arrival(self) -> tuple[float, float, float, float]:
        """When the curve first came to its final score, the mean of its last quarter, and that score."""
        last = self.curve[-max(len(self.curve) // 4, 1) :]
        final = float(np.mean([score for *_, score in last]))
        epochs, seconds, processor, _ = next(at for at in self.curve if at[3] >= final)
        return epochs, seconds, processor, final


def follow(
    step: Callable[[np.ndarray], None],
    probability: Callable[[np.ndarray], np.ndarray],
    n: int,
    epochs: int,
    limit: float = np.inf,
) -> Followed:
    """Steps on batches of rows, as their places, for some epochs or until they took `limit` seconds.

    The first step, in which graphs may be compiled, is not counted.
    """
    rng = np.random.default_rng(0)
    step(rng.integers(n, size=BATCH))
    curve: list[tuple[float, float, float, float]] = []
    spent = worked = 0.0
    for epoch in range(epochs):
        batches = np.array_split(rng.permutation(n), max(n // BATCH, QUARTERS))
        for quarter, some in enumerate(np.array_split(np.arange(len(batches)), QUARTERS), 1):
            began, processor = time.perf_counter(), time.process_time()
            for place in some:
                step(batches[place])
            spent += time.perf_counter() - began
            worked += time.process_time() - processor
            curve.append((epoch + quarter / QUARTERS, spent, worked, held_out(probability)))
            if spent > limit:
                return Followed(probability, curve)
    return Followed(probability, curve)


def fit_gpytorch(x: np.ndarray, y: np.ndarray, points: int, rate: float, epochs: int, limit: float) -> Followed:
    """GPyTorch's stochastic variational process by Adam."""
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

    def step(places: np.ndarray) -> None:
        batch = torch.as_tensor(places)
        optimiser.zero_grad()
        loss = -bound(model(inputs[batch]), labels[batch])
        loss.backward()
        optimiser.step()

    def probability(rows: np.ndarray) -> np.ndarray:
        model.eval()
        with torch.no_grad():
            found = likelihood(model(torch.tensor(rows, dtype=torch.float32))).probs.numpy().astype(float)
        model.train()
        return np.asarray(found)

    model.train()
    return follow(step, probability, len(x), epochs, limit)


def fit_gpflow(x: np.ndarray, y: np.ndarray, points: int, natural: bool, epochs: int, limit: float) -> Followed:
    """GPflow's stochastic variational process: Adam at 0.05, with natural gradients for the posterior if `natural`."""
    import gpflow
    import tensorflow as tf

    tf.random.set_seed(0)
    chosen = x[np.random.default_rng(0).permutation(len(x))[:points]]
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=np.ones(x.shape[1]))
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Bernoulli(), chosen, num_data=len(x))
    inputs, labels = tf.constant(x), tf.constant(y[:, None].astype(float))
    adam = tf.optimizers.Adam(0.05)
    adam_moves: Any = model.trainable_variables
    towards = gpflow.optimizers.NaturalGradient(gamma=0.1)
    if natural:
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
        adam_moves = model.trainable_variables

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def moved(places: Any) -> None:
        batch = (tf.gather(inputs, places), tf.gather(labels, places))
        with tf.GradientTape() as tape:
            loss = model.training_loss(batch)
        adam.apply_gradients(zip(tape.gradient(loss, adam_moves), adam_moves, strict=True))
        if natural:
            towards.minimize(lambda: model.training_loss(batch), [(model.q_mu, model.q_sqrt)])

    def probability(rows: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict_y(rows)[0].numpy()[:, 0])

    return follow(lambda places: moved(tf.constant(places)), probability, len(x), epochs, limit)


#: name of a stochastic fit → the fit, and an option of its
PEERS: dict[str, tuple[Callable[..., Followed], Any]] = {
    **{f"GPyTorch, Adam at {rate}": (fit_gpytorch, rate) for rate in RATES},
    "GPflow, Adam at 0.05": (fit_gpflow, False),
    "GPflow, natural gradients": (fit_gpflow, True),
}


def of_ours(model: GaussianProcessClassifier) -> float:
    return held_out(lambda x: model.predict_proba(x)[:, 1])


def real(name: str) -> list[tuple[Any, ...]]:
    """All processes on a real set: held-out log density, and how often intervals of 90 % hold it.

    Rows with the same inputs are on one side, since the others would tell their targets.
    """
    values = np.genfromtxt(DATA / f"{name}.csv.gz", delimiter=",", skip_header=1)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    _, label = np.unique(values[:, :-1], axis=0, return_inverse=True)
    place = np.random.default_rng(0).permutation(int(label.max()) + 1)[label.ravel()]
    order = np.argsort(place, kind="stable")
    n = min(int(0.7 * len(values)), 900)
    while place[order[n]] == place[order[n - 1]]:
        n += 1
    train, test = values[order[:n]], values[order[n : n + 500]]
    kernel = ConstantKernel(1.0) * RBF(np.full(values.shape[1] - 1, 2.0))
    rows: list[tuple[Any, ...]] = []
    cases = (("exact", "exact"), ("100 points", Inducing(100)), ("auto", Inducing()), ("Vecchia", Vecchia()))
    for label, approximation in cases:
        model = GaussianProcessRegressor(
            kernel, approximation=approximation, hyperparameters="maximise", random_state=0
        )
        began = time.process_time()
        model.fit(train[:, :-1], train[:, -1])
        took = time.process_time() - began
        low, high = model.predict_interval(test[:, :-1]).T
        score = float(model.log_predictive_density(test[:, :-1], test[:, -1]).mean())
        inside = float(np.mean((low <= test[:, -1]) & (test[:, -1] <= high)))
        rows.append((name, n, label, len(getattr(model.process_.fitter, "Z", train)), score, inside, took))
    return rows


def scaling(rows: list[int], points: int) -> list[tuple[Any, ...]]:
    """Seconds, peak memory, passes and score of a fit from a memory map, by rows; each in a process of its own."""
    found = []
    for n in rows:
        with TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
            write_rows(n, folder)
            found.append((n, *pool.submit(fit_mapped, folder, points).result()))
    return found


def write_rows(n: int, folder: str) -> None:
    """Rows and labels as files, a million numbers at a time."""
    x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", float, (n, 5))
    y = np.lib.format.open_memmap(f"{folder}/y.npy", "w+", int, (n,))
    for first in range(0, n, 200_000):
        last = min(first + 200_000, n)
        x[first:last], y[first:last] = data(last - first, seed=2 + first)


def fit_mapped(folder: str, points: int) -> tuple[float, float, float, int, int, float, float]:
    """Seconds (clock, processor), peak GiB of this process, passes, kernel steps, covariances of each, held out."""
    tried = count_covariances()
    x, y = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "xy")
    plain = LocalBlocks.of(x, y, rows=min(-(-len(x) // PARTS), 20_000))
    blocks = Counted(plain.whole, plain.rows)
    model = GaussianProcessClassifier(
        KERNEL, approximation=Inducing(points), hyperparameters="maximise", random_state=0
    )
    began, processor = time.perf_counter(), time.process_time()
    model.fit(blocks)
    took, processor = time.perf_counter() - began, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    steps = len(model.traces_[0])
    return took, processor, peak, len(blocks.passes), steps, float(np.mean(tried)), of_ours(model)


def count_covariances() -> list[int]:
    """A list to which every fit on rows in memory adds the covariances that it tried."""
    plain, tried = inducing_fit.alternate, []

    def counted(*arguments: Any) -> Any:
        found = plain(*arguments)
        tried.append(12 if found is None else found.n_iter)
        return found

    inducing_fit.alternate = counted
    return tried


def draw(found: list[tuple[Any, ...]], points: int, path: Path) -> None:
    """Seconds and memory over rows, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    panels = ((2, "seconds of the processor", f"kernel learnt, {points} inducing points"), (3, "peak GiB", "memory"))
    for place, (column, label, title) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 2, place)
        axes.loglog([row[0] for row in found], [row[column] for row in found], "o-")
        axes.set(xlabel="rows", ylabel=label, title=title)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[20_000])
    parser.add_argument("--points", type=int, nargs="*", default=[150])
    parser.add_argument("--peers", action="store_true", help="also GPyTorch and GPflow, where they are installed")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a stochastic fit")
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=list(PEERS), help="which of the peers")
    parser.add_argument("--repeats", type=int, default=1, help="fits of latlin, of which each is shown")
    parser.add_argument(
        "--real", action="store_true", help="exact process, inducing points and Vecchia on five real sets"
    )
    parser.add_argument("--sets", nargs="*", default=list(REAL), choices=REAL, help="which of them")
    parser.add_argument("--scaling", action="store_true", help="seconds and memory from 10⁴ to 10⁶ rows, and a plot")
    parser.add_argument("--plot", type=Path, default=RESULTS / "gp_scaling.png", help="where --scaling draws")
    options = parser.parse_args()
    print(environment("scikit-learn", "gpytorch", "torch"))
    if options.real:
        heads = ("set", "rows", "process", "points", "held-out log density", "inside 90 % intervals", "processor s")
        for name in options.sets:
            print(table(heads, real(name)), flush=True)
        return
    if options.scaling:
        heads = (
            "N",
            "seconds",
            "processor s",
            "peak GiB",
            "passes over all rows",
            "kernel steps",
            "covariances per step",
            "held-out log probability",
        )
        lines = scaling(options.rows, options.points[0])
        print(table(heads, lines))
        draw(lines, options.points[0], options.plot)
        return
    heads = ("N", "points", "method", "epochs", "seconds", "processor s", "held-out log probability")
    fit_ours(*data(3000), points=50)  # loops are compiled, and kept on disk, before anything is timed
    for n in options.rows:
        for points in options.points:
            peers = options.only if options.peers else []
            print(
                table(heads, [*compare(n, points, peers, options.epochs, options.limit, options.repeats)]), flush=True
            )


def compare(
    n: int, points: int, peers: list[str], epochs: int, limit: float, repeats: int
) -> Iterator[tuple[Any, ...]]:
    """Rows of the table: our fits, the curve of each peer, and where it came to its final score."""
    x, y = data(n)
    best = np.inf
    for _ in range(repeats):
        began, processor = time.perf_counter(), time.process_time()
        model = fit_ours(x, y, points)
        took, processor = time.perf_counter() - began, time.process_time() - processor
        best = min(best, took)
        used = len(model.inducing_inputs_)
        yield (
            n,
            points,
            f"latlin, {used} points explain all rows" if used < points else "latlin",
            "–",
            took,
            processor,
            of_ours(model),
        )
    for name in peers:
        fit, option = PEERS[name]
        try:
            followed = fit(x, y, points, option, epochs, limit)
        except ImportError as error:
            sys.stderr.write(f"{name}: {error}\n")
            continue
        except Exception as error:  # a peer that breaks is said, and stops nothing
            yield n, points, f"{name}: {type(error).__name__}", "–", "–", "–", "–"
            continue
        yield from ((n, points, name, *at) for at in followed.curve)
        epoch, seconds, *rest = followed.arrival
        yield n, points, f"{name}, to its final score: latlin takes {best / seconds:.2f} of it", epoch, seconds, *rest


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
    import gpytorch  # noqa: F401  where it is absent the suite tells it

    x, y = data(n)
    return Trial(
        lambda: fit_gpytorch(x, y, points, rate, epochs, np.inf),
        lambda found: {"held-out log probability": max(score for *_, score in found.curve)},
    )


if __name__ == "__main__":
    run_alone(__file__, main)

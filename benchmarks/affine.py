"""Affine-independent KL against Gaussian KL, in the two settings whose cost the source reports, and its scaling.

The source (Challis (2013), §6.7) took 8 s against 0.2 s for D = N = 10 logistic regression with skew-normal bases,
and 250 s against 5 s for kernel regression with D = N = 100 and generalised normal bases of a fixed shape, on other
machines. There is no other implementation to compare with.

    python benchmarks/affine.py [--repeats 3] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.densities.bases import SkewNormal
from latlin.engines import AffineKL
from latlin.inference.affine.bound import AffineBound
from latlin.inference.engine import site_form
from reproduction import figure_6_4
from reproduction.kernel_regression import Setting, affine, friedman, model_of


def fits(repeats: int, quick: bool) -> list[tuple]:
    """Rows: setting, seconds of both engines, their ratio, ratio to the source, gain in the bound, steps, error."""
    size = 30 if quick else 100
    kernel = model_of(friedman(0, size, 1), Setting())
    cases = [
        ("logistic D = N = 10, skew-normal", figure_6_4.problem(0, 10, 0)[0], AffineKL("skew-normal"), 8.0),
        (f"kernel D = N = {size}, tol 1e-3", kernel, affine(1e-3), 250.0),
        (f"kernel D = N = {size}, tol 1e-4", kernel, affine(1e-4), 250.0),
    ]
    rows = []
    for name, model, engine, source in cases:
        plain, gaussian = seconds(lambda model=model: infer(model, "gkl"), repeats)
        cost, bent = seconds(lambda model=model, engine=engine: infer(model, engine), repeats)
        gain = bent.log_evidence - gaussian.log_evidence
        rows.append((name, plain, cost, cost / plain, source / cost, gain, bent.n_iter, bent.bound_error))
    return rows


def one_bound(dim: int, sites: int, repeats: int) -> float:
    """Seconds of one bound with its gradient, shapes included."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((sites, dim)) / np.sqrt(dim)
    labels = rng.random(sites) < 0.5
    model = LatentLinearModel([GaussianFactor(dim=dim), SiteFactor(3.0 * rows, potentials.Logit(labels))])
    form = site_form(model)
    solution = form.solve(infer(model, "gkl").sites)
    bound = AffineBound(form, solution, np.eye(form.rank), SkewNormal(np.full(form.rank, 1.5)), True)
    point = bound.start() + 0.01 * rng.standard_normal(bound.start().size)
    return seconds(lambda: bound.evaluate(point, 1), 5 * repeats)[0]


def slope(x: list[int], y: list[float]) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    arguments = parser.parse_args()
    print(environment("numba"), "\n")
    columns = ("setting", "G-KL s", "AI-KL s", "ratio", "source/ours", "gain, nat", "steps", "error, nat")
    print(table(columns, fits(arguments.repeats, arguments.quick)), "\n")
    sizes = [20, 40, 80] if arguments.quick else [50, 100, 200, 400]
    by_sites = [one_bound(40, 4 * n, arguments.repeats) for n in sizes]
    by_dim = [one_bound(n, 400, arguments.repeats) for n in sizes]
    print("one bound and gradient, skew-normal, seconds\n")
    rows = [("N, D = 40", *by_sites), ("D, N = 400", *by_dim)]
    print(table(("grows", *(f"{4 * n} / {n}" for n in sizes)), rows), "\n")
    print(f"log–log slope in N {slope(sizes, by_sites):.2f}, in D {slope(sizes, by_dim):.2f}")


def tasks(size: str) -> list[Task]:
    """Both engines on both problems of the source; Gaussian KL, which does less, is the yardstick."""
    n = {"small": 30, "full": 100}[size]
    cases: dict[str, tuple[Callable[[], LatentLinearModel], AffineKL]] = {
        "logistic, D = N = 10, skew-normal": (lambda: figure_6_4.problem(0, 10, 0)[0], AffineKL("skew-normal")),
        f"kernel regression, D = N = {n}": (
            lambda: model_of(friedman(0, n, 1), Setting()),
            affine(1e-3),
        ),
    }
    found = []
    for case, (make, engine) in cases.items():
        found.append(Task(case, "affine-independent KL", partial(trial, make, engine)))
        found.append(Task(case, "Gaussian KL", partial(trial, make, "gkl"), role="yardstick"))
    case = "logistic, 1,000 × 20, every base"
    found.append(Task(case, "affine-independent KL", partial(trial, tall, "ai-kl")))
    return [*found, Task(case, "Laplace", partial(trial, tall, "laplace"), role="yardstick")]


def tall() -> LatentLinearModel:
    """A logistic regression with many rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 20))
    labels = rng.random(1000) < 1.0 / (1.0 + np.exp(-rows @ rng.standard_normal(20) / 2.0))
    return LatentLinearModel([GaussianFactor(dim=20), SiteFactor(rows, potentials.Logit(labels))])


def trial(make: Callable[[], LatentLinearModel], engine: Any) -> Trial:
    model = make()
    return Trial(
        lambda: infer(model, engine),
        lambda post: {"bound": post.log_evidence, "numerical error, nat": float(post.bound_error or 0.0)},
    )


if __name__ == "__main__":
    run_alone(__file__, main)

"""Sequential design: seconds per step of every engine for sparse signals and small images, and what the design gains.

Signals are Laplace, 40 measurements at first; images are generated, 100 measurements at first. A step is one warm
posterior after new measurements; a suggestion is three leading eigenvectors.

    python benchmarks/design.py [--dims 512] [--sides 16 32]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin import engines, potentials
from latlin.design import SequentialDesign
from reproduction.image_design import dead_leaves, filters_of

NOISE = 0.005
SIGNAL_ENGINES: dict[str, Any] = {
    "gkl": engines.GaussianKL(tol=1e-2),
    "lvb": engines.LocalBound(tol=1e-2),
    "power EP": engines.ExpectationPropagation(power=0.9, schedule="parallel", tol=1e-4),
}
IMAGE_ENGINES: dict[str, Any] = {
    "gkl": engines.GaussianKL(tol=0.1),
    "lvb": engines.LocalBound(tol=0.1),
    "lvb, 40 Lanczos steps": engines.LocalBound(variances="lanczos", rank=40, tol=0.1),
    "gkl, chevron 20": engines.GaussianKL(covariance="chevron", rank=20, tol=0.1),
}


def timed(design: SequentialDesign, truth: np.ndarray, first: int, steps: int, designs: bool) -> tuple[float, ...]:
    """Seconds of the first posterior, of a warm one, of a suggestion, and the error at the end."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((first, design.dim))
    took, suggested = [], 0.0
    for _ in range(steps + 1):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        design.observe(rows, rows @ truth + np.sqrt(NOISE) * rng.standard_normal(len(rows)))
        start = time.perf_counter()
        mean = design.reconstruction
        took.append(time.perf_counter() - start)
        start = time.perf_counter()
        rows = design.suggest(3) if designs else rng.standard_normal((3, design.dim))
        suggested = time.perf_counter() - start
    return took[0], float(np.mean(took[1:])), suggested, float(np.linalg.norm(mean - truth))


def signal_rows(dim: int) -> list[tuple[Any, ...]]:
    truth = np.random.default_rng(1).laplace(scale=0.2, size=dim)
    rows = []
    for label, engine in SIGNAL_ENGINES.items():
        for designs in (True, False):
            design = SequentialDesign(None, potentials.Laplace(scale=0.2), NOISE, engine=engine, dim=dim)
            rows.append((f"signal, {dim}", label, _kind(designs), *timed(design, truth, 40, 10, designs)))
    return rows


def image_parts(side: int) -> tuple[np.ndarray, list[Any], list[Any]]:
    """An image, the filters whose answers are sparse, and their potentials."""
    image = dead_leaves(0, side)
    filters, priors = filters_of(image.shape)
    return image, filters, list(priors)


def image_rows(side: int) -> list[tuple[Any, ...]]:
    image, filters, priors = image_parts(side)
    rows = []
    for label, engine in IMAGE_ENGINES.items():
        for designs in (True, False):
            design = SequentialDesign(filters, priors, NOISE, engine=engine)
            rows.append((f"image, {side}×{side}", label, _kind(designs), *timed(design, image.ravel(), 40, 5, designs)))
    return rows


def _kind(designs: bool) -> str:
    return "designed" if designs else "random"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="*", default=[512])
    parser.add_argument("--sides", type=int, nargs="*", default=[16, 32])
    options = parser.parse_args()
    print(environment("numba"))
    rows = [row for dim in options.dims for row in signal_rows(dim)]
    rows += [row for side in options.sides for row in image_rows(side)]
    columns = ("problem", "engine", "rows", "first posterior, s", "next posterior, s", "suggestion, s", "error")
    print(table(columns, rows))


def tasks(size: str) -> list[Task]:
    """A whole sequence of designs; what is compared is one warm posterior. Local bounds are the literature's engine."""
    dim, side = {"small": (128, 8), "full": (512, 32)}[size]
    found = []
    for case, engines_of, trial in (
        (f"signal, D = {dim}", SIGNAL_ENGINES, partial(signal_trial, dim)),
        (f"image, {side} × {side}", IMAGE_ENGINES, partial(image_trial, side)),
    ):
        for name, engine in engines_of.items():
            role = "yardstick" if name == "lvb" else "latlin"
            found.append(Task(case, name, partial(trial, engine), role=role, unit="s per posterior"))
    return found


def signal_trial(dim: int, engine: Any) -> Trial:
    truth = np.random.default_rng(1).laplace(scale=0.2, size=dim)
    return trial_of(lambda: SequentialDesign(None, potentials.Laplace(scale=0.2), NOISE, engine=engine, dim=dim), truth)


def image_trial(side: int, engine: Any) -> Trial:
    image, filters, priors = image_parts(side)
    return trial_of(lambda: SequentialDesign(filters, priors, NOISE, engine=engine), image.ravel())


def trial_of(make: Callable[[], SequentialDesign], truth: np.ndarray) -> Trial:
    def judge(result: tuple[float, ...]) -> dict[str, float | str]:
        return {
            "a suggestion, s": result[2],
            "error": result[3],
            "with random rows": timed(make(), truth, 40, 5, False)[3],
        }

    return Trial(lambda: timed(make(), truth, 40, 5, True), judge, cost=lambda result: result[1])


if __name__ == "__main__":
    run_alone(__file__, main)

"""Figure 5.2 of 002_71af9439e55c646f: sequential design for sparse signals, designed against random measurements.

Signals of 512 independent Laplace (τ = 0.2) or Student t (df = 3, σ² = 0.0267) values, forty random unit-norm
measurements of noise variance 0.005 to begin with, then designed ones. Gaussian KL, local bounds and, for Laplace
signals, power expectation propagation (0.9) design for themselves; beside the source's mode with random rows there is
Gaussian KL with random rows, so that the gain of the design can be told from that of the engine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.design import SequentialDesign
from latlin.engines import MAP, ExpectationPropagation, GaussianKL, LocalBound
from latlin.potentials import Laplace, StudentT
from latlin.potentials.base import Potential
from latlin.reproduce.output import made, new_figure
from latlin.reproduce.page import Claim, Picture, Table, at_size, drawn, write_page
from latlin.reproduce.resume import each, remembered

Array = NDArray[np.float64]
NOISE = 0.005
SIGMA = np.sqrt(0.0267)
PRIORS: dict[str, Potential] = {"Laplace": Laplace(scale=0.2), "Student t": StudentT(3.0, scale=SIGMA)}
#: label → engine, whether it designs, and the signals it is for; gradients of 0.01 end a fit, as in the source
METHODS: dict[str, tuple[Any, bool, tuple[str, ...]]] = {
    "G-KL": (GaussianKL(tol=1e-2), True, ("Laplace", "Student t")),
    "LVB": (LocalBound(tol=1e-2), True, ("Laplace", "Student t")),
    "power EP": (ExpectationPropagation(power=0.9, schedule="parallel", tol=1e-4), True, ("Laplace",)),
    "G-KL, random rows": (GaussianKL(tol=1e-2), False, ("Laplace", "Student t")),
    "MAP, random rows": (MAP(tol=1e-3), False, ("Laplace", "Student t")),
}


class Plan(NamedTuple):
    """Length of the signal, measurements at first and at last, and how many a step."""

    dim: int = 512
    first: int = 40
    last: int = 112
    step: int = 6
    seeds: int = 25


QUICK = Plan(dim=64, first=16, last=32, step=8, seeds=3)


def unit_rows(rng: np.random.Generator, count: int, dim: int) -> Array:
    """Random rows of length one."""
    rows = rng.standard_normal((count, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def signal_of(kind: str, seed: int, dim: int) -> Array:
    rng = np.random.default_rng([seed, dim])
    return rng.laplace(scale=0.2, size=dim) if kind == "Laplace" else SIGMA * rng.standard_t(3.0, size=dim)


def errors_of(kind: str, label: str, seed: int, plan: Plan) -> Array:
    """‖mean − signal‖ at every number of measurements."""
    engine, designs, _ = METHODS[label]
    signal = signal_of(kind, seed, plan.dim)
    design = SequentialDesign(None, PRIORS[kind], NOISE, engine=engine, dim=plan.dim)
    rng = np.random.default_rng([seed, 1])
    rows, errors = unit_rows(rng, plan.first, plan.dim), []
    for _ in range(plan.first, plan.last + 1, plan.step):
        design.observe(rows, rows @ signal + np.sqrt(NOISE) * rng.standard_normal(len(rows)))
        errors.append(float(np.linalg.norm(design.reconstruction - signal)))
        rows = design.suggest(plan.step) if designs else unit_rows(rng, plan.step, plan.dim)
    return np.array(errors)


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, a table of errors and the page."""
    target, plan = made(folder), QUICK if quick else Plan()
    pairs = [(kind, label) for kind in PRIORS for label, (_, _, kinds) in METHODS.items() if kind in kinds]
    jobs = [(kind, label, seed) for seed in range(plan.seeds) for kind, label in pairs]
    found: dict[tuple[str, str], list[Array]] = {pair: [] for pair in pairs}
    for kind, label, seed in each("figure 5.2", jobs):
        key = f"figure_5_2{'_quick' * quick}_{kind}_{label}_{seed}"
        kept = remembered(
            target,
            key,
            lambda k=kind, b=label, s=seed: {"errors": errors_of(k, b, s, plan)},  # type: ignore[misc]
        )
        found[kind, label].append(kept["errors"])
    curves = {pair: np.array(runs) for pair, runs in found.items()}
    said = at_size(claims(curves), quick)
    return write_page(target, "figure_5_2", said, [_table(curves, plan)], [_figure(target, curves, plan, quick)])


def claims(curves: dict[tuple[str, str], Array]) -> list[Claim]:
    """What §5.4 says of the figure, and its seconds."""
    last = {pair: float(errors[:, -1].mean()) for pair, errors in curves.items()}
    said = []
    for kind in PRIORS:
        designed = {
            label: last[kind, label] for label, (_, designs, kinds) in METHODS.items() if designs and kind in kinds
        }
        worst, mode = max(designed.values()), last[kind, "MAP, random rows"]
        ours = f"{worst:.2f} at most against {mode:.2f}"
        said.append(Claim(f"{kind}: designed against MAP with random rows", "smaller errors", ours, worst < mode))
        spread = worst / min(designed.values())
        said.append(Claim(f"{kind}: designing engines", "broadly alike", f"within {spread - 1.0:.0%}", spread < 1.25))
    return [*said, *(Claim(f"seconds, {what}", theirs, "–", None, TIMED) for what, theirs in SECONDS.items())]


TIMED = "not compared: runs are not timed alone here; `benchmarks/design.py` does"
SECONDS = {
    "Laplace, LVB": "0.3",
    "Laplace, EP": "0.6",
    "Laplace, G-KL": "1.6",
    "Student t, LVB": "0.3",
    "Student t, G-KL": "6",
}


def _counts(plan: Plan) -> NDArray[np.int64]:
    return np.arange(plan.first, plan.last + 1, plan.step, dtype=np.int64)


def _table(curves: dict[tuple[str, str], Array], plan: Plan) -> Table:
    counts = _counts(plan)
    shown = [0, len(counts) // 2, len(counts) - 1]
    columns = ("signal", "method", *(f"{counts[i]} measurements" for i in shown), "runs")
    rows = []
    for (kind, label), errors in curves.items():
        spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        cells = [f"{errors[:, i].mean():.3f} ± {spread[i]:.3f}" for i in shown]
        rows.append((kind, label, *cells, len(errors)))
    title = "Figure 5.2: distance of the mean from the signal, mean ± standard error"
    return Table("figure_5_2", title, columns, rows)


def _figure(target: Path, curves: dict[tuple[str, str], Array], plan: Plan, quick: bool) -> Picture:
    figure = new_figure("figure 5.2", 8.0, 3.2)
    panels = dict(zip(PRIORS, figure.subplots(1, len(PRIORS)), strict=True))
    for (kind, label), errors in curves.items():
        spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        panels[kind].errorbar(_counts(plan), errors.mean(axis=0), spread, label=label, capsize=2)
    for kind, axes in panels.items():
        axes.set(title=f"{kind} signals", xlabel="measurements", ylabel="reconstruction error")
        axes.legend(fontsize=7)
    alt = "Reconstruction errors of sparse signals against the number of measurements, designed and random"
    return drawn(figure, target / "figure_5_2.png", alt, quick)

"""Figure 5.2 of Challis (2013): sequential design for sparse signals, designed against random measurements.

Signals of 512 independent Laplace (τ = 0.2) or Student t (df = 3, σ² = 0.0267) values, forty random unit-norm
measurements of noise variance 0.005 to begin with, then designed ones. Gaussian KL, local bounds and, for Laplace
signals, power expectation propagation (0.9) design for themselves; beside the source's mode with random rows there is
Gaussian KL with random rows, so that the gain of the design can be told from that of the engine. The page is written
anew after every signal, from the signals that are there. Seconds are processor time of one fit from nothing, with 110
random measurements.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.design import SequentialDesign
from latlin.engines import MAP, ExpectationPropagation, GaussianKL, LocalBound
from latlin.potentials import Laplace, Potential, StudentT
from reproduction.output import made, new_figure
from reproduction.page import Claim, Picture, Table, at_size, drawn, write_page
from reproduction.resume import each, is_kept, named, recalled, remembered

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
    "G-KL, stopped early": (GaussianKL(tol=1.0), True, ("Student t",)),
}
#: the runs that test a reason, and for how many signals
LOOSE, TESTED = "G-KL, stopped early", 5
PAIRS = [
    (kind, label) for kind in PRIORS for label, (_, _, kinds) in METHODS.items() if kind in kinds and label != LOOSE
]


class Plan(NamedTuple):
    """Length of the signal, measurements at first and at last, and how many per step."""

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
    jobs = [(kind, label, seed) for seed in range(plan.seeds) for kind, label in PAIRS]
    jobs += [(kind, LOOSE, seed) for kind in METHODS[LOOSE][2] for seed in range(min(TESTED, plan.seeds))]
    for kind, label, seed in each("figure 5.2", jobs):
        if is_kept(target, key := _key(kind, label, seed, quick)):
            continue
        remembered(target, key, lambda k=kind, b=label, s=seed: {"errors": errors_of(k, b, s, plan)})  # type: ignore[misc]
        if (kind, label) == PAIRS[-1] and not quick:
            _write(target, plan, quick)
    return _write(target, plan, quick)


def write(folder: str | os.PathLike[str]) -> list[Path]:
    """The page from the runs that are there."""
    return _write(made(folder), Plan(), quick=False)


def _key(kind: str, label: str, seed: int, quick: bool) -> str:
    return f"figure_5_2{'_quick' * quick}_{kind}_{label}_{seed}"


def _write(target: Path, plan: Plan, quick: bool) -> list[Path]:
    """The page from the signals for which every method has run."""
    files = {pair: [named(target, _key(*pair, seed, quick)) for seed in range(plan.seeds)] for pair in PAIRS}
    done = [seed for seed in range(plan.seeds) if all(paths[seed].exists() for paths in files.values())]
    curves = {pair: np.array([recalled(paths[seed])["errors"] for seed in done]) for pair, paths in files.items()}
    loose = [named(target, _key("Student t", LOOSE, seed, quick)) for seed in done[:TESTED]]
    tested = np.array([recalled(path)["errors"] for path in loose if path.exists()])
    said = [*claims(curves, tested), *_seconds(target, plan, quick)]
    if len(done) < plan.seeds:
        said = [claim._replace(what=f"{claim.what} ({len(done)} of {plan.seeds} signals)") for claim in said]
    if len(tested):
        curves = curves | {("Student t", LOOSE): tested}
    tables = [_table(curves, plan)]
    return write_page(target, "figure_5_2", at_size(said, quick), tables, [_figure(target, curves, plan, quick)])


def claims(curves: dict[tuple[str, str], Array], loose: Array) -> list[Claim]:
    """What §5.4 says of the figure; `loose` are errors of Gaussian KL fits that stop early, for the first signals."""
    said = []
    for kind in PRIORS:
        labels = [label for own, label in PAIRS if own == kind and METHODS[label][1]]
        last = {label: float(curves[kind, label][:, -1].mean()) for label in labels}
        worst, mode = max(last.values()), curves[kind, "MAP, random rows"].mean(axis=0)
        ours = f"{worst:.2f} at most against {mode[-1]:.2f}"
        said.append(Claim(f"{kind}: designed against MAP with random rows", "smaller errors", ours, worst < mode[-1]))
        spread = worst / min(last.values())
        said.append(Claim(f"{kind}: designing engines", "broadly alike", f"within {spread - 1.0:.0%}", spread < 1.25))
        # the lead over the mode after the first three steps, of that at the end
        lead = mode - np.mean([curves[kind, label].mean(axis=0) for label in labels], axis=0)
        early = float(lead[min(3, len(lead) - 1)] / lead[-1])
        said.append(
            Claim(f"{kind}: lead after three steps", "most of it", f"{early:.0%} of that at the end", early > 0.5)
        )
    return [*said, _late(curves["Student t", "G-KL"], curves["Student t", "LVB"], loose)]


def _late(gkl: Array, lvb: Array, loose: Array) -> Claim:
    """Whether Gaussian KL falls behind local bounds at the end; fits that stop early test why it might have."""
    behind, error = _paired(gkl[:, -1] - lvb[:, -1])
    ours = f"{behind:+.2f} ± {error:.2f} against LVB at the end"
    if len(loose):
        lost, own = _paired(loose[:, -1] - gkl[: len(loose), -1])
        explains = bool(lost > 2.0 * own and lost + behind > 0.0)
        verdict = "met by" if explains else "not explained: tested and refuted by"
        why = (
            f"{verdict} fits that stop early: those to a gradient of {METHODS[LOOSE][0].tol:g} err {lost:+.2f} ± "
            f"{own:.2f} more ({len(loose)} signals)"
        )
    else:
        why = f"not tested yet: the runs called {LOOSE!r} do"
    return Claim("Student t: G-KL towards the end", "slightly less effective", ours, bool(behind > 0.0), why)


def _paired(difference: Array) -> tuple[float, float]:
    count = len(difference)
    return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0


MACHINE = "another machine (theirs a Core 2 Quad of 2.5 GHz, Matlab R2009a): shown, not compared"
#: the source's seconds of one fit with 512 values and 110 measurements
SECONDS = {
    ("Laplace", "LVB"): "0.3",
    ("Laplace", "power EP"): "0.6",
    ("Laplace", "G-KL"): "1.6",
    ("Student t", "LVB"): "0.3",
    ("Student t", "G-KL"): "6",
}


def _seconds(target: Path, plan: Plan, quick: bool) -> list[Claim]:
    said = []
    for (kind, label), theirs in SECONDS.items():
        key = f"figure_5_2{'_quick' * quick}_seconds_{kind}_{label}"
        took = remembered(target, key, lambda k=kind, b=label: {"seconds": np.array(seconds_of(k, b, plan))})  # type: ignore[misc]
        ours = f"{float(took['seconds']):.2f} (D = {plan.dim}, {plan.last - 2} measurements)"
        said.append(Claim(f"seconds, {kind}, {label}", theirs, ours, None, MACHINE))
    return said


def seconds_of(kind: str, label: str, plan: Plan) -> float:
    """Processor seconds of one fit from nothing, the better of two."""
    rng = np.random.default_rng(0)
    signal, rows = signal_of(kind, 0, plan.dim), unit_rows(rng, plan.last - 2, plan.dim)
    values = rows @ signal + np.sqrt(NOISE) * rng.standard_normal(len(rows))
    took = []
    for _ in range(2):
        design = SequentialDesign(None, PRIORS[kind], NOISE, engine=METHODS[label][0], dim=plan.dim)
        design.observe(rows, values)
        begun = time.process_time()
        design.posterior  # noqa: B018
        took.append(time.process_time() - begun)
    return min(took)


def _counts(plan: Plan) -> NDArray[np.int64]:
    return np.arange(plan.first, plan.last + 1, plan.step, dtype=np.int64)


def _table(curves: dict[tuple[str, str], Array], plan: Plan) -> Table:
    counts = _counts(plan)
    shown = [0, len(counts) // 2, len(counts) - 1]
    columns = ("signal", "method", *(f"{counts[i]} measurements" for i in shown), "runs")
    rows = []
    for (kind, label), errors in curves.items():
        spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.zeros(len(counts))
        cells = [f"{errors[:, i].mean():.3f} ± {spread[i]:.3f}" for i in shown]
        rows.append((kind, label, *cells, len(errors)))
    title = "Figure 5.2: distance of the mean from the signal, mean ± standard error"
    return Table("figure_5_2", title, columns, rows)


def _figure(target: Path, curves: dict[tuple[str, str], Array], plan: Plan, quick: bool) -> Picture:
    figure = new_figure("figure 5.2", 8.0, 3.2)
    panels = dict(zip(PRIORS, figure.subplots(1, len(PRIORS)), strict=True))
    for (kind, label), errors in curves.items():
        spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0
        panels[kind].errorbar(_counts(plan), errors.mean(axis=0), spread, label=label, capsize=2)
    for kind, axes in panels.items():
        axes.set(title=f"{kind} signals", xlabel="measurements", ylabel="reconstruction error")
        axes.legend(fontsize=7)
    alt = "Reconstruction errors of sparse signals against the number of measurements, designed and random"
    return drawn(figure, target / "figure_5_2.png", alt, quick)

"""Table 6.1 of Challis (2013): sparse, noise-robust kernel regression, Gaussian against affine-independent KL.

Laplace prior and Laplace noise (τ = 0.16 both), kernel exp(−0.05‖x − x′‖²) + δ, N = D = 100, a generalised normal base
with the shape fixed at 1.5, ten splits, everything standardised by the training part; and, beyond the source, the same
base with its shapes optimised, which holds the Gaussian and so cannot lose. The synthetic set is Friedman's, ten inputs
of which five matter, with a tenth of the training targets drawn from N(15, 3²) instead. Boston housing and Concrete
compressive strength (what the source calls "Concrete Slump Test" has that set's 1,030 rows) are read from a folder of
your own with `boston_housing.csv.gz` and `concrete_strength.csv.gz`, the target in the last column.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latlin.engines import AffineKL
from reproduction.arrays import Array
from reproduction.kernel_regression import Split, affine, fitted, friedman, from_file
from reproduction.output import made, new_figure
from reproduction.page import TESTED, Claim, Measured, Picture, Table, compared, drawn, write_page
from reproduction.printed import TABLE_6_1, printed
from reproduction.resume import data_file, each, remembered

FILES = {"Concrete": "concrete_strength.csv.gz", "Boston": "boston_housing.csv.gz"}
LABELS = ("G-KL", "AI-KL", "gain")


class Scores(NamedTuple):
    """Bounds and held-out mean log probabilities, each per training or test datum."""

    gaussian_bound: float
    affine_bound: float
    optimised_bound: float
    gaussian_held_out: float
    affine_held_out: float
    optimised_held_out: float


def scores(split: Split, tol: float = 1e-4) -> Scores:
    """Fit the engines to one split."""
    return Scores(*fitted(split, ["gkl", affine(tol), AffineKL("generalised-normal", tol=tol)]).ravel())


def compute(target: Path, data: str | os.PathLike[str] | None, splits: int, train: int, test: int) -> dict[str, Array]:
    """By data set, scores of every split, (splits, 6); each kept in `target`."""
    paths = {name: data_file(target, data, file) for name, file in FILES.items()}
    names = [*(name for name, path in paths.items() if path is not None), "Synthetic"]
    found: dict[str, list[Array]] = {}
    for name, seed in each("table 6.1", [(name, seed) for name in names for seed in range(splits)]):
        draw = partial(_split, paths.get(name), seed, train, test)
        key = f"table_6_1_{name}_{train}_{test}_{seed}"
        kept = remembered(target, key, lambda d=draw: {"scores": np.array(scores(d()))})  # type: ignore[misc]
        found.setdefault(name, []).append(kept["scores"])
    return {name: np.array(runs) for name, runs in found.items()}


def _split(path: Path | None, seed: int, train: int, test: int) -> Split:
    return friedman(seed, train, test) if path is None else from_file(path, seed, train)


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The table, and a figure of the gains; `data` names the folder with the two real data sets."""
    target = made(folder)
    found = compute(target, data, 2, 20, 50) if quick else compute(target, data, 10, 100, 406)
    rows = [(name, *map(_shown, _columns(values).T)) for name, values in found.items()]
    kinds = ("G-KL", "AI-KL", "gain", "AI-KL, shapes optimised", "gain")
    columns = ("data", *(f"{what} {kind}" for what in ("bound", "held-out") for kind in kinds))
    table = Table("table_6_1", "Nat per datum, mean ± standard error", columns, rows)
    return write_page(target, "table_6_1", claims(found, quick), [table], [_draw(target, found, quick)])


def claims(found: dict[str, Array], quick: bool) -> list[Claim]:
    """Every printed number, and that shapes which are optimised cannot lose."""
    said = []
    for (name, what), cells in printed(TABLE_6_1).items():
        for column, (label, theirs) in enumerate(zip(LABELS, cells, strict=True)):
            line = f"{what} {label}, {name}"
            if theirs is not None and name in found:
                ours = _measured(_columns(found[name])[:, column + (5 if what == "held-out" else 0)])
                said.append(compared(line, theirs, ours, TESTED, not quick))
            else:
                missing = f"not compared: no {FILES.get(name)} in the data folder"
                said.append(Claim(line, str(theirs), "–", None, missing))
    least = min(float(_columns(values)[:, 4].min()) for values in found.values())
    return [*said, Claim("gain with optimised shapes", "must not be negative", f"{least:+.4f} at least", least > -1e-3)]


def _draw(target: Path, found: dict[str, Array], quick: bool) -> Picture:
    figure = new_figure("table 6.1", 6.0, 3.5)
    axes = figure.subplots()
    for offset, (column, label) in enumerate(((2, "bound"), (7, "held out"))):
        gains = [_columns(values)[:, column] for values in found.values()]
        errors = [g.std(ddof=1) / np.sqrt(len(g)) for g in gains]
        axes.bar(np.arange(len(gains)) + 0.4 * offset, [g.mean() for g in gains], 0.4, yerr=errors, label=label)
    axes.set_xticks(np.arange(len(found)) + 0.2, list(found))
    axes.set_ylabel("gain over Gaussian KL, nat per datum")
    axes.legend()
    alt = "Gains of affine-independent over Gaussian KL in bound and held-out score, by data set"
    return drawn(figure, target / "table_6_1.png", alt, quick)


def _measured(values: Array) -> Measured:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return Measured(float(values.mean()), float(error))


def _columns(values: Array) -> Array:
    """For bound and held-out score: Gaussian, affine, gain, affine with optimised shapes, gain."""
    parts = []
    for plain, fixed, free in (values.T[:3], values.T[3:]):
        parts += [plain, fixed, fixed - plain, free, free - plain]
    return np.stack(parts, axis=1)


def _shown(values: Array) -> str:
    return str(_measured(values)._replace(digits=4))

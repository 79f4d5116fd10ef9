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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.engines import AffineKL
from latlin.reproduce.kernel_regression import (
    OUTLIERS,
    SETTINGS,
    STOPS,
    Setting,
    Split,
    affine,
    fitted,
    friedman,
    from_file,
    stopped,
)
from latlin.reproduce.output import made, new_figure
from latlin.reproduce.page import Claim, Measured, Picture, Table, drawn, write_page
from latlin.reproduce.printed import TABLE_6_1, printed
from latlin.reproduce.reasons import Line, Trial, judged, ranked, scores_table, trials_table
from latlin.reproduce.resume import data_file, each, remembered

Array = NDArray[np.float64]
FILES = {"Concrete": "concrete_strength.csv.gz", "Boston": "boston_housing.csv.gz"}
#: by data set and row, bound and held-out score of the Gaussian and the affine density, (splits, 2, 2)
Tests = dict[str, dict[str, Array]]


class Scores(NamedTuple):
    """Bounds and held-out mean log probabilities, each a training or test datum."""

    gaussian_bound: float
    affine_bound: float
    optimised_bound: float
    gaussian_held_out: float
    affine_held_out: float
    optimised_held_out: float


def scores(split: Split, tol: float = 1e-4) -> Scores:
    """Fit the engines to one split."""
    return Scores(*fitted(split, ["gkl", affine(tol), AffineKL("generalised-normal", tol=tol)]).ravel())


def compute(
    target: Path, data: str | os.PathLike[str] | None, splits: int, train: int, test: int, tested: bool = True
) -> tuple[dict[str, Array], Tests]:
    """By data set, scores of every split, (splits, 6), and, if `tested`, with other settings; each kept in `target`."""
    paths = {name: data_file(target, data, file) for name, file in FILES.items()}
    names = [*(name for name, path in paths.items() if path is not None), "Synthetic"]
    found: dict[str, list[Array]] = {}
    tests: dict[str, dict[str, list[Array]]] = {}
    for name, seed in each("table 6.1", [(name, seed) for name in names for seed in range(splits)]):
        draw = partial(_split, paths.get(name), seed, train, test)
        key = f"{name}_{train}_{test}_{seed}"
        kept = remembered(target, f"table_6_1_{key}", lambda d=draw: {"scores": np.array(scores(d()))})  # type: ignore[misc]
        found.setdefault(name, []).append(kept["scores"])
        for row, run in _jobs(draw, name).items() if tested else ():
            again = remembered(target, f"table_6_1_{row}_{key}", lambda r=run: {"scores": r()})  # type: ignore[misc]
            tests.setdefault(name, {}).setdefault(row, []).append(again["scores"])
    arrays = {name: np.array(runs) for name, runs in found.items()}
    return arrays, {name: _named({row: np.array(runs) for row, runs in own.items()}) for name, own in tests.items()}


def _split(path: Path | None, seed: int, train: int, test: int, outliers: str = "") -> Split:
    return friedman(seed, train, test, outliers) if path is None else from_file(path, seed, train)


def _jobs(draw: Callable[..., Split], name: str) -> dict[str, Callable[[], Array]]:
    """The runs of one split with other settings, by what they are kept under."""
    jobs: dict[str, Callable[[], Array]] = {
        "no δ": lambda: fitted(draw(), ["gkl", affine()], Setting(delta=0.0)),
        "stopped": lambda: stopped(draw(), STOPS),
    }
    for row, (_, setting) in SETTINGS.items():
        jobs[row] = lambda s=setting: _alone(fitted(draw(), ["gkl"], s))  # type: ignore[misc]
    if name == "Synthetic":
        for row in OUTLIERS:
            jobs[row] = lambda r=row: _alone(fitted(draw(outliers=r), ["gkl"]))  # type: ignore[misc]
    return jobs


def _alone(scores: Array) -> Array:
    """Scores of the Gaussian, with nothing for the affine density."""
    return np.concatenate([scores, np.full_like(scores, np.nan)], axis=1)


def _named(runs: dict[str, Array]) -> dict[str, Array]:
    """The runs by row, with the stops apart."""
    stops = runs.pop("stopped")
    return runs | {f"{count} steps": stops[:, j] for j, count in enumerate(STOPS)}


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The table, and a figure of the gains; `data` names the folder with the two real data sets."""
    target = made(folder)
    found, tests = compute(target, data, 2, 20, 50, False) if quick else compute(target, data, 10, 100, 406)
    rows = [(name, *map(_shown, _columns(values).T)) for name, values in found.items()]
    kinds = ("G-KL", "AI-KL", "gain", "AI-KL, shapes optimised", "gain")
    columns = ("data", *(f"{what} {kind}" for what in ("bound", "held-out") for kind in kinds))
    table = Table("table_6_1", "Nat a datum, mean ± standard error", columns, rows)
    lines = lines_of(found, tests)
    more = [] if quick else [scores_table("table_6_1_reasons", lines), trials_table("table_6_1_tests", lines)]
    return write_page(target, "table_6_1", claims(found, lines, quick), [table, *more], [_draw(target, found, quick)])


def lines_of(found: dict[str, Array], tests: Tests) -> list[Line]:
    """Every printed number that was run, with the runs that test why it differs."""
    lines = []
    for (name, what), cells in printed(TABLE_6_1).items():
        for column, (label, theirs) in enumerate(zip(("G-KL", "AI-KL", "gain"), cells, strict=True)):
            if name in found and theirs is not None:
                ours = _measured(_columns(found[name])[:, column + (5 if what == "held-out" else 0)])
                trials = _trials(what, column, found[name], tests.get(name, {}))
                lines.append(Line(f"{what} {label}, {name}", theirs, ours, trials))
    return ranked(lines)


def _trials(what: str, column: int, found: Array, tests: dict[str, Array]) -> list[Trial]:
    """What every run with another setting gives for one column; nothing where it has no number."""
    j = ("bound", "held-out").index(what)
    base = found.reshape(-1, 2, 3)
    runs = tests | {"shapes optimised": base[:, :, [0, 2]]}
    rows = [(row, REASONS[row], values[:, j]) for row, values in runs.items()]
    if what == "bound":
        # one datum a dimension: D/2 is half a nat a datum
        rows += [
            (
                f"{row}, without D/2" if row else "without D/2",
                f"{REASONS[row]}, and {LACKING}" if row else LACKING,
                values[:, j] - 0.5,
            )
            for row, values in ({"": base[:, :, :2]} | tests).items()
            if column < 2 and row not in SETTINGS
        ]
    trials = [(row, reason, _measured(_column(values, column))) for row, reason, values in rows]
    return [Trial(row, reason, ours) for row, reason, ours in trials if np.isfinite(ours.value)]


def _column(pairs: Array, column: int) -> Array:
    """The Gaussian, the affine density, or the gain, from (splits, 2)."""
    return pairs[:, 1] - pairs[:, 0] if column == 2 else pairs[:, column]


LACKING = "the constant D/2 is missing, as in B.5"
REASONS = {
    "": "",
    "no δ": "the kernel has no δ",
    "shapes optimised": "the shapes are optimised",
    **{row: reason for row, (reason, _) in SETTINGS.items()},
    **OUTLIERS,
    **{f"{count} steps": f"both climbs, from A = I, stopped after {count} steps" for count in STOPS},
}


def claims(found: dict[str, Array], lines: list[Line], quick: bool) -> list[Claim]:
    """Every printed number, and that shapes which are optimised cannot lose."""
    judgements = {line.what: judged(line, not quick) for line in lines}
    said = []
    for (name, what), cells in printed(TABLE_6_1).items():
        for label, theirs in zip(("G-KL", "AI-KL", "gain"), cells, strict=True):
            line = f"{what} {label}, {name}"
            missing = f"not compared: no {FILES.get(name)} in the data folder"
            said.append(judgements.get(line, Claim(line, str(theirs), "–", None, missing)))
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
    axes.set_ylabel("gain over Gaussian KL, nat a datum")
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

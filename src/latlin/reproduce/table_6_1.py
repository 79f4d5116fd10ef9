"""Table 6.1 of 002_71af9439e55c646f: sparse, noise-robust kernel regression, Gaussian against affine-independent KL.

Laplace prior and Laplace noise (τ = 0.16 both), kernel exp(−0.05‖x − x′‖²) + δ, N = D = 100, a generalised normal base
with the shape fixed at 1.5, ten splits, everything standardised by the training part; and, beyond the source, the same
base with its shapes optimised, which holds the Gaussian and so cannot lose. The synthetic set is Friedman's, ten inputs
of which five matter, with a tenth of the training targets drawn from N(15, 3²) instead. Boston housing and Concrete
compressive strength (what the source calls "Concrete Slump Test" has that set's 1,030 rows) are read from a folder of
your own with `boston_housing.csv.gz` and `concrete_strength.csv.gz`, the target in the last column.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.densities.bases import GeneralisedNormal
from latlin.densities.marginals import NormalMarginals
from latlin.engines import AffineKL
from latlin.inference.infer import infer
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.potentials import Laplace
from latlin.reproduce.output import made, new_figure
from latlin.reproduce.page import Claim, Measured, Table, compared, drawn, write_page
from latlin.reproduce.printed import TABLE_6_1, printed
from latlin.reproduce.resume import each, remembered

Array = NDArray[np.float64]
SCALE, LENGTH, SHAPE = 0.16, 0.05, 1.5
FILES = {"Concrete": "concrete_strength.csv.gz", "Boston": "boston_housing.csv.gz"}
Runs = tuple[dict[str, Array], dict[str, Array]]


class Split(NamedTuple):
    """Standardised inputs and targets of the training and the test part, and what one unit of the targets was."""

    x: Array
    y: Array
    new_x: Array
    new_y: Array
    unit: float


class Scores(NamedTuple):
    """Bounds and held-out mean log probabilities, each a training or test datum."""

    gaussian_bound: float
    affine_bound: float
    optimised_bound: float
    gaussian_held_out: float
    affine_held_out: float
    optimised_held_out: float


def friedman(seed: int, train: int, test: int) -> Split:
    """10 sin(πx₁x₂) + 20(x₃ − ½)² + 10x₄ + 5x₅ + N(0, 1), with outliers in the training part."""
    rng = np.random.default_rng(seed)
    x = rng.random((train + test, 10))
    y = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4]
    y += rng.standard_normal(len(y))
    y[: train // 10] = 15.0 + 3.0 * rng.standard_normal(train // 10)
    return standardised(x, y, train, test)


def standardised(x: Array, y: Array, train: int, test: int) -> Split:
    """The first rows as training, the next as test part, by the statistics of the former."""
    inputs, targets = x[: train + test], y[: train + test]
    centre, width = inputs[:train].mean(axis=0), inputs[:train].std(axis=0)
    inputs = (inputs - centre) / np.where(width > 0.0, width, 1.0)
    unit = float(targets[:train].std())
    targets = (targets - targets[:train].mean()) / unit
    return Split(inputs[:train], targets[:train], inputs[train:], targets[train:], unit)


def from_file(path: Path, seed: int, train: int) -> Split:
    """A random split of a table whose last column is the target."""
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    return standardised(rows[:, :-1], rows[:, -1], train, len(rows) - train)


def kernel(x: Array, other: Array) -> Array:
    """exp(−κ‖x − x′‖²)."""
    return np.exp(-LENGTH * np.square(x[:, None] - other[None]).sum(axis=-1))


def model_of(split: Split, delta: float = 1.0) -> LatentLinearModel:
    """(6.7.1)."""
    rows = kernel(split.x, split.x) + delta * np.eye(len(split.x))
    return LatentLinearModel([SiteFactor(None, Laplace(scale=SCALE)), SiteFactor(rows, Laplace(split.y, SCALE))])


def scores(split: Split, tol: float = 1e-4) -> Scores:
    """Fit the engines to one split."""
    model, n = model_of(split), len(split.y)
    fits = [
        infer(model, "gkl"),
        infer(model, AffineKL(GeneralisedNormal(SHAPE), optimise_shape=False, tol=tol)),
        infer(model, AffineKL("generalised-normal", tol=tol)),
    ]
    return Scores(*(fit.log_evidence / n for fit in fits), *(held_out(fit, split) for fit in fits))


def scores_without_delta(split: Split, tol: float = 1e-4) -> Array:
    """Without δ in the kernel: both bounds, then both held-out scores."""
    model = model_of(split, delta=0.0)
    fits = [infer(model, "gkl"), infer(model, AffineKL(GeneralisedNormal(SHAPE), optimise_shape=False, tol=tol))]
    return np.array([*(fit.log_evidence / len(split.y) for fit in fits), *(held_out(fit, split) for fit in fits)])


def held_out(posterior: Posterior, split: Split) -> float:
    """Mean of log ∫ q(x) p(y|x) dx over the test part, with the exact marginal of x = kᵀw."""
    site, marginals = Laplace(split.new_y, SCALE), posterior.project(kernel(split.new_x, split.x))
    if isinstance(marginals, NormalMarginals):
        return float(site.tilted_moments(marginals.mean, marginals.variance).log_z.mean())
    inside = marginals.expectation(lambda x: np.exp(site.log_density(x)), site.regions())
    return float(np.log(np.maximum(inside, 1e-12)).mean())


def compute(target: Path, data: str | os.PathLike[str] | None, splits: int, train: int, test: int) -> Runs:
    """By data set, scores of every split, (splits, 6), and without δ, (splits, 4); each is kept in `target`."""
    paths = {name: None if data is None else Path(data) / file for name, file in FILES.items()}
    sets = {name: path for name, path in paths.items() if path is not None and path.exists()}
    found: dict[str, list[Array]] = {}
    tested: dict[str, list[Array]] = {}
    for name, seed in each("table 6.1", [(name, seed) for name in (*sets, "Synthetic") for seed in range(splits)]):
        kept = remembered(
            target,
            f"table_6_1_{name}_{train}_{test}_{seed}",
            lambda n=name, s=seed: {"scores": np.array(scores(_split(sets.get(n), s, train, test)))},  # type: ignore[misc]
        )
        again = remembered(
            target,
            f"table_6_1_tests_{name}_{train}_{test}_{seed}",
            lambda n=name, s=seed: {"scores": scores_without_delta(_split(sets.get(n), s, train, test))},  # type: ignore[misc]
        )
        found.setdefault(name, []).append(kept["scores"])
        tested.setdefault(name, []).append(again["scores"])
    return tuple({name: np.array(runs) for name, runs in all_.items()} for all_ in (found, tested))  # type: ignore[return-value]


def _split(path: Path | None, seed: int, train: int, test: int) -> Split:
    return friedman(seed, train, test) if path is None else from_file(path, seed, train)


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The table, and a figure of the gains; `data` names the folder with the two real data sets."""
    target = made(folder)
    found, tested = compute(target, data, 2, 20, 50) if quick else compute(target, data, 10, 100, 406)
    rows = [(name, *map(_shown, _columns(values).T)) for name, values in found.items()]
    kinds = ("G-KL", "AI-KL", "gain", "AI-KL, shapes optimised", "gain")
    columns = ("data", *(f"{what} {kind}" for what in ("bound", "held-out") for kind in kinds))
    table = Table("table_6_1", "Nat a datum, mean ± standard error", columns, rows)
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
    picture = drawn(figure, target / "table_6_1.png", alt, quick)
    return write_page(target, "table_6_1", claims(found, tested, quick), [table], [picture])


def claims(found: dict[str, Array], tested: dict[str, Array], quick: bool) -> list[Claim]:
    """Every printed number, the same without δ, and that shapes which are optimised cannot lose."""
    said = []
    for (name, what), cells in printed(TABLE_6_1).items():
        for label, theirs, column in zip(("G-KL", "AI-KL", "gain"), cells, (0, 1, 2), strict=True):
            assert theirs is not None
            line = f"{what} {label}, {name}"
            if name not in found:
                said.append(Claim(line, str(theirs), "–", None, f"not compared: no {FILES[name]} in the data folder"))
                continue
            values = _columns(found[name])[:, column + (5 if what == "held-out" else 0)]
            plain, affine = tested[name].T[2:] if what == "held-out" else tested[name].T[:2]
            again = (plain, affine, affine - plain)[column]
            said.append(compared(line, theirs, _measured(values), REASON, not quick))
            said.append(compared(f"{line}, no δ", theirs, _measured(again), BETWEEN, not quick))
    least = min(float(_columns(values)[:, 4].min()) for values in found.values())
    return [*said, Claim("gain with optimised shapes", "must not be negative", f"{least:+.4f} at least", least > -1e-3)]


REASON = "not explained; the δ of the kernel moves it, not always towards theirs: the next line leaves it out"
BETWEEN = "a test of a reason: it explains only those lines that it meets; other splits and outliers are not told apart"


def _measured(values: Array) -> Measured:
    return Measured(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def _columns(values: Array) -> Array:
    """For bound and held-out score: Gaussian, affine, gain, affine with optimised shapes, gain."""
    parts = []
    for plain, fixed, free in (values.T[:3], values.T[3:]):
        parts += [plain, fixed, fixed - plain, free, free - plain]
    return np.stack(parts, axis=1)


def _shown(values: Array) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"

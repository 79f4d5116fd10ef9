"""The five-minute tour: logistic regression on real data with its evidence, next to the alternatives."""

from __future__ import annotations

import csv
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from latlin.inference.infer import infer
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.potentials import Logit

Array = NDArray[np.float64]
ENGINES = ("map", "laplace", "gkl")
COLUMNS = ("engine", "log evidence", "kind", "seconds", "held-out log p", "Brier")
PRIOR_VARIANCE, INTERCEPT_VARIANCE = 1.0, 100.0


@dataclass(frozen=True)
class Data:
    """Standardised features with a last column of ones, and labels in {0, 1}."""

    names: list[str]
    train: tuple[Array, NDArray[np.int64]]
    test: tuple[Array, NDArray[np.int64]]


def run_demo(folder: Path) -> None:
    """Fit, print the table, save table and figure below `folder`."""
    console = Console()
    data = load()
    rows, y = data.train
    console.print(
        f"Breast-cancer data: {len(y)} tumours to learn from, {len(data.test[1])} held out, "
        f"{rows.shape[1] - 1} standardised features.\nPrior: coefficients N(0, 1); label 1 = benign.\n"
    )
    variances = np.full(rows.shape[1], PRIOR_VARIANCE)
    variances[-1] = INTERCEPT_VARIANCE
    model = LatentLinearModel([GaussianFactor(cov=variances), SiteFactor(rows, Logit(y))])
    with console.status("Compiling, the first time only …"):
        infer(LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(rows[:50], Logit(y[:50]))]), "gkl")
    posteriors = {name: infer(model, name) for name in ENGINES}
    table = [row(post, data) for post in posteriors.values()]
    console.print(rich_table(table))
    console.print(
        "\nThe Gaussian KL number is a lower bound on the log evidence: log Z is at least that. "
        "Laplace's is an approximation and may lie on either side; a point estimate has none.\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "engines.csv", table)
    draw(folder / "coefficients.png", posteriors, data.names)
    console.print(f"Saved {folder / 'engines.csv'} and {folder / 'coefficients.png'}")


def load() -> Data:
    """scikit-learn's breast-cancer data, split at random (seed 0) and standardised by the training part."""
    from sklearn.datasets import load_breast_cancer

    bunch: Any = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    train, test = order[:400], order[400:]
    centre, scale = bunch.data[train].mean(axis=0), bunch.data[train].std(axis=0)

    def part(index: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        standardised = (bunch.data[index] - centre) / scale
        return np.column_stack([standardised, np.ones(len(index))]), bunch.target[index]

    return Data([*bunch.feature_names, "intercept"], part(train), part(test))


def row(posterior: Posterior, data: Data) -> dict[str, Any]:
    """One line of the table: what the engine says, and how it predicts data it has not seen."""
    rows, y = data.test
    marginals = posterior.project(rows)
    predictive: Any = Logit(y).predictive(marginals.mean, marginals.variance)
    probability = predictive.probabilities[:, 1]
    log_probability = np.where(y == 1, np.log(probability), np.log1p(-probability)).mean()
    values = (
        posterior.engine,
        posterior.log_evidence,
        posterior.evidence_kind,
        posterior.elapsed,
        float(log_probability),
        float(np.mean((probability - y) ** 2)),
    )
    return dict(zip(COLUMNS, values, strict=True))


def rich_table(lines: list[dict[str, Any]]) -> Table:
    table = Table()
    for name in COLUMNS:
        table.add_column(name, no_wrap=True)
    for line in lines:
        table.add_row(*cells(line))
    return table


def cells(line: dict[str, Any]) -> list[str]:
    """Numbers as people read them; what does not exist is a dash."""
    evidence = f"{line['log evidence']:.2f}" if np.isfinite(line["log evidence"]) else "–"
    numbers = (f"{line['seconds']:.3f}", f"{line['held-out log p']:.4f}", f"{line['Brier']:.4f}")
    return [line["engine"], evidence, line["kind"], *numbers]


def write_table(path: Path, lines: list[dict[str, Any]]) -> None:
    """A CSV file, all or nothing."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)
    os.replace(file.name, path)


def draw(path: Path, posteriors: dict[str, Posterior], names: list[str]) -> None:
    """Coefficients with 95 % intervals, one row a feature, largest first, one colour an engine."""
    from matplotlib.figure import Figure

    order = np.argsort(np.abs(posteriors["gkl"].mean))
    figure = Figure(figsize=(7, 9), layout="constrained")
    axes = figure.subplots()
    for shift, (name, posterior) in zip((-0.22, 0.0, 0.22), posteriors.items(), strict=True):
        reach = 1.96 * np.sqrt(posterior.variance[order])
        axes.errorbar(posterior.mean[order], np.arange(len(order)) + shift, xerr=reach, fmt="o", ms=3, lw=1, label=name)
    axes.axvline(0.0, color="0.6", lw=0.8)
    axes.set_yticks(np.arange(len(order)), [names[i] for i in order], fontsize=8)
    axes.set_xlabel("coefficient of the standardised feature, with 95 % interval")
    axes.set_title("Breast cancer: log-odds of a benign tumour")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)

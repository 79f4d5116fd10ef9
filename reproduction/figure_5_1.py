"""Figure 5.1 of Challis (2013): Gaussian process regression with outliers, Gaussian and Student t likelihoods.

A smooth function, forty noisy values, some of them far off; kernel parameters by evidence, the latent mean with one
standard deviation. The Student t keeps to the function, the Gaussian bends to the outliers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from latlin.gp import GaussianProcessRegressor
from latlin.priors import Flat
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

#: the document maximises the evidence alone
MAXIMISED: dict[str, Any] = {"hyperparameters": "maximise", "priors": Flat()}


class Panel(NamedTuple):
    """One half of the figure."""

    mean: Array
    std: Array
    error: float
    evidence: float


def truth(x: Array) -> Array:
    """The function that generates the data."""
    return np.sin(x) + 0.3 * x


def sample(seed: int = 0) -> tuple[Array, Array]:
    """Forty inputs on (0, 10) with noise 0.1, five targets moved by ±(2 … 4)."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 10.0, 40))
    y = truth(x) + 0.1 * rng.standard_normal(40)
    away = rng.choice(40, 5, replace=False)
    y[away] += rng.choice([-1.0, 1.0], 5) * rng.uniform(2.0, 4.0, 5)
    return x, y


def compute(x: Array, y: Array, grid: Array) -> dict[str, Panel]:
    """Both fits on a grid."""
    kernel = ConstantKernel(1.0) * RBF(1.0)
    fits = {
        "Gaussian": GaussianProcessRegressor(kernel, **MAXIMISED),
        "Student t": GaussianProcessRegressor(kernel, likelihood="student-t", fixed_likelihood=("df",), **MAXIMISED),
    }
    panels = {}
    for name, gp in fits.items():
        gp.fit(x[:, None], y)
        mean, std = gp.predict(grid[:, None], return_std=True)
        error = float(np.sqrt(np.mean((mean - truth(grid)) ** 2)))
        panels[name] = Panel(np.asarray(mean), np.asarray(std), error, gp.log_evidence_)
    return panels


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, and a table of errors against the function."""
    target = made(folder)
    (x, y), grid = sample(), np.linspace(0.0, 10.0, 100 if quick else 400)
    panels = compute(x, y, grid)
    figure = new_figure("figure 5.1", 8.0, 3.2)
    for axes, (name, panel) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        axes.plot(grid, truth(grid), "k", lw=1, label="function")
        axes.plot(grid, panel.mean, "C0", label="mean")
        for sign in (-1.0, 1.0):
            axes.plot(grid, panel.mean + sign * panel.std, "C0--", lw=0.8)
        axes.plot(x, y, "k.", ms=4)
        axes.set_title(name)
    axes.legend()
    alt = "Two regressions through points with outliers: the Gaussian bends to them, the Student t does not"
    picture = drawn(figure, target / "figure_5_1.png", alt, quick)
    rows = [(name, panel.evidence, panel.error) for name, panel in panels.items()]
    title = "Figure 5.1: log evidence, and root mean square distance of the mean from the function"
    table = Table("figure_5_1", title, ("likelihood", "log evidence", "error"), rows)
    return write_page(target, "figure_5_1", claims(panels), [table], [picture])


def claims(panels: dict[str, Panel]) -> list[Claim]:
    """What §5.1 says of the panels."""
    flat, heavy = panels["Gaussian"], panels["Student t"]
    errors = f"{flat.error:.2f} against {heavy.error:.2f}"
    evidences = f"{flat.evidence:.1f} against {heavy.evidence:.1f}"
    return [
        Claim(
            "distance from the function, Gaussian and Student t",
            "the Gaussian's differs",
            errors,
            flat.error > heavy.error,
        ),
        Claim(
            "log evidence of the two", "no number", evidences, heavy.evidence > flat.evidence, "scales are by evidence"
        ),
    ]

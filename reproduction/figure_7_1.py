"""Figure 7.1 of Gutteridge (2021): a Gaussian process before and after five evaluations of a sine.

Zero mean, squared-exponential kernel with ℓ = 1 and σ_s = 1, 500 points X_*, five equally spaced evaluations, ten
draws, and two standard deviations about the mean: (7.5) on the left, (7.6)–(7.8) on the right.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

REACH = 5.0
#: added to the variances of the evaluations, so that their matrix has a Cholesky factor
NUGGET = 1e-10


class Panel(NamedTuple):
    """What one half of the figure shows."""

    mean: Array
    sd: Array
    draws: Array  # (number of draws, number of points)


class Figure71(NamedTuple):
    """Both halves and the evaluations."""

    grid: Array
    points: Array
    values: Array
    prior: Panel
    posterior: Panel


def compute(size: int = 500, draws: int = 10, random_state: int = 0) -> Figure71:
    """The numbers of the figure.

    Examples
    --------
    >>> figure = compute(size=50)
    >>> bool(figure.posterior.sd.max() < figure.prior.sd.max())
    True
    """
    rng = np.random.default_rng(random_state)
    grid = np.linspace(-REACH, REACH, size)
    points = np.linspace(-0.8 * REACH, 0.8 * REACH, 5)
    prior = _panel(np.zeros(size), kernel(grid, grid), draws, rng)
    posterior = _panel(*conditioned(points, np.sin(points), grid), draws, rng)
    return Figure71(grid, points, np.sin(points), prior, posterior)


def kernel(x: Array, other: Array) -> Array:
    """exp(−½(x − x′)²)."""
    return np.exp(-0.5 * np.square(x[:, None] - other))


def conditioned(x: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """Mean and covariance at new points: K_*K⁻¹y and K_** − K_*K⁻¹K_*ᵀ, (7.7) and (7.8)."""
    cross = kernel(new, x)
    weights = np.linalg.solve(kernel(x, x) + NUGGET * np.eye(len(x)), cross.T).T
    return weights @ y, kernel(new, new) - weights @ cross.T


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page; the paths of what was written."""
    numbers, target = compute(size=100 if quick else 500), made(folder)
    figure = new_figure("figure 7.1", 10.0, 4.0)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, numbers.grid, numbers.prior, "prior")
    _draw(right, numbers.grid, numbers.posterior, "posterior, five evaluations of a sine")
    right.plot(numbers.points, numbers.values, "ko", zorder=3)
    alt = "Draws and bands of a Gaussian process before and after five evaluations"
    picture = drawn(figure, target / "figure_7_1.png", alt, quick)
    values = (numbers.grid, numbers.prior.sd, numbers.posterior.mean, numbers.posterior.sd)
    rows = [tuple(map(float, row)) for row in zip(*values, strict=True)][:: max(len(numbers.grid) // 20, 1)]
    table = Table("figure_7_1", "Some of the points", ("x", "prior sd", "mean", "sd"), rows)
    return write_page(target, "figure_7_1", claims(), [table], [picture])


def claims() -> list[Claim]:
    """(7.5)–(7.8) at the evaluations, and between them."""
    points = np.linspace(-0.8 * REACH, 0.8 * REACH, 5)
    mean, covariance = conditioned(points, np.sin(points), points)
    missed, there = float(np.abs(mean - np.sin(points)).max()), float(_sd(covariance).max())
    sd = _sd(conditioned(points, np.sin(points), np.linspace(-REACH, REACH, 501))[1])
    return [
        Claim("the mean at the evaluations", "the sine", f"within {missed:.1e}", missed < 1e-6),
        Claim("the sd at the evaluations", "zero", f"{there:.1e}", there < 1e-4),
        Claim("the sd elsewhere", "at most the prior's, 1", f"{sd.max():.4f} at most", bool(sd.max() <= 1.0 + 1e-9)),
    ]


def _panel(mean: Array, covariance: Array, draws: int, rng: np.random.Generator) -> Panel:
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return Panel(mean, _sd(covariance), mean + rng.standard_normal((draws, len(mean))) @ root.T)


def _sd(covariance: Array) -> Array:
    return np.sqrt(np.maximum(np.diagonal(covariance), 0.0))


def _draw(axes: Any, grid: Array, panel: Panel, title: str) -> None:
    axes.fill_between(grid, panel.mean - 2.0 * panel.sd, panel.mean + 2.0 * panel.sd, color="0.85")
    axes.plot(grid, panel.draws.T, linewidth=0.8)
    axes.plot(grid, panel.mean, "k", linewidth=1.5)
    axes.set_title(title)
    axes.set_xlabel("x")

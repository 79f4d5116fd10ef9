"""Figure 2.2 of Challis (2013): a line through 3, 9 and 27 points, by maximum likelihood and with its posterior.

y = a + bx + ε with a = b = 1, x uniform on [−2.5, 2.5] and noise of variance 0.6. The text gives no prior; here it is
standard normal. It states that the posterior's mode and the maximum likelihood estimate converge and that the
posterior's variance falls as N grows: checked on the data of the figure (the points of a row are among those of the
next) and on the mean over many data sets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latlin import GaussianFactor, LatentLinearModel, Posterior, infer
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

SIZES = (3, 9, 27)
NOISE, REACH = 0.6, 2.5


class Line(NamedTuple):
    """The points of one row, the maximum likelihood estimate and the posterior of (a, b)."""

    x: Array
    y: Array
    likely: Array
    posterior: Posterior

    @property
    def distance(self) -> float:
        """‖mode − maximum likelihood estimate‖."""
        return float(np.linalg.norm(self.posterior.mean - self.likely))

    @property
    def volume(self) -> float:
        """√det of the posterior's covariance."""
        return float(np.sqrt(np.linalg.det(self.posterior.covariance())))


def rows(x: Array) -> Array:
    """(1, x) for each x."""
    return np.stack([np.ones_like(x), x], axis=1)


def lines(seed: int, sizes: tuple[int, ...] = SIZES) -> list[Line]:
    """Both estimates from the first 3, 9 and 27 points of a data set."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-REACH, REACH, max(sizes))
    y = 1.0 + x + np.sqrt(NOISE) * rng.standard_normal(len(x))
    found = []
    for n in sizes:
        H = rows(x[:n])
        model = LatentLinearModel([GaussianFactor(dim=2), GaussianFactor(y[:n], NOISE, H=H)])
        found.append(Line(x[:n], y[:n], np.linalg.lstsq(H, y[:n], rcond=None)[0], infer(model)))
    return found


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target, repeats = made(folder), 8 if quick else 200
    shown = lines(0)
    many = np.array([[(line.distance, line.volume) for line in lines(seed)] for seed in range(repeats)]).mean(axis=0)
    figure = new_figure("figure 2.2", 9.0, 7.5)
    for axes, line in zip(figure.subplots(len(shown), 3), shown, strict=True):
        _draw(axes, line)
    alt = "Three rows for 3, 9 and 27 points: both fitted lines, the predictive band, the posterior of a and b"
    picture = drawn(figure, target / "figure_2_2.png", alt, quick)
    columns = ("N", "‖mode − ML‖", "√det S", f"‖mode − ML‖, mean of {repeats}", f"√det S, mean of {repeats}")
    cells = [
        (n, line.distance, line.volume, *map(float, mean)) for n, line, mean in zip(SIZES, shown, many, strict=True)
    ]
    table = Table("figure_2_2", "Distance of the estimates and width of the posterior", columns, cells)
    return write_page(target, "figure_2_2", claims(shown, many), [table], [picture])


def claims(shown: list[Line], many: Array) -> list[Claim]:
    """The two statements of the caption."""
    distances, volumes = [line.distance for line in shown], [line.volume for line in shown]
    return [
        _falls("the estimates converge, mean over data sets", many[:, 0]),
        _falls("the estimates converge, data of the figure", np.array(distances)),
        _falls("the posterior's variance decreases, mean over data sets", many[:, 1]),
        _falls("the posterior's variance decreases, data of the figure", np.array(volumes)),
    ]


def _falls(what: str, values: Array) -> Claim:
    ours = " → ".join(f"{value:.3g}" for value in values)
    return Claim(
        what, "falls with N", ours, bool(np.all(np.diff(values) < 0.0)), "one data set is chance: see the mean"
    )


def _draw(axes: Any, line: Line) -> None:
    grid = np.linspace(-3.0, 3.0, 60)
    marginals = line.posterior.project(rows(grid))
    sd = np.sqrt(marginals.variance + NOISE)
    for panel in axes[:2]:
        panel.plot(line.x, line.y, "k.")
        panel.plot(grid, marginals.mean, "C0")
    axes[0].plot(grid, rows(grid) @ line.likely, "C3:")
    axes[0].set_title(f"N = {len(line.x)}: mean and maximum likelihood", fontsize=8)
    axes[1].fill_between(grid, marginals.mean - sd, marginals.mean + sd, color="C0", alpha=0.2)
    axes[1].set_title("one standard deviation of y", fontsize=8)
    side = np.linspace(-0.5, 2.5, 60)
    a, b = np.meshgrid(side, side)
    density = np.exp(line.posterior.logpdf(np.stack([a, b], axis=-1).reshape(-1, 2))).reshape(a.shape)
    axes[2].contour(a, b, density)
    axes[2].plot(*line.likely, "k+")
    axes[2].set(xlabel="a", ylabel="b")

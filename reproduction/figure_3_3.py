"""Figure 3.3 of Challis (2013): a bimodal density, its mean, its two modes and the Laplace approximation.

The target is not given; here it is 0.45 N(−2, 1) + 0.55 N(1.5, 0.36), second arguments variances. The caption states
that the approximation is centred at the mode; §3.5 that its precision is the curvature there. A start at either mode
gives that mode's approximation.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import GaussianMixture
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

TARGET = GaussianMixture([0.45, 0.55], [-2.0, 1.5], [1.0, 0.6])
MEAN = 0.45 * -2.0 + 0.55 * 1.5
GRID = np.linspace(-6.0, 5.0, 1101)


class Peak(NamedTuple):
    """A local maximum of the target by search on a grid, and the Laplace approximation begun beside it."""

    mode: float
    mean: float
    variance: float
    curvature: float


def peaks() -> list[Peak]:
    """From left to right."""
    values = TARGET.log_density(GRID)
    inner = (values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])
    return [_peak(float(mode)) for mode in GRID[1:-1][inner]]


def _peak(mode: float) -> Peak:
    model = LatentLinearModel([SiteFactor(np.ones((1, 1)), TARGET)])
    start = infer(LatentLinearModel([GaussianFactor([mode], [[0.5]])]))
    post = infer(model, "laplace", start=start)
    curvature = -float(TARGET.derivatives(post.mean)[1][0])
    return Peak(mode, float(post.mean[0]), float(post.variance[0]), curvature)


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target, found = made(folder), peaks()
    figure = new_figure("figure 3.3", 5.5, 3.4)
    axes = figure.subplots()
    axes.plot(GRID, np.exp(TARGET.log_density(GRID)), "k", label="p")
    highest = max(found, key=lambda peak: TARGET.log_density(np.array([peak.mode]))[0])
    normal = np.exp(-0.5 * (GRID - highest.mean) ** 2 / highest.variance) / np.sqrt(2.0 * np.pi * highest.variance)
    axes.plot(GRID, normal, "C3:", label="Laplace")
    axes.plot([MEAN], [0.0], "ko", clip_on=False)
    axes.plot([peak.mode for peak in found], np.zeros(len(found)), "ro", clip_on=False)
    axes.legend()
    alt = "A density with two peaks, its mean between them, and a Gaussian at the higher peak"
    picture = drawn(figure, target / "figure_3_3.png", alt, quick)
    columns = ("mode, on a grid", "mean of Laplace", "its variance", "−ψ″ there")
    table = Table("figure_3_3", "Modes and Laplace approximations", columns, found)
    return write_page(target, "figure_3_3", claims(found), [table], [picture])


def claims(found: list[Peak]) -> list[Claim]:
    """The caption and §3.5."""
    step = GRID[1] - GRID[0]
    said = [Claim("local maxima", "two", str(len(found)), len(found) == 2)]
    for peak in found:
        centred = abs(peak.mean - peak.mode) <= step
        said.append(Claim(f"centre of Laplace at {peak.mode:.2f}", "the mode", f"{peak.mean:.4f}", centred))
        same = abs(peak.variance * peak.curvature - 1.0) < 1e-6
        said.append(Claim("its variance × curvature", "1", f"{peak.variance * peak.curvature:.8f}", same))
    between = found[0].mode < MEAN < found[-1].mode
    return [*said, Claim("the mean", "between the modes", f"{MEAN:.3f}", between)]

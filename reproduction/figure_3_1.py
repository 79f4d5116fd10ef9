"""Figure 3.1 of Challis (2013): two mixtures and their closest Gaussians, in either direction of KL.

(a) 0.6 N(−3, 0.8) + 0.4 N(2, 0.7) and (b) 0.6 N(−2.2, 0.8) + 0.4 N(1.2, 0.7), second arguments variances. KL(q|p) by
Gaussian KL from a start at either component, the better kept (a site that is a normalised density makes the bound
−KL(q|p)); KL(p|q) by expectation propagation, which for one site matches moments. §3.2 states that the first puts all
its mass at one mode where the components are well separated, and that the second covers both and has its own mode where
p is small. Divergences are integrated on a grid.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import GaussianMixture
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

WEIGHTS, VARIANCES = np.array([0.6, 0.4]), np.array([0.8, 0.7])
CENTRES = {"a": np.array([-3.0, 2.0]), "b": np.array([-2.2, 1.2])}
GRID = np.linspace(-12.0, 12.0, 4801)
FLAT = 1e8


class Gauss(NamedTuple):
    """A Gaussian and its two divergences from the target."""

    mean: float
    variance: float
    from_target: float  # KL(p|q)
    to_target: float  # KL(q|p)


def target_of(panel: str) -> GaussianMixture:
    """The density of a panel."""
    return GaussianMixture(WEIGHTS, CENTRES[panel], np.sqrt(VARIANCES))


def log_normal(mean: float, variance: float) -> Array:
    """On the grid."""
    return -0.5 * (GRID - mean) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)


def gauss(panel: str, mean: float, variance: float) -> Gauss:
    """A Gaussian with its divergences, by the trapezoidal rule."""
    log_p, log_q = target_of(panel).log_density(GRID), log_normal(mean, variance)
    step = GRID[1] - GRID[0]
    forward = float(np.sum(np.exp(log_p) * (log_p - log_q)) * step)
    return Gauss(mean, variance, forward, float(np.sum(np.exp(log_q) * (log_q - log_p)) * step))


def seeking(panel: str) -> Gauss:
    """Least KL(q|p) over starts at the components."""
    model = LatentLinearModel([SiteFactor(np.ones((1, 1)), target_of(panel))])
    found = []
    for centre, variance in zip(CENTRES[panel], VARIANCES, strict=True):
        start = infer(LatentLinearModel([GaussianFactor([centre], [[variance]])]))
        found.append(infer(model, "gkl", start=start))
    best = max(found, key=lambda post: post.log_evidence)
    return gauss(panel, float(best.mean[0]), float(best.variance[0]))


def covering(panel: str) -> Gauss:
    """Least KL(p|q): the moments of p, by expectation propagation with a flat Gaussian factor."""
    site = SiteFactor(None, target_of(panel))
    post = infer(LatentLinearModel([GaussianFactor(cov=FLAT, dim=1), site]), "ep")
    return gauss(panel, float(post.mean[0]), float(post.variance[0]))


def moments(panel: str) -> tuple[float, float]:
    """Mean and variance of the mixture in closed form."""
    mean = float(WEIGHTS @ CENTRES[panel])
    return mean, float(WEIGHTS @ (VARIANCES + (CENTRES[panel] - mean) ** 2))


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target = made(folder)
    found = {panel: (seeking(panel), covering(panel)) for panel in CENTRES}
    figure = new_figure("figure 3.1", 9.0, 3.4)
    for axes, (panel, (narrow, wide)) in zip(figure.subplots(1, 2), found.items(), strict=True):
        axes.plot(GRID, np.exp(target_of(panel).log_density(GRID)), "k", label="p")
        axes.plot(GRID, np.exp(log_normal(narrow.mean, narrow.variance)), "C3-.", label="KL(q|p)")
        axes.plot(GRID, np.exp(log_normal(wide.mean, wide.variance)), "C0--", label="KL(p|q)")
        axes.set(xlim=(-8.0, 7.0), title=f"({panel})")
    axes.legend()
    alt = "Two mixtures of two Gaussians, each with a narrow Gaussian at one mode and a wide one over both"
    picture = drawn(figure, target / "figure_3_1.png", alt, quick)
    rows = [
        (panel, name, *map(float, each))
        for panel, pair in found.items()
        for name, each in zip(("KL(q|p)", "KL(p|q)"), pair, strict=True)
    ]
    columns = ("panel", "least", "mean", "variance", "KL(p|q)", "KL(q|p)")
    table = Table("figure_3_1", "The closest Gaussians and both their divergences", columns, rows)
    return write_page(target, "figure_3_1", claims(found), [table], [picture])


def claims(found: dict[str, tuple[Gauss, Gauss]]) -> list[Claim]:
    """What §3.2 says of the figure."""
    narrow, wide = found["a"]
    # the share of the heavier component, were q that component: KL(q|p) → −log 0.6
    density, peak = (float(np.exp(target_of("a").log_density(np.array([x]))[0])) for x in (wide.mean, CENTRES["a"][0]))
    single = abs(narrow.mean - CENTRES["a"][0]) < 0.1 and abs(narrow.variance - VARIANCES[0]) < 0.1
    said = [
        Claim(
            "(a) least KL(q|p)",
            "all mass at one mode: N(−3, 0.8) of the figure's mixture",
            f"N({narrow.mean:.3f}, {narrow.variance:.3f})",
            single,
        ),
        Claim(
            "(a) p at the mode of least KL(p|q)", "low", f"{density / peak:.1%} of p at its peak", density < 0.2 * peak
        ),
    ]
    for panel, (narrow, wide) in found.items():
        mean, variance = moments(panel)
        same = abs(wide.mean - mean) + abs(wide.variance - variance) < 1e-4
        ours = f"mean {wide.mean:.4f}, variance {wide.variance:.4f}"
        said.append(
            Claim(f"({panel}) least KL(p|q) matches moments", f"mean {mean:g}, variance {variance:g}", ours, same)
        )
        ours = f"{narrow.variance:.3f} against {wide.variance:.3f}"
        said.append(Claim(f"({panel}) variances", "KL(q|p) the smaller", ours, narrow.variance < wide.variance))
        better = narrow.to_target < wide.to_target and wide.from_target < narrow.from_target
        said.append(Claim(f"({panel}) each wins by its own divergence", "by definition", str(better), better))
    return said

"""Figure 2.7 of Challis (2013): four priors in the plane, one Gaussian observation, and their posteriors.

Gaussian, Laplace, Student t and spike-and-slab priors; one measurement of noise, so the likelihood is a ridge. The
caption gives no numbers; these are of its kind. §5.4 states that with the Laplace prior the posterior is log-concave
with one mode, and that with the other two it can have several: modes are counted on the grid. Every log Z is
integrated and set against the evidence of Gaussian KL, which is exact for the Gaussian and a lower bound for the rest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import maximum_filter

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import Gaussian, GaussianMixture, Laplace, Potential, StudentT
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

ROW, OBSERVED, NOISE = np.array([[1.0, 0.8]]), 1.0, 0.02
PRIORS: dict[str, Potential] = {
    "Gaussian": Gaussian(scale=0.6),
    "Laplace": Laplace(scale=0.3),
    "Student t": StudentT(2.5, scale=0.12),
    "spike and slab": GaussianMixture([0.7, 0.3], 0.0, [0.06, 0.9]),
}


class Plane(NamedTuple):
    """Log densities on a square grid, the number of modes, log Z by integration and the bound of Gaussian KL."""

    side: Array
    prior: Array
    likelihood: Array
    modes: int
    log_z: float
    bound: float

    @property
    def posterior(self) -> Array:
        """Up to a constant."""
        return self.prior + self.likelihood


def compute(prior: Potential, count: int = 401, reach: float = 4.0) -> Plane:
    """One column of the figure."""
    side, step = np.linspace(-reach, reach, count, retstep=True)
    one = prior.log_density(side)
    both = one[:, None] + one[None]
    residual = OBSERVED - (ROW[0, 0] * side[None] + ROW[0, 1] * side[:, None])
    # log N(y | hᵀw, s²)
    likelihood = -0.5 * residual**2 / NOISE - 0.5 * np.log(2.0 * np.pi * NOISE)
    total = both + likelihood
    log_z = float(total.max() + np.log(np.exp(total - total.max()).sum() * step**2))
    model = LatentLinearModel([GaussianFactor([OBSERVED], NOISE, H=ROW), SiteFactor(None, prior)])
    return Plane(side, both, likelihood, modes(total), log_z, infer(model, "gkl").log_evidence)


def modes(values: Array) -> int:
    """Points of a grid that are higher than all eight neighbours, within ten nat of the highest.

    >>> line = np.linspace(-3.0, 3.0, 31)
    >>> modes(-np.square(line[:, None] ** 2 - 1.0) - line[None] ** 2)
    2
    """
    ring = np.ones((3, 3), bool)
    ring[1, 1] = False
    peaks = values > maximum_filter(values, footprint=ring, mode="constant", cval=-np.inf)
    return int(np.count_nonzero(peaks & (values > values.max() - 10.0)))


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target = made(folder)
    planes = {name: compute(prior, 201 if quick else 1201) for name, prior in PRIORS.items()}
    figure = new_figure("figure 2.7", 11.0, 5.6)
    for axes, (name, plane) in zip(figure.subplots(2, 4).T, planes.items(), strict=True):
        _draw(axes, name, plane)
    alt = "Contours of four priors with the ridge of the likelihood, and of the posteriors below"
    picture = drawn(figure, target / "figure_2_7.png", alt, quick)
    rows = [(name, plane.modes, plane.log_z, plane.bound) for name, plane in planes.items()]
    columns = ("prior", "modes of the posterior", "log Z, integration", "Gaussian KL")
    table = Table("figure_2_7", "Posteriors in the plane", columns, rows)
    return write_page(target, "figure_2_7", claims(planes), [table], [picture])


def claims(planes: dict[str, Plane]) -> list[Claim]:
    """What the caption and §5.4 say, and the ordering that must hold."""
    expected = {"Gaussian": "one mode", "Laplace": "one mode"}
    found = []
    for name, plane in planes.items():
        theirs = expected.get(name, "can have several modes")
        agrees = plane.modes == 1 if name in expected else plane.modes > 1
        found.append(Claim(f"modes, {name} prior", theirs, str(plane.modes), agrees, "depends on the scales chosen"))
    exact = planes["Gaussian"]
    same = abs(exact.bound - exact.log_z) < 1e-3
    found.append(Claim("evidence with the Gaussian prior", "exact", f"{exact.bound - exact.log_z:+.1e} nat", same))
    below = all(plane.bound <= plane.log_z + 1e-3 for plane in planes.values())
    gaps = ", ".join(f"{plane.log_z - plane.bound:.2f}" for name, plane in planes.items() if name != "Gaussian")
    return [*found, Claim("Gaussian KL with the others", "a lower bound", f"below log Z by {gaps} nat", below)]


def _draw(axes: Any, name: str, plane: Plane) -> None:
    levels = [0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9]
    near = np.abs(plane.side) <= 1.8
    side, cut = plane.side[near], np.ix_(near, near)
    for values, panel, style in (
        (plane.prior, axes[0], "solid"),
        (plane.likelihood, axes[0], "dotted"),
        (plane.posterior, axes[1], "solid"),
    ):
        panel.contour(side, side, np.exp(values - values.max())[cut], levels=levels, linestyles=style, linewidths=0.8)
    axes[0].set_title(f"{name} prior", fontsize=9)
    axes[1].set_title(f"posterior, modes: {plane.modes}", fontsize=9)

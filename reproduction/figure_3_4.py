"""Figure 3.4 of Challis (2013): quadratic lower bounds of a Laplace and a logistic sigmoid potential.

Operating points 0.5 (Laplace, unit scale) and 2.5 (sigmoid). A bound exp(−½ax² + bx + c) must lie below the potential
everywhere and touch it at ±ξ.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latlin.potentials import Laplace, Logit, Potential
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

GRID = np.linspace(-6.0, 6.0, 2401)
CASES: dict[str, tuple[Potential, float]] = {"Laplace": (Laplace(), 0.5), "logistic sigmoid": (Logit([1]), 2.5)}


class Bound(NamedTuple):
    """Logs of a potential and of its bound on the grid, the coefficients, and the gap at ±ξ."""

    potential: Array
    bound: Array
    coefficients: tuple[float, float, float]
    touching: float


def bound_of(potential: Potential, xi: float) -> Bound:
    """One panel."""
    a, b, c = (float(np.ravel(value)[0]) for value in potential.quadratic_bound([xi]))
    points = np.array([-xi, xi])
    gap = potential.log_density(points[:, None])[:, 0] - (-0.5 * a * points**2 + b * points + c)
    inside = potential.log_density(GRID[:, None])[:, 0]
    return Bound(inside, -0.5 * a * GRID**2 + b * GRID + c, (a, b, c), float(np.abs(gap).max()))


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target = made(folder)
    found = {name: bound_of(*case) for name, case in CASES.items()}
    figure = new_figure("figure 3.4", 8.0, 3.2)
    for axes, (name, each) in zip(figure.subplots(1, 2), found.items(), strict=True):
        axes.plot(GRID, np.exp(each.potential), "k")
        axes.plot(GRID, np.exp(each.bound), "C3--")
        axes.axvline(CASES[name][1], color="0.7", lw=0.8)
        axes.set_title(f"{name}, operating point {CASES[name][1]:g}")
    alt = "Two potentials with Gaussian-shaped bounds below them that touch at the operating points"
    picture = drawn(figure, target / "figure_3_4.png", alt, quick)
    rows = [(name, CASES[name][1], *each.coefficients, each.touching) for name, each in found.items()]
    columns = ("potential", "ξ", "a", "b", "c", "gap at ±ξ")
    table = Table("figure_3_4", "Bounds exp(−½ax² + bx + c)", columns, rows)
    return write_page(target, "figure_3_4", claims(found), [table], [picture])


def claims(found: dict[str, Bound]) -> list[Claim]:
    """Below everywhere, tight at the operating point."""
    said = []
    for name, each in found.items():
        least = float((each.potential - each.bound).min())
        said.append(Claim(f"{name}: below the potential", "everywhere", f"least gap {least:.1e} nat", least > -1e-12))
        tight = each.touching < 1e-12
        said.append(Claim(f"{name}: tight at ±{CASES[name][1]:g}", "tight", f"gap {each.touching:.1e} nat", tight))
    return said

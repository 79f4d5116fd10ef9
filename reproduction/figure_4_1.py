"""Figure 4.1 of Challis (2013): functions with a kink or a jump have smooth Gaussian expectations.

ψ(x) = −|x| by a Laplace potential and ψ(x) = −sgn(x) by a step potential, rescaled; their expectations under N(m, σ²)
for σ = 0.0125, 0.5, 1, 2, against the closed forms −σ√(2/π) exp(−½m²/σ²) − m(2Φ(m/σ) − 1) and 1 − 2Φ(m/σ). The caption
states that the expectations are smooth in m and tend to the function as σ tends to zero.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from latlin.potentials import Laplace, Step
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page

SIGMAS = (0.0125, 0.5, 1.0, 2.0)
GRID = np.linspace(-4.0, 4.0, 1601)
EPS = 0.1


class Curve(NamedTuple):
    """⟨ψ⟩ and its slope on the grid, and the closed form of ⟨ψ⟩."""

    value: Array
    slope: Array
    closed: Array


def kink(sigma: float) -> Curve:
    """⟨−|x|⟩: a Laplace potential is ½ exp(−|x|)."""
    value, slope, _ = Laplace().expected_log(GRID, sigma**2)
    bell = sigma * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * (GRID / sigma) ** 2)
    return Curve(value + np.log(2.0), slope, -bell - GRID * (2.0 * ndtr(GRID / sigma) - 1.0))


def jump(sigma: float) -> Curve:
    """⟨−sgn x⟩: a step potential with label −1 is 1 − ε left of zero and ε right of it."""
    value, slope, _ = Step(-np.ones(len(GRID)), EPS).expected_log(GRID, sigma**2)
    high, low = np.log(1.0 - EPS), np.log(EPS)
    scale = 2.0 / (high - low)
    return Curve(scale * (value - low) - 1.0, scale * slope, 1.0 - 2.0 * ndtr(GRID / sigma))


CASES = {"−|x|": (kink, -np.abs(GRID)), "−sgn x": (jump, -np.sign(GRID))}


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target = made(folder)
    found = {name: {sigma: of(sigma) for sigma in SIGMAS} for name, (of, _) in CASES.items()}
    figure = new_figure("figure 4.1", 9.0, 6.0)
    for axes, (name, curves) in zip(figure.subplots(2, 2), found.items(), strict=True):
        axes[0].plot(GRID, CASES[name][1], "k")
        axes[0].set_title(f"ψ(x) = {name}")
        for sigma, curve in curves.items():
            axes[1].plot(GRID, curve.value, label=f"σ = {sigma:g}")
        axes[1].set_title("⟨ψ⟩ against m")
    axes[1].legend(fontsize=7)
    alt = "A kinked and a stepped function, and their expectations, rounder for larger variances"
    picture = drawn(figure, target / "figure_4_1.png", alt, quick)
    rows = [
        (name, sigma, *(error(name, sigma, curve))) for name, curves in found.items() for sigma, curve in curves.items()
    ]
    columns = ("ψ", "σ", "distance from the closed form", "mean distance from ψ", "slope against differences")
    table = Table("figure_4_1", "Gaussian expectations", columns, rows)
    return write_page(target, "figure_4_1", claims(found), [table], [picture])


def error(name: str, sigma: float, curve: Curve) -> tuple[float, float, float]:
    """Largest distance from the closed form, mean distance from ψ, largest error of the slope where σ is resolved."""
    step = GRID[1] - GRID[0]
    slopes = (curve.value[2:] - curve.value[:-2]) / (2.0 * step)
    wrong = float(np.abs(slopes - curve.slope[1:-1]).max()) if sigma > 20.0 * step else float("nan")
    away = float(np.abs(curve.value - CASES[name][1]).mean())
    return float(np.abs(curve.value - curve.closed).max()), away, wrong


def claims(found: dict[str, dict[float, Curve]]) -> list[Claim]:
    """Smooth, and converging."""
    said = []
    for name, curves in found.items():
        errors = np.array([error(name, sigma, curve) for sigma, curve in curves.items()])
        exact = float(errors[:, 0].max())
        said.append(Claim(f"⟨{name}⟩", "closed form", f"within {exact:.1e}", exact < 1e-10))
        smooth = float(np.nanmax(errors[:, 2]))
        said.append(Claim(f"⟨{name}⟩ is smooth in m", "smooth", f"slope right to {smooth:.1e}", smooth < 1e-3))
        ours = " > ".join(f"{value:.2g}" for value in errors[::-1, 1])
        falls = bool(np.all(np.diff(errors[:, 1]) > 0.0))
        said.append(Claim(f"⟨{name}⟩ as σ → 0: mean distance from ψ", "tends to zero", ours, falls))
    return said

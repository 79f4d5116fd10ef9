"""Figure 3.2 of Challis (2013): a correlated Gaussian and its two factorised approximations.

Zero mean, unit variances, covariance 0.9. The factorised Gaussian of least KL(p|q) has the marginal variances, that of
least KL(q|p) the inverses of the precision's diagonal: 1 and 1 − 0.9² = 0.19. The second is fitted by Gaussian KL with
a diagonal covariance and by mean field, which must agree.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from latlin import GaussianFactor, LatentLinearModel, infer
from latlin.engines import GaussianKL, MeanField
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Measured, Table, compared, drawn, write_page

COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.0]])


def compute() -> dict[str, Array]:
    """Covariances of the target and of its approximations."""
    model = LatentLinearModel([GaussianFactor(np.zeros(2), COVARIANCE)])
    return {
        "target": COVARIANCE,
        "least KL(p|q)": np.diag(infer(model).variance),
        "least KL(q|p)": np.diag(infer(model, GaussianKL(covariance="diagonal")).variance),
        "least KL(q|p), mean field": np.diag(infer(model, MeanField()).variance),
    }


def divergence(first: Array, second: Array) -> float:
    """KL of two Gaussians with zero mean.

    >>> round(divergence(np.eye(2), 2.0 * np.eye(2)), 4)
    0.1931
    """
    ratio = np.linalg.solve(second, first)
    return float(0.5 * (np.trace(ratio) - len(first) - np.linalg.slogdet(ratio)[1]))


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target, found = made(folder), compute()
    figure = new_figure("figure 3.2", 9.0, 3.2)
    side = np.linspace(-2.5, 2.5, 81)
    points = np.stack(np.meshgrid(side, side), axis=-1)
    for axes, (name, covariance) in zip(figure.subplots(1, 3), found.items(), strict=False):
        square = np.einsum("...i,ij,...j->...", points, np.linalg.inv(covariance), points)
        axes.contour(side, side, np.exp(-0.5 * square))
        axes.set(title=name, aspect="equal")
    alt = "Contours of a correlated Gaussian, of the round wide and of the round narrow approximation"
    picture = drawn(figure, target / "figure_3_2.png", alt, quick)
    rows = [
        (name, float(cov[0, 0]), divergence(COVARIANCE, cov), divergence(cov, COVARIANCE))
        for name, cov in found.items()
    ]
    table = Table("figure_3_2", "Approximations", ("density", "variance", "KL(p|q)", "KL(q|p)"), rows)
    return write_page(target, "figure_3_2", claims(found), [table], [picture])


def claims(found: dict[str, Array]) -> list[Claim]:
    """The variances, and the direction each is best in."""
    wide, narrow = found["least KL(p|q)"], found["least KL(q|p)"]
    said = [
        compared(f"variance, {name}", Measured(value, digits=4), Measured(float(found[name][0, 0])), "")
        for name, value in (("least KL(p|q)", 1.0), ("least KL(q|p)", 0.19), ("least KL(q|p), mean field", 0.19))
    ]
    best = divergence(COVARIANCE, wide) < divergence(COVARIANCE, narrow)
    best &= divergence(narrow, COVARIANCE) < divergence(wide, COVARIANCE)
    words = "support covering against mode seeking"
    return [*said, Claim("each wins by its own divergence", words, str(bool(best)), bool(best))]

"""Figure 2.3 of Challis (2013): the order of a polynomial by its evidence, and by its likelihood.

y = 2x(x − 1)(x + 1) + ε with unit noise, standard normal priors on all coefficients, orders P = 1 … 7. The text gives
neither the covariates nor their number; here 30 are uniform on [−2, 2]. It states that the likelihood rises with P
throughout and that the evidence is largest at the true order, 3: checked on the data of the figure and counted over
many data sets.
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

ORDERS = (1, 2, 3, 4, 5, 6, 7)
TRUE_ORDER, REACH, COUNT = 3, 2.0, 30


class Order(NamedTuple):
    """One model: its coefficients by maximum likelihood, that log likelihood, and the posterior."""

    likely: Array
    log_likelihood: float
    posterior: Posterior


def truth(x: Array) -> Array:
    """The function behind the data."""
    return 2.0 * x * (x - 1.0) * (x + 1.0)


def sample(seed: int, count: int = COUNT) -> tuple[Array, Array]:
    """Covariates and noisy values."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-REACH, REACH, count)
    return x, truth(x) + rng.standard_normal(count)


def fit(x: Array, y: Array, order: int) -> Order:
    """Both estimates of one order."""
    H = np.vander(x, order + 1, increasing=True)
    likely = np.asarray(np.linalg.lstsq(H, y, rcond=None)[0], dtype=np.float64)
    # log N(y | Hw, I)
    top = -0.5 * len(y) * np.log(2.0 * np.pi) - 0.5 * float(np.square(y - H @ likely).sum())
    model = LatentLinearModel([GaussianFactor(dim=order + 1), GaussianFactor(y, 1.0, H=H)])
    return Order(likely, top, infer(model))


def fits(seed: int) -> dict[int, Order]:
    """All orders on one data set."""
    x, y = sample(seed)
    return {order: fit(x, y, order) for order in ORDERS}


def best(found: dict[int, Order]) -> int:
    """The order of largest evidence."""
    return max(found, key=lambda order: found[order].posterior.log_evidence)


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target, repeats = made(folder), 8 if quick else 200
    found = fits(0)
    chosen = [best(fits(seed)) for seed in range(repeats)]
    figure = new_figure("figure 2.3", 11.0, 5.0)
    axes = figure.subplots(2, 4).ravel()
    for panel, (order, each) in zip(axes, found.items(), strict=False):
        _draw(panel, *sample(0), order, each)
    likelihoods, evidences = _above_least(found)
    axes[-1].plot(ORDERS, likelihoods, "C0:o", label="likelihood")
    axes[-1].plot(ORDERS, evidences, "C3-o", label="evidence")
    axes[-1].set(xlabel="P", title="log, above the least")
    axes[-1].legend(fontsize=7)
    alt = "Seven polynomial fits of rising order, and likelihood and evidence against the order"
    picture = drawn(figure, target / "figure_2_3.png", alt, quick)
    rows = [
        (order, each.log_likelihood, each.posterior.log_evidence, chosen.count(order) / repeats)
        for order, each in found.items()
    ]
    columns = ("P", "log likelihood", "log evidence", f"share of {repeats} data sets where the evidence is largest")
    table = Table("figure_2_3", "Likelihood and evidence by order", columns, rows)
    return write_page(target, "figure_2_3", claims(found, chosen), [table], [picture])


def claims(found: dict[int, Order], chosen: list[int]) -> list[Claim]:
    """The statements of the caption."""
    rises = np.diff([each.log_likelihood for each in found.values()])
    share = chosen.count(TRUE_ORDER) / len(chosen)
    return [
        Claim(
            "log likelihood against P", "rises throughout", f"least rise {rises.min():.2g}", bool(rises.min() >= 0.0)
        ),
        Claim("order of largest evidence", "3", str(best(found)), best(found) == TRUE_ORDER, "chance: see the share"),
        Claim("the same, share of data sets", "no number", f"{share:.2f}", share > 0.5, "the data hold too little"),
    ]


def _above_least(found: dict[int, Order]) -> tuple[Array, Array]:
    likelihoods = np.array([each.log_likelihood for each in found.values()])
    evidences = np.array([each.posterior.log_evidence for each in found.values()])
    return likelihoods - likelihoods.min(), evidences - evidences.min()


def _draw(axes: Any, x: Array, y: Array, order: int, each: Order) -> None:
    grid = np.linspace(-REACH, REACH, 80)
    H = np.vander(grid, order + 1, increasing=True)
    marginals = each.posterior.project(H)
    sd = np.sqrt(marginals.variance + 1.0)
    axes.plot(x, y, "k.", ms=3)
    axes.plot(grid, truth(grid), "k", lw=0.8)
    axes.plot(grid, H @ each.likely, "C0:")
    axes.plot(grid, marginals.mean, "C3")
    for sign in (-1.0, 1.0):
        axes.plot(grid, marginals.mean + sign * sd, "C3--", lw=0.7)
    axes.set_title(f"P = {order}", fontsize=8)

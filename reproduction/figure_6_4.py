"""Figure 6.4 of Challis (2013): what skew is worth in logistic regression, against the number of data.

D = 10, prior N(0, 5I), covariates standard normal, weights from the prior, labels with probability σ(5wᵀh). The gain in
the bound over Gaussian KL, and in the mean log probability of 10,000 held-out labels, over 15 data sets a size: both
rise to a maximum near N = D and fall again as the posterior becomes Gaussian.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import AffineKL
from latlin.potentials import Logit
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, at_size, drawn, write_page
from reproduction.resume import each, remembered

DIM, PRIOR, STEEP = 10, 5.0, 5.0
SIZES = (2, 5, 8, 10, 15, 20, 30, 50, 100)


class Gains(NamedTuple):
    """Gains of affine-independent over Gaussian KL, (seeds, sizes), in nat and in nat a held-out label."""

    sizes: Array
    bound: Array
    held_out: Array


def problem(seed: int, size: int, held_out: int) -> tuple[LatentLinearModel, Array, Array]:
    """A model, and held-out rows and labels of the same weights."""
    rng = np.random.default_rng(seed)
    w = np.sqrt(PRIOR) * rng.standard_normal(DIM)
    rows = STEEP * rng.standard_normal((held_out + size, DIM))
    labels = rng.random(held_out + size) < 1.0 / (1.0 + np.exp(-rows @ w))
    train = SiteFactor(rows[held_out:], Logit(labels[held_out:]))
    return LatentLinearModel([GaussianFactor(cov=PRIOR, dim=DIM), train]), rows[:held_out], labels[:held_out]


def gains(seed: int, size: int, held_out: int) -> tuple[float, float]:
    """Gain in the bound, and in the mean log predictive probability of held-out labels."""
    model, rows, labels = problem(seed, size, held_out)
    gaussian = infer(model, "gkl")
    affine = infer(model, AffineKL(base="skew-normal"))
    site = Logit(labels)
    flat = gaussian.project(rows)
    # log ∫ q(x) σ(yx) dx under either marginal
    plain = site.tilted_moments(flat.mean, flat.variance).log_z
    skewed = affine.project(rows).expectation(lambda x: np.exp(site.log_density(x)), site.regions(), smooth=True)
    better = float(np.mean(np.log(np.maximum(skewed, 1e-9)) - plain))
    return affine.log_evidence - gaussian.log_evidence, better


def compute(folder: Path, sizes: tuple[int, ...] = SIZES, seeds: int = 15, held_out: int = 10_000) -> Gains:
    """The numbers of the figure; those that are kept in `folder` are not computed again."""
    found = np.zeros((seeds, len(sizes), 2))
    for seed, place in each("figure 6.4", [(seed, place) for seed in range(seeds) for place in range(len(sizes))]):
        found[seed, place] = remembered(
            folder,
            f"figure_6_4_{sizes[place]}_{held_out}_{seed}",
            lambda s=seed, n=sizes[place]: {"gains": np.array(gains(s, n, held_out))},  # type: ignore[misc]
        )["gains"]
    return Gains(np.array(sizes, float), found[..., 0], found[..., 1])


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure and its table; the paths of what was written."""
    target = made(folder)
    numbers = compute(target, (2, 10, 60), 3, 500) if quick else compute(target)
    figure = new_figure("figure 6.4", 9.0, 3.8)
    left, right = figure.subplots(1, 2)
    _draw(left, numbers.sizes, numbers.bound, "gain in the bound, nat")
    _draw(right, numbers.sizes, numbers.held_out, "gain in held-out log probability, nat")
    alt = "Gains in the bound and in held-out log probability against the number of data, largest near N = D"
    picture = drawn(figure, target / "figure_6_4.png", alt, quick)
    rows = [
        (int(size), *(value for gain in (bound, held) for value in _mean_and_error(gain)))
        for size, bound, held in zip(numbers.sizes, numbers.bound.T, numbers.held_out.T, strict=True)
    ]
    columns = ("N", "bound gain", "its standard error", "held-out gain", "its standard error")
    title = f"Figure 6.4: logistic regression, D = {DIM}, {len(numbers.bound)} data sets a size"
    said = at_size(claims(numbers), quick)
    return write_page(target, "figure_6_4", said, [Table("figure_6_4", title, columns, rows)], [picture])


def claims(numbers: Gains) -> list[Claim]:
    """What §6.7.2 says of the curves, and its seconds."""
    bound, held_out = numbers.bound.mean(axis=0), numbers.held_out.mean(axis=0)
    top = float(numbers.sizes[bound.argmax()])
    fits = [infer(problem(0, DIM, 1)[0], engine) for engine in ("gkl", AffineKL(base="skew-normal"))]
    seconds = " and ".join(f"{fit.elapsed:.2g}" for fit in fits)
    slower = fits[1].elapsed > fits[0].elapsed
    return [
        Claim(
            "where the bound gains most",
            "N = D = 10",
            f"N = {top:g}, by {bound.max():.2f} nat",
            DIM / 2 <= top <= 2 * DIM,
        ),
        Claim(
            "the evidence for a bound higher by 0.4",
            "49 % more",
            f"{np.expm1(0.4):.0%} more",
            round(100.0 * float(np.expm1(0.4))) == 49,
        ),
        Claim(
            "few and many data",
            "little gain",
            f"{bound[0]:.2f} and {bound[-1]:.2f} nat",
            max(bound[0], bound[-1]) < bound.max(),
        ),
        Claim(
            "held-out log probability",
            "gains, most near N = D",
            f"{held_out.max():.4f} nat",
            held_out.max() > 0.0,
        ),
        Claim(
            "seconds, D = N = 10, Gaussian and affine",
            "0.2 and 8",
            seconds,
            slower,
            "another machine; the order is compared",
        ),
    ]


def _mean_and_error(gain: Array) -> tuple[float, float]:
    return float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))


def _draw(axes: Any, sizes: Array, gain: Array, label: str) -> None:
    error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    axes.errorbar(sizes, gain.mean(axis=0), error, marker="o", capsize=3)
    axes.axvline(DIM, color="0.7", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("N")
    axes.set_ylabel(label)

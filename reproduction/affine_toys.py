"""Figures 6.1 to 6.3 of Challis (2013): three posteriors in the plane that no Gaussian fits.

A sparse regression (Laplace prior, τ = 0.16, noise variance 0.05, two measurements), a logistic regression (prior
variance 10, τ = 5, four labels) and a robust regression (unit prior, Laplace noise, τ = 0.1581, two observations). The
source gives no data; these are of its kind, and random data of the same kinds say what numbers such data can have.
log Z is by integration on a grid.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from latlin import GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer
from latlin.engines import AffineKL
from latlin.potentials import Laplace, Logit
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, at_size, drawn, verdict, write_page
from reproduction.resume import each, remembered

#: log Z, the Gaussian and the affine-independent bound in the captions of Figures 6.1 to 6.3
PRINTED = {
    "figure_6_1": ("-1.4026", "-1.4399", "-1.4026"),
    "figure_6_2": ("-1.13", "-1.42", "-1.17"),
    "figure_6_3": ("-3.5159", "-3.6102", "-3.5167"),
}
KINDS = ("log Z", "Gaussian bound below log Z", "affine-independent bound below log Z", "share of the gap closed")


class Toy(NamedTuple):
    """One figure: its name, its model, the base of the source."""

    name: str
    title: str
    model: LatentLinearModel
    base: str


class Numbers(NamedTuple):
    """What a figure shows."""

    toy: Toy
    log_z: float
    gaussian: Posterior
    affine: Posterior

    @property
    def closed(self) -> float:
        """Share of the gap between the Gaussian KL bound and log Z that the affine-independent one closes."""
        gained = self.affine.log_evidence - self.gaussian.log_evidence
        return gained / (self.log_z - self.gaussian.log_evidence)


def toys() -> list[Toy]:
    """The three problems."""
    measured = np.array([[1.0, 0.3], [0.2, -0.6]])
    labelled = np.array([[0.9, 0.4], [0.2, 1.1], [-0.8, 0.5], [0.4, -0.7]])
    observed = np.array([[1.6, 0.4], [-0.5, 1.9]])
    return [
        _sparse(measured, measured @ np.array([0.0, 0.02])),
        _labelled(labelled, np.array([1, 1, 0, 1])),
        _robust(observed, np.array([0.3, -0.4])),
    ]


def random_toys(seed: int) -> list[Toy]:
    """The same kinds with standard normal rows, and weights and observations drawn from the model."""
    rng = np.random.default_rng(seed)
    measured, labelled, observed = (rng.standard_normal((count, 2)) for count in (2, 4, 2))
    y = measured @ rng.laplace(scale=0.16, size=2) + np.sqrt(0.05) * rng.standard_normal(2)
    logits = 5.0 * labelled @ (np.sqrt(10.0) * rng.standard_normal(2))
    labels = (rng.random(4) < 0.5 * (1.0 + np.tanh(0.5 * logits))).astype(int)
    noisy = observed @ rng.standard_normal(2) + rng.laplace(scale=0.1581, size=2)
    return [_sparse(measured, y), _labelled(labelled, labels), _robust(observed, noisy)]


def _sparse(rows: Array, y: Array) -> Toy:
    factors: list[GaussianFactor | SiteFactor] = [
        GaussianFactor(y, 0.05, H=rows),
        SiteFactor(None, Laplace(scale=0.16)),
    ]
    return Toy("figure_6_1", "Laplace prior, Gaussian noise", LatentLinearModel(factors), "generalised-normal")


def _labelled(rows: Array, y: NDArray[np.int_]) -> Toy:
    factors: list[GaussianFactor | SiteFactor] = [GaussianFactor(cov=10.0, dim=2), SiteFactor(5.0 * rows, Logit(y))]
    return Toy("figure_6_2", "logistic regression", LatentLinearModel(factors), "skew-normal")


def _robust(rows: Array, y: Array) -> Toy:
    factors: list[GaussianFactor | SiteFactor] = [GaussianFactor(dim=2), SiteFactor(rows, Laplace(y, 0.1581))]
    return Toy("figure_6_3", "Gaussian prior, Laplace noise", LatentLinearModel(factors), "generalised-normal")


def compute(toy: Toy, count: int = 1601) -> Numbers:
    """Fit both engines and integrate."""
    gaussian = infer(toy.model, "gkl")
    affine = infer(toy.model, AffineKL(base=toy.base))
    return Numbers(toy, integrate(toy.model, gaussian, count), gaussian, affine)


def log_joint(model: LatentLinearModel, w: Array) -> Array:
    """log of the product of all factors at each row of w; covariances are multiples of the identity here."""
    total = np.zeros(len(w))
    for factor in model.gaussians:
        deviation = (w if factor.H is None else w @ np.asarray(factor.H).T) - factor.mean
        total += norm.logpdf(deviation, scale=np.sqrt(factor.cov)).sum(axis=1)
    for site in model.sites:
        projected = w if site.H is None else w @ np.asarray(site.H).T
        total += site.potential.log_density(projected).sum(axis=1)
    return total


def integrate(model: LatentLinearModel, posterior: Posterior, count: int) -> float:
    """log Z by the trapezoidal rule over 14 standard deviations of a Gaussian posterior, in two dimensions."""
    line, step = np.linspace(-14.0, 14.0, count, retstep=True)
    z = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    root = np.linalg.cholesky(posterior.covariance())
    logs = log_joint(model, posterior.mean + z @ root.T)
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).sum() * step**2 * np.linalg.det(root)))


def of_the_kind(seed: int) -> dict[str, Array]:
    """By figure: log Z, both bounds below it and the share of the gap, of one random data set."""
    found = {}
    for toy in random_toys(seed):
        numbers = compute(toy, 601)
        bounds = numbers.gaussian.log_evidence, numbers.affine.log_evidence
        found[toy.name] = np.array([numbers.log_z, *(numbers.log_z - bound for bound in bounds), numbers.closed])
    return found


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """A figure and a table for each problem, and the page; the paths of what was written."""
    target, pictures, tables, said = made(folder), [], [], []
    seeds = each("figures 6.1 to 6.3", range(3 if quick else 40))
    draws = [remembered(target, f"affine_toys_{seed}", lambda s=seed: of_the_kind(s)) for seed in seeds]  # type: ignore[misc]
    for toy in toys():
        numbers = compute(toy, 601 if quick else 2401)
        figure = _draw(numbers, 60 if quick else 240)
        alt = f"{toy.title}: the posterior, the Gaussian and the affine-independent approximation"
        pictures.append(drawn(figure, target / f"{toy.name}.png", alt, quick))
        kind = np.array([draw[toy.name] for draw in draws])
        rows = [
            ("log Z, integration", numbers.log_z),
            ("Gaussian KL", numbers.gaussian.log_evidence),
            (f"affine-independent KL, {toy.base}", numbers.affine.log_evidence),
            ("its numerical error", numbers.affine.bound_error),
            ("share of the gap closed", float(numbers.closed)),
            *((f"{name}, {len(kind)} random data sets", _span(kind[:, j])) for j, name in enumerate(KINDS)),
        ]
        title = f"{toy.name.replace('_', ' ', 1).replace('_', '.').capitalize()}: {toy.title}"
        tables.append(Table(toy.name, title, ("quantity", "nat"), rows))
        said += claims(numbers, kind)
    return write_page(target, "affine_toys", at_size(said, quick), tables, pictures)


def claims(numbers: Numbers, kind: Array) -> list[Claim]:
    """The numbers of a caption, which random data of the kind may have or not, and the order of the bounds."""
    name = numbers.toy.name.replace("_", " ", 1).replace("_", ".").capitalize()
    log_z, flat, affine = map(float, PRINTED[numbers.toy.name])
    printed = (log_z, log_z - flat, log_z - affine, (affine - flat) / (log_z - flat))
    digits = 10.0 ** -len(PRINTED[numbers.toy.name][0].partition(".")[2])
    rounding = (digits, digits, digits, 2.0 * digits / (log_z - flat))
    ours = (numbers.log_z, numbers.gaussian.log_evidence, numbers.affine.log_evidence)
    order = bool(ours[1] < ours[2] <= ours[0] + 1e-3)
    lower = "the bounds of the table above, and of every random data set"
    said = [Claim(f"{name}: order", "Gaussian < affine ≤ log Z", "the same" if order else "another", order, lower)]
    for j, what in enumerate(KINDS):
        inside = bool(kind[:, j].min() - rounding[j] <= printed[j] <= kind[:, j].max() + rounding[j])
        row = f'row "{what}, {len(kind)} random data sets"'
        shown = f"{printed[j]:.0%}" if j == 3 else f"{printed[j]:.4f}"
        said.append(
            Claim(f"{name}: {what}, among random data sets", shown, _span(kind[:, j]), inside, verdict([], [row]))
        )
    return said


def _span(values: Array) -> str:
    return f"{values.min():.4f} to {values.max():.4f}"


def _draw(numbers: Numbers, count: int) -> Any:
    figure = new_figure("figures 6.1 to 6.3", 11.0, 3.8)
    sd = np.sqrt(numbers.gaussian.variance)
    lines = [m + 3.5 * s * np.linspace(-1.0, 1.0, count) for m, s in zip(numbers.gaussian.mean, sd, strict=True)]
    w = np.stack(np.meshgrid(*lines), axis=-1).reshape(-1, 2)
    logs = [log_joint(numbers.toy.model, w), numbers.gaussian.logpdf(w), numbers.affine.logpdf(w)]
    titles = (
        f"posterior, log Z = {numbers.log_z:.4f}",
        f"Gaussian KL, {numbers.gaussian.log_evidence:.4f}",
        f"affine-independent KL, {numbers.affine.log_evidence:.4f}",
    )
    for axes, values, title in zip(figure.subplots(1, 3, sharex=True, sharey=True), logs, titles, strict=True):
        density = np.exp(values - values.max()).reshape(count, count)
        axes.contour(*lines, density, levels=[0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9])
        axes.set_title(title, fontsize=10)
    return figure

"""The runs of Table 6.1 of Challis (2013) (§6.7.3): data, model (6.7.1) and fits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from latlin import LatentLinearModel, Posterior, SiteFactor, infer
from latlin.densities.bases import GeneralisedNormal
from latlin.engines import AffineKL
from latlin.potentials import Laplace
from reproduction.arrays import Array

SHAPE = 1.5


class Split(NamedTuple):
    """Standardised inputs and targets of the training and the test part, and what one unit of the targets was."""

    x: Array
    y: Array
    new_x: Array
    new_y: Array
    unit: float


class Setting(NamedTuple):
    """κ_n, κ_l and τ of (6.7.1)."""

    delta: float = 1.0
    length: float = 0.05
    scale: float = 0.16

    def kernel(self, x: Array, other: Array) -> Array:
        """exp(−κ_l‖x − x′‖²)."""
        return np.exp(-self.length * np.square(x[:, None] - other[None]).sum(axis=-1))

    def rows(self, split: Split) -> Array:
        """The kernel matrix of the training part, with δ."""
        return self.kernel(split.x, split.x) + self.delta * np.eye(len(split.x))

    def new_rows(self, split: Split) -> Array:
        return self.kernel(split.new_x, split.x)


def friedman(seed: int, train: int, test: int) -> Split:
    """10 sin(πx₁x₂) + 20(x₃ − ½)² + 10x₄ + 5x₅ + N(0, 1); a tenth of the training targets are N(15, 3²)."""
    rng = np.random.default_rng(seed)
    x = rng.random((train + test, 10))
    y = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4]
    y += rng.standard_normal(len(y))
    y[: train // 10] = 15.0 + 3.0 * rng.standard_normal(train // 10)
    return standardised(x, y, train, test)


def standardised(x: Array, y: Array, train: int, test: int) -> Split:
    """The first rows as training, the next as test part, by the statistics of the former."""
    inputs, targets = x[: train + test], y[: train + test]
    centre, width = inputs[:train].mean(axis=0), inputs[:train].std(axis=0)
    inputs = (inputs - centre) / np.where(width > 0.0, width, 1.0)
    unit = float(targets[:train].std())
    targets = (targets - targets[:train].mean()) / unit
    return Split(inputs[:train], targets[:train], inputs[train:], targets[train:], unit)


def from_file(path: Path, seed: int, train: int, test: int | None = None) -> Split:
    """A random split of a table whose last column is the target; all other rows are tested unless `test` says so."""
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    rest = len(rows) - train
    return standardised(rows[:, :-1], rows[:, -1], train, rest if test is None else min(test, rest))


def model_of(split: Split, setting: Setting) -> LatentLinearModel:
    """(6.7.1)."""
    scale = setting.scale
    return LatentLinearModel(
        [SiteFactor(None, Laplace(scale=scale)), SiteFactor(setting.rows(split), Laplace(split.y, scale))]
    )


def held_out(post: Posterior, rows: Array, y: Array, scale: float) -> float:
    """Mean of log ∫ q(x) p(y|x) dx over the test part, with the exact marginal of x = kᵀw."""
    site, marginals = Laplace(y, scale), post.project(rows)
    if post.engine == "gkl":
        return float(site.tilted_moments(marginals.mean, marginals.variance).log_z.mean())
    inside = marginals.expectation(lambda x: np.exp(site.log_density(x)), site.regions())
    return float(np.log(np.maximum(inside, 1e-12)).mean())


def fitted(split: Split, engines: list[str | AffineKL], setting: Setting | None = None) -> Array:
    """Bound per training datum and held-out score of every engine, (2, engines)."""
    setting = setting or Setting()
    model, rows = model_of(split, setting), setting.new_rows(split)
    fits = [infer(model, engine) for engine in engines]
    bounds = [fit.log_evidence / len(split.y) for fit in fits]
    return np.array([bounds, [held_out(fit, rows, split.new_y, setting.scale) for fit in fits]])


def affine(tol: float = 1e-4) -> AffineKL:
    """The engine of the document: a generalised normal base of one shape."""
    return AffineKL(GeneralisedNormal(SHAPE), optimise_shape=False, tol=tol)

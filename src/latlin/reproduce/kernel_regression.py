"""The runs of Table 6.1 of Challis (2013) (§6.7.3): data, model (6.7.1), fits, and fits with other settings.

The document leaves open when its climbs stop, how the outliers of its synthetic set lie, and by its equations whether
every constant is in the bound. `tested` runs each of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import GeneralisedNormal, Normal
from latlin.densities.marginals import NormalMarginals
from latlin.densities.projected import ProjectedMarginals
from latlin.engines import AffineKL
from latlin.inference.infer import infer
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.potentials import Laplace
from latlin.reproduce.stopped_early import affine_stops, gaussian_stops

Array = NDArray[np.float64]
SHAPE = 1.5
#: steps after which a climb that starts at A = I is looked at
STOPS = (40, 60, 80, 100)


class Split(NamedTuple):
    """Standardised inputs and targets of the training and the test part, and what one unit of the targets was."""

    x: Array
    y: Array
    new_x: Array
    new_y: Array
    unit: float


class Setting(NamedTuple):
    """κ_n, κ_l and τ of (6.7.1), and whether the target is taken for an input too."""

    delta: float = 1.0
    length: float = 0.05
    scale: float = 0.16
    target_in: bool = False

    def inputs(self, split: Split) -> tuple[Array, Array]:
        if not self.target_in:
            return split.x, split.new_x
        return np.column_stack([split.x, split.y]), np.column_stack([split.new_x, split.new_y])

    def kernel(self, x: Array, other: Array) -> Array:
        """exp(−κ_l‖x − x′‖²)."""
        return np.exp(-self.length * np.square(x[:, None] - other[None]).sum(axis=-1))

    def rows(self, split: Split) -> Array:
        """The kernel matrix of the training part, with δ."""
        x = self.inputs(split)[0]
        return self.kernel(x, x) + self.delta * np.eye(len(x))

    def new_rows(self, split: Split) -> Array:
        x, new = self.inputs(split)
        return self.kernel(new, x)


#: settings other than the document's, by the name of their row: what they suppose
SETTINGS: dict[str, tuple[str, Setting]] = {
    "δ of ½": ("the δ of the kernel is smaller", Setting(delta=0.5)),
    "κ of 0.025": ("the kernel is exp(−κ‖·‖²/2)", Setting(length=0.025)),
    "κ of 0.1": ("the kernel is exp(−2κ‖·‖²)", Setting(length=0.1)),
    "2τ² of 0.16": ("0.16 is the variance of the Laplace density", Setting(scale=0.08**0.5)),
    "τ² of 0.16": ("0.16 is the square of its scale", Setting(scale=0.4)),
    "target among inputs": ("the target is an input too (D = 14 for Boston)", Setting(target_in=True)),
}
#: other synthetic sets, by the name of their row: what they suppose
OUTLIERS: dict[str, str] = {
    "no outliers": "the synthetic set has none",
    "outliers in both parts": "the test part has them too",
    "outliers added": "N(15, 3²) is added to a tenth of the training targets",
}


def friedman(seed: int, train: int, test: int, outliers: str = "") -> Split:
    """10 sin(πx₁x₂) + 20(x₃ − ½)² + 10x₄ + 5x₅ + N(0, 1), with outliers in the training part, or as `outliers` says."""
    rng = np.random.default_rng(seed)
    x = rng.random((train + test, 10))
    y = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4]
    y += rng.standard_normal(len(y))
    drawn = 15.0 + 3.0 * rng.standard_normal(train // 10)
    if outliers == "outliers in both parts":
        y[train::10] = 15.0 + 3.0 * rng.standard_normal(len(y[train::10]))
    if outliers != "no outliers":
        y[: train // 10] = drawn + (y[: train // 10] if outliers == "outliers added" else 0.0)
    return standardised(x, y, train, test)


def standardised(x: Array, y: Array, train: int, test: int) -> Split:
    """The first rows as training, the next as test part, by the statistics of the former."""
    inputs, targets = x[: train + test], y[: train + test]
    centre, width = inputs[:train].mean(axis=0), inputs[:train].std(axis=0)
    inputs = (inputs - centre) / np.where(width > 0.0, width, 1.0)
    unit = float(targets[:train].std())
    targets = (targets - targets[:train].mean()) / unit
    return Split(inputs[:train], targets[:train], inputs[train:], targets[train:], unit)


def from_file(path: Path, seed: int, train: int) -> Split:
    """A random split of a table whose last column is the target."""
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    return standardised(rows[:, :-1], rows[:, -1], train, len(rows) - train)


def model_of(split: Split, setting: Setting) -> LatentLinearModel:
    """(6.7.1)."""
    scale = setting.scale
    return LatentLinearModel(
        [SiteFactor(None, Laplace(scale=scale)), SiteFactor(setting.rows(split), Laplace(split.y, scale))]
    )


def held_out(marginals: NormalMarginals | ProjectedMarginals, y: Array, scale: float) -> float:
    """Mean of log ∫ q(x) p(y|x) dx over the test part, with the exact marginal of x = kᵀw."""
    site = Laplace(y, scale)
    if isinstance(marginals, NormalMarginals):
        return float(site.tilted_moments(marginals.mean, marginals.variance).log_z.mean())
    inside = marginals.expectation(lambda x: np.exp(site.log_density(x)), site.regions())
    return float(np.log(np.maximum(inside, 1e-12)).mean())


def fitted(split: Split, engines: list[str | AffineKL], setting: Setting | None = None) -> Array:
    """Bound a training datum and held-out score of every engine, (2, engines)."""
    setting = setting or Setting()
    model, rows = model_of(split, setting), setting.new_rows(split)
    fits = [infer(model, engine) for engine in engines]
    bounds = [fit.log_evidence / len(split.y) for fit in fits]
    return np.array([bounds, [held_out(fit.project(rows), split.new_y, setting.scale) for fit in fits]])


def affine(tol: float = 1e-4) -> AffineKL:
    """The engine of the document: a generalised normal base of one shape."""
    return AffineKL(GeneralisedNormal(SHAPE), optimise_shape=False, tol=tol)


def stopped(split: Split, counts: tuple[int, ...] = STOPS) -> Array:
    """Bounds and held-out scores of both climbs after so many steps, (counts, 2, 2)."""
    setting, n = Setting(), len(split.y)
    rows = np.concatenate([np.eye(n), setting.rows(split)])
    sites = Laplace(np.concatenate([np.zeros(n), split.y]), setting.scale)
    new = setting.new_rows(split)
    paths = gaussian_stops(rows, sites, counts), affine_stops(rows, sites, GeneralisedNormal(SHAPE), counts)
    bounds = np.array([[stop.bound / n for stop in path] for path in paths])
    scores = [[held_out(_project(stop.density, new), split.new_y, setting.scale) for stop in path] for path in paths]
    return np.stack([bounds, np.array(scores)]).transpose(2, 0, 1)


def _project(density: AffineIndependent, rows: Array) -> NormalMarginals | ProjectedMarginals:
    """Marginals of Hw; of a Gaussian in closed form."""
    if isinstance(density.base, Normal):
        return NormalMarginals(rows @ density.b, np.square(rows @ density.A).sum(axis=1))
    return density.project(rows)

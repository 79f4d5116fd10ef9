"""The fits of Table 5.1 of Challis (2013) (§5.1): data, kernel, and one fit per scale of the likelihood."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from latlin import ConvergenceWarning
from latlin.gp import GaussianProcessRegressor
from latlin.potentials import Gaussian, Laplace, Potential, StudentT
from latlin.priors import Flat
from reproduction.arrays import Array
from reproduction.kernel_regression import Split, friedman, from_file, standardised
from reproduction.page import Measured

#: likelihoods by name, with the parameters that the search for the kernel leaves as they are
LIKELIHOODS: dict[str, tuple[Callable[[float], Potential], tuple[str, ...]]] = {
    "Gauss": (lambda scale: Gaussian(scale=scale), ("scale",)),
    "Student t": (lambda scale: StudentT(3.0, scale=scale), ("df", "scale")),
    "Laplace": (lambda scale: Laplace(scale=scale), ("scale",)),
}


class Sizes(NamedTuple):
    """Rows of the three parts, steps of the optimiser, and candidates for the scale in standard deviations of y."""

    train: int
    validation: int
    test: int
    steps: int = 60
    scales: tuple[float, ...] = (0.03, 0.07, 0.15, 0.35, 0.8)


class Fit(NamedTuple):
    """What is kept of one fit; not-a-number where the engine has no answer."""

    scale: float
    evidence: float
    validated: float
    error: float
    log_probability: float
    converged: float
    seconds: float


class Runs(NamedTuple):
    """The fits of one column, (partitions, scales, fields), and one unit of y per partition."""

    fits: Array
    units: Array

    def field(self, name: str) -> Array:
        """(partitions, scales)."""
        return self.fits[:, :, Fit._fields.index(name)]

    def chosen(self, name: str) -> Array:
        """A field at the scale that has the largest validation score, by partition."""
        scores = np.where(np.isfinite(self.field("validated")), self.field("validated"), -np.inf)
        return np.take_along_axis(self.field(name), scores.argmax(axis=1)[:, None], axis=1)[:, 0]

    def number(self, quantity: str) -> Array:
        """What the table prints, by partition: "LML", "MSE" in the units of y, or "TLP"."""
        if quantity == "MSE":
            return self.chosen("error") * self.units**2
        return self.chosen({"LML": "evidence", "TLP": "log_probability"}[quantity])


def mean_of(values: Array) -> Measured:
    """Mean and standard error of the runs that could be fitted."""
    kept = values[np.isfinite(values)]
    error = kept.std(ddof=1) / np.sqrt(len(kept)) if len(kept) > 1 else 0.0
    return Measured(float(kept.mean()) if len(kept) else np.nan, float(error))


def neal(seed: int, count: int) -> tuple[Array, Array]:
    """0.3 + 0.4x + 0.5 sin 2.7x + 1.1/(1 + x²), noise 0.1, for a twentieth 1; x standard normal."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count)
    noise = np.where(rng.random(count) < 0.05, 1.0, 0.1)
    y = 0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1.0 + x**2)
    return x[:, None], y + noise * rng.standard_normal(count)


def part_of(name: str, seed: int, sizes: Sizes, path: Path | None) -> Split:
    """The training part, and validation and test parts together, of one partition."""
    rest = sizes.validation + sizes.test
    if path is not None:
        return from_file(path, seed, sizes.train, rest)
    if name == "Friedman":
        return friedman(seed, sizes.train, rest)
    return standardised(*neal(seed, sizes.train + rest), sizes.train, rest)


def kernel_of(columns: int) -> ConstantKernel:
    """(5.1.3); its length scale is √2 times the one here."""
    lengths = np.full(columns, np.sqrt(columns))
    return ConstantKernel(1.0, (1e-3, 1e3)) * RBF(lengths, (1e-2, 1e3)) + WhiteKernel(1e-2, (1e-6, 1.0))


def fits(part: Split, likelihood: str, engine: str, sizes: Sizes) -> Array:
    """One `Fit` per scale, (scales, fields)."""
    return np.array([_fit(part, likelihood, engine, scale, sizes) for scale in sizes.scales])


def _fit(part: Split, likelihood: str, engine: str, scale: float, sizes: Sizes) -> Fit:
    make, parameters = LIKELIHOODS[likelihood]
    started = time.perf_counter()
    process = GaussianProcessRegressor(
        kernel_of(part.x.shape[1]),
        likelihood=make(scale),
        engine=engine,
        fixed_likelihood=parameters,
        max_iter=sizes.steps,
        random_state=0,
        hyperparameters="maximise",
        priors=Flat(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            process.fit(part.x, part.y)
        except ValueError:
            return Fit(scale, np.nan, np.nan, np.nan, np.nan, 0.0, 0.0)
    density = process.log_predictive_density(part.new_x, part.new_y)
    error = np.square(process.predict_latent(part.new_x) - part.new_y)
    held, test = slice(sizes.validation), slice(sizes.validation, None)
    return Fit(
        scale,
        process.log_evidence_,
        float(density[held].sum()),
        float(error[test].mean()),
        float(density[test].mean()),
        float(process.posterior_.converged),
        time.perf_counter() - started,
    )

"""The runs of Table 5.1 of Challis (2013) (§5.1): data, kernel, and one fit a scale of the likelihood.

Every fit keeps more than the table prints: the evidence on the way, the scores with other test targets, and those
without white noise at new inputs. So reasons that the document leaves open are read off the same fits.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from latlin.gp.evidence import Setting
from latlin.gp.likelihoods import Likelihood
from latlin.gp.process import Process, resolve_engine
from latlin.gp.search import Found, maximise_evidence
from latlin.numerics.alerts import ConvergenceWarning
from latlin.potentials import Gaussian, Laplace, StudentT
from latlin.potentials.base import Potential
from latlin.reproduce.kernel_regression import Split, friedman, standardised

Array = NDArray[np.float64]
LIKELIHOODS: dict[str, Callable[[float], Potential]] = {
    "Gauss": lambda scale: Gaussian(scale=scale),
    "Student t": lambda scale: StudentT(3.0, scale=scale),
    "Laplace": lambda scale: Laplace(scale=scale),
}
#: evaluations of the evidence after which a search that stops early is looked at
EARLY = (1, 5, 20)


class Sizes(NamedTuple):
    """Rows of the three parts, steps of the optimiser, and candidates for the scale in standard deviations of y."""

    train: int
    validation: int
    test: int
    steps: int = 60
    scales: tuple[float, ...] = (0.03, 0.07, 0.15, 0.35, 0.8)


class Part(NamedTuple):
    """A partition, and the targets of its validation and test parts with outliers where there are none, or without."""

    split: Split
    other_y: Array


class Fit(NamedTuple):
    """What is kept of one fit; not-a-number where the engine has no answer."""

    scale: float
    evidence: float
    validated: float
    error: float
    log_probability: float
    other_validated: float
    other_error: float
    other_log_probability: float
    without_noise: float
    after_1: float
    after_5: float
    after_20: float
    converged: float
    seconds: float


def neal(seed: int, count: int) -> tuple[Array, Array, Array]:
    """0.3 + 0.4x + 0.5 sin 2.7x + 1.1/(1 + x²), noise 0.1, for a twentieth 1; x standard normal.

    Then the same targets without outliers.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count)
    noise = np.where(rng.random(count) < 0.05, 1.0, 0.1)
    y = 0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1.0 + x**2)
    error = rng.standard_normal(count)
    return x[:, None], y + noise * error, y + 0.1 * error


def part_of(name: str, seed: int, sizes: Sizes, path: Path | None) -> Part:
    """The training part, and validation and test parts together, of one partition."""
    rest = sizes.validation + sizes.test
    if name == "Friedman":
        return _spoiled(friedman(seed, sizes.train, rest), seed)
    if path is None:
        x, y, clean = neal(seed, sizes.train + rest)
        split = standardised(x, y, sizes.train, rest)
        return Part(split, (clean[sizes.train :] - y[: sizes.train].mean()) / split.unit)
    return _read(path, seed, sizes)


def clean_part_of(name: str, seed: int, sizes: Sizes, path: Path | None) -> Part:
    """The same without an outlier anywhere; real sets as they are."""
    rest = sizes.validation + sizes.test
    if path is not None:
        return _read(path, seed, sizes)
    if name == "Friedman":
        split = friedman(seed, sizes.train, rest, "no outliers")
    else:
        x, _, clean = neal(seed, sizes.train + rest)
        split = standardised(x, clean, sizes.train, rest)
    return Part(split, split.new_y)


def _read(path: Path, seed: int, sizes: Sizes) -> Part:
    rest = sizes.validation + sizes.test
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    split = standardised(rows[:, :-1], rows[:, -1], sizes.train, min(rest, len(rows) - sizes.train))
    return Part(split, split.new_y)


def _spoiled(split: Split, seed: int) -> Part:
    """Every tenth of the new targets from the outliers of the training part, whose mean is that of all targets."""
    other = split.new_y.copy()
    other[::10] = 3.0 / split.unit * np.random.default_rng([seed, 1]).standard_normal(len(other[::10]))
    return Part(split, other)


def kernel_of(columns: int) -> ConstantKernel:
    """(5.1.3); its length scale is √2 times the one here."""
    lengths = np.full(columns, np.sqrt(columns))
    return ConstantKernel(1.0, (1e-3, 1e3)) * RBF(lengths, (1e-2, 1e3)) + WhiteKernel(1e-2, (1e-6, 1.0))


def round_kernel_of(columns: int) -> ConstantKernel:
    """The same with one length for all columns."""
    return ConstantKernel(1.0, (1e-3, 1e3)) * RBF(np.sqrt(columns), (1e-2, 1e3)) + WhiteKernel(1e-2, (1e-6, 1.0))


def fits(
    part: Part, likelihood: str, engine: str, sizes: Sizes, kernel: Callable[[int], ConstantKernel] = kernel_of
) -> Array:
    """One `Fit` a scale, (scales, fields); with no steps the kernel stays as it starts."""
    setting = partial(Setting, kernel(part.split.x.shape[1]))
    found = []
    for scale in sizes.scales:
        template, started = LIKELIHOODS[likelihood](scale), time.perf_counter()
        ended = _found(part.split, setting(Likelihood.of(template, template.parameters)), engine, sizes.steps)
        found.append(_fit(part, ended, template, scale, sizes)._replace(seconds=time.perf_counter() - started))
    return np.array(found)


def unsearched_fits(part: Part, likelihood: str, engine: str, sizes: Sizes) -> Array:
    """The same with the kernel as it starts."""
    return fits(part, likelihood, engine, sizes._replace(steps=0))


def unit_width_fits(part: Part, likelihood: str, engine: str, sizes: Sizes) -> Array:
    """Local bounds on Student t sites whose widths γ stay at 1, whatever the engine: Gaussian noise of variance 1."""
    template, started = Gaussian(scale=1.0), time.perf_counter()
    setting = Setting(kernel_of(part.split.x.shape[1]), Likelihood.of(template, template.parameters))
    ended = _found(part.split, setting, "auto", sizes.steps)
    found = []
    for scale in sizes.scales:
        student = LIKELIHOODS[likelihood](scale)
        site = float(student.log_density(np.zeros(1))[0]) - unit_width_loss(scale) + 0.5 * np.log(2.0 * np.pi)
        fit = _fit(part, ended, student, scale, sizes)
        found.append(fit._replace(evidence=fit.evidence + site * sizes.train, seconds=time.perf_counter() - started))
    return np.array(found)


def unit_width_loss(scale: float, df: float = 3.0) -> float:
    """The least c with log t(r) ≥ log t(0) − c − r²/(2γ) for γ = 1: ½[(ν + 1)(log(γ(1 + 1/ν)/σ²) − 1) + νσ²/γ]."""
    return float(0.5 * ((df + 1.0) * (np.log((1.0 + 1.0 / df) / scale**2) - 1.0) + df * scale**2))


def _fit(part: Part, found: Found | None, template: Potential, scale: float, sizes: Sizes) -> Fit:
    if found is None:
        return Fit._make([scale, *[np.nan] * (len(Fit._fields) - 3), 0.0, 0.0])
    best = np.maximum.accumulate(found.trace)
    early = [float(best[min(count, len(best)) - 1]) for count in EARLY]
    mean, variance = Process(part.split.x, found).marginals(part.split.new_x)
    held, test = slice(sizes.validation), slice(sizes.validation, None)
    scores = []
    for targets in (part.split.new_y, part.other_y):
        density = template.predictive(mean, variance).log_density(targets)
        scores += [density[held].sum(), np.square(mean - targets)[test].mean(), density[test].mean()]
    white = found.setting.kernel.k2.noise_level
    plain = template.predictive(mean, np.maximum(variance - white, 0.0)).log_density(part.split.new_y)[test].mean()
    post = found.latent.posterior
    return Fit._make([scale, post.log_evidence, *scores, plain, *early, float(post.converged), 0.0])


def _found(split: Split, setting: Setting, engine: str, steps: int) -> Found | None:
    rng, optimizer = np.random.default_rng(0), "l-bfgs-b" if steps else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            chosen = resolve_engine(engine, setting.likelihood.template)
            return maximise_evidence(setting, split.x, split.y, chosen, optimizer, 0, steps, rng, False)
        except ValueError:
            return None

"""Noisy ICA of Lau (2020): sources, noise, shapes and the number of sources recovered.

The document derives the model (§2) and runs nothing; this is the experiment it asks for. Student-t sources, random
mixing, noise at 20 dB: the Amari error of the mixing matrix for factor analysis, FastICA and both factorisations, the
noise variances, the learnt degrees of freedom against the true ones, and the number of sources left of as many as there
are sensors.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import FastICA

from latlin.factor import FactorAnalysis, HeywoodWarning, NoisyICA
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Picture, Table, at_size, write_page
from reproduction.resume import each, remembered

METHODS = ("factor analysis", "FastICA", "block", "source")


class Plan(NamedTuple):
    """Rows, data sets, starts, the tolerance of the slower factorisation, and true degrees of freedom to learn."""

    n: int = 2000
    seeds: int = 5
    n_init: int = 2
    tol: float = 1e-3
    shapes: tuple[float, ...] = (2.0, 3.0, 5.0, 10.0)


class Mixture(NamedTuple):
    """Observations, the mixing matrix, and the variance of the noise."""

    rows: Array
    mixing: Array
    noise: float


def mixture(
    seed: int = 0, n: int = 2000, sources: int = 5, sensors: int = 8, df: float = 3.0, snr: float = 20.0
) -> Mixture:
    """Student-t sources, Gaussian mixing, the same noise at every sensor `snr` decibels below the signal."""
    rng = np.random.default_rng(seed)
    z, mixing = rng.standard_t(df, (n, sources)), rng.standard_normal((sensors, sources))
    signal = z @ mixing.T
    noise = float((signal**2).mean() / 10 ** (snr / 10))
    return Mixture(signal + np.sqrt(noise) * rng.standard_normal(signal.shape), mixing, noise)


def amari_error(truth: Array, found: Array) -> float:
    """0 when the columns agree up to order and scale, at most 1; NaN when their numbers differ.

    >>> amari_error(np.eye(3), np.eye(3)[:, [2, 0, 1]] * [1.0, -2.0, 5.0])
    0.0
    """
    k = truth.shape[1]
    if found.shape[1] != k:
        return float("nan")
    p = np.abs(np.linalg.pinv(found) @ truth)
    rows = (p / p.max(axis=1, keepdims=True)).sum() - k
    columns = (p / p.max(axis=0, keepdims=True)).sum() - k
    return float((rows + columns) / (2.0 * k * (k - 1)))


class Comparison(NamedTuple):
    """Of one data set: Amari errors by method, and the fit that may use every sensor's worth of sources."""

    errors: Array
    n_sources: int
    trace: Array
    noise_ratio: Array


def compare(problem: Mixture, seed: int = 0, n_init: int = 2, tol: float = 1e-3) -> Comparison:
    """Factor analysis, FastICA, and noisy ICA told the number of sources, and not told it."""
    x, k = problem.rows, problem.mixing.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeywoodWarning)
        factors = FactorAnalysis(k).fit(x).components_.T
    fast = FastICA(k, whiten="unit-variance", max_iter=1000, random_state=seed).fit(x).mixing_
    fit = NoisyICA(n_init=n_init, random_state=seed).fit(x)
    apart = NoisyICA(k, factorisation="source", ard=False, tol=tol, n_init=1, random_state=seed).fit(x)
    errors = [amari_error(problem.mixing, found) for found in (factors, fast, fit.mixing_, apart.mixing_)]
    return Comparison(np.array(errors), fit.n_sources_, fit.trace_, fit.noise_variance_ / problem.noise)


def learnt_shapes(df: float, n: int = 2000) -> Array:
    """Degrees of freedom learnt, from 5, for sources of that true number."""
    return np.asarray(NoisyICA(5, ard=False, n_init=1, random_state=0).fit(mixture(1, n, df=df).rows).shape_)


def compute(folder: Path, plan: Plan) -> tuple[list[Comparison], dict[float, Array]]:
    """Comparisons of all data sets, and learnt shapes by the true; those that are kept are not computed again."""
    compared, shapes = [], {}
    for seed in each("noisy ICA, data sets", range(plan.seeds)):
        kept = remembered(
            folder,
            f"noisy_ica_{plan.n}_{plan.n_init}_{seed}",
            lambda s=seed: _arrays(compare(mixture(s, plan.n), s, plan.n_init, plan.tol)),  # type: ignore[misc]
        )
        compared.append(Comparison(kept["errors"], int(kept["n_sources"]), kept["trace"], kept["noise_ratio"]))
    for df in each("noisy ICA, shapes", plan.shapes):
        key = f"noisy_ica_shapes_{plan.n}_{df:g}"
        shapes[df] = remembered(folder, key, lambda d=df: {"shapes": learnt_shapes(d, plan.n)})["shapes"]  # type: ignore[misc]
    return compared, shapes


def _arrays(comparison: Comparison) -> dict[str, Array]:
    return {name: np.asarray(values) for name, values in comparison._asdict().items()}


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """Write two tables and a figure into `folder`; returns their paths."""
    target = made(folder)
    plan = Plan(400, 1, 1, 1e-2, (3.0,)) if quick else Plan()
    compared, shapes = compute(target, plan)
    rows = [
        [seed, *c.errors.tolist(), c.n_sources, float(c.noise_ratio.min()), float(c.noise_ratio.max())]
        for seed, c in enumerate(compared)
    ]
    head = ["seed", *METHODS, "sources found", "least noise ratio", "largest"]
    title = f"Amari errors: 5 Student-t (3 degrees of freedom) sources, 8 sensors, N = {plan.n}, 20 dB"
    table = Table("noisy_ica", title, head, rows)
    shape_rows = [[df, float(np.median(s)), float(s.min()), float(s.max())] for df, s in shapes.items()]
    head = ["true degrees of freedom", "median learnt, from 5", "least", "largest"]
    second = Table("noisy_ica_shapes", "Shapes of five sources", head, shape_rows)
    picture = Picture(
        _draw(target, compared, shapes), "Amari errors, traces of the bound, and learnt degrees of freedom"
    )
    return write_page(target, "noisy_ica", at_size(claims(compared, shapes), quick), [table, second], [picture])


def claims(compared: list[Comparison], shapes: dict[float, Array]) -> list[Claim]:
    """What the model of §2 promises; the document runs nothing and prints no number."""
    means = dict(zip(METHODS, np.nanmean([c.errors for c in compared], axis=0).tolist(), strict=True))
    counts = [c.n_sources for c in compared]
    drop = min(float(np.diff(c.trace, prepend=c.trace[0]).min()) for c in compared)
    medians = [float(np.median(found)) for found in shapes.values()]
    errors = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    rises = bool(np.all(np.diff(medians) > 0.0)) if len(medians) > 1 else True
    return [
        Claim("the bound", "never falls", f"least step {drop:.1e}", drop > -1e-6, "`noisy-ica.png` has the traces"),
        Claim(
            "Amari error of the block factorisation",
            "below factor analysis",
            errors,
            means["block"] < means["factor analysis"],
            "the first table has every data set",
        ),
        Claim(
            "sources left of eight",
            "5",
            str(counts),
            all(count == 5 for count in counts),
            'column "sources found" of the first table, and what more rows change: `Plan(n=…)`',
        ),
        Claim(
            "learnt degrees of freedom",
            "rise with the true",
            ", ".join(f"{m:.2g}" for m in medians),
            rises,
            "the second table has the least and the largest of five sources",
        ),
    ]


def _draw(target: Path, compared: list[Comparison], shapes: dict[float, Array]) -> Path:
    figure = new_figure("noisy-ica", 10.0, 3.4)
    errors, traces, learnt = figure.subplots(1, 3)
    for place in range(len(METHODS)):
        errors.plot(np.full(len(compared), place), [c.errors[place] for c in compared], "o", alpha=0.7)
    errors.set_xticks(range(len(METHODS)), METHODS, rotation=30, fontsize="small")
    errors.set(title="Amari error", yscale="log")
    for c in compared:
        traces.plot(c.trace - c.trace[-1])
    traces.set(title="bound below its end", xlabel="step")
    for df, values in shapes.items():
        learnt.plot(np.full(len(values), df), values, "o", color="C0", alpha=0.7)
    learnt.axline((1.0, 1.0), slope=1.0, color="0.6", linewidth=0.8)
    learnt.set(title="degrees of freedom", xlabel="true", ylabel="learnt", xscale="log", yscale="log")
    path = target / "noisy-ica.png"
    figure.savefig(path, dpi=120)
    return path

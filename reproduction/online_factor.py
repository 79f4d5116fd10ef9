"""Online factor analysis of Brownlie (2021): one pass of online EM and of gradient ascent against batch fits.

The document derives Algorithms 1 and 2 and runs nothing; this is the comparison it is written for. Rows come from a
factor model with standard normal loadings and noise variances between ½ and 2; after so many rows, the held-out log
likelihood below that of the truth, in nat per row, and the relative error of the covariance in Frobenius norm. Batch is
maximum likelihood on the same rows. Algorithm 2 stands here twice: as printed, up to its division by zero, and mended
only in what keeps it from running (started from the singular vectors of a warm-up), without the expansion of the
latents' scale that the library adds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import multivariate_normal

from latlin.factor import FactorAnalysis
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Picture, Table, at_size, drawn, verdict, write_page
from reproduction.resume import each, remembered

STREAMS: dict[str, dict[str, Any]] = {
    "online EM": {"method": "online-em"},
    "gradient, scaled": {"method": "gradient"},
    "gradient, Adam": {"method": "gradient", "optimizer": "adam"},
    "gradient, plain (Algorithm 1)": {"method": "gradient", "optimizer": "sgd"},
}
MENDED, BATCH = "EM, 1/t averages (Algorithm 2, mended)", "batch"


class Plan(NamedTuple):
    """Features, factors, numbers of rows at which to look, held-out rows, and data sets."""

    dim: int
    factors: int
    looks: tuple[int, ...]
    held_out: int
    seeds: int


FULL = Plan(200, 10, (300, 1000, 3000, 10_000, 20_000), 5000, 5)
QUICK = Plan(20, 3, (100, 300, 1000), 1000, 2)


class Truth(NamedTuple):
    """Loadings (K, d) and noise variances (d,)."""

    loadings: Array
    noise: Array

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Rows of the model."""
        latents = rng.standard_normal((count, len(self.loadings)))
        return latents @ self.loadings + np.sqrt(self.noise) * rng.standard_normal((count, len(self.noise)))

    @property
    def covariance(self) -> Array:
        """FFᵀ + Ψ."""
        return self.loadings.T @ self.loadings + np.diag(self.noise)


class Mended:
    """Algorithm 2 with running means over all rows, from the singular vectors of a warm-up block."""

    def __init__(self, rows: Array, rank: int) -> None:
        self.count, self.mean = len(rows), rows.mean(axis=0)
        _, values, vectors = np.linalg.svd(rows - self.mean, full_matrices=False)
        self.F = (vectors[:rank] * values[:rank, None]).T / np.sqrt(len(rows))
        self.square = np.square(rows - self.mean).mean(axis=0)
        self.psi = np.maximum(self.square - np.square(self.F).sum(axis=1), 0.05 * self.square)
        m, Sigma = self._latents(rows - self.mean)
        self.A, self.B = (rows - self.mean).T @ m / len(rows), m.T @ m / len(rows)
        self._maximise(Sigma)

    def update(self, row: Array) -> None:
        """Lines 5 to 15 for one row."""
        self.count += 1
        self.mean = self.mean + (row - self.mean) / self.count
        d = row - self.mean
        m, Sigma = self._latents(d)
        self.B += (np.outer(m, m) - self.B) / self.count
        self.A += (np.outer(d, m) - self.A) / self.count
        self.square += (d**2 - self.square) / self.count
        self._maximise(Sigma)

    def _latents(self, d: Array) -> tuple[Array, Array]:
        C = (self.F / self.psi[:, None]).T
        Sigma = np.linalg.inv(np.eye(len(C)) + C @ self.F)
        return d @ (Sigma @ C).T, Sigma

    def _maximise(self, Sigma: Array) -> None:
        H = Sigma + self.B
        self.F = np.linalg.solve(H, self.A.T).T
        self.psi = np.maximum(self.square - np.einsum("dk,dk->d", self.F, self.A), 1e-6 * self.square)


def as_printed(rows: Array, rank: int, seed: int = 0) -> int:
    """Rows that Algorithm 2 takes, as printed, before a number is not finite; all of them if it runs."""
    dim = rows.shape[1]
    F, psi = np.random.default_rng(seed).standard_normal((dim, rank)), np.ones(dim)
    mean, A, B, square = np.zeros(dim), np.zeros((dim, rank)), np.zeros((rank, rank)), np.zeros(dim)
    for t, row in enumerate(rows, start=1):
        mean = mean + (row - mean) / t
        d = row - mean
        with np.errstate(divide="ignore", invalid="ignore"):
            C = (F / psi[:, None]).T
        if not np.all(np.isfinite(C)):
            return t - 1
        Sigma = np.linalg.inv(np.eye(rank) + C @ F)
        m = Sigma @ C @ d
        A, B = A + (np.outer(d, m) - A) / t, B + (np.outer(m, m) - B) / t
        F = np.asarray(np.linalg.solve(Sigma + B, A.T).T, dtype=np.float64)
        square = square + (d**2 - square) / t
        psi = square + ((F @ (Sigma + B)) * F - 2.0 * F * A).sum(axis=1)
    return len(rows)


def mean_log_density(rows: Array, mean: Array, covariance: Array) -> float:
    """Mean of log N(row | mean, covariance)."""
    return float(multivariate_normal(mean, covariance).logpdf(rows).mean())


def curves(plan: Plan, seed: int) -> dict[str, Array]:
    """By method, shape (looks, 2): likelihood below the truth's and error of the covariance."""
    rng = np.random.default_rng(seed)
    truth = Truth(rng.standard_normal((plan.factors, plan.dim)), rng.uniform(0.5, 2.0, plan.dim))
    rows, test = truth.draw(rng, plan.looks[-1]), truth.draw(rng, plan.held_out)
    best = mean_log_density(test, np.zeros(plan.dim), truth.covariance)

    def look(covariance: Array, score: float) -> tuple[float, float]:
        return best - score, float(np.linalg.norm(covariance - truth.covariance) / np.linalg.norm(truth.covariance))

    found = {}
    for name, options in STREAMS.items():
        stream, seen = FactorAnalysis(plan.factors, **options, random_state=seed), []
        for block in np.split(rows, plan.looks[:-1]):
            stream.partial_fit(block)
            seen.append(look(stream.get_covariance(), stream.score(test)))
        found[name] = np.array(seen)
    batch = [FactorAnalysis(plan.factors).fit(rows[:count]) for count in plan.looks]
    found[BATCH] = np.array([look(fit.get_covariance(), fit.score(test)) for fit in batch])
    mended, seen = Mended(rows[: 2 * plan.factors + 2], plan.factors), []
    for count, row in enumerate(rows[2 * plan.factors + 2 :], start=2 * plan.factors + 3):
        mended.update(row)
        if count in plan.looks:
            covariance = mended.F @ mended.F.T + np.diag(mended.psi)
            seen.append(look(covariance, mean_log_density(test, mended.mean, covariance)))
    return found | {MENDED: np.array(seen)}


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The figure, its numbers and the page."""
    target, plan = made(folder), QUICK if quick else FULL
    runs = []
    for seed in each("online factor analysis", range(plan.seeds)):
        key = f"online_factor_{plan.dim}_{plan.factors}_{plan.looks[-1]}_{seed}"
        runs.append(remembered(target, key, lambda s=seed: curves(plan, s)))  # type: ignore[misc]
    means = {name: np.mean([found[name] for found in runs], axis=0) for name in runs[0]}
    rows = [
        (name, count, *map(float, pair))
        for name, curve in means.items()
        for count, pair in zip(plan.looks, curve, strict=True)
    ]
    columns = ("method", "rows seen", "held-out likelihood below the truth's, nat per row", "error of the covariance")
    title = f"d = {plan.dim}, K = {plan.factors}, means over {plan.seeds} data sets"
    return write_page(
        target,
        "online_factor",
        at_size(claims(means, plan), quick),
        [Table("online_factor", title, columns, rows)],
        [_draw(target, means, plan, quick)],
    )


def claims(means: dict[str, Array], plan: Plan) -> list[Claim]:
    """What the algorithms are for, and what the text leaves open."""
    rng = np.random.default_rng(0)
    small = Truth(rng.standard_normal((2, 8)), np.ones(8)).draw(rng, 200)
    printed = as_printed(small, 2)
    trace = np.diff(FactorAnalysis(2, method="em").fit(small).trace_)
    batch, online, mended = (means[name][-1] for name in (BATCH, "online EM", MENDED))
    negative = "ψ = d̄² − diag(ĀH⁻¹Āᵀ) ≥ 0 in exact arithmetic; the stream counts those at the floor"
    floored = FactorAnalysis(2, method="online-em", random_state=0).partial_fit(small).n_floored_
    plain = means["gradient, plain (Algorithm 1)"][-1]
    return [
        Claim(
            "Algorithm 2 as printed",
            "runs to t = T",
            f"stops after {printed} row" + "s" * (printed != 1),
            printed == len(small),
            "at t = 1 the centred row is zero, hence F = 0 and ψ = 0: `online_factor.as_printed` runs it",
        ),
        Claim(
            "batch EM (3.30)",
            "never lowers the likelihood",
            f"least step {trace.min():.1e}",
            bool(trace.min() > -1e-8),
            "`FactorAnalysis(2, method='em').trace_` has the steps",
        ),
        Claim(
            "can (3.38) be negative?", "left open", f"{floored} noise variances at the floor", floored == 0, negative
        ),
        Claim(
            f"online EM after one pass over {plan.looks[-1]} rows",
            "an estimate of the batch fit",
            f"{online[0] - batch[0]:+.3f} nat per row, covariance error × {online[1] / batch[1]:.2f}",
            bool(online[0] - batch[0] < 0.05 * max(1.0, batch[0]) and online[1] < 1.5 * batch[1]),
            "one pass; the rows of the table have fewer and more rows seen",
        ),
        Claim(
            "Algorithm 2 with 1/t averages, mended",
            "the same",
            f"{mended[0] - batch[0]:+.3f} nat per row, covariance error × {mended[1] / batch[1]:.2f}",
            bool(mended[1] < 1.5 * batch[1]),
            "early latents are never forgotten and their scale moves slowly; with an expanded scale, "
            + _near_batch(means, "online EM"),
        ),
        Claim(
            "Algorithm 1, plain gradient",
            "the same",
            f"{plain[0] - batch[0]:+.3f} nat per row, covariance error × {plain[1] / batch[1]:.2f}",
            bool(plain[1] < 1.5 * batch[1]),
            "one step length for all features; scaled, " + _near_batch(means, "gradient, scaled"),
        ),
    ]


def _near_batch(means: dict[str, Array], name: str) -> str:
    """Whether a run comes within half as much again of the error of the batch fit."""
    ratio = float(means[name][-1, 1] / means[BATCH][-1, 1])
    row = f'row "{name}" (covariance error × {ratio:.2f})'
    return verdict([row], []) if ratio < 1.5 else verdict([], [row])


def _draw(target: Path, means: dict[str, Array], plan: Plan, quick: bool) -> Picture:
    figure = new_figure("online factor analysis", 9.0, 3.6)
    for j, axes in enumerate(figure.subplots(1, 2)):
        for name, curve in means.items():
            axes.loglog(plan.looks, np.maximum(curve[:, j], 1e-6), "o-", label=name, ms=3)
        axes.set(xlabel="rows", title=("likelihood below the truth's", "error of the covariance")[j])
    axes.legend(fontsize=6)
    return drawn(figure, target / "online_factor.png", "Two errors of six estimators against the rows seen", quick)

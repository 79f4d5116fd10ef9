"""What Tables 5.2, 5.4 and 5.5 of Challis (2013) share: every covariance on generated logistic problems.

The distance they print, "‖w − w_tr‖₂/D", cannot be that; 100 √‖m − w‖ / D fits, and is what stands under "distance".
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer
from latlin.datasets import LabelledRows, correlated_logistic
from latlin.engines import GaussianKL, LocalBound
from latlin.potentials import Logit
from reproduction.arrays import Array
from reproduction.output import new_figure
from reproduction.page import Measured, Picture, Table, drawn
from reproduction.resume import each, is_kept, remembered

QUANTITIES = ("seconds", "bound", "distance", "held-out")
#: ours beside theirs: the basis that the text describes, and a chevron whose full rows are chosen
SMALLEST, CHOSEN = "Sub, smallest eigenvalues", "Chev, chosen rows"
TOL = 1e-3
CONSTRAINED = ("Chev", "Band", "FA")


class Plan(NamedTuple):
    """Dimension, numbers of rows, sizes of the covariances, held-out rows, and data sets."""

    dim: int
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    held_out: int
    seeds: int = 10

    @property
    def columns(self) -> list[tuple[int, int]]:
        """(N, K), as the tables have them."""
        return [(n, k) for n in self.rows for k in self.sizes]


def engines(k: int) -> dict[str, Any]:
    """The tables' methods and some beside them, with their stopping rule: the largest gradient entry."""
    return {
        "Diag": GaussianKL(covariance="diagonal", tol=TOL),
        "Chev": GaussianKL(covariance="chevron", rank=k, order="natural", tol=TOL),
        CHOSEN: GaussianKL(covariance="chevron", rank=k, tol=TOL),
        "Band": GaussianKL(covariance="banded", bandwidth=k, tol=TOL),
        "Sub": GaussianKL(covariance="subspace", rank=k, tol=TOL),
        "FA": GaussianKL(covariance="low-rank", rank=k, tol=TOL),
        "LVB": LocalBound(variances="lanczos", rank=k, max_iter=10),
        "Full": GaussianKL(tol=TOL),
    }


def scores(problem: LabelledRows, k: int) -> dict[str, Array]:
    """Seconds, bound a row, distance and held-out log probability of every method."""
    model = _model(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posts = {name: infer(model, engine) for name, engine in engines(k).items()}
        basis = _eigenvectors(posts["Full"])[:, :k]
        posts[SMALLEST] = infer(model, GaussianKL(covariance="subspace", rank=k, basis=basis, tol=TOL))
    return {name: _score(problem, post) for name, post in posts.items()}


def _model(problem: LabelledRows) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(problem.x, Logit(problem.y))])


def _eigenvectors(full: Posterior) -> Array:
    """Of the precision at the full optimum, in the order of rising eigenvalues: of the covariance, from the last."""
    return np.linalg.eigh(full.covariance())[1][:, ::-1]


def _score(problem: LabelledRows, post: Posterior) -> Array:
    bound = post.log_evidence if post.evidence_kind == "lower bound" else np.nan
    marginals = post.project(problem.new_x)
    # log ∫ q(x) σ(yx) dx
    held_out = Logit(problem.new_y).tilted_moments(marginals.mean, marginals.variance).log_z.mean()
    distance = 100.0 * np.sqrt(np.linalg.norm(post.mean - problem.weights)) / len(post.mean)
    return np.array([post.elapsed, bound / len(problem.y), distance, held_out])


Found = dict[tuple[int, int], dict[str, Array]]


def kept_scores(folder: Path, plan: Plan, seed: int, n: int, k: int) -> dict[str, Array]:
    """`scores` of one data set, kept in the folder."""
    return remembered(folder, _key(plan, seed, n, k), lambda: scores(_problem(plan, n, seed), k))


def _key(plan: Plan, seed: int, n: int, k: int) -> str:
    return f"covariance_rows_{plan.dim}_{n}_{k}_{plan.held_out}_{seed}"


def all_scores(folder: Path, plan: Plan, finished: bool = False) -> Found:
    """By (N, K) and method, shape (data sets, quantities); `finished` takes what the folder has and fits nothing."""
    found: dict[tuple[int, int], dict[str, list[Array]]] = {column: {} for column in plan.columns}
    jobs = [(seed, *column) for seed in range(plan.seeds) for column in plan.columns]
    for seed, n, k in each(f"covariances, D = {plan.dim}", jobs):
        if not finished or is_kept(folder, _key(plan, seed, n, k)):
            for name, values in kept_scores(folder, plan, seed, n, k).items():
                found[n, k].setdefault(name, []).append(values)
    return {column: {name: np.array(v) for name, v in methods.items()} for column, methods in found.items()}


def _problem(plan: Plan, n: int, seed: int) -> LabelledRows:
    return correlated_logistic(plan.dim, n, plan.held_out, seed)


def measured(values: Array) -> Measured:
    """Mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return Measured(float(values.mean()), float(error))


def table_of(name: str, found: Found) -> Table:
    """One row per column and method of theirs, with means, standard errors and the number of data sets."""
    rows = []
    for (n, k), methods in found.items():
        for method, values in methods.items():
            pairs = [measured(values[:, j])[:2] for j in range(len(QUANTITIES))]
            rows.append((n, k, method, *(number for pair in pairs for number in pair), len(values)))
    columns = ["N", "K", "method", *(f"{q}{e}" for q in QUANTITIES for e in ("", ", standard error")), "data sets"]
    return Table(name, "Seconds, bound a row, 100 √‖m − w‖ / D, and log probability of a held-out label", columns, rows)


def figure_of(path: Path, found: Found, quick: bool) -> Picture:
    """Bound and held-out score against (N, K)."""
    figure = new_figure(path.stem, 9.0, 3.6)
    done = {column: methods for column, methods in found.items() if methods}
    labels = [f"{n}, {k}" for n, k in done]
    for axes, j, title in zip(figure.subplots(1, 2), (1, 3), ("bound a row", "held-out log probability"), strict=True):
        for name in engines(1):
            heights = [methods[name][:, j].mean() if name in methods else np.nan for methods in done.values()]
            axes.plot(labels, heights, "o-", label=name, ms=3)
        axes.set(title=title, xlabel="N, K")
    axes.legend(fontsize=7)
    return drawn(figure, path, "Bound and held-out score of every covariance against numbers of rows and sizes", quick)

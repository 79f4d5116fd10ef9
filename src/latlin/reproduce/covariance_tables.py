"""What Tables 5.2, 5.4 and 5.5 of Challis (2013) share: every covariance on generated logistic problems.

The distance they print, "‖w − w_tr‖₂/D", cannot be that; 100 √‖m − w‖ / D fits, and is what stands under "distance".
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.correlated_logistic import LabelledRows, correlated_logistic
from latlin.densities.marginals import NormalMarginals
from latlin.engines import MAP, GaussianKL, LocalBound
from latlin.inference.infer import infer
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ConvergenceWarning
from latlin.potentials import Logit
from latlin.reproduce.output import new_figure
from latlin.reproduce.page import Measured, Picture, Table, drawn
from latlin.reproduce.resume import each, is_kept, remembered
from latlin.reproduce.subspace_slip import slipped_subspace

Array = NDArray[np.float64]
QUANTITIES = ("seconds", "bound", "distance", "held-out")
#: runs that test a reason
SLIP, MODE, STILL = "Sub, K log c", "mode, no variance", "prior, mean zero"
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
        basis = _eigenvectors(problem, posts["Full"])[:, :k]
        posts[SMALLEST] = infer(model, GaussianKL(covariance="subspace", rank=k, basis=basis, tol=TOL))
    return {name: _score(problem, post) for name, post in posts.items()}


def tested_scores(problem: LabelledRows, k: int) -> dict[str, Array]:
    """The same of the runs that test a reason, all with labels that were drawn before the covariates were scaled."""
    model, fits = _model(problem), engines(k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = {labels_first(name): _score(problem, infer(model, fits[name])) for name in (*CONSTRAINED, "LVB")}
        mode, full = infer(model, MAP()), infer(model, fits["Full"])
    started = time.perf_counter()
    slip = slipped_subspace(problem.x, Logit(problem.y), _eigenvectors(problem, full)[:, -k:])
    seconds = time.perf_counter() - started
    slipped = NormalMarginals(problem.new_x @ slip.mean, slip.variances(problem.new_x))
    return found | {
        SLIP: _scored(problem, seconds, slip.bound, slip.mean, slipped),
        MODE: _scored(problem, mode.elapsed, np.nan, mode.mean, _certain(problem, mode.mean)),
        STILL: _still(problem),
    }


def labels_first(method: str) -> str:
    """The name of the row with labels that were drawn before the covariates were scaled."""
    return f"{method}, labels first"


def _certain(problem: LabelledRows, mean: Array) -> NormalMarginals:
    """Held-out rows at one vector of weights."""
    return NormalMarginals(problem.new_x @ mean, np.zeros(len(problem.new_x)))


def _still(problem: LabelledRows) -> Array:
    """What the prior scores: a fit that never left a mean of zero has its distance and its held-out score."""
    lengths, new = np.square(problem.x).sum(axis=1), np.square(problem.new_x).sum(axis=1)
    bound = Logit(problem.y).expected_log(np.zeros(len(lengths)), lengths).value.sum()
    mean = np.zeros(problem.x.shape[1])
    return _scored(problem, 0.0, float(bound), mean, NormalMarginals(np.zeros(len(new)), new))


def _model(problem: LabelledRows) -> LatentLinearModel:
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(problem.x, Logit(problem.y))])


def _eigenvectors(problem: LabelledRows, full: Posterior) -> Array:
    """Of the precision at the full optimum, in the order of rising eigenvalues."""
    assert full.sites is not None
    precision = np.eye(problem.x.shape[1]) + problem.x.T @ (full.sites.gamma[:, None] * problem.x)
    return np.linalg.eigh(precision)[1]


def _score(problem: LabelledRows, post: Posterior) -> Array:
    bound = post.log_evidence if post.evidence_kind == "lower bound" else np.nan
    return _scored(problem, post.elapsed, bound, post.mean, post.project(problem.new_x))


def _scored(problem: LabelledRows, seconds: float, bound: float, mean: Array, marginals: Any) -> Array:
    # log ∫ q(x) σ(yx) dx
    held_out = Logit(problem.new_y).tilted_moments(marginals.mean, marginals.variance).log_z.mean()
    distance = 100.0 * np.sqrt(np.linalg.norm(mean - problem.weights)) / len(mean)
    return np.array([seconds, bound / len(problem.y), distance, held_out])


Found = dict[tuple[int, int], dict[str, Array]]


def kept_scores(folder: Path, plan: Plan, seed: int, n: int, k: int) -> dict[str, Array]:
    """`scores` of one data set, kept in the folder."""
    return remembered(folder, _key("rows", plan, seed, n, k), lambda: scores(_problem(plan, n, seed, False), k))


def kept_tests(folder: Path, plan: Plan, seed: int, n: int, k: int) -> dict[str, Array]:
    """`tested_scores` of one data set, kept in the folder."""
    return remembered(folder, _key("tests", plan, seed, n, k), lambda: tested_scores(_problem(plan, n, seed, True), k))


def _key(kind: str, plan: Plan, seed: int, n: int, k: int) -> str:
    return f"covariance_{kind}_{plan.dim}_{n}_{k}_{plan.held_out}_{seed}"


def all_scores(folder: Path, plan: Plan, finished: bool = False) -> Found:
    """By (N, K) and method, shape (data sets, quantities); `finished` takes what the folder has and fits nothing."""
    found: dict[tuple[int, int], dict[str, list[Array]]] = {column: {} for column in plan.columns}
    jobs = [(seed, *column) for seed in range(plan.seeds) for column in plan.columns]
    for seed, n, k in each(f"covariances, D = {plan.dim}", jobs):
        for kind, scored in (("rows", kept_scores), ("tests", kept_tests)):
            if not finished or is_kept(folder, _key(kind, plan, seed, n, k)):
                for name, values in scored(folder, plan, seed, n, k).items():
                    found[n, k].setdefault(name, []).append(values)
    stacked = {column: {name: np.array(v) for name, v in methods.items()} for column, methods in found.items()}
    return {column: methods if "Full" in methods else {} for column, methods in stacked.items()}


def _problem(plan: Plan, n: int, seed: int, labels_first: bool) -> LabelledRows:
    return correlated_logistic(plan.dim, n, plan.held_out, seed, labels_first)


def measured(values: Array) -> Measured:
    """Mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return Measured(float(values.mean()), float(error))


def table_of(name: str, found: Found) -> Table:
    """A row a column and method of theirs, with means, standard errors and the number of data sets."""
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
        for name in (*engines(1), SLIP, MODE):
            heights = [methods[name][:, j].mean() if name in methods else np.nan for methods in done.values()]
            axes.plot(labels, heights, "o-", label=name, ms=3)
        axes.set(title=title, xlabel="N, K")
    axes.legend(fontsize=7)
    return drawn(figure, path, "Bound and held-out score of every covariance against numbers of rows and sizes", quick)

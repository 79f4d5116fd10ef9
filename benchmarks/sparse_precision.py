"""Group effects, crossed effects, walks and text by sparse precisions: scales learnt, against GPBoost and others.

Data are drawn with an intercept, three covariates and group effects of standard deviation 0.7. Every method learns the
scales of the groups (and that of Gaussian noise): latlin by `AdditiveModel`, on the exact evidence of normal
observations, on that of its Laplace approximation or on the Gaussian KL bound (estimated by probes where the factor of
the precision would fill); GPBoost by its own optimiser on its Laplace approximation; statsmodels by `MixedLM` or
variational Bayes. GPBoost's set-up is part of its time, and so is ours. The mode of a sparse logistic regression
is compared with scikit-learn's lbfgs, and a random walk with SciPy's banded Cholesky factorisation of the same size.

Every method runs in a process of its own, once to load compiled code where that costs little, then up to five times,
the quickest of which counts, and is stopped after a limit. The last column is the time over that of the case's peer, or
of its yardstick.

    python benchmarks/sparse_precision.py [--cases small] [--only 5,000] [--limit 60] [--scaling | --qdldl]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cholesky_banded

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.additive import AdditiveModel
from latlin.engines import MAP, GaussianKL, Laplace
from latlin.numerics.sparse_cholesky import Analysis, analyse, plan_elimination
from latlin.priors import Flat, LogNormal

COVARIATES = 3
SPREAD = 0.7
#: prior variance of the intercept and the covariates
FLAT = 100.0
FAMILIES = {"logit": "bernoulli_logit", "poisson": "poisson", "gaussian": "gaussian"}
OURS = {"logit": "bernoulli", "poisson": "poisson", "gaussian": "gaussian"}
#: how far the logarithm of the rate of a walk wanders: its standard deviation at the last step
WANDER = 5.0
#: levels of both of two crossed factors from which on nothing is factorised
FILLED = 2000
RESULTS, REFERENCES = Path(__file__).parent / "results", Path(__file__).parent / "references"


class Grouped(NamedTuple):
    """Observations with group labels."""

    x: np.ndarray
    groups: np.ndarray  # one column per factor
    levels: tuple[int, ...]
    y: np.ndarray

    @property
    def rows(self) -> sparse.csr_array:
        """Intercept and covariates, then one column per level."""
        n = np.arange(len(self.y))
        parts = [sparse.csr_array(self.x)]
        for k, levels in enumerate(self.levels):
            parts.append(sparse.csr_array((np.ones(len(n)), (n, self.groups[:, k])), shape=(len(n), levels)))
        return sparse.csr_array(sparse.hstack(parts, format="csr"))


def grouped(family: str, n: int, levels: tuple[int, ...], seed: int = 0) -> Grouped:
    """Data from the model itself."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, COVARIATES))])
    groups = np.column_stack([rng.integers(count, size=n) for count in levels])
    eta = x @ np.array([-0.5, *np.full(COVARIATES, 0.3)])
    for k, count in enumerate(levels):
        eta += SPREAD * rng.standard_normal(count)[groups[:, k]]
    drawn = {
        "logit": lambda: (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "gaussian": lambda: eta + rng.standard_normal(n),
    }
    return Grouped(x, groups, levels, drawn[family]())


class Learnt(NamedTuple):
    """Scales of the groups, the evidence there, and the fits it took."""

    scales: np.ndarray
    log_evidence: float
    fits: int


def learn(data: Grouped, family: str, engine: Any) -> Learnt:
    """Maximise the evidence over the scales of the groups (and of the noise), from the table on."""
    names = [f"x{k}" for k in range(1, data.x.shape[1])]
    groups = [f"g{k}" for k in range(len(data.levels))]
    frame = {
        "y": data.y,
        **dict(zip(names, data.x.T[1:], strict=True)),
        **dict(zip(groups, data.groups.T, strict=True)),
    }
    formula = f"y ~ {' + '.join(names)} + {' + '.join(f'(1 | {g})' for g in groups)}"
    # a flat prior of the scales, so that the optimum is that of the evidence alone
    priors = {f"sd({g})": Flat() for g in groups} | ({"sigma": Flat()} if family == "gaussian" else {})
    model = AdditiveModel(formula, OURS[family], engine=engine, hyperparameters="maximise", priors=priors).fit(frame)
    scales = np.array([model.hyperparameters_[f"sd({g})"]["mean"] for g in groups])
    return Learnt(scales, float(model.log_evidence_), int(model.hyperparameters_.note.split()[0]))


def engines(levels: tuple[int, ...], family: str) -> dict[str, Any]:
    """Laplace and Gaussian KL; estimated by probes where the factor fills; exact for normal observations."""
    if family == "gaussian":
        return {"latlin exact": "exact"}
    if min(levels) >= FILLED and len(levels) > 1:
        how = {"covariance": "estimated", "probes": 24, "tol": 1e-4}
        return {"latlin laplace, estimated": Laplace(**how), "latlin gkl, estimated": GaussianKL(**how)}
    return {"latlin laplace": Laplace(tol=1e-4), "latlin gkl": GaussianKL(tol=1e-4)}


def gpboost(data: Grouped, family: str) -> Learnt:
    """GPBoost's mixed model, set-up included."""
    import gpboost

    model = gpboost.GPModel(group_data=data.groups, likelihood=FAMILIES[family])
    model.fit(y=data.y, X=data.x)
    variances = np.asarray(model.get_cov_pars()).ravel()
    own = variances[1:] if family == "gaussian" else variances
    return Learnt(np.sqrt(own[: len(data.levels)]), -float(model.get_current_neg_log_likelihood()), 0)


def statsmodels(data: Grouped) -> Learnt:
    """Restricted to Gaussian observations and one grouping."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    found = MixedLM(data.y, data.x, groups=data.groups[:, 0]).fit(reml=False)
    return Learnt(np.sqrt(np.ravel(found.cov_re)), float(found.llf), 0)


class Effects(NamedTuple):
    """Posterior means and standard deviations of the coefficients, then of the groups."""

    mean: np.ndarray
    sd: np.ndarray


def reference_effects(data: Grouped, draws: int = 100_000) -> Effects:
    """A logistic model with one grouping by Metropolis and Gibbs steps, log sd ~ N(0, 2²), coefficients ~ N(0, 10²)."""
    rng, groups, count = np.random.default_rng(1), data.groups[:, 0], data.levels[0]
    sign, (n, width) = 2.0 * data.y - 1.0, data.x.shape
    beta, b, log_sd = np.zeros(width), np.zeros(count), 0.0
    root = np.linalg.cholesky(np.linalg.inv(0.2 * data.x.T @ data.x)) * 2.4 / np.sqrt(width)
    sizes = np.bincount(groups, minlength=count)
    total, squares = np.zeros(width + count), np.zeros(width + count)

    def log_lik(eta: np.ndarray) -> np.ndarray:
        return -np.logaddexp(0.0, -sign * eta)

    eta = np.zeros(n)
    for draw in range(-draws // 20, draws):
        # coefficients together, every group on its own
        step = root @ rng.standard_normal(width)
        moved = eta + data.x @ step
        gain = np.sum(log_lik(moved) - log_lik(eta)) - 0.5 * (np.sum((beta + step) ** 2) - np.sum(beta**2)) / FLAT
        if np.log(rng.random()) < gain:
            beta, eta = beta + step, moved
        steps = 2.4 / np.sqrt(0.2 * sizes + np.exp(-2.0 * log_sd)) * rng.standard_normal(count)
        gains = np.bincount(groups, log_lik(eta + steps[groups]) - log_lik(eta), count)
        gains -= 0.5 * np.exp(-2.0 * log_sd) * ((b + steps) ** 2 - b**2)
        taken = np.where(np.log(rng.random(count)) < gains, steps, 0.0)
        b, eta = b + taken, eta + taken[groups]
        # what the intercept and all groups share, exactly
        precision = count * np.exp(-2.0 * log_sd) + 1.0 / FLAT
        shift = (b.sum() * np.exp(-2.0 * log_sd) - beta[0] / FLAT) / precision + rng.standard_normal() / precision**0.5
        beta, b = beta + shift * np.eye(width)[0], b - shift
        other = log_sd + 2.4 / np.sqrt(2.0 * count) * rng.standard_normal()
        fall = [count * t + 0.5 * np.exp(-2.0 * t) * np.sum(b**2) + t**2 / 8.0 for t in (log_sd, other)]
        log_sd = other if np.log(rng.random()) < fall[0] - fall[1] else log_sd
        if draw >= 0:
            now = np.concatenate([beta, b])
            total, squares = total + now, squares + now**2
    mean = total / draws
    return Effects(mean, np.sqrt(squares / draws - mean**2))


def latlin_effects(data: Grouped, engine: str) -> Effects:
    """The same priors; the scale is integrated."""
    names = [f"x{k}" for k in range(1, data.x.shape[1])]
    frame = {"y": data.y, "g": data.groups[:, 0], **dict(zip(names, data.x.T[1:], strict=True))}
    wide = {name: FLAT**0.5 for name in ("Intercept", *names)}
    model = AdditiveModel(
        f"y ~ {' + '.join(names)} + (1 | g)",
        "bernoulli",
        engine=engine,
        hyperparameters="integrate",
        priors={"sd(g)": LogNormal(0.0, 2.0), **wide},
    ).fit(frame)
    return Effects(model.posterior_.mean, np.sqrt(model.posterior_.variance))


def statsmodels_effects(data: Grouped) -> Effects:
    """Its variational Bayes, with the same priors."""
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    effects = sparse.csr_matrix(data.rows[:, data.x.shape[1] :])
    model = BinomialBayesMixedGLM(data.y, data.x, effects, np.zeros(effects.shape[1], int), vcp_p=2.0, fe_p=FLAT**0.5)
    found = model.fit_vb()
    return Effects(np.r_[found.fe_mean, found.vc_mean], np.r_[found.fe_sd, found.vc_sd])


def effects_trial(n: int, levels: int, method: str) -> Trial:
    """Means and standard deviations against a long run of a sampler, which is kept in a file."""
    data, path = grouped("logit", n, (levels,)), REFERENCES / f"groups-{n}x{levels}.npz"
    if not path.exists():
        np.savez(path, **reference_effects(data)._asdict())
    true = Effects(**np.load(path))

    def judge(found: Effects) -> dict[str, float | str]:
        off, ratio = np.abs(found.mean - true.mean) / true.sd, np.abs(found.sd / true.sd - 1.0)
        means = {"mean error, sds": float(off.mean()), "largest": float(off.max())}
        return means | {"sd error": float(ratio.mean()), "largest sd error": float(ratio.max())}

    if method == "statsmodels BinomialBayesMixedGLM":
        return Trial(lambda: statsmodels_effects(data), judge)
    return Trial(lambda: latlin_effects(data, method.split()[1]), judge)


def grouped_trial(family: str, n: int, levels: tuple[int, ...], method: str) -> Trial:
    data = grouped(family, n, levels)
    actions: dict[str, Callable[[], Learnt]] = {
        "GPBoost": lambda: gpboost(data, family),
        "statsmodels MixedLM": lambda: statsmodels(data),
    }
    ours = engines(levels, family)
    action = actions[method] if method in actions else partial(learn, data, family, ours[method])
    return Trial(action, _judged)


def _judged(found: Learnt) -> dict[str, float | str]:
    scales = ", ".join(f"{scale:.3f}" for scale in found.scales[:2])
    return {"scales": scales, "log evidence": found.log_evidence, "fits": str(found.fits) if found.fits else "–"}


def walk_trial(n: int, method: str) -> Trial:
    """Counts along a random walk of given scale; the yardstick is one banded factorisation of that size."""
    rng = np.random.default_rng(0)
    step = WANDER / np.sqrt(n)
    states = step * np.cumsum(rng.standard_normal(n))
    y = rng.poisson(np.exp(states - states.mean()))
    tau = step**-2
    band = np.stack([np.full(n, -tau), np.full(n, 2.0 * tau + 1.0)])
    if method == "SciPy cholesky_banded":
        return Trial(lambda: cholesky_banded(band, check_finite=False))
    off = np.full(n - 1, -tau)
    diagonal = np.full(n, 2.0 * tau)
    diagonal[[0, -1]] = tau
    walk = sparse.csr_array(sparse.diags_array([off, diagonal, off], offsets=[-1, 0, 1]))
    # log |Q|₊ of τQ: (n − 1) log τ + log n
    prior = GaussianFactor(precision=walk, rank=n - 1, log_det=(n - 1) * np.log(tau) + np.log(n))

    def fit() -> Any:
        # new sites: a second fit of the same ones would find the pattern analysed
        return infer(LatentLinearModel([prior, SiteFactor(None, potentials.Poisson(y))]), method.split()[1])

    return Trial(fit, lambda post: {"log evidence": post.log_evidence, "steps": post.n_iter})


def text_trial(n: int, d: int, width: int, method: str) -> Trial:
    """The mode of a sparse logistic regression, and a diagonal Laplace approximation."""
    from logistic_sparse import generate

    x, y = generate(n, d, width)
    model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(x, potentials.Logit(y))])

    def scikit() -> np.ndarray:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000).fit(x, y).coef_[0]

    def judge(w: np.ndarray) -> dict[str, float | str]:
        eta = x @ w
        return {"log joint": float(np.sum(-np.logaddexp(0.0, np.where(y > 0, -eta, eta))) - 0.5 * w @ w)}

    actions = {
        "scikit-learn lbfgs": scikit,
        "latlin map": lambda: infer(model, MAP()).mean,
        "latlin laplace, diagonal": lambda: infer(model, Laplace(covariance="diagonal")).mean,
    }
    return Trial(actions[method], judge)


CASES = {
    "small": (
        ("logit", 20_000, (1000,)),
        ("poisson", 20_000, (1000,)),
        ("gaussian", 20_000, (1000,)),
        ("logit", 10_000, (1000,)),
        ("logit", 20_000, (400, 400)),
        ("logit", 20_000, (2000, 2000)),
    ),
    "full": (
        ("gaussian", 1_000_000, (5000,)),
        ("logit", 1_000_000, (5000,)),
        ("poisson", 1_000_000, (5000,)),
        ("gaussian", 500_000, (125_000,)),
        ("logit", 10_000, (1000,)),
        ("logit", 100_000, (1000, 1000)),
        ("logit", 100_000, (10_000, 10_000)),
        ("logit", 1_000_000, (10_000, 10_000)),
    ),
}


def tasks(size: str) -> list[Task]:
    """Grouped and crossed data with their peers, then a walk and text."""
    found = []
    for family, n, levels in CASES[size]:
        case = f"{family}, {n:,} rows, {' × '.join(f'{count:,}' for count in levels)} levels"
        for method in engines(levels, family):
            found.append(Task(case, method, partial(grouped_trial, family, n, levels, method)))
        peers = {"GPBoost": "gpboost"}
        if family == "gaussian":
            peers["statsmodels MixedLM"] = "statsmodels"
        for method, package in peers.items():
            found.append(Task(case, method, partial(grouped_trial, family, n, levels, method), package, "peer"))
    case = "logit, 2,000 rows, 100 levels, against a long reference"
    for method in ("latlin gkl", "latlin laplace", "statsmodels BinomialBayesMixedGLM"):
        role = "latlin" if method.startswith("latlin") else "peer"
        found.append(Task(case, method, partial(effects_trial, 2000, 100, method), method.split()[0], role))
    n = {"small": 100_000, "full": 1_000_000}[size]
    for method, role in (
        ("latlin gkl", "latlin"),
        ("latlin laplace", "latlin"),
        ("SciPy cholesky_banded", "yardstick"),
    ):
        package = "latlin" if role == "latlin" else "scipy"
        found.append(
            Task(f"walk of {n:,} steps, Poisson counts", method, partial(walk_trial, n, method), package, role)
        )
    shape = {"small": (8000, 6000, 50), "full": (50_000, 40_000, 75)}[size]
    case = f"mode, {shape[0]:,} × {shape[1]:,}, {shape[2]} non-zeros per row"
    for method in ("latlin map", "latlin laplace, diagonal", "scikit-learn lbfgs"):
        role = "latlin" if method.startswith("latlin") else "peer"
        found.append(Task(case, method, partial(text_trial, *shape, method), method.split()[0], role))
    return found


def lattice(side: int) -> sparse.csr_array:
    """Precision of a square whose neighbours are alike."""
    line = sparse.diags_array([-np.ones(side - 1), np.ones(side - 1)], offsets=[0, 1], shape=(side - 1, side))
    walk, one = line.T @ line, sparse.eye_array(side)
    return sparse.csr_array(sparse.kron(walk, one) + sparse.kron(one, walk) + 0.1 * sparse.eye_array(side * side))


def groups(levels: int) -> sparse.csr_array:
    """Precision of an intercept, three covariates and one effect per level."""
    border = 1 + COVARIATES
    corner = sparse.csr_array(levels * np.eye(border))
    side = sparse.csr_array(np.full((levels, border), 0.1))
    return sparse.csr_array(sparse.block_array([[2.0 * sparse.eye_array(levels), side], [side.T, corner]]))


def scaling(path: Path, repeats: int = 3) -> None:
    """Processor seconds and memory of a factorisation with its selected inverse; slopes over entries and operations."""
    drawn: dict[str, tuple[np.ndarray, np.ndarray, float]] = {}
    for kind, make, sizes in (
        ("lattice", lattice, (30, 55, 100, 170, 300)),
        ("groups", groups, (1000, 10_000, 100_000)),
    ):
        lines = []
        for size in sizes:
            matrix = make(size)
            plan = plan_elimination(matrix)
            analysis = analyse(matrix, plan)
            values = analysis.values(matrix)
            work = partial(_selected_inverse, analysis, values)
            took = min(_timed(work) for _ in range(repeats))
            tracemalloc.start()
            work()
            peak = tracemalloc.get_traced_memory()[1] * 1e-6
            tracemalloc.stop()
            factor = plan.entries * 8e-6
            lines.append([kind, size, matrix.shape[0], plan.entries, plan.flops, factor, peak, peak / factor, took])
        names = ["entries of L", "operations", "factor, MB", "peak, MB", "times the factor", "seconds"]
        print(table(["pattern", "size", "dimension", *names], lines))
        seconds = np.log([line[-1] for line in lines])
        for name, column in (("entries", 3), ("operations", 4)):
            slope = np.polyfit(np.log([line[column] for line in lines]), seconds, 1)[0]
            print(f"{kind}: seconds grow as {name} to the power {slope:.2f}")
        # the last slope is that over the operations
        drawn[kind] = np.array([line[4] for line in lines]), np.exp(seconds), float(slope)
    draw_scaling(drawn, path)


def band(length: int) -> sparse.csr_array:
    """Precision of a random walk that is measured everywhere."""
    off, diagonal = np.full(length - 1, -1.0), np.full(length, 2.5)
    return sparse.csr_array(sparse.diags_array([off, diagonal, off], offsets=[-1, 0, 1]))


def crossed(levels: tuple[int, int], n: int) -> sparse.csr_array:
    """Precision of covariates and two crossed factors in n rows."""
    rows = grouped("logit", n, levels).rows
    return sparse.csr_array(2.0 * sparse.eye_array(rows.shape[1]) + 0.2 * (rows.T @ rows))


def factorisations(repeats: int = 3) -> None:
    """Processor seconds of our factorisation and of qdldl's, on the same matrices, and what solutions they give.

    CHOLMOD stands beside them where scikit-sparse is installed.
    """
    import qdldl

    # compiled code is loaded first
    for small in (lattice(20), band(50)):
        loaded = analyse(small)
        _selected_inverse(loaded, loaded.values(small))
    lines = []
    for name, matrix in (
        ("lattice 100 × 100", lattice(100)),
        ("lattice 200 × 200", lattice(200)),
        ("groups, 20,000", groups(20_000)),
        ("crossed 1,000 × 1,000, 10,000 rows", crossed((1000, 1000), 10_000)),
        ("crossed 5,000 × 500, 20,000 rows", crossed((5000, 500), 20_000)),
        ("band, 200,000", band(200_000)),
    ):
        lines.append([name, matrix.shape[0], *beside_qdldl(matrix, qdldl.Solver, repeats)])
    names = ("analysis", "qdldl", "factor", "qdldl", "CHOLMOD", "solve", "qdldl", "selected inverse", "difference")
    print(environment("numba", "qdldl"))
    print(table(["matrix", "dimension", "entries of L (qdldl)", *names], lines))


def beside_qdldl(matrix: sparse.csr_array, solver_of: Any, repeats: int) -> list[Any]:
    """One line of the table: entries of qdldl's factor, seconds, and the largest difference of two solutions."""
    csc, b = sparse.csc_matrix(matrix), np.random.default_rng(0).standard_normal(matrix.shape[0])
    found: dict[str, Any] = {}

    def least(action: Callable[[], Any]) -> float:
        return min(_timed(action) for _ in range(repeats))

    analysed = _timed(lambda: found.update(analysis=analyse(matrix, plan_elimination(matrix))))
    analysis: Analysis = found["analysis"]
    values = analysis.values(matrix)
    own = least(lambda: found.update(factor=analysis.factorise(values)))
    own_solve = least(lambda: found.update(x=found["factor"].solve(b)))
    inverse = least(partial(_selected_inverse, analysis, values)) - own
    first = _timed(lambda: found.update(solver=solver_of(csc)))
    theirs = least(lambda: found["solver"].update(csc))
    their_solve = least(lambda: found.update(other=found["solver"].solve(b)))
    apart = float(np.abs(found["x"] - found["other"]).max())
    numbers = (analysed, first - theirs, own, theirs, cholmod_seconds(csc, least), own_solve, their_solve, inverse)
    return [found["solver"].factors()[0].nnz, *numbers, f"{apart:.0e}"]


def cholmod_seconds(matrix: sparse.csc_matrix, least: Callable[[Callable[[], Any]], float]) -> float:
    """What CHOLMOD takes for the same factorisation, analysed before; nan where it is not installed."""
    try:
        from sksparse.cholmod import analyze
    except ImportError:
        return float("nan")
    analysed = analyze(matrix)
    return least(lambda: analysed.cholesky(matrix))


def draw_scaling(drawn: dict[str, tuple[np.ndarray, np.ndarray, float]], path: Path) -> None:
    """Seconds over operations, one line per pattern."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.0, 3.5), layout="constrained")
    for kind, (operations, seconds, slope) in drawn.items():
        axes.loglog(operations, seconds, "o-", label=f"{kind}, power {slope:.2f}")
    axes.set(xlabel="operations of the factorisation", ylabel="seconds, factor and selected inverse")
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"written: {path}")


def _selected_inverse(analysis: Analysis, values: np.ndarray) -> np.ndarray:
    return analysis.factorise(values).inverse


def _timed(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scaling", action="store_true", help="how a factorisation and its inverse grow, and no more")
    parser.add_argument("--qdldl", action="store_true", help="our factorisation against qdldl's, and no more")
    parser.add_argument("--plot", type=Path, default=RESULTS / "sparse_scaling.png", help="where --scaling draws")
    parser.add_argument("--cases", choices=list(CASES), default="full")
    parser.add_argument("--only", default="", help="cases whose name contains this; the dearest one has to be named")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one method on one case")
    parser.add_argument("--task", type=int, help="run one method in this process")
    options = parser.parse_args()
    listed = list(enumerate(tasks(options.cases)))
    if options.scaling:
        scaling(options.plot)
    elif options.qdldl:
        factorisations()
    elif options.task is not None:
        print("\t".join(run_task(listed[options.task][1])))
    else:
        chosen = [(number, task) for number, task in listed if options.only in task.case]
        # a case of minutes is run where it is asked for by more than a word of its name
        chosen = [each for each in chosen if each[1].case != DEAREST or options.only == DEAREST]
        compare(chosen, options.cases, options.limit)


#: takes minutes
DEAREST = "logit, 1,000,000 rows, 10,000 × 10,000 levels"
#: calls at most, of which the first loads compiled code, and seconds after which no other one begins
RUNS, SECOND = 6, 20.0


def run_task(task: Task) -> tuple[str, str, str]:
    """Seconds on the clock, processor seconds, and what was found."""
    trial, runs, spent = task.prepare(), [], 0.0
    while len(runs) < RUNS and spent < SECOND:
        wall, cpu = time.perf_counter(), time.process_time()
        result = trial.action()
        runs.append((time.perf_counter() - wall, time.process_time() - cpu))
        spent += runs[-1][0]
    wall, cpu = min(runs[1:] or runs)
    said = ", ".join(f"{k} {v if isinstance(v, str) else round(v, 3)}" for k, v in trial.judge(result).items())
    return f"{wall:.3f}", f"{cpu:.3f}", said


def compare(chosen: list[tuple[int, Task]], size: str, limit: float) -> None:
    """A table of all methods, each in a process of its own, with their times over those of their peers."""
    print(environment("numba", "gpboost", "statsmodels", "scikit-learn"))
    lines: list[list[Any]] = []
    for number, task in chosen:
        command = [sys.executable, __file__, "--cases", size, "--task", str(number)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            said = done.stdout.strip("\n").splitlines()[-1].split("\t") if not done.returncode else None
            why = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1][:80]
        except subprocess.TimeoutExpired:
            said, why = None, f"stopped after {limit:.0f} s"
        lines.append([task.case, task.method, *(said or ["–", "–", why]), task.role])
        print(*lines[-1], sep=" | ", flush=True)
    peers = {line[0]: float(line[2]) for line in reversed(lines) if line[5] != "latlin" and line[2] != "–"}
    ours = {line[0]: float(line[2]) for line in lines if line[5] == "latlin" and line[2] != "–"}
    for line in lines:
        stopped, known = str(line[4]).startswith("stopped"), line[2] != "–" and line[0] in peers
        if stopped and line[5] != "latlin" and line[0] in ours:
            # a lower bound of what it takes
            line[5] = f"at least {limit / ours[line[0]]:.0f} × latlin"
        else:
            line[5] = f"{float(line[2]) / peers[line[0]]:.2f}" if known else "–"
    print(table(["case", "method", "seconds", "processor", "found", "over its peer"], lines))


if __name__ == "__main__":
    run_alone(__file__, main)

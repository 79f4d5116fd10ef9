"""Bayesian quadrature: evaluations to 1 % error, coverage of its intervals, gradients and subsamples by it.

    python benchmarks/quadrature.py [--dims 1,2,3] [--engines auto] [--coverage 200] [--peers]

Evaluations to 1 % is the first size from which on the error stays below 1 % to the end of the run, for four looks
at least; for Monte Carlo it is the size at which the root mean square error is 1 %. One instance a family, one
seed. "MC / auto" is the default; "MC / best" picks the best of the kernels and warps knowing the answer. Peers run
where they are installed, up to 40 evaluations in one and two dimensions, as their examples set them up: Emukit with
one length scale for all coordinates, refitted at every point, from random first points; ProbNum with its length
scale fixed at one.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from _integrands import Problem, gaussian_mixture, genz, problems, process_draw
from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin.quadrature import (
    GaussianQuadratureGradient,
    GradientEstimate,
    Uniform,
    integrate,
    score_gradient,
    subsample,
)
from latlin.quadrature.monte_carlo import quadrature_weights

Array = NDArray[np.float64]
BUDGETS = {
    1: (40, 160),
    2: (80, 2000),
    3: (160, 1600),
    4: (250, 600),
    5: (250, 600),
}  # the larger where the first fails
ENGINES = {
    "auto": {},
    "plain": {"warp": None},
    "rbf": {"kernel": "rbf"},
    "matern52": {"kernel": "matern52"},
    "matern32": {"kernel": "matern32"},
    "matern12": {"kernel": "matern12"},
    "wsabi-l": {"warp": "wsabi-l"},
    "log": {"warp": "log", "kernel": "rbf"},
}
TOLERANCE = 0.01
ROUNDS = 4
LOG = logging.getLogger("quadrature benchmark")


def settled(sizes: Sequence[int], means: Sequence[float], truth: float) -> float:
    """The first size from which on the relative error stays below the tolerance, seen at `ROUNDS` sizes at least.

    A run that comes close only at its end may be passing by: it does not count.
    """
    good = np.abs(np.asarray(means) - truth) <= TOLERANCE * abs(truth)
    bad = np.flatnonzero(~good)
    first = 0 if len(bad) == 0 else int(bad[-1]) + 1
    return float(sizes[first]) if len(good) - first >= ROUNDS else math.inf


def ours(problem: Problem, options: dict, budgets: Sequence[int]) -> float:
    """Evaluations latlin needs, by the first of the budgets that suffices."""
    if "warp" in options and not problem.positive:
        return math.nan
    need = math.inf
    for budget in budgets:
        result = integrate(problem.f, problem.measure, budget, random_state=0, **options)
        need = settled(result.trace.evaluations, result.trace.mean, problem.truth)
        if math.isfinite(need):
            break
    return need


def monte_carlo_need(problem: Problem) -> float:
    """Var f / (1 % of the integral)²."""
    values = problem.f(problem.measure.sample(200_000, random_state=0))
    return float(values.var() / (TOLERANCE * problem.truth) ** 2)


def emukit_trace(problem: Problem, budget: int) -> tuple[list[int], list[float]]:
    """Sizes and estimates of Emukit's vanilla loop from the same number of first points."""
    import GPy
    from emukit.core.loop.user_function import UserFunctionWrapper
    from emukit.model_wrappers.gpy_quadrature_wrappers import create_emukit_model_from_gpy_model
    from emukit.quadrature.loop import VanillaBayesianQuadratureLoop
    from emukit.quadrature.measures import GaussianMeasure, LebesgueMeasure
    from emukit.quadrature.methods import VanillaBayesianQuadrature

    d = problem.measure.dim
    x = problem.measure.sample(4 + 4 * d, random_state=0)
    model = GPy.models.GPRegression(x, problem.f(x)[:, None], GPy.kern.RBF(d, ARD=False))
    model.likelihood.variance.constrain_fixed(1e-8)
    flat = isinstance(problem.measure, Uniform)
    measure = (
        LebesgueMeasure.from_bounds([(0.0, 1.0)] * d, normalized=True)
        if flat
        else GaussianMeasure(np.zeros(d), np.ones(d))
    )
    base = create_emukit_model_from_gpy_model(gpy_model=model, measure=measure)
    loop = VanillaBayesianQuadratureLoop(VanillaBayesianQuadrature(base, x, problem.f(x)[:, None]))
    sizes = [len(x)]
    means = [float(np.ravel(loop.model.integrate()[0])[0])]

    def note(loop: object, state: object) -> None:
        sizes.append(len(state.X))
        means.append(float(np.ravel(loop.model.integrate()[0])[0]))

    loop.iteration_end_event.append(note)
    loop.run_loop(UserFunctionWrapper(lambda z: problem.f(z)[:, None]), budget - len(x))
    return sizes, means


def emukit_run(problem: Problem, budget: int) -> float:
    return settled(*emukit_trace(problem, budget), problem.truth)


def probnum_trace(problem: Problem, sizes: Sequence[int]) -> tuple[Sequence[int], list[float]]:
    """Estimates of ProbNum's bayesquad at growing sizes."""
    from probnum.quad import bayesquad
    from probnum.quad.integration_measures import GaussianMeasure, LebesgueMeasure

    d = problem.measure.dim
    flat = isinstance(problem.measure, Uniform)
    measure = LebesgueMeasure((0.0, 1.0), d, normalized=True) if flat else GaussianMeasure(np.zeros(d), np.ones(d))
    means = []
    for n in sizes:
        rng = np.random.default_rng(0)
        belief, _ = bayesquad(problem.f, d, measure=measure, policy="bmc", max_evals=n, rng=rng)
        means.append(float(np.ravel(belief.mean)[0]))
    return sizes, means


def probnum_run(problem: Problem, budget: int) -> float:
    return settled(*probnum_trace(problem, range(8, budget + 1, 4)), problem.truth)


def attempt(run: Callable[[Problem, int], float], problem: Problem) -> str:
    """What a peer needs, or why there is no number."""
    try:
        need = run(problem, 40)
    except ImportError:
        return "not installed"
    except Exception as error:
        return f"fails: {type(error).__name__}"
    return f"{need:.0f}" if math.isfinite(need) else "> 40"


def shown(need: float, budget: int) -> str:
    return "–" if math.isnan(need) else f"{need:.0f}" if math.isfinite(need) else f"> {budget}"


def evaluations_table(dims: Sequence[int], peers: bool, only: Sequence[str], engines: dict[str, dict]) -> str:
    """Evaluations to 1 %."""
    rows = []
    for d in dims:
        for problem in (p for p in problems(d) if not only or p.name in only):
            needed = {name: ours(problem, options, BUDGETS[d]) for name, options in engines.items()}
            mc = monte_carlo_need(problem)
            best = np.nanmin(list(needed.values()))
            extra = [attempt(run, problem) for run in (emukit_run, probnum_run)] if peers and d <= 2 else ["", ""]
            cells = [shown(n, BUDGETS[d][-1]) for n in needed.values()]
            ratios = [f"{mc / needed['auto']:.0f}", f"{mc / best:.0f}"]
            rows.append([d, problem.name, f"{mc:.0f}", *cells, *ratios, *extra])
            LOG.info("%s", rows[-1])
    heads = ["d", "integrand", "Monte Carlo", *engines, "MC / auto", "MC / best", "Emukit", "ProbNum (BMC)"]
    return table(heads, rows)


def coverage_table(count: int, others: int) -> str:
    """Shares of 95 % intervals that hold the truth, with the active design."""

    def share(make: Callable[[np.random.Generator, int, bool], Problem], n: int, **options: object) -> float:
        hits = []
        for seed in range(n):
            rng = np.random.default_rng(seed)
            d, gaussian = 1 + seed % 3, seed // 3 % 2 == 0
            problem = make(rng, d, gaussian)
            result = integrate(problem.f, problem.measure, (0, 12, 30, 60)[d], random_state=rng, **options)
            low, high = result.interval()
            hits.append(low <= problem.truth <= high)
        return float(np.mean(hits))

    def family(index: int) -> Callable[[np.random.Generator, int, bool], Problem]:
        return lambda rng, d, gaussian: genz(d, rng)[index]

    def mixture(rng: np.random.Generator, d: int, gaussian: bool) -> Problem:
        return gaussian_mixture(d, rng)

    names = [p.name for p in genz(1, np.random.default_rng(0))]
    families: list[tuple[str, Callable[[np.random.Generator, int, bool], Problem], int, dict]] = [
        ("process draws", lambda rng, d, gaussian: process_draw(d, gaussian, rng), count, {}),
        ("Gaussian mixtures", mixture, count, {}),
        ("Gaussian mixtures, wsabi-l", mixture, 2 * others, {"warp": "wsabi-l"}),
        ("Gaussian mixtures, wsabi-m", mixture, 2 * others, {"warp": "wsabi-m"}),
        *[(f"Genz {name}", family(i), others, {}) for i, name in enumerate(names)],
        *[(f"Genz {names[i]}, log", family(i), others, ENGINES["log"]) for i in (1, 2)],
    ]
    rows = []
    for name, make, n, options in families:
        rows.append([name, n, share(make, n, **options)])
        LOG.info("%s: %s", name, rows[-1])
    return table(["family", "problems", "coverage of 95 % intervals"], rows)


def dense_gradient(log_joint: Callable[[Array], Array], mean: Array, variance: float) -> Array:
    """∂m of the expected log joint under N(mean, variance·I), by a tensor rule: E[z log p] / s."""
    d, s = len(mean), np.sqrt(variance)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    z = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), axis=-1).reshape(-1, d)
    w = np.prod(np.stack(np.meshgrid(*[weights] * d, indexing="ij"), axis=-1).reshape(-1, d), axis=1)
    w /= w.sum()
    return (w * log_joint(mean + s * z)) @ z / s


def gradient_table() -> str:
    """Root mean square error of the bound's gradient at equal evaluations, on logistic posteriors."""
    rows = []
    for d in (1, 2, 3, 4):
        rng = np.random.default_rng(d)
        x, m = rng.standard_normal((40, d)), 0.3 * rng.standard_normal(d)
        y = np.where(x @ np.ones(d) > 0.0, 1.0, -1.0)

        def log_joint(t: Array, x: Array = x, y: Array = y) -> Array:
            return -np.logaddexp(0.0, -(t @ x.T) * y).sum(axis=1) - 0.5 * np.sum(t**2, axis=1)

        exact = dense_gradient(log_joint, m, 0.2)
        n = 8 * (d + 1)

        def error(estimate: GradientEstimate, exact: Array = exact) -> float:
            return float(np.linalg.norm(estimate.mean - exact))

        engine = GaussianQuadratureGradient(log_joint, samples=n)
        started = time.perf_counter()
        bq = [error(engine.estimate(m, 0.2 * np.eye(d), random_state=s)) for s in range(20)]
        elapsed = (time.perf_counter() - started) / 20.0
        mc = [error(score_gradient(log_joint, m, 0.2 * np.eye(d), n, random_state=s)) for s in range(20)]
        rms = [float(np.sqrt(np.mean(np.square(e)))) for e in (bq, mc)]
        rows.append([d, n, *rms, rms[1] / rms[0], 1000.0 * elapsed])
    return table(["d", "evaluations", "quadrature rms", "score rms", "ratio", "quadrature ms"], rows)


def subsample_table() -> str:
    """Error of a mean over 5,000 rows from k of them, relative to that of a random mini-batch."""
    rows = []
    for d in (1, 2, 5, 10):
        rng = np.random.default_rng(d)
        data = rng.standard_normal((5_000, d)) + 3.0 * rng.integers(0, 2, (5_000, 1))
        z = (data - data.mean(axis=0)) / data.std(axis=0)
        lengths = np.full(d, np.sqrt(d))
        for name, f in {
            "smooth": np.sin(z.sum(axis=1) / np.sqrt(d)) + np.sum(z**2, axis=1) / d,
            "rough": np.sign(z[:, 0]) + rng.standard_normal(5_000),
        }.items():
            for k in (25, 100):
                chosen = subsample(data, k)
                random = [subsample(data, k, "random", random_state=s).indices for s in range(100)]
                base = np.sqrt(np.mean([(f[i].mean() - f.mean()) ** 2 for i in random]))
                weighted = [quadrature_weights(z, i, lengths) @ f[i] - f.mean() for i in random[:20]]
                active = [abs(w @ f[chosen.indices] - f.mean()) / base for w in (chosen.weights, np.full(k, 1.0 / k))]
                rows.append(
                    [d, name, k, *(float(a) for a in active), float(np.sqrt(np.mean(np.square(weighted))) / base)]
                )
    return table(["d", "f", "k", "active, weighted", "active, plain mean", "random, weighted"], rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", default="1,2,3")
    parser.add_argument("--engines", default=",".join(ENGINES), help="kernels and warps beside auto, with commas")
    parser.add_argument("--only", default="", help="names of integrands, with commas; all unless given")
    parser.add_argument(
        "--coverage",
        type=int,
        default=200,
        help="smooth problems; half of it warped, a quarter of it for each other family",
    )
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--extras", action="store_true", help="gradients and subsamples too")
    parser.add_argument("--verbose", action="store_true", help="say how far it is")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    LOG.setLevel(logging.INFO if arguments.verbose else logging.ERROR)
    warnings.simplefilter("ignore")
    print(environment("emukit", "probnum"))
    if arguments.dims:
        dims, only = [int(d) for d in arguments.dims.split(",")], [n for n in arguments.only.split(",") if n]
        engines = {name: ENGINES[name] for name in arguments.engines.split(",")}
        print(evaluations_table(dims, arguments.peers, only, {"auto": {}, **engines}), flush=True)
    if arguments.coverage:
        print(coverage_table(arguments.coverage, max(arguments.coverage // 4, 1)), flush=True)
    if arguments.extras:
        print(gradient_table(), subsample_table(), sep="\n\n", flush=True)


def tasks(size: str) -> list[Task]:
    """Relative errors after the same number of evaluations, since a peer may never settle; Monte Carlo is the unit."""
    chosen, settings = {
        "small": (("oscillatory", "gaussian", "continuous", "mixture", "logistic"), {1: 16, 2: 30}),
        "full": ((), {1: 20, 2: 40, 3: 80}),
    }[size]
    found = []
    for d, budget in settings.items():
        some = [p.name for p in problems(d) if not chosen or p.name in chosen]
        case = f"{budget} evaluations, d = {d}, {len(some)} integrands"
        for method, package, role, estimate in (
            ("latlin, automatic kernel", "latlin", "latlin", our_estimate),
            ("Emukit", "emukit", "peer", lambda p, n: emukit_trace(p, n)[1][-1]),
            ("ProbNum (BMC)", "probnum", "peer", lambda p, n: probnum_trace(p, [n])[1][-1]),
            ("Monte Carlo", "numpy", "yardstick", None),
        ):
            found.append(Task(case, method, partial(trial, d, budget, some, estimate), package, role, "relative error"))
    return found


def our_estimate(problem: Problem, budget: int) -> float:
    return integrate(problem.f, problem.measure, budget, random_state=0).mean


def trial(d: int, budget: int, names: Sequence[str], estimate: Callable[[Problem, int], float] | None) -> Trial:
    """The cost is the geometric mean of relative errors, none of which counts as less than 1e-6."""
    some = [p for p in problems(d) if p.name in names]

    def errors() -> list[float]:
        if estimate is None:
            return [TOLERANCE * math.sqrt(monte_carlo_need(p) / budget) for p in some]
        return [abs(estimate(p, budget) / p.truth - 1.0) for p in some]

    return Trial(
        errors,
        lambda found: {f"error, {p.name}": error for p, error in zip(some, found, strict=True)},
        cost=lambda found: float(np.exp(np.mean(np.log(np.maximum(found, 1e-6))))),
    )


if __name__ == "__main__":
    run_alone(__file__, main)

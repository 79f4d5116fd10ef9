"""Every engine on small problems whose truth is known by summing over a grid, and its seconds on one of usual size.

Four families with two weights and 20 random problems each: logistic (8 rows), Poisson (8), Student-t noise with 3
degrees of freedom (12), a Laplace prior with Gaussian noise (4). The errors are means over the problems: of log Z in
nat, of the means in posterior standard deviations (the larger coordinate), of the standard deviations as |log ratio|.
"failed" counts posteriors that did not converge.

    python benchmarks/engines.py [--problems 20] [--parts accuracy cost]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from _posteriors import attempt
from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer, potentials
from latlin.inference.diagnosis.log_joint import LogJoint

ENGINES = ("laplace", "lvb", "mean-field", "ep", "gkl", "ai-kl")
SIZES = ((1000, 20), (2000, 100))
Array = np.ndarray


def logistic(rng: np.random.Generator) -> LatentLinearModel:
    X, w = rng.standard_normal((8, 2)), 2.0 * rng.standard_normal(2)
    y = rng.random(8) < 1.0 / (1.0 + np.exp(-X @ w))
    return LatentLinearModel([GaussianFactor(cov=4.0, dim=2), SiteFactor(X, potentials.Logit(y))])


def counts(rng: np.random.Generator) -> LatentLinearModel:
    X, w = rng.standard_normal((8, 2)), 0.7 * rng.standard_normal(2)
    y = rng.poisson(np.exp(X @ w))
    return LatentLinearModel([GaussianFactor(cov=0.49, dim=2), SiteFactor(X, potentials.Poisson(y))])


def outliers(rng: np.random.Generator) -> LatentLinearModel:
    X, w = rng.standard_normal((12, 2)), rng.standard_normal(2)
    y = X @ w + 0.3 * rng.standard_t(3, 12)
    return LatentLinearModel([GaussianFactor(dim=2), SiteFactor(X, potentials.StudentT(3.0, y, 0.3))])


def sparse_prior(rng: np.random.Generator) -> LatentLinearModel:
    X, w = rng.standard_normal((4, 2)), rng.laplace(size=2)
    y = X @ w + 0.5 * rng.standard_normal(4)
    return LatentLinearModel([GaussianFactor(y, 0.25, H=X), SiteFactor(None, potentials.Laplace(scale=1.0))])


FAMILIES: dict[str, Callable[[np.random.Generator], LatentLinearModel]] = {
    "logistic": logistic,
    "Poisson": counts,
    "Student-t noise": outliers,
    "Laplace prior": sparse_prior,
}


def truth(model: LatentLinearModel, around: Posterior, count: int = 501) -> tuple[float, Array, Array]:
    """log Z, means and standard deviations by summing over a grid of 14 standard deviations either way."""
    line = np.linspace(-14.0, 14.0, count)
    t = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    root = np.linalg.cholesky(around.covariance())
    points = around.mean + t @ root.T
    logs = LogJoint(model)(points)
    weights = np.exp(logs - logs.max())
    log_z = logs.max() + np.log(weights.sum() * (line[1] - line[0]) ** 2 * np.prod(np.diag(root)))
    mean = np.average(points, axis=0, weights=weights)
    return float(log_z), mean, np.sqrt(np.average((points - mean) ** 2, axis=0, weights=weights))


def accuracy(name: str, problems: int) -> list[tuple]:
    """One row an engine."""
    models = [FAMILIES[name](np.random.default_rng(seed)) for seed in range(problems)]
    answers = [truth(model, infer(model, "gkl")) for model in models]
    rows = []
    for engine in ENGINES:
        try:
            posts = [infer(model, engine) for model in models]
        except ValueError:
            rows.append((name, engine, "does not apply", "", "", ""))
            continue
        errors = np.array([_errors(post, *answer) for post, answer in zip(posts, answers, strict=True)])
        rows.append((name, engine, *map(float, errors.mean(axis=0)), sum(not post.converged for post in posts)))
    return rows


def _errors(post: Posterior, log_z: float, mean: Array, sd: Array) -> tuple[float, float, float]:
    """Signed error of log Z, worst error of a mean in sd, worst |log ratio| of an sd."""
    ratios = np.abs(np.log(np.sqrt(post.variance) / sd))
    return post.log_evidence - log_z, float(np.max(np.abs(post.mean - mean) / sd)), float(ratios.max())


def cost(repeats: int) -> list[tuple]:
    """Seconds of every engine on logistic problems of usual size, and as a multiple of Laplace's."""
    rows = []
    for n, d in SIZES:
        model = usual_model(n, d)
        engines = ("map", *(engine for engine in ENGINES if engine != "ai-kl" or d <= 20))
        taken = {engine: seconds(lambda e=engine, m=model: infer(m, e), repeats) for engine in engines}
        for engine, (spent, post) in taken.items():
            rows.append((f"{n} × {d}", engine, spent, spent / taken["laplace"][0], f"{post.log_evidence:.2f}"))
    return rows


def usual_model(n: int, d: int) -> LatentLinearModel:
    """A logistic regression of usual size."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d) / np.sqrt(d) * 2.0
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-X @ w))
    return LatentLinearModel([GaussianFactor(dim=d), SiteFactor(X, potentials.Logit(y))])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", nargs="+", default=["accuracy", "cost"], choices=["accuracy", "cost"])
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(environment("numba"))
    if "accuracy" in options.parts:
        rows = [row for name in FAMILIES for row in accuracy(name, options.problems)]
        print(table(("problem", "engine", "log Z error", "mean error, sd", "|log sd ratio|", "failed"), rows))
    if "cost" in options.parts:
        print(table(("N × D", "engine", "seconds", "× Laplace", "log evidence"), cost(options.repeats)))


def tasks(size: str) -> list[Task]:
    """Cost over that of Laplace's method on logistic regressions, and errors against grids, family by family."""
    sizes, problems = {"small": (((1000, 20),), 4), "full": (SIZES, 20)}[size]
    found = []
    for n, d in sizes:
        case = f"logistic {n} × {d}"
        for engine in ("gkl", "map", *(e for e in ENGINES if e != "gkl" and (e != "ai-kl" or d <= 20))):
            role = "yardstick" if engine == "laplace" else "latlin"
            found.append(Task(case, engine, partial(cost_trial, n, d, engine), role=role))
    case = f"errors, {problems} problems per family"
    return found + [Task(case, engine, partial(accuracy_trial, engine, problems)) for engine in ENGINES]


def cost_trial(n: int, d: int, engine: str) -> Trial:
    model = usual_model(n, d)
    return Trial(lambda: infer(model, engine), lambda post: {"log evidence": evidence_of(post)})


def evidence_of(post: Posterior) -> float | str:
    return "–" if post.evidence_kind == "none" else post.log_evidence


def accuracy_trial(engine: str, problems: int) -> Trial:
    """All problems of all families that the engine applies to; |error of log Z| by family, the others as means."""
    models = {name: [make(np.random.default_rng(s)) for s in range(problems)] for name, make in FAMILIES.items()}

    def judge(found: dict[str, list[Posterior | None]]) -> dict[str, float | str]:
        errors = {}
        for name, posts in found.items():
            if posts[0] is None:
                continue
            answers = [truth(m, infer(m, "gkl")) for m in models[name]]
            errors[name] = np.mean(
                np.abs([_errors(post, *answer) for post, answer in zip(posts, answers, strict=True)]), axis=0
            )
        shown: dict[str, float | str] = {
            f"log Z error, {name}": float(errors[name][0]) if name in errors else "does not apply" for name in FAMILIES
        }
        mean = np.mean(list(errors.values()), axis=0)
        return shown | {"mean error, sd": float(mean[1]), "sd error, log": float(mean[2])}

    return Trial(lambda: {name: [attempt(m, engine) for m in some] for name, some in models.items()}, judge)


if __name__ == "__main__":
    run_alone(__file__, main)

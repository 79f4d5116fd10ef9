"""How accurate each engine is on real problems, against long NUTS runs (`accuracy_reference.py`, stored beside this).

Run: python benchmarks/accuracy.py [engine …]. One table a problem: the worst and the median error of a mean in
posterior sd, the range of sd ratios, the mean KL of marginals (on forty cells of equal probability), and the error of
the log evidence against importance sampling with many draws. The line above a table says how exact the reference is.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _accuracy_problems import Problem, problems
from _posteriors import attempt
from _suite import run_alone
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer, potentials

Array = NDArray[np.float64]
FOLDER = Path(__file__).parent / "references"
ENGINES = ("laplace", "mean-field", "lvb", "ep", "gkl", "ai-kl")
#: for the small size: one of each family, with few rows
SMALL = ("logistic-40x31", "probit-15x12", "poisson-12x10", "robust-12x11", "sparse-8x11", "process-60")
HEAD = "| engine | mean, worst | mean, median | sd ratios | KL of marginals | log evidence | verdict | seconds |"


def model_of(problem: Problem) -> LatentLinearModel:
    """The problem in latlin's words."""
    families = {
        "logit": lambda: potentials.Logit(problem.y),
        "probit": lambda: potentials.Probit(problem.y),
        "poisson": lambda: potentials.Poisson(problem.y),
        "gaussian": lambda: potentials.Gaussian(problem.y, problem.scale),
        "student": lambda: potentials.StudentT(problem.df, problem.y, problem.scale),
    }
    sites = SiteFactor(problem.X, families[problem.family]())
    if problem.laplace is not None:
        return LatentLinearModel([SiteFactor(None, potentials.Laplace(np.zeros(problem.dim), problem.laplace)), sites])
    return LatentLinearModel([GaussianFactor(cov=problem.cov, dim=problem.dim), sites])


def marginal_divergence(posterior: Posterior, reference: Any) -> float:
    """Mean over coordinates of Σ p log(p/q) on the cells between the reference's quantiles."""
    levels, quantiles = reference["levels"], reference["quantiles"].astype(float)
    below = posterior.project(np.eye(len(posterior.mean))).cdf(quantiles)
    p = np.diff(np.concatenate([[0.0], levels, [1.0]]))[:, None]
    q = np.diff(np.concatenate([0.0 * below[:1], below, 0.0 * below[:1] + 1.0]), axis=0)
    return float(np.sum(p * np.log(p / np.maximum(q, 1e-12)), axis=0).mean())


def row(model: LatentLinearModel, engine: str, reference: Any, evidence: float) -> str:
    """One engine's line."""
    try:
        posterior = infer(model, engine)
    except ValueError as error:
        return f"| {engine} | does not apply: {str(error).split(';')[0]} | | | | | | |"
    off = np.abs(posterior.mean - reference["mean"]) / reference["sd"]
    ratio = np.sqrt(posterior.variance) / reference["sd"]
    verdict = posterior.diagnose(random_state=0).verdict
    cells = (
        f"{off.max():.3f} | {np.median(off):.3f} | {ratio.min():.3f} … {ratio.max():.3f} | "
        f"{marginal_divergence(posterior, reference):.4f} | {posterior.log_evidence - evidence:+.3f}"
    )
    return f"| {engine} | {cells} | {verdict} | {posterior.elapsed:.2f} |"


def table(name: str, problem: Problem, engines: tuple[str, ...]) -> str:
    """All engines on one problem."""
    reference, model = np.load(FOLDER / f"{name}.npz"), model_of(problem)
    checked = infer(model, "ep").diagnose(n=40_000, random_state=1)
    errors = np.max(reference["mean_error"] / reference["sd"]), np.max(reference["sd_error"] / reference["sd"])
    head = (
        f"\n{name}: reference means ± {errors[0]:.3f} sd, sd ± {errors[1]:.1%} at worst; "
        f"log Z {checked.log_evidence:.3f} ± {checked.log_evidence_se:.3f}\n{HEAD}\n|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(row(model, engine, reference, checked.log_evidence) for engine in engines)])


def main() -> None:
    """Print a table for every problem that has a reference."""
    warnings.simplefilter("ignore")
    engines = tuple(sys.argv[1:]) or ENGINES
    for name, problem in problems().items():
        if (FOLDER / f"{name}.npz").exists():
            sys.stdout.write(table(name, problem, engines) + "\n")
            sys.stdout.flush()


def tasks(size: str) -> list[Task]:
    """Every engine on all problems: errors over the problems, and seconds over those of Laplace's method."""
    names = {"small": SMALL, "full": tuple(problems())}[size]
    found = []
    for engine in ("gkl", *(e for e in ENGINES if e != "gkl")):
        role = "yardstick" if engine == "laplace" else "latlin"
        found.append(Task(f"{len(names)} real problems", engine, partial(trial, engine, names), role=role))
    return found


def trial(engine: str, names: tuple[str, ...]) -> Trial:
    models = {name: model_of(problems()[name]) for name in names}

    def judge(attempts: dict[str, Posterior | None]) -> dict[str, float | str]:
        found = {name: post for name, post in attempts.items() if post is not None}
        errors = np.array([errors_of(post, np.load(FOLDER / f"{name}.npz")) for name, post in found.items()])
        worst, median, sd, divergence = errors.max(axis=0)[0], *np.median(errors[:, 1:], axis=0)
        return {
            "applies to": f"{len(found)} of {len(names)}",
            "worst mean error, sd": float(worst),
            "median mean error, sd": float(median),
            "worst sd ratio, median": float(np.exp(sd)),
            "KL of marginals, median": float(divergence),
            "reliable by its diagnosis": str(
                sum(post.diagnose(random_state=0).verdict == "reliable" for post in found.values())
            ),
        }

    return Trial(lambda: {name: attempt(model, engine) for name, model in models.items()}, judge)


def errors_of(post: Posterior, reference: Any) -> tuple[float, ...]:
    """Worst and median error of a mean in sd, worst |log ratio| of an sd, KL of marginals."""
    off = np.abs(post.mean - reference["mean"]) / reference["sd"]
    ratios = np.abs(np.log(np.sqrt(post.variance) / reference["sd"]))
    return float(off.max()), float(np.median(off)), float(ratios.max()), marginal_divergence(post, reference)


if __name__ == "__main__":
    run_alone(__file__, main)

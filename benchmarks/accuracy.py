"""How accurate each engine is on real problems, against long NUTS runs (`accuracy_reference.py`, stored beside this).

    python benchmarks/accuracy.py [--engines gkl …] [--problems …] [--again] [--write docs/guide/trust.md]

One table a problem: the worst and the median error of a mean in posterior sd, the range of sd ratios, the mean KL of
marginals (on forty cells of equal probability), and the error of the log evidence against importance sampling with many
draws. The line above a table says how exact the reference is. What is measured stays in `results/accuracy.json`, so
that a run which was stopped goes on; `--write` puts the summary of it into the guide.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _accuracy_problems import Problem, problems
from _posteriors import attempt
from _record import write_atomically
from _suite import run_alone
from _table import table as markdown
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer, potentials

Array = NDArray[np.float64]
Score = dict[str, Any]
FOLDER = Path(__file__).parent / "references"
ENGINES = ("laplace", "mean-field", "lvb", "ep", "gkl", "ai-kl")
#: for the small size: four families, with few rows
SMALL = ("probit-15x12", "poisson-12x10", "robust-12x11", "sparse-8x11")
KEPT = Path(__file__).parent / "results" / "accuracy.json"
MARKS = ("<!-- accuracy -->\n", "<!-- end of accuracy -->")
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


def score(model: LatentLinearModel, engine: str, reference: Any, evidence: float, limit: int) -> Score:
    """One engine on one problem; only the reason where it does not apply or takes longer than the limit, in seconds."""
    try:
        with time_limit(limit):
            posterior = infer(model, engine)
    except ValueError as error:
        return {"why": f"does not apply: {str(error).split(';')[0]}"}
    except TimeoutError:
        return {"why": f"not finished after {limit} s"}
    off = np.abs(posterior.mean - reference["mean"]) / reference["sd"]
    ratio = np.sqrt(posterior.variance) / reference["sd"]
    return {
        "worst": float(off.max()),
        "median": float(np.median(off)),
        "narrowest": float(ratio.min()),
        "widest": float(ratio.max()),
        "divergence": marginal_divergence(posterior, reference),
        "evidence": float(posterior.log_evidence - evidence),
        "verdict": posterior.diagnose(random_state=0).verdict,
        "seconds": posterior.elapsed,
    }


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the body once the seconds are over, where the system has alarms."""

    def stop(*_: object) -> None:
        raise TimeoutError

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def line(engine: str, found: Score) -> str:
    """One engine's line of a problem's table."""
    if "why" in found:
        return f"| {engine} | {found['why']} | | | | | | |"
    cells = (
        f"{found['worst']:.3f} | {found['median']:.3f} | {found['narrowest']:.3f} … {found['widest']:.3f} | "
        f"{found['divergence']:.4f} | {found['evidence']:+.3f}"
    )
    return f"| {engine} | {cells} | {found['verdict']} | {found['seconds']:.2f} |"


def measure(kept: dict[str, Any], names: Sequence[str], engines: Sequence[str], limit: int) -> None:
    """Fill what is missing in `kept` (problem → truth and scores by engine), writing the file after every engine."""
    for name in names:
        model, reference = model_of(problems()[name]), np.load(FOLDER / f"{name}.npz")
        known = kept.setdefault(name, {"scores": {}})
        if "log_z" not in known:
            checked = infer(model, "ep").diagnose(n=40_000, random_state=1)
            known |= {"log_z": checked.log_evidence, "log_z_error": checked.log_evidence_se}
        for engine in engines:
            if engine not in known["scores"]:
                known["scores"][engine] = score(model, engine, reference, known["log_z"], limit)
                ordered = {problem: kept[problem] for problem in problems() if problem in kept}
                write_atomically(KEPT, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
                sys.stderr.write(f"{name}: {line(engine, known['scores'][engine])}\n")


def problem_table(name: str, known: dict[str, Any]) -> str:
    """All engines on one problem."""
    reference = np.load(FOLDER / f"{name}.npz")
    errors = np.max(reference["mean_error"] / reference["sd"]), np.max(reference["sd_error"] / reference["sd"])
    head = (
        f"\n{name}: reference means ± {errors[0]:.3f} sd, sd ± {errors[1]:.1%} at worst; "
        f"log Z {known['log_z']:.3f} ± {known['log_z_error']:.3f}\n{HEAD}\n|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(line(engine, found) for engine, found in known["scores"].items())])


def summary(kept: dict[str, Any]) -> str:
    """One row a problem and one column an engine: worst error of a mean, sd ratios, error of the log evidence."""
    rows = [
        [name, *(cell(kept[name]["scores"].get(engine)) for engine in ENGINES)] for name in problems() if name in kept
    ]
    return markdown(["problem", *(f'`"{engine}"`' for engine in ENGINES)], rows)


def cell(found: Score | None) -> str:
    """The three numbers, or a dash."""
    if found is None or "why" in found:
        return "–"
    evidence = f"{found['evidence']:+.2f}".replace("-", "−")
    return f"{found['worst']:.2f}, {found['narrowest']:.2f}–{found['widest']:.2f}, {evidence}"


def write_summary(page: Path, kept: dict[str, Any]) -> None:
    """Put the table between the marks of the page."""
    before, mark, rest = page.read_text(encoding="utf8").partition(MARKS[0])
    if not mark:
        raise ValueError(f"{page.name} has no {MARKS[0]!r}")
    write_atomically(page, f"{before}{mark}\n{summary(kept)}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


def main() -> None:
    """Measure what is not kept yet, print a table for every problem, write the summary where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--problems", nargs="+", default=list(problems()), choices=list(problems()))
    parser.add_argument("--again", action="store_true", help="measure these anew")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one posterior")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the summary between the marks of this page")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = json.loads(KEPT.read_text(encoding="utf8")) if KEPT.exists() else {}
    if options.again:
        for name in options.problems:
            scores = kept.get(name, {}).get("scores", {})
            kept[name] = {"scores": {e: s for e, s in scores.items() if e not in options.engines}}
    measure(kept, options.problems, options.engines, options.limit)
    for name in options.problems:
        sys.stdout.write(problem_table(name, kept[name]) + "\n")
    if options.write:
        write_summary(options.write, kept)


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
            "accurate by its diagnosis": str(
                sum(post.diagnose(random_state=0).verdict == "accurate" for post in found.values())
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

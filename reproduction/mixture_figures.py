"""Figures 6.1–6.7 of Gutteridge (2021): every algorithm on one mixture, as figures, one table and an animation.

N = 700 rows of 7 clusters, K = 10 components, unit covariance known; log-likelihood error
ln p(X | π, μ true) − ln p(X | E[π], E[μ]) against iterations and seconds. Negative errors are possible: the fit may
explain these rows better than the truth does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin import ConvergenceWarning
from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.schedules import Constant, Exponential, StepRule
from reproduction.arrays import Array
from reproduction.output import made
from reproduction.page import Claim, Picture, Table, at_size, verdict, write_page
from reproduction.resume import each, remembered

ROWS, CLUSTERS, COMPONENTS = 700, 7, 10
#: the run that tests what the steps do
RULE = "SNGD, S = 10, (t + 10)^−0.6"
BOUNDS = 'row "Figure 6.1: the highest bound"'
STEPS = "the base steps of theirs are tuned by hand and not given; rows s = 0.1 to 10 of Figure 6.2 show what they do"


class Problem(NamedTuple):
    """The data and the mixture they came from."""

    rows: Array
    weights: Array
    means: Array


class Trace(NamedTuple):
    """The bound, the log-likelihood error and the seconds after so many iterations."""

    bound: Array
    log_likelihood_error: Array
    seconds: Array
    iterations: NDArray[np.intp]


class Run(NamedTuple):
    """One curve of one figure."""

    figure: str
    name: str
    trace: Trace


class Recipe(NamedTuple):
    """What a curve is made of."""

    figure: str
    name: str
    algorithm: str
    options: dict[str, Any]


def make_problem(seed: int = 0) -> Problem:
    """700 rows of 7 unit-covariance clusters, at least 5 apart.

    Examples
    --------
    >>> make_problem().rows.shape
    (700, 2)
    """
    rng = np.random.default_rng(seed)
    means: list[Array] = []
    while len(means) < CLUSTERS:
        candidate = rng.uniform(-15.0, 15.0, 2)
        if all(np.linalg.norm(candidate - other) >= 5.0 for other in means):
            means.append(candidate)
    labels = rng.integers(CLUSTERS, size=ROWS)
    centres = np.array(means)
    rows = centres[labels] + rng.standard_normal((ROWS, 2))
    return Problem(rows, np.bincount(labels, minlength=CLUSTERS) / ROWS, centres)


def recipes() -> list[Recipe]:
    """Every curve of Figures 6.1–6.7. The document's steps are s·exp(−0.01 t)."""

    def steps(scale: float = 1.0) -> StepRule:
        return Exponential(scale)

    all_five = [
        Recipe("6.1", "CAVI", "natural", {"step": Constant()}),
        Recipe("6.1", "GD", "gradient", {"step": steps()}),
        Recipe("6.1", "SGD, S = 100", "sgd", {"step": steps(), "batch_size": 100}),
        Recipe("6.1", "SNGD, S = 100", "stochastic-natural", {"step": steps(), "batch_size": 100}),
        Recipe("6.1", "PW, L = 1", "pathwise", {"step": steps(0.3), "n_draws": 1}),
        Recipe("6.1", "score with baseline, L = 20", "score", {"n_draws": 20}),
        Recipe("6.1", "plain score, L = 20", "score", {"n_draws": 20, "control_variate": None}),
        Recipe("6.1", "GD, Adam", "gradient", {}),
    ]
    scales = [Recipe("6.2", f"s = {s:g}", "gradient", {"step": steps(s)}) for s in (0.1, 0.5, 1.0, 2.0, 10.0)]
    sizes = (1, 10, 100, 700)
    batches = [Recipe("6.3", f"S = {s}", "sgd", {"step": steps(), "batch_size": s}) for s in sizes]
    natural = [Recipe("6.4", f"S = {s}", "stochastic-natural", {"step": steps(), "batch_size": s}) for s in sizes]
    pair = [
        Recipe("6.5", "SNGD, S = 10", "stochastic-natural", {"step": steps(), "batch_size": 10}),
        Recipe("6.5", "SGD, S = 10", "sgd", {"step": steps(), "batch_size": 10}),
        Recipe("6.5", RULE, "stochastic-natural", {"batch_size": 10}),
    ]
    draws = (1, 5, 20)
    paths = [Recipe("6.6", f"L = {l}", "pathwise", {"n_draws": l}) for l in draws]
    weighted = [Recipe("6.7", f"L = {l}", "iwae", {"n_draws": l}) for l in draws]
    return [*all_five, *scales, *batches, *natural, *pair, *paths, *weighted]


def fit(problem: Problem, recipe: Recipe, iterations: int) -> Run:
    """One curve: a fixed number of iterations, the error after each."""
    model = BayesianGaussianMixture(
        COMPONENTS,
        covariance="fixed",
        algorithm=recipe.algorithm,
        n_init=1,
        split_merge=0,
        max_iter=iterations,
        tol=0.0,
        evaluate_every=1,
        random_state=0,
        **recipe.options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(problem.rows, truth=(problem.weights, problem.means))
    trace = model.history_
    kept = Trace(trace.bound, trace.log_likelihood_error, trace.seconds, trace.iterations)
    return Run(recipe.figure, recipe.name, kept)


def curves(folder: Path, problem: Problem, iterations: int) -> list[Run]:
    """Every curve; those that are kept in `folder` are not computed again."""
    found = []
    for recipe in each("mixtures", recipes()):
        kept = remembered(
            folder,
            f"mixture_{iterations}_{recipe.figure}_{recipe.name}",
            lambda r=recipe: fit(problem, r, iterations).trace._asdict(),  # type: ignore[misc]
        )
        found.append(Run(recipe.figure, recipe.name, Trace(**kept)))  # type: ignore[arg-type]
    return found


def table(runs: Iterable[Run]) -> Table:
    """Error and bound at the end, iterations to within 1 nat of the best error of all, pace."""
    runs = list(runs)
    goal = min(float(run.trace.log_likelihood_error.min()) for run in runs) + 1.0
    columns = ("figure", "run", "error at the end", "bound", "iterations to 1 nat", "ms per iteration")
    rows = []
    for run in runs:
        error = run.trace.log_likelihood_error
        reached = np.flatnonzero(error <= goal)
        first = str(int(run.trace.iterations[reached[0]])) if len(reached) else "never"
        pace = 1e3 * run.trace.seconds[-1] / run.trace.iterations[-1]
        rows.append((run.figure, run.name, float(error[-1]), float(run.trace.bound[-1]), first, float(pace)))
    return Table("mixture_figures", "Every run", columns, rows)


def claims(runs: list[Run]) -> list[Claim]:
    """What §6 says of its figures; it prints no numbers."""
    ends = {(run.figure, run.name): float(run.trace.log_likelihood_error[-1]) for run in runs}
    pace = {(run.figure, run.name): run.trace.seconds[-1] / run.trace.iterations[-1] for run in runs}
    scales, batches = ([end for (figure, _), end in ends.items() if figure == own] for own in ("6.2", "6.3"))
    pair = ends["6.5", "SNGD, S = 10"], ends["6.5", "SGD, S = 10"]
    draws = [end for (figure, _), end in ends.items() if figure == "6.6"]
    rule = ends["6.5", RULE]
    row = f'row "{RULE}" ({rule:.0f})'
    smaller = rule <= pair[1] + 1.0
    ten = "a first step of 1 takes ten rows for all; with smaller steps, " + _met(row, smaller)
    return [
        *_of_the_first_figure([run for run in runs if run.figure == "6.1"]),
        Claim(
            "Figure 6.2: larger steps, s = 0.1 … 2",
            "more accurate",
            _listed(scales[:4]),
            scales[3] <= scales[0] + 1.0,
            STEPS,
        ),
        Claim(
            "Figure 6.3: larger batches",
            "lower error in the end",
            _listed(batches),
            batches[-1] <= batches[0] + 1.0,
            STEPS,
        ),
        Claim("Figure 6.5: SNGD against SGD", "more accurate", _listed(pair), pair[0] <= pair[1] + 1.0, ten),
        Claim(f"the same, {RULE}", "more accurate", _listed((rule, pair[1])), smaller, test=True),
        Claim(
            "Figure 6.5: an iteration of SNGD",
            "faster than one of SGD",
            f"{1e3 * pace['6.5', 'SNGD, S = 10']:.2f} and {1e3 * pace['6.5', 'SGD, S = 10']:.2f} ms",
            bool(pace["6.5", "SNGD, S = 10"] <= 1.1 * pace["6.5", "SGD, S = 10"]),
            "both cost one pass over the batch here; the table shows the milliseconds",
        ),
        Claim("Figure 6.6: L = 1, 5, 20", "one draw is enough", _listed(draws), draws[0] <= min(draws) + 20.0, STEPS),
    ]


def _of_the_first_figure(runs: list[Run]) -> list[Claim]:
    errors = {run.name: float(run.trace.log_likelihood_error[-1]) for run in runs}
    bounds = {run.name: float(run.trace.bound[-1]) for run in runs}
    five = {name: end for name, end in errors.items() if not name.startswith(("score", "plain", "GD, "))}
    ours, plain = _named(five), errors["plain score, L = 20"]
    highest = bounds["CAVI"] == max(bounds.values())
    below = "errors below 0 explain these rows better than the truth does; by their bounds, " + _met(BOUNDS, highest)
    return [
        Claim("Figure 6.1: the most accurate", "CAVI", ours, five["CAVI"] <= min(five.values()) + 1.0, below),
        Claim("Figure 6.1: the highest bound", "CAVI", _named(bounds), highest, test=True),
        Claim("Figure 6.1: the worst", "PW", ours, five["PW, L = 1"] == max(five.values()), STEPS),
        Claim("plain score estimator", "does not converge", f"error {plain:.0f}", plain > five["CAVI"] + 10.0, STEPS),
    ]


def _met(row: str, agrees: bool) -> str:
    return verdict([row] if agrees else [], [] if agrees else [row])


def _named(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in values.items())


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The page, a table, one PNG a figure and `mixture.gif`; returns their paths."""
    target, problem = made(folder), make_problem()
    iterations = 30 if quick else 400
    runs = curves(target, problem, iterations)
    pictures = [
        Picture(
            _draw(target, name, [run for run in runs if run.figure == name]), f"Log-likelihood errors, Figure {name}"
        )
        for name in sorted({run.figure for run in runs})
    ]
    pictures.append(
        Picture(_animate(target, problem, 6 if quick else 40), "The components as coordinate ascent moves them")
    )
    return write_page(target, "mixture_figures", at_size(claims(runs), quick), [table(runs)], pictures)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("the mixture figures need matplotlib: install latlin[plot]") from error
    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    return pyplot


def _draw(folder: Path, name: str, runs: list[Run]) -> Path:
    """Error against iterations and against seconds."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for curve in runs:
        axes[0].plot(curve.trace.iterations, curve.trace.log_likelihood_error, label=curve.name)
        axes[1].plot(curve.trace.seconds, curve.trace.log_likelihood_error)
    axes[0].set(xlabel="iterations", ylabel="log-likelihood error", title=f"Figure {name}")
    axes[0].set_yscale("symlog", linthresh=10.0)
    axes[1].set(xlabel="seconds", xscale="log")
    axes[0].legend(fontsize="small")
    path = folder / f"figure-{name}.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _frames(problem: Problem, count: int) -> list[tuple[Array, Array]]:
    """Weights and means after 1, 2, … steps of coordinate ascent from one seeding."""
    frames = []
    for steps in range(1, count + 1):
        model = BayesianGaussianMixture(
            COMPONENTS, covariance="fixed", n_init=1, split_merge=0, max_iter=steps, tol=0.0, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(problem.rows)
        frames.append((model.weights_, model.means_))
    return frames


def _animate(folder: Path, problem: Problem, count: int) -> Path:
    """The components as circles of one and two standard deviations, opaque by weight, step by step."""
    pyplot = _pyplot()
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.patches import Circle

    figure, axis = pyplot.subplots(figsize=(5, 5), layout="constrained")
    axis.scatter(*problem.rows.T, s=4, color="0.6")
    axis.set_aspect("equal")
    circles = [
        [axis.add_patch(Circle((0, 0), radius, fill=False, linewidth=2)) for radius in (1.0, 2.0)]
        for _ in range(COMPONENTS)
    ]
    frames = _frames(problem, count)

    def show(index: int) -> list[Any]:
        weights, means = frames[index]
        for rings, weight, mean in zip(circles, weights, means, strict=True):
            for ring in rings:
                ring.set_center(mean)
                ring.set_alpha(min(1.0, 7.0 * float(weight)))
        axis.set_title(f"coordinate ascent, step {index + 1}")
        return [ring for rings in circles for ring in rings]

    path = folder / "mixture.gif"
    FuncAnimation(figure, show, frames=count).save(path, writer=PillowWriter(fps=6))
    pyplot.close(figure)
    return path

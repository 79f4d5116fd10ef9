"""Fit one problem: settle which hyperparameters are given and which are learnt, choose the engine, run it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from latlin.inference.affine.engine import AffineKL
from latlin.inference.engine import Engine
from latlin.inference.exact import Exact
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import Auto, choose, longest_product, resolve
from latlin.inference.laplace import MAP, Laplace
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.posterior import Posterior
from latlin.linear._design import GaussianPrior, LocatedPrior
from latlin.linear._exact import closed_form
from latlin.linear._learning import (
    ARGUMENTS,
    NARROW,
    PLAIN,
    Accuracy,
    Learning,
    LearningTask,
    LearntFit,
    fixed_table,
    learn,
    learn_exactly,
    ranges_of,
)
from latlin.linear._problem import LinearProblem
from latlin.numerics.arrays import SMALLEST, summable, visible
from latlin.numerics.progress import begun
from latlin.numerics.threads import blas_threads_for
from latlin.potentials.checks import finite
from latlin.potentials.ranges import Increasing, Positive, Range

AUTO = "auto"
#: what may be given for every feature
PER_FEATURE = ("prior_scale", "prior_mean")
Path = str | os.PathLike[str]
#: entries of X up to which a fit goes on to nearly all digits, so that equal problems give equal answers
SMALL = 20_000
FINE = Accuracy(gradient=1e-7, gain=1e-15)
FINER_STILL = Accuracy(gradient=1e-9, gain=1e-15)
FINER: dict[str, Engine] = {"gkl": GaussianKL(tol=1e-9), "laplace": Laplace(tol=1e-9), "lvb": LocalBound(tol=1e-9)}


def settled(problem: LinearProblem, given: Mapping[str, Any], ard: bool) -> tuple[dict[str, Any], list[str]]:
    """Every hyperparameter with a number to start from, and the names of those to learn."""
    if ard and not _is_auto(given["prior_scale"]):
        raise ValueError(
            f"ard=True learns one prior scale per feature: it needs prior_scale='auto', got {given['prior_scale']!r}"
        )
    scale = np.full(problem.design.n_features, problem.unit) if ard else problem.unit
    first = {"prior_scale": scale, **problem.prior.first(), **problem.family.first(problem.targets)}
    ranges, count = ranges_of(problem), problem.design.n_features
    known = {n: first[n] if _is_auto(v) else _checked(n, v, ranges[n], count) for n, v in given.items()}
    return known, [name for name, value in given.items() if _is_auto(value)]


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _checked(name: str, value: Any, span: Range, n_features: int) -> Any:
    argument = ARGUMENTS.get(name, name)
    try:
        array = np.asarray(visible(argument, np.asanyarray(value)), float)
    except (TypeError, ValueError, OverflowError) as error:
        kind = "a number" if name == "prior_mean" else "a positive number"
        raise ValueError(f"{argument} must be {kind} or 'auto', got {value!r:.80}") from error
    if isinstance(span, Increasing):
        return span.check(argument, array)
    shapes: tuple[tuple[int, ...], ...] = ((), (n_features,)) if name in PER_FEATURE else ((),)
    if array.shape not in shapes:
        raise ValueError(
            f"{argument} must be 'auto' or have shape {' or '.join(map(str, shapes))}, got shape {array.shape}"
        )
    if isinstance(span, Positive) and not np.all(np.isfinite(array) & (array > 0.0)):
        raise ValueError(f"{argument} must be positive and finite, got {value!r}")
    if isinstance(span, Positive) and np.any(array < SMALLEST):
        raise ValueError(f"{argument} must be at least {SMALLEST:g}, got {array.min():g}: change the units")
    summable(argument, array)
    if name == "prior_mean":  # one that is given may be beyond where it would be sought
        finite(argument, array)
    else:
        span.check(argument, array)
    return float(array) if array.ndim == 0 else array


def fit_problem(
    problem: LinearProblem,
    engine: str | Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None = None,
    verbose: bool = False,
    checkpoint: Path | None = None,
    wish: Learning = Learning(),  # noqa: B008
) -> LearntFit:
    """The posterior, its free hyperparameters maximised or integrated, on as many threads of BLAS as pay."""
    with blas_threads_for(longest_product(problem.model(values))):
        return _fit(problem, engine, values, free, start, verbose, checkpoint, wish)


def _fit(
    problem: LinearProblem,
    engine: str | Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None,
    verbose: bool,
    checkpoint: Path | None,
    wish: Learning,
) -> LearntFit:
    small = problem.n_entries <= SMALL
    chosen, reason = choose_engine(problem, engine, values, free, small)
    task = task_for(wish, chosen, small, problem.design.dim, verbose)
    if isinstance(chosen, Exact) and isinstance(problem.prior, GaussianPrior) and not _learns_many(values, free):
        decompose, posterior_at = closed_form(problem)
        if free:
            return learn_exactly(problem, decompose, posterior_at, values, free, task)
        return LearntFit(posterior_at(values), dict(values), table=fixed_table(values))
    if free:
        fit = learn(problem, chosen, values, free, task, start, checkpoint)
    else:
        with begun(chosen.name, verbose):
            posterior = chosen.run(problem.model(values), start=start, verbose=verbose, checkpoint=checkpoint)
        fit = LearntFit(posterior, dict(values), table=fixed_table(values))
    if not reason:
        return fit
    message = f"auto: {reason}; {fit.posterior.message}"
    return fit._replace(posterior=replace(fit.posterior, message=message))


def task_for(wish: Learning, engine: Engine, small: bool, dim: int, verbose: bool) -> LearningTask:
    """How far to go, and whether tens of fits are cheap: those of engines without inner loops on small problems."""
    quick = isinstance(engine, Exact | GaussianKL | Laplace | LocalBound)
    accuracy = FINER_STILL if isinstance(engine, Exact) else FINE if small else PLAIN
    return LearningTask(wish, accuracy, small and quick and dim <= NARROW, verbose)


def choose_engine(
    problem: LinearProblem, engine: str | Engine, values: Mapping[str, Any], free: Sequence[str], small: bool
) -> tuple[Engine, str]:
    """The engine to run, and why where it was chosen here; small problems are fitted to more digits."""
    named = resolve_engine(engine, free, small)
    if not isinstance(named, Auto):
        return named, ""
    chosen, reason = choose(problem.model(values))
    if chosen == GaussianKL():
        if problem.has_gaussian_noise and isinstance(problem.prior, GaussianPrior | LocatedPrior):
            return Exact(), ""
        return (FINER["gkl"] if small else chosen), reason
    if free and isinstance(chosen, AffineKL):
        return (FINER["gkl"] if small else GaussianKL()), "hyperparameters are learnt, for which a Gaussian serves"
    return chosen, reason


def _learns_many(values: Mapping[str, Any], free: Sequence[str]) -> bool:
    """One prior scale per feature is to be learnt."""
    return "prior_scale" in free and np.ndim(values["prior_scale"]) > 0


def resolve_engine(engine: str | Engine, free: Sequence[str], small: bool) -> Engine:
    """The engine by its name, to more digits for a small problem; one without an evidence can learn nothing."""
    named = resolve(engine)
    if free and isinstance(named, MAP):
        names = ", ".join(f"{ARGUMENTS.get(name, name)}='auto'" for name in free)
        raise ValueError(
            f"{names} needs an evidence, and engine 'map' has none: give numbers, or use 'laplace' or 'gkl'"
        )
    return FINER.get(engine, named) if small and isinstance(engine, str) else named


def numbered(checkpoint: Path | None, index: int, count: int) -> Path | None:
    """The file of one of several fits."""
    return checkpoint if checkpoint is None or count == 1 else f"{os.fspath(checkpoint)}.{index}"

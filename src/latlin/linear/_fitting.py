"""Fit one problem: settle which hyperparameters are given and which are learnt, choose the engine, run it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from latlin.inference.affine.engine import AffineKL
from latlin.inference.auto import Auto, choose
from latlin.inference.engine import Engine
from latlin.inference.exact import Exact
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import resolve
from latlin.inference.laplace import Laplace
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.map import MAP
from latlin.inference.posterior import Posterior
from latlin.linear._evidence import PLAIN, Accuracy, Fit, maximise_evidence, ranges_of
from latlin.linear._exact import fit_exactly, is_exact
from latlin.linear._priors import GaussianPrior
from latlin.linear._problem import Problem
from latlin.numerics.magnitude import SMALLEST
from latlin.potentials.ranges import Increasing, Positive, Range

AUTO = "auto"
Path = str | os.PathLike[str]
#: entries of X up to which a fit goes on to nearly all digits, so that equal problems give equal answers
SMALL = 20_000
FINE = Accuracy(gradient=1e-7, gain=1e-15)
FINER: dict[str, Engine] = {"gkl": GaussianKL(tol=1e-9), "laplace": Laplace(tol=1e-9), "lvb": LocalBound(tol=1e-9)}


def settled(problem: Problem, given: Mapping[str, Any], ard: bool) -> tuple[dict[str, Any], list[str]]:
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


#: hyperparameter → the estimator's argument
ARGUMENTS = {"scale": "noise_scale"}


def _checked(name: str, value: Any, span: Range, n_features: int) -> Any:
    argument = ARGUMENTS.get(name, name)
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument} must be a positive number or 'auto', got {value!r}") from error
    if isinstance(span, Increasing):
        return span.check(argument, array)
    shapes: tuple[tuple[int, ...], ...] = ((), (n_features,)) if name == "prior_scale" else ((),)
    if array.shape not in shapes:
        raise ValueError(
            f"{argument} must be 'auto' or have shape {' or '.join(map(str, shapes))}, got shape {array.shape}"
        )
    if isinstance(span, Positive) and not np.all(np.isfinite(array) & (array > 0.0)):
        raise ValueError(f"{argument} must be positive and finite, got {value!r}")
    if isinstance(span, Positive) and np.any(array < SMALLEST):
        raise ValueError(f"{argument} must be at least {SMALLEST:g}, got {array.min():g}: change the units")
    span.check(argument, array)
    return float(array) if array.ndim == 0 else array


def fit_problem(
    problem: Problem,
    engine: str | Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None = None,
    verbose: bool = False,
    checkpoint: Path | None = None,
) -> Fit:
    """The posterior, at the hyperparameters of largest evidence where some are free."""
    small = problem.n_entries <= SMALL
    chosen, reason = choose_engine(problem, engine, values, free, small)
    if isinstance(chosen, Exact) and not _learns_many(values, free):
        return Fit(*fit_exactly(problem, values, free))
    if free:
        accuracy = FINE if small else PLAIN
        fit = maximise_evidence(problem, chosen, values, free, start, accuracy, checkpoint, verbose)
    else:
        model = problem.model(values)
        fit = Fit(chosen.run(model, start=start, verbose=verbose, checkpoint=checkpoint), dict(values))
    if not reason:
        return fit
    message = f"auto: {reason}; {fit.posterior.message}"
    return fit._replace(posterior=replace(fit.posterior, message=message))


def choose_engine(
    problem: Problem, engine: str | Engine, values: Mapping[str, Any], free: Sequence[str], small: bool
) -> tuple[Engine, str]:
    """The engine to run, and why where it was chosen here; small problems are fitted to more digits."""
    named = resolve_engine(engine, free, small)
    if not isinstance(named, Auto):
        return named, ""
    chosen, reason = choose(problem.model(values))
    if chosen == GaussianKL():
        if is_exact(problem) and isinstance(problem.prior, GaussianPrior):
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

"""From a problem to a posterior: hyperparameters held, maximised or integrated."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from latlin.additive.problem import AdditiveProblem
from latlin.hyper import Learnt, Space, averaged_posterior, integrate, maximise
from latlin.hyper.learn import Component
from latlin.hyper.marginals import HyperparameterTable, row_of
from latlin.hyper.optimum import Optimum
from latlin.hyper.space import Evaluation, Hyperparameter, Point
from latlin.inference.blocks import BlockModel
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.estimated import can_be_estimated
from latlin.inference.exact import Exact
from latlin.inference.forms.sparse import filling_plan
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import Auto, resolve
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.arrays import reuse_memory
from latlin.numerics.options import check_choice, file_path
from latlin.numerics.rng import RandomState, generator
from latlin.priors.base import Prior

WAYS = ("auto", "integrate", "maximise", "fixed")
#: most hyperparameters that "auto" integrates over, and fits of an integral by their number
MOST = 8
FITS = {1: 30, 2: 90, 3: 250, 4: 50, 5: 60, 6: 90, 7: 150, 8: 150}
#: least gain in nat for which a search goes on: Newton's steps finish an optimum, an integral needs but its centre
ENOUGH = 1e-3
#: rows up to which moments are matched; beyond, Gaussian KL, whose steps are cheaper, has data enough to be as good
MATCHED = 30_000
#: the same where there are so many rows per coefficient that Gaussian KL is as good in any case
MANY, PER_ROW = 3_000, 8.0
#: largest entry of the bound's gradient: the mismatch that is left changes the bound by its square; where sites are not
#: log-concave, whose fits creep towards their end, what is left would be seen in the slopes of the evidence
TOLERANCE, STRICT = 1e-4, 1e-5
#: the same where no slopes are asked for: a point of an integral needs its bound and a mean to a thousandth of an sd
AT_POINTS = 1e-3
#: largest mismatch of a moment, in standard deviations
MISMATCH = 1e-4
#: coefficients from which on a factor may fill, and probes that then estimate variances and the evidence
LARGE, PROBES = 5_000, 24
#: rows and coefficients, times fits, up to which an integral is cheap: some ten seconds
CHEAP = 3e6
#: what a coefficient, and a row of a Gaussian response, cost beside a row of another
PER_COEFFICIENT, PER_GAUSSIAN_ROW = 5.0, 0.1


def learn(
    problem: AdditiveProblem,
    engine: str | Engine,
    manner: str,
    priors: Mapping[str, Any],
    random_state: RandomState,
    verbose: bool,
    checkpoint: str | os.PathLike[str] | None = None,
) -> tuple[Learnt, Posterior]:
    """The hyperparameters and the posterior of the coefficients.

    Parameters
    ----------
    problem : Problem
    engine : str or engine object
    manner : {"auto", "integrate", "maximise", "fixed"}
    priors : mapping
        Of the user: priors and numbers by the names of hyperparameters.
    random_state : seed of importance sampling, where it is an int
    verbose : bool
    checkpoint : path, optional
        Fits keep their states in the files `checkpoint` and ".0", ".1", … for one after the other.
    """
    generator(random_state)  # looked at even where nothing is drawn
    if checkpoint is not None:
        file_path("checkpoint", checkpoint)
    check_choice("hyperparameters", manner, WAYS)
    given = resolve(engine)
    chosen = choose_engine(problem) if isinstance(given, Auto) else given
    at_points = chosen
    held, free = _settled(problem.hyperparameters, priors, manner == "fixed")
    if isinstance(given, Auto) and free:
        at_points = _for_points(problem, chosen)

    number, names = itertools.count(), tuple(hyper.name for hyper in free)

    def evaluate(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        file = None if checkpoint is None else f"{os.fspath(checkpoint)}.{next(number)}"
        found = problem.evaluate({**held, **values}, chosen if slopes else at_points, before, slopes, names, file)
        again = found.held
        return found if again is None else found._replace(held=lambda others: again({**held, **others}))

    with reuse_memory():
        if not free:
            learnt = _held(evaluate({}, None, False), held)
        elif manner == "maximise" or (manner == "auto" and not _cheap(problem, len(free))):
            learnt = maximise(Space(free), evaluate, worth=ENOUGH, verbose=verbose)
        else:
            seed = random_state if isinstance(random_state, int) else 0
            method = "quick" if manner == "auto" else "auto"
            learnt = integrate(Space(free), evaluate, method=method, worth=ENOUGH, random_state=seed, verbose=verbose)
    normalised = not free or Space(free).normalised
    posterior = averaged_posterior(learnt, normalised=normalised or learnt.table.manner != "integrated")
    if any(part.flat for part in problem.parts):
        message = f"{posterior.message}; a coefficient has a flat prior"
        posterior = replace(posterior, evidence_kind="none", message=message)
    if posterior.caution is not None and posterior.caution[0] == "wrong":
        alert(posterior.caution[1], ConvergenceWarning)
    components = tuple(c._replace(values={**held, **c.values}) for c in learnt.components)
    return replace(learnt, components=components), posterior


def choose_engine(problem: AdditiveProblem) -> str | Engine:
    """Exact for Gaussian sites; expectation propagation for log-concave ones where it pays; else Gaussian KL.

    Where the factor of the precision would fill, nothing is factorised and the covariance is estimated.
    The mismatch of moments that is left, in standard deviations, changes the evidence by its square. With eight rows
    per coefficient and some thousand rows the two engines agree to a hundredth of a standard deviation, and a step of
    Gaussian KL costs a fraction of a sweep.
    """
    first, potential, rows = problem.first_model, problem.first_potential, problem.n_rows
    if isinstance(first, BlockModel):
        return Exact() if potential.gaussian else GaussianKL(tol=TOLERANCE)
    if problem.dim >= LARGE and can_be_estimated(first) and filling_plan(first) is not None:
        return GaussianKL(covariance="estimated", tol=TOLERANCE, probes=PROBES)
    if potential.gaussian:
        return Exact()
    most = MANY if rows >= PER_ROW * problem.dim else MATCHED
    matched = potential.log_concave and problem.family.matched and rows <= most
    if matched:
        return ExpectationPropagation(tol=MISMATCH)
    return GaussianKL(tol=TOLERANCE if potential.log_concave else STRICT)


def _for_points(problem: AdditiveProblem, engine: Any) -> Any:
    """The engine for fits without slopes: one that ends earlier, where sites are log-concave."""
    full = isinstance(engine, GaussianKL) and engine.covariance == "full"
    return replace(engine, tol=AT_POINTS) if full and problem.first_potential.log_concave else engine


def _settled(
    hypers: tuple[Hyperparameter, ...], priors: Mapping[str, Any], fixed: bool
) -> tuple[dict[str, float], list[Hyperparameter]]:
    """Hyperparameters with a value, and those to learn under the user's priors."""
    held: dict[str, float] = {}
    free: list[Hyperparameter] = []
    common = priors.get("sd")
    for hyper in hypers:
        given = priors.get(hyper.name, common if hyper.name.startswith("sd(") else None)
        if isinstance(given, Real) and not isinstance(given, bool):
            low, high = hyper.support or (0.0, np.inf)
            if not low < float(given) < high:
                raise ValueError(f"priors[{hyper.name!r}] fixes a number between {low:g} and {high:g}, got {given!r}")
            held[hyper.name] = float(given)
        elif fixed:
            held[hyper.name] = hyper.start
        elif given is None:
            free.append(hyper)
        elif isinstance(given, Prior):
            free.append(_under(hyper, given))
        else:
            raise ValueError(f"priors[{hyper.name!r}] must be one of latlin.priors or a number, got {given!r:.80}")
    return held, free


def _under(hyper: Hyperparameter, prior: Prior) -> Hyperparameter:
    """A hyperparameter under another prior; its search stays within the prior's support."""
    least, most = hyper.support or (0.0, np.inf)
    low, high = max(least, prior.support[0]), min(most, prior.support[1])
    start = hyper.start
    if not low < start < high:
        start = float(prior.quantile(0.5)) if prior.normalised else 0.5 * (low + high)
    ends = hyper.bounds or (low, high)
    width = high - low
    bounds = (max(ends[0], low + 1e-9 * width if np.isfinite(width) else ends[0]), min(ends[1], high))
    return Hyperparameter(hyper.name, start, prior, (low, high), (min(bounds[0], start), max(bounds[1], start)))


def _cheap(problem: AdditiveProblem, count: int) -> bool:
    if count > MOST:
        return False
    row = PER_GAUSSIAN_ROW if problem.family.template.gaussian else 1.0
    return FITS[count] * (row * problem.n_rows + PER_COEFFICIENT * problem.dim) <= CHEAP


def _held(found: Evaluation, held: dict[str, float]) -> Learnt:
    """One fit, nothing learnt."""
    nothing = np.zeros(0)
    point = Point(nothing, found.log_evidence, found.log_evidence, found.fit)
    rows = [row_of(name, value, None, 0, "fixed") for name, value in held.items()]
    return Learnt(
        values=dict(held),
        components=(Component(1.0, 0.0, dict(held), found.fit),),
        table=HyperparameterTable(rows, "fixed"),
        log_evidence=found.log_evidence,
        error=0.0,
        hessian=None,
        optimum=Optimum(point, nothing, nothing, True, 1),
        message="",
        caution=None,
    )

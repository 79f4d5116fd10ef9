"""The sequential design: believe, choose, evaluate, until the budget is spent or the error bar is small."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array, visible
from latlin.numerics.progress import progress
from latlin.quadrature.acquisition import Score, choose, spread
from latlin.quadrature.belief import Belief, BeliefModel
from latlin.quadrature.measures import Measure, as_points
from latlin.quadrature.result import Evaluations, Integral, IntegrandError, Trace

Integrand = Callable[[Array], ArrayLike]


class EvaluationPlan(NamedTuple):
    """How many evaluations, how many at once, and when to stop before."""

    budget: int
    initial: int
    batch: int | None  # None: an eighth of what there is, at least one
    rtol: float | None
    atol: float

    def next_batch(self, n: int) -> int:
        wanted = max(1, n // 8) if self.batch is None else self.batch
        return min(wanted, self.budget - n)

    def satisfied(self, mean: float, sd: float) -> bool:
        return self.rtol is not None and sd <= self.atol + self.rtol * abs(mean)


class Scale(NamedTuple):
    """How raw values become an integrand: as they are, or as exponentials relative to the largest."""

    logarithmic: bool

    def allowed(self, raw: Array) -> NDArray[np.bool_]:
        return np.isfinite(raw) | (raw == -np.inf) if self.logarithmic else np.isfinite(raw)

    def values(self, raw: Array) -> tuple[Array, float]:
        if not self.logarithmic:
            return raw, 0.0
        top = float(raw.max())
        top = top if np.isfinite(top) else 0.0
        return np.exp(raw - top), top


def run(
    f: Integrand,
    measure: Measure,
    model: BeliefModel,
    score: Score,
    plan: EvaluationPlan,
    scale: Scale,
    start: Evaluations | None,
    rng: np.random.Generator,
    verbose: bool,
) -> Integral:
    """Evaluate f where it tells most about its integral."""
    started = time.perf_counter()
    known = start if start is not None else Evaluations(np.empty((0, measure.dim)), np.empty(0))
    first = max(plan.initial - len(known.values), 0)
    if first:
        points = measure.frame.outward(spread(measure.standard, first, rng))
        known = evaluate(f, points, known, scale)
    rounds: list[tuple[int, float, float, float]] = []
    belief: Belief | None = None
    with progress("quadrature", plan.budget, verbose) as bar:
        while True:
            values, log_scale = scale.values(known.values)
            belief = _believe(model, measure.frame.inward(known.points), values, belief, known)
            mean, sd = belief.integral.mean, float(np.sqrt(belief.integral.variance))
            rounds.append((len(values), mean, sd, time.perf_counter() - started))
            bar.advance(f"{len(values)} evaluations: {mean:.6g} ± {sd:.2g}")
            if _is_done(plan, rounds):
                break
            count = plan.next_batch(len(values))
            chosen = choose(belief, score, measure.standard, count, rng)
            known = evaluate(f, measure.frame.outward(chosen), known, scale)
    return _report(belief, known, rounds, plan, log_scale)


def evaluate(f: Integrand, points: Array, known: Evaluations, scale: Scale) -> Evaluations:
    """The evaluations with those at `points` added; an `IntegrandError` keeps what is known."""
    try:
        raw = np.asarray(visible("the integrand", np.asarray(f(points.copy()))), dtype=float)
    except Exception as error:
        raise IntegrandError(f"the integrand raised {type(error).__name__}: {error}", known) from error
    if raw.shape != (len(points),):
        text = f"the integrand must return an array of shape ({len(points)},) for points of shape {points.shape}"
        raise IntegrandError(f"{text}, got {raw.shape}", known)
    good = scale.allowed(raw)
    after = Evaluations(np.vstack([known.points, points[good]]), np.append(known.values, raw[good]))
    if not np.all(good):
        bad = int(np.argmin(good))
        raise IntegrandError(f"the integrand is {raw[bad]} at {points[bad].tolist()}", after)
    return after


def check_start(start: Evaluations | tuple[ArrayLike, ArrayLike], dim: int) -> Evaluations:
    """Given points and values as `Evaluations`."""
    points = as_points(start[0], dim, "start")
    values = np.asarray(start[1], dtype=float)
    if values.shape != (len(points),) or np.any(np.isnan(values)):
        raise ValueError(f"start must have one number for each of its {len(points)} points, got {values!r}")
    return Evaluations(points, values)


def _believe(model: BeliefModel, z: Array, values: Array, before: Belief | None, known: Evaluations) -> Belief:
    try:
        belief = model(z, values, before)
    except ValueError as error:
        raise IntegrandError(str(error), known) from error
    if not np.isfinite(belief.integral.mean) or not np.isfinite(belief.integral.variance):
        raise IntegrandError(f"the integral came out as {belief.integral}", known)
    return belief


def _is_done(plan: EvaluationPlan, rounds: list[tuple[int, float, float, float]]) -> bool:
    # twice in a row: one round of luck with the length scales is not enough
    last = [plan.satisfied(mean, sd) for _, mean, sd, _ in rounds[-2:]]
    return rounds[-1][0] >= plan.budget or (len(last) == 2 and all(last))


def _report(
    belief: Belief,
    known: Evaluations,
    rounds: list[tuple[int, float, float, float]],
    plan: EvaluationPlan,
    log_scale: float,
) -> Integral:
    n, mean, sd, seconds = (np.array(column) for column in zip(*rounds, strict=True))
    converged = plan.satisfied(mean[-1], sd[-1])
    message = f"{n[-1]} of {plan.budget} evaluations: {mean[-1]:.6g} ± {sd[-1]:.2g}"
    if plan.rtol is not None and not converged:
        message += f", wider than rtol={plan.rtol:g} allows; raise budget"
        warnings.warn(f"quadrature did not converge: {message}", ConvergenceWarning, stacklevel=4)
    trace = Trace(n, mean, sd, seconds)
    mode, z = belief.ensemble.mode, belief.integral
    return Integral(z.mean, float(sd[-1]), z.dof, known, trace, mode, converged, message, log_scale, z)

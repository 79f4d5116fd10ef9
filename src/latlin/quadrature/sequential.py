"""The sequential design: believe, choose, evaluate, until the budget is spent or the error bar is small."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import qmc

from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array, check_visible
from latlin.numerics.options import check_choice
from latlin.numerics.progress import progress
from latlin.quadrature.belief import Belief, BeliefModel
from latlin.quadrature.kernels import Standard
from latlin.quadrature.measures import Measure, check_points
from latlin.quadrature.result import Evaluations, Integral, IntegrandError, Trace

# --- Where to evaluate next: scores of candidate points, and a greedy choice of several.
#
# "uncertainty" is (7.18) of Gutteridge (2021), argmax Var[f(x)] p(x)²; "integral-variance" is (7.17), the
# point after which the integral's variance is smallest; "ucb" is λ f̄(x) + Var f(x) of §7.3.4, both terms weighted
# with the density as in (7.18). Choosing a point changes the covariance at once, so the points of a batch avoid each
# other; what is not known yet is taken to be as predicted.


GLOBAL, LOCAL = 512, 32  # candidates over the measure; and around each of the best of them
CENTRES = 8


class Candidates(NamedTuple):
    """What a score may look at; one number a candidate."""

    density: Array  # p(x), relative to its largest
    mean: Array  # of f
    amplitude: Array  # ∂f/∂process
    variance: Array  # of the process
    link: Array  # covariance of the process with the integral
    noise: float  # variance of an evaluation given the process


Score = Callable[[Candidates], Array]


def uncertainty(c: Candidates) -> Array:
    """Var[f(x)] p(x)²."""
    return (c.amplitude * c.density) ** 2 * c.variance


def integral_variance(c: Candidates) -> Array:
    """By how much an evaluation lowers the variance of the integral: Cov(g, Z)² / Var(y)."""
    return c.link**2 / (c.variance + c.noise)


def ucb(weight: float) -> Score:
    """λ f̄(x) p(x) + Var[f(x)] p(x)², each relative to its largest: the same whatever the units of f, and as
    curious late in the design, when the variances are small, as early."""

    def score(c: Candidates) -> Array:
        value, variance = c.mean * c.density, uncertainty(c)
        return weight * _relative(value) + _relative(variance)

    return score


def _relative(a: Array) -> Array:
    largest = float(np.abs(a).max())
    return a / largest if largest > 0.0 else a


def resolve_score(acquisition: str, ucb_weight: float) -> Score:
    """The score of this name."""
    scores = {"uncertainty": uncertainty, "integral-variance": integral_variance, "ucb": ucb(ucb_weight)}
    return scores[check_choice("acquisition", acquisition, scores)]


def spread(measure: Standard, n: int, rng: np.random.Generator) -> Array:
    """n low-discrepancy points of the measure."""
    size = 1 << max(n - 1, 0).bit_length()
    return measure.place(_inside(qmc.Sobol(measure.dim + 1, seed=rng).random(size)[:n]))


def choose(belief: Belief, score: Score, measure: Standard, count: int, rng: np.random.Generator) -> Array:
    """`count` points to evaluate next, of shape (count, d)."""
    wide = spread(measure.broaden(2.0), GLOBAL, rng)
    best = np.argsort(score(_describe(belief, measure, wide)))[-CENTRES:]
    steps = 0.3 * belief.process.lengths * rng.standard_normal((CENTRES, LOCAL, measure.dim))
    near = measure.clip((wide[best][:, None] + steps).reshape(-1, measure.dim))
    return _greedy(belief, score, measure, np.vstack([wide, near]), count)


def _inside(u: Array) -> Array:
    return np.clip(u, 1e-9, 1.0 - 1e-9)


def _describe(belief: Belief, measure: Standard, z: Array) -> Candidates:
    log_density = measure.logpdf(z)
    process = belief.process
    return Candidates(
        np.exp(log_density - log_density.max()),
        belief.mean(z),
        belief.amplitude(z),
        process.variances(z),
        belief.link(z),
        process.variance * process.nugget,
    )


def _greedy(belief: Belief, score: Score, measure: Standard, z: Array, count: int) -> Array:
    process = belief.process
    candidates = _describe(belief, measure, z)
    known, unknown = process.explained(z)
    chosen: list[int] = []
    past = np.empty((count, len(z)))  # columns of the covariance that earlier choices explain
    for step in range(count):
        values = score(candidates)
        values[chosen] = -np.inf
        best = int(np.argmax(values))
        chosen.append(best)
        # C(·,x*) now: v(k − GᵀG* + BᵀB*) less what the earlier choices explain
        prior = process.kernel.gram(z, z[best : best + 1], process.lengths)[:, 0]
        column = process.variance * (prior - known[:, best] @ known + unknown[:, best] @ unknown)
        column -= past[:step, best] @ past[:step]
        root = np.sqrt(max(column[best], 0.0) + candidates.noise)
        past[step] = column / root if root > 0.0 else 0.0
        candidates = candidates._replace(
            variance=np.maximum(candidates.variance - past[step] ** 2, 0.0),
            link=candidates.link - past[step] * (candidates.link[best] / root if root > 0.0 else 0.0),
        )
    return z[chosen]


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
        raw = np.asarray(check_visible("the integrand", np.asarray(f(points.copy()))), dtype=float)
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
    points = check_points(start[0], dim, "start")
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
        mean, variance = belief.integral.mean, belief.integral.variance
        text = f"the belief about the integral has mean {mean:g} and variance {variance:g}, which must be finite"
        raise IntegrandError(f"{text}: choose another warp or kernel", known)
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

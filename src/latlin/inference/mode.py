"""The mode of a posterior by Newton's method with a line search, wherever the rows are; for MAP and Laplace.

A Newton step goes to the mean of the Gaussian with γ = −ψ″(x), ν = ψ′(x) + γx (Challis (2013), eq. 3.5.1, corrected).
The form says how the log joint looks about a point: a `SiteForm` keeps three numbers per site, a `SumForm` the sums
H̃ᵀψ′ and H̃ᵀΓH̃, in one pass over the rows per evaluation.

Where sites have kinks the steps are on smoothed sites, less and less smoothed. ⟨ψ(x + εz)⟩ over standard normal z is
smooth, concave where ψ is, and for concave ψ it rises to ψ as ε falls; so every step of the path raises one objective.
The mode ends within O(ε) of the kinks that hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from latlin.numerics.arrays import Array, max_abs
from latlin.numerics.ascent import (
    Ascent,
    Checkpoint,
    Measure,
    Rules,
    ascend,
    backtrack,
    gradient_or_distance,
    grain,
    may_be_rounding,
    rounding,
)
from latlin.numerics.linalg import dot

#: gradient below which an indefinite Hessian means a saddle or a minimum, to be left along its curvature
FLAT = 1e-4
#: share of the slope that is left after a whole step from which on a longer one is tried, and the longest
EAGER, LONGEST = 0.25, 64.0
#: smoothing at the end, in units of a site's own width
SHARP = 1e-7


class Expansion(NamedTuple):
    """The log joint about a point u: its value and gradient there, and what the form keeps of its curvature.

    The grain is what rounding of large terms adds to the value; zero until it is measured.
    """

    u: Array
    objective: float
    gradient: Array
    kept: Any
    grain: float = 0.0


class Expandable(Protocol):
    """What Newton's method asks of a form."""

    def expand(self, u: Array, smoothing: float | None = None) -> Expansion: ...

    def newton_step(self, at: Expansion) -> Array | None: ...

    def steady_step(self, at: Expansion) -> Array | None: ...

    def curvature(self, at: Expansion) -> Array: ...


class SmoothedJoint(NamedTuple):
    """The smoothed log joint about a point, and the smoothing ε."""

    at: Expansion
    epsilon: float


def steepness(at: Expansion) -> float:
    """The largest absolute entry of the gradient."""
    return max_abs(at.gradient)


def find_mode(
    form: Expandable,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
    measure: Callable[[Expansion], float] = steepness,
) -> Ascent[Expansion]:
    """Climb the log joint from the coordinates `start` until `measure` is small."""

    def step(now: Expansion) -> tuple[Expansion, Measure]:
        direction = _direction(form, now)
        moved = _search(form, now, direction) or now
        gain, size = moved.objective - now.objective, measure(moved)
        if size > rules.gradient_tol:
            if may_be_rounding(gain, now.objective, now.grain, steepness(moved), steepness(now)):
                found = grain(lambda u: form.expand(u).objective, now.u, now.objective)
                now = now._replace(grain=found)
                moved = _search(form, now, direction) or moved
                gain, size = moved.objective - now.objective, measure(moved)
            away = lambda: deviations_from_mode(form, moved)  # noqa: E731
            size = gradient_or_distance(size, measure(now), gain, now.objective, away, now.grain)
        moved = moved if moved.grain == now.grain else moved._replace(grain=now.grain)
        return moved, Measure(moved.objective, size, now.grain)

    return ascend(
        *(step, form.expand(start), rules),
        label=label,
        verbose=verbose,
        checkpoint=checkpoint,
        warn=warn,
        evaluate=lambda at: form.expand(at.u).objective,
    )


def find_kinked_mode(
    form: Expandable,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Ascent[SmoothedJoint]:
    """Climb the log joint from the coordinates `start`, halving ε once the gradient is small against its root."""

    def step(now: SmoothedJoint) -> tuple[SmoothedJoint, Measure]:
        moved = _search(form, now.at, form.newton_step(now.at), now.epsilon) or now.at
        size, epsilon = steepness(moved), now.epsilon
        if epsilon > SHARP and size < np.sqrt(epsilon):
            epsilon = max(0.5 * epsilon, SHARP)
            moved = form.expand(moved.u, epsilon)
        reached = now if moved is now.at else SmoothedJoint(moved, epsilon)
        return reached, Measure(moved.objective, max(size, epsilon if epsilon > SHARP else 0.0))

    def evaluate(now: SmoothedJoint) -> float:
        return form.expand(now.at.u, now.epsilon).objective

    first = SmoothedJoint(form.expand(start, 1.0), 1.0)
    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, evaluate=evaluate)


def deviations_from_mode(form: Expandable, at: Expansion) -> float:
    """√(gᵀP⁻¹g), about how many standard deviations the mode is away; infinite where P is not definite."""
    step = form.newton_step(at)
    return np.inf if step is None else float(np.sqrt(max(dot(at.gradient, step), 0.0)))


def _search(
    form: Expandable, now: Expansion, direction: Array | None, smoothing: float | None = None
) -> Expansion | None:
    """The longest of the steps 1, ½, ¼, … that raises the log joint, or None."""
    if direction is None:
        return None

    def evaluate(length: float) -> tuple[float, Expansion]:
        trial = form.expand(now.u + (direction if length == 1.0 else length * direction), smoothing)
        return trial.objective, trial

    slope = dot(now.gradient, direction)
    best = backtrack(evaluate, now.objective, slope, slack=1e-2 * rounding(now.objective) + now.grain)
    if best is None:
        return None
    length, objective, found = best
    # e^x falls by 1/e per Newton step: counts of zero ask for ever the same step
    while length >= 1.0 and length < LONGEST and dot(found.gradient, direction) > EAGER * slope:
        farther, trial = evaluate(2.0 * length)
        if farther <= objective:
            break
        length, objective, found = 2.0 * length, farther, trial
    return found


def _direction(form: Expandable, now: Expansion) -> Array | None:
    """Newton's step; where the Hessian is not definite a steady one, or away from a point that is flat."""
    step = form.newton_step(now)
    if step is not None:
        return step
    return _escape(form, now) if steepness(now) < FLAT else form.steady_step(now)


def _escape(form: Expandable, now: Expansion) -> Array | None:
    """Away from a saddle or a minimum: one standard length along the direction of most negative curvature."""
    values, vectors = np.linalg.eigh(form.curvature(now), UPLO="U")
    return vectors[:, 0] / np.sqrt(-values[0]) if values[0] < 0.0 else None

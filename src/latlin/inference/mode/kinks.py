"""The mode when sites have kinks: Newton's method on smoothed sites, less and less smoothed.

⟨ψ(x + εz)⟩ over standard normal z is smooth, concave where ψ is, and for concave ψ it rises to ψ as ε falls; so every
step of the path raises one objective. The mode ends within O(ε) of the kinks that hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latlin.inference.forms.site_form import SiteForm
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.line_search import backtrack

#: smoothing at the end, in units of a site's own width
SHARP = 1e-7


class SmoothedMode(NamedTuple):
    """A point u, its projections x, the smoothing ε and the smoothed log joint with its sites' slopes."""

    u: Array
    x: Array
    epsilon: float
    objective: float
    slope: Array
    curvature: Array


def sharpening(
    newton: Callable[[Any], Any], gradient: Callable[[Any], Array], at: Callable[[Any, float], Any]
) -> Callable[[Any], tuple[Any, Measure]]:
    """A step of the path: `newton`, and half the ε (`at` it) once the gradient is small against its root."""

    def step(mode: Any) -> tuple[Any, Measure]:
        moved = newton(mode)
        size = float(np.abs(gradient(moved)).max(initial=0.0))
        if moved.epsilon > SHARP and size < np.sqrt(moved.epsilon):
            moved = at(moved, max(0.5 * moved.epsilon, SHARP))
        return moved, Measure(moved.objective, max(size, moved.epsilon if moved.epsilon > SHARP else 0.0))

    return step


def find_kinked_mode(
    form: SiteForm, start: Array, rules: Rules, label: str, verbose: bool, checkpoint: Checkpoint | None
) -> Ascent[SmoothedMode]:
    """Climb the log joint from the coordinates `start`, halving ε whenever a Newton step has been taken."""
    step = sharpening(
        lambda mode: _newton_step(form, mode),
        lambda mode: _gradient(form, mode),
        lambda mode, epsilon: _at(form, mode.u, mode.x, epsilon),
    )
    first = _at(form, start, form.projections.times(start), 1.0)

    def evaluate(mode: SmoothedMode) -> float:
        return _at(form, mode.u, form.projections.times(mode.u), mode.epsilon).objective

    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, evaluate=evaluate)


def _at(form: SiteForm, u: Array, x: Array, epsilon: float) -> SmoothedMode:
    value, slope, curvature = form.sites.smoothed(x, epsilon)
    return SmoothedMode(u, x, epsilon, form.log_gaussian(u) + float(value.sum()), slope, curvature)


def _gradient(form: SiteForm, mode: SmoothedMode) -> Array:
    return form.linear - form.times_quadratic(mode.u) + form.projections.transposed_times(mode.slope)


def _newton_step(form: SiteForm, mode: SmoothedMode) -> SmoothedMode:
    """The longest of the steps 1, ½, ¼, … that raises the smoothed log joint; the mode itself when none does."""
    gamma = np.abs(mode.curvature)
    target = form.solve(SiteParameters(gamma, mode.slope + gamma * mode.x))
    if target is None:
        return mode
    direction, shift = target.u - mode.u, target.x - mode.x

    def evaluate(length: float) -> tuple[float, SmoothedMode]:
        trial = _at(form, mode.u + length * direction, mode.x + length * shift, mode.epsilon)
        return trial.objective, trial

    slope = float(_gradient(form, mode) @ direction)
    found = backtrack(evaluate, mode.objective, slope, slack=1e-2 * rounding(mode.objective))
    return mode if found is None else found[2]

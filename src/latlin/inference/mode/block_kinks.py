"""The mode of a model of blocks whose sites have kinks: Newton's method on smoothed sites, less and less smoothed.

The path of `latlin.inference.mode.kinks`, with one pass over the rows an evaluation.
"""

from __future__ import annotations

from typing import NamedTuple

from latlin.inference.forms.sums import SumForm, smoothed_terms
from latlin.inference.mode.kinks import sharpening
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Rules, ascend, rounding
from latlin.numerics.linalg import cholesky, dot
from latlin.numerics.line_search import backtrack


class SmoothedBlockMode(NamedTuple):
    """A point u, the smoothing ε, the smoothed log joint with its gradient, and a positive curvature."""

    u: Array
    epsilon: float
    objective: float
    gradient: Array
    precision: Array


def find_kinked_block_mode(
    form: SumForm, start: Array, rules: Rules, label: str, verbose: bool, checkpoint: Checkpoint | None
) -> Ascent[SmoothedBlockMode]:
    """Climb the log joint from the coordinates `start`, halving ε whenever a Newton step has been taken."""
    step = sharpening(
        lambda mode: _newton_step(form, mode),
        lambda mode: mode.gradient,
        lambda mode, epsilon: _at(form, mode.u, epsilon),
    )

    def evaluate(mode: SmoothedBlockMode) -> float:
        return _at(form, mode.u, mode.epsilon).objective

    first = _at(form, start, 1.0)
    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, evaluate=evaluate)


def _at(form: SumForm, u: Array, epsilon: float) -> SmoothedBlockMode:
    sums = form.sums(smoothed_terms, u, epsilon)
    objective = form.own.log_gaussian(u) + sums.value
    return SmoothedBlockMode(u, epsilon, objective, form.slope(u, sums), form.precision(sums))


def _newton_step(form: SumForm, mode: SmoothedBlockMode) -> SmoothedBlockMode:
    """The longest of the steps 1, ½, ¼, … that raises the smoothed log joint; the mode itself when none does."""
    try:
        direction = cholesky(mode.precision).solve(mode.gradient)
    except ValueError:
        return mode

    def evaluate(length: float) -> tuple[float, SmoothedBlockMode]:
        trial = _at(form, mode.u + length * direction, mode.epsilon)
        return trial.objective, trial

    slope = dot(mode.gradient, direction)
    found = backtrack(evaluate, mode.objective, slope, slack=1e-2 * rounding(mode.objective))
    return mode if found is None else found[2]

"""The mode of a model of blocks by Newton's method: one pass over the rows an evaluation, full steps nearly always.

The step is that of `latlin.inference.mode.newton` (Challis (2013), eq. 3.5.1, corrected) with the sums H̃ᵀψ′ and H̃ᵀΓH̃ in
place of the sites' own ψ′ and ψ″.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latlin.inference.forms.sums import SumForm, point_terms, steady_terms
from latlin.inference.mode.newton import FLAT
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.linalg import cholesky, dot
from latlin.numerics.line_search import backtrack


class BlockMode(NamedTuple):
    """A point u, the log joint with its gradient there, and minus its Hessian (upper triangle)."""

    u: Array
    objective: float
    gradient: Array
    precision: Array


def steepness(mode: BlockMode) -> float:
    """The largest absolute entry of the gradient."""
    return float(np.abs(mode.gradient).max(initial=0.0))


def distance(mode: BlockMode) -> float:
    """√(gᵀP⁻¹g), about how many standard deviations the mode is away; infinite where P is not definite."""
    solved = _solved(mode.precision, mode.gradient)
    return np.inf if solved is None else float(np.sqrt(dot(mode.gradient, solved)))


def mode_at(form: SumForm, u: Array) -> BlockMode:
    """The log joint and its derivatives at u: one pass."""
    sums = form.sums(point_terms, u)
    objective = form.own.log_gaussian(u) + sums.value
    objective = objective if np.isfinite(objective) else -np.inf
    return BlockMode(u, objective, form.slope(u, sums), form.precision(sums))


def find_block_mode(
    form: SumForm,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
    measure: Callable[[BlockMode], float] = steepness,
) -> Ascent[BlockMode]:
    """Climb the log joint from the coordinates `start` until `measure` of the mode is small."""

    def step(mode: BlockMode) -> tuple[BlockMode, Measure]:
        moved = _newton_step(form, mode)
        reached = mode if moved is None else moved
        return reached, Measure(reached.objective, measure(reached))

    return ascend(
        *(step, mode_at(form, start), rules),
        label=label,
        verbose=verbose,
        checkpoint=checkpoint,
        warn=warn,
        evaluate=lambda mode: mode_at(form, mode.u).objective,
    )


def _newton_step(form: SumForm, mode: BlockMode) -> BlockMode | None:
    """The longest of the steps 1, ½, ¼, … that raises the log joint, or None."""
    direction = _direction(form, mode)
    if direction is None:
        return None

    def at(length: float) -> tuple[float, BlockMode]:
        trial = mode_at(form, mode.u + length * direction)
        return trial.objective, trial

    slope = dot(mode.gradient, direction)
    best = backtrack(at, mode.objective, slope, slack=1e-2 * rounding(mode.objective))
    return None if best is None else best[2]


def _direction(form: SumForm, mode: BlockMode) -> Array | None:
    """P⁻¹g; where P is not definite, with |γ| in place of γ, or along the most negative curvature of a flat point."""
    solved = _solved(mode.precision, mode.gradient)
    if solved is not None:
        return solved
    if steepness(mode) < FLAT:
        values, vectors = np.linalg.eigh(mode.precision, UPLO="U")
        return vectors[:, 0] / np.sqrt(-values[0]) if values[0] < 0.0 else None
    return _solved(form.precision(form.sums(steady_terms, mode.u)), mode.gradient)


def _solved(precision: Array, gradient: Array) -> Array | None:
    try:
        return cholesky(precision).solve(gradient)
    except ValueError:
        return None

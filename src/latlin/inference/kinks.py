"""The mode when sites have kinks: iteratively reweighted least squares on their quadratic bounds.

ψ(x) ≥ −½ax² + bx + c touches at ξ = |x|; maximising the bound and touching again never lowers the log joint
(002_71af9439e55c646f §3.8). Smooth sites use Newton's curvature instead, safeguarded by the line search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.inference.site_form import SiteForm
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.line_search import backtrack

Array = NDArray[np.float64]


class KinkedMode(NamedTuple):
    """A point u, its projections x, and the log joint there."""

    u: Array
    x: Array
    objective: float


def find_kinked_mode(
    form: SiteForm, start: Array, rules: Rules, label: str, verbose: bool, checkpoint: Checkpoint | None
) -> Ascent[KinkedMode]:
    """Climb the log joint from the coordinates `start`; `Measure.gradient` is the largest move of a step."""
    rough = [type(p).__name__ for p in form.sites.potentials if not p.smooth and not p.super_gaussian]
    if rough:
        raise ValueError(f"the mode of {', '.join(rough)} sites cannot be found by quadratic bounds; use 'gkl' or 'ep'")

    def step(mode: KinkedMode) -> tuple[KinkedMode, Measure]:
        target = form.solve(form.sites.mode_parameters(mode.x))
        if target is None:
            return mode, Measure(mode.objective, np.inf)
        direction = target.u - mode.u

        def evaluate(length: float) -> tuple[float, KinkedMode]:
            trial = _mode_at(form, mode.u + length * direction)
            return trial.objective, trial

        found = backtrack(evaluate, mode.objective, 0.0, slack=1e-2 * rounding(mode.objective))
        if found is None:
            return mode, Measure(mode.objective, float(np.abs(direction).max(initial=0.0)))
        return found[2], Measure(found[1], float(np.abs(found[2].u - mode.u).max(initial=0.0)))

    return ascend(step, _mode_at(form, start), rules, label=label, verbose=verbose, checkpoint=checkpoint)


def _mode_at(form: SiteForm, u: Array) -> KinkedMode:
    x = form.projections.times(u)
    return KinkedMode(u, x, form.log_gaussian(u) + float(form.sites.log_density(x).sum()))

"""The mode of a posterior by Newton's method with a line search; shared by MAP and the Laplace approximation.

A Newton step goes to the site form's mean for γ = −ψ″(x), ν = ψ′(x) + γx (Challis (2013), eq. 3.5.1, corrected).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.inference.forms.site_form import SiteForm
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.linalg import dot
from latlin.numerics.line_search import backtrack

#: gradient below which an indefinite Hessian means a saddle or a minimum, to be left along its curvature
FLAT = 1e-4


class Mode(NamedTuple):
    """A point u, its projections x, the log joint with its gradient there, and the sites' ψ′ and ψ″."""

    u: Array
    x: Array
    objective: float
    slope: Array
    curvature: Array
    gradient: Array

    @property
    def parameters(self) -> SiteParameters:
        """γ = −ψ″, ν = ψ′ + γx."""
        return SiteParameters(-self.curvature, self.slope - self.curvature * self.x)


def find_mode(
    form: SiteForm,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
) -> Ascent[Mode]:
    """Climb the log joint from the coordinates `start`."""

    def step(mode: Mode) -> tuple[Mode, Measure]:
        moved = _newton_step(form, mode)
        reached = mode if moved is None else moved
        size = float(np.abs(reached.gradient).max(initial=0.0))
        return reached, Measure(reached.objective, size)

    x = form.projections.times(start)
    first = _mode(form, start, x, _log_joint(form, start, x))
    return ascend(
        *(step, first, rules),
        label=label,
        verbose=verbose,
        checkpoint=checkpoint,
        warn=warn,
        evaluate=lambda mode: _log_joint(form, mode.u, form.projections.times(mode.u)),
    )


def _log_joint(form: SiteForm, u: Array, x: Array) -> float:
    value = form.log_gaussian(u) + float(form.sites.log_density(x).sum())
    return value if np.isfinite(value) else -np.inf


def _mode(form: SiteForm, u: Array, x: Array, objective: float) -> Mode:
    slopes = form.sites.derivatives(x)
    # b̃ − Λ̃u + H̃ᵀψ′(x)
    gradient = form.linear - form.times_quadratic(u) + form.projections.transposed_times(slopes.first)
    return Mode(u, x, objective, slopes.first, slopes.second, gradient)


def _newton_step(form: SiteForm, mode: Mode) -> Mode | None:
    """The longest of the steps 1, ½, ¼, … that raises the log joint, or None."""
    found = _direction(form, mode)
    if found is None:
        return None
    direction, shift = found

    def evaluate(length: float) -> tuple[float, tuple[Array, Array]]:
        u, x = mode.u + length * direction, mode.x + length * shift
        return _log_joint(form, u, x), (u, x)

    slope = dot(mode.gradient, direction)
    best = backtrack(evaluate, mode.objective, slope, slack=1e-2 * rounding(mode.objective))
    return None if best is None else _mode(form, *best[2], best[1])


def _direction(form: SiteForm, mode: Mode) -> tuple[Array, Array] | None:
    """Newton's step in u and x; where the Hessian is not definite, one with |γ|, floored by a typical curvature."""
    target = form.solve(mode.parameters)
    if target is not None:
        return target.u - mode.u, target.x - mode.x
    if np.abs(mode.gradient).max() < FLAT:
        return _escape(form, mode)
    gamma = np.maximum(np.abs(mode.curvature), 1e-3 * form.sites.typical_precision())
    target = form.solve(SiteParameters(gamma, mode.slope + gamma * mode.x))
    return None if target is None else (target.u - mode.u, target.x - mode.x)


def _escape(form: SiteForm, mode: Mode) -> tuple[Array, Array] | None:
    """Away from a saddle or a minimum: one standard length along the direction of most negative curvature."""
    values, vectors = np.linalg.eigh(form.precision(-mode.curvature), UPLO="U")
    if values[0] >= 0.0:
        return None
    direction = vectors[:, 0] / np.sqrt(-values[0])
    return direction, form.projections.times(direction)

"""Where the ascent of a structured Gaussian KL starts: one place for log-concave sites, several for others.

As for a full covariance: the mode with its curvature, the moments of local bounds (Challis (2013), §4.4.1), and
the prior's mean with the sites' typical curvature. A rough diagonal fit is made from each; those that end apart are
gone on with, and the best is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from latlin.densities.gaussian import Gaussian
from latlin.densities.structured.covariance import StructuredCovariance
from latlin.densities.structured.diagonal import Diagonal
from latlin.inference.forms.structured import StructuredForm, structured_form
from latlin.inference.gaussian_kl.plans import Climber, Fit, Plan, typical_scale
from latlin.inference.local_bound.double_loop import maximise_local_bound
from latlin.inference.local_bound.lanczos_family import LanczosFamily
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules

#: Lanczos steps for the variances of local bounds, and outer steps of these
RANK, OUTER = 50, 50
#: steps towards the mode
STEPS = 200
#: bounds of rough fits that differ relatively by more are different optima
APART = 1e-3


class Moments(NamedTuple):
    """Mean and standard deviations of a diagonal Gaussian in whitened coordinates."""

    mean: Array
    scale: Array


def structured_starts(form: StructuredForm) -> list[Moments]:
    """Places to start from; the last always serves."""
    usual = Moments(np.zeros(form.dim), typical_scale(form))
    if form.sites.log_concave:
        return [usual]
    potentials = form.sites.potentials
    mode = [_at_mode(form, usual)] if all(p.smooth for p in potentials) else []
    bound = [_at_local_bound(form, usual)] if all(p.super_gaussian for p in potentials) else []
    return [*mode, *bound, usual]


def _at_mode(form: StructuredForm, usual: Moments) -> Moments:
    def loss(u: Array) -> tuple[float, Array]:
        x = form.rows.times(u)
        value = float(np.sum(form.sites.log_density(x))) - 0.5 * form.prior * float(u @ u)
        slope = form.rows.transposed(form.sites.derivatives(x).first) - form.prior * u
        return -value, -slope

    u = minimize(loss, usual.mean, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    curvature = -form.sites.derivatives(form.rows.times(u)).second
    return Moments(u, _scales(form, curvature, usual))


def _at_local_bound(form: StructuredForm, usual: Moments) -> Moments:
    family = LanczosFamily(form, min(RANK, form.dim))
    rules = Rules(gradient_tol=1e-2, objective_tol=1e-4, max_iter=OUTER)
    best = maximise_local_bound(family, family.first(), rules, label="start", warn=False).state
    return Moments(best.u, _scales(form, best.gamma, usual))


def _scales(form: StructuredForm, gamma: Array, usual: Moments) -> Array:
    precision = form.prior + form.rows.energy(np.maximum(gamma, 0.0))
    return np.where(precision > 0.0, 1.0 / np.sqrt(np.maximum(precision, np.finfo(float).tiny)), usual.scale)


def best_fit(plan: Plan, climber: Climber, starts: list[Moments]) -> Fit:
    """The fit with the highest bound from several places."""
    if len(starts) == 1:
        return plan.fit(climber, *starts[0])
    best, *others = _ends_apart(climber, starts)
    again = replace(climber, checkpoint=None)
    fits = [plan.fit(climber, *best), *(plan.fit(again, *start) for start in others)]
    return max(fits, key=lambda fit: float(fit.ascent.state.bound))


def rough_diagonal(model: LatentLinearModel) -> Gaussian:
    """The better of rough diagonal fits from several places."""
    form = structured_form(model)
    climber = Climber(form, Rules(), verbose=False, checkpoint=None)
    best = _ends_apart(climber, structured_starts(form))[0]
    covariance = StructuredCovariance(form.whitening, Diagonal(form.dim), best.scale)
    return Gaussian(form.weights(best.mean), covariance)


def _ends_apart(climber: Climber, starts: list[Moments]) -> list[Moments]:
    """Where rough diagonal fits from the starts end, the highest first and each optimum once."""
    diagonal = Diagonal(climber.form.dim)
    objective = climber.objective(diagonal)
    points = [np.concatenate(start) for start in starts]
    finite = [point for point in points if objective.evaluate(point) is not None] or points[-1:]
    states = sorted((climber.rough(diagonal, point).state for point in finite), key=lambda state: -state.bound)
    apart = [states[0]]
    for state in states[1:]:
        if apart[-1].bound - state.bound > APART * (1.0 + abs(state.bound)):
            apart.append(state)
    return [Moments(*np.split(state.point, 2)) for state in apart]

"""Where a full Gaussian KL fit by sums starts: at a posterior, near the mode, or at the sites' typical curvature."""

from __future__ import annotations

import numpy as np

from latlin.inference.forms.sums import SumForm, typical_terms
from latlin.inference.gaussian_kl.sums import SumState, state_at
from latlin.inference.mode.block_newton import distance, find_block_mode
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules
from latlin.numerics.linalg import cholesky

#: standard deviations from the mode at which Newton's method has prepared a Gaussian KL fit
NEAR = 1.0


def first_state(form: SumForm, smooth: bool, start: Posterior | None) -> SumState | None:
    """The posterior given; else the curvature near the mode, where there is one; else the sites' typical one."""
    inherited = None if start is None else _inherited(form, start)
    return inherited or (_at_mode(form, first_point(form, start)) if smooth else None) or _at_centres(form)


def first_point(form: SumForm, start: Posterior | None) -> Array:
    """The coordinates of a given posterior's mean, or of the prior's."""
    return np.zeros(form.own.rank) if start is None else form.own.coordinates(start.mean)


def _inherited(form: SumForm, start: Posterior) -> SumState | None:
    u = form.own.coordinates(start.mean)
    half = form.own.whitening.solve(start.covariance())
    try:
        precision = cholesky(form.own.whitening.solve(np.ascontiguousarray(half.T))).inverse()
    except ValueError:
        return None
    return state_at(form, u, np.asfortranarray(np.triu(precision)))


def _at_mode(form: SumForm, first: Array) -> SumState | None:
    rough = Rules(gradient_tol=NEAR, objective_tol=np.inf, max_iter=50)
    mode = find_block_mode(form, first, rough, "start", warn=False, measure=distance).state
    return state_at(form, mode.u, mode.precision)


def _at_centres(form: SumForm) -> SumState | None:
    centre = np.zeros(form.own.rank)
    return state_at(form, centre, form.precision(form.sums(typical_terms, centre)))

"""Full Gaussian KL with stand-ins kept for every site: several starts, accelerated steps, second-order ones at need.

The way for models that are not tall, and the one to fall back on; the steps are in `latlin.inference.gaussian_kl.full`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from latlin.inference.forms.site_form import SiteForm, site_form
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.sparse import needs_sparse
from latlin.inference.forms.starts import inherited_parameters, matched_parameters
from latlin.inference.gaussian_kl import full
from latlin.inference.gaussian_kl.full_fit import NOWHERE, QUICK, Asked, FullFit
from latlin.inference.gaussian_kl.second_order import second_order
from latlin.inference.gaussian_kl.structured_starts import rough_diagonal
from latlin.inference.local_bound.double_loop import maximise_local_bound
from latlin.inference.local_bound.exact_family import ExactFamily
from latlin.inference.mode.newton import find_mode
from latlin.inference.model import LatentLinearModel
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.ascent import Ascent, Rules

T = TypeVar("T", bound=tuple)
#: the largest dimension for which second-order steps are tried
SECOND_ORDER = 200


@dataclass(frozen=True)
class BySites:
    """The ascent on (γ, ν) of every site."""

    def fit(self, asked: Asked) -> FullFit:
        form = site_form(asked.model)
        ascent = _finished(form, _climb(form, asked.quickly), asked)
        solution = full.solution_of(form, ascent.state)
        return FullFit(ascent, form.density(solution), ascent.state.bound, solution.parameters)


def _climb(form: SiteForm, asked: Asked) -> Ascent[full.State]:
    model, start, rules, verbose, checkpoint = asked
    firsts = _starts(form, model) if start is None else [inherited_parameters(form, model, start)]
    states = _finite(form, firsts, rules.gradient_tol) or _finite(form, [_at_centres(form)], rules.gradient_tol)
    if not states:
        raise ValueError(NOWHERE)
    saved = [checkpoint, *[None] * (len(states) - 1)]
    ascents = [
        full.maximise_bound(form, state, rules, "Gaussian KL", verbose, file, warn=False)
        for state, file in zip(states, saved, strict=True)
    ]
    return max(ascents, key=lambda ascent: ascent.state.bound)


def _finished(form: SiteForm, ascent: Ascent[full.State], asked: Asked) -> Ascent[full.State]:
    """The ascent, gone on with by second-order steps in (m, C) where the accelerated ones crawl."""
    model, rules = asked.model, asked.rules
    left = rules.max_iter - ascent.n_iter
    if ascent.converged or (left < 1 and ascent.n_iter < QUICK):
        return warned(ascent)
    state = ascent.state
    if model.dim <= SECOND_ORDER and left > 0 and not needs_sparse(model):
        newton = second_order(model, form.density(full.solution_of(form, state)), replace(rules, max_iter=left))
        jumped = full.evaluate(form, matched_parameters(form, model, newton), rules.gradient_tol)
        if jumped is not None and jumped.bound >= state.bound:
            state = jumped
    last = full.maximise_bound(form, state, replace(rules, max_iter=max(left, 1)), "Gaussian KL", asked.verbose, None)
    trace = np.concatenate([ascent.trace, last.trace])
    message = f"{last.message}, after {ascent.n_iter} accelerated steps and second-order ones"
    return replace(last, trace=trace, n_iter=len(trace), message=message)


def warned(ascent: Ascent[T]) -> Ascent[T]:
    """The ascent, after a warning where it has not converged."""
    if not ascent.converged:
        alert(ascent.message, ConvergenceWarning)
    return ascent


def _finite(form: SiteForm, firsts: list[SiteParameters], tol: float) -> list[full.State]:
    """The states at those site parameters that have a finite bound."""
    evaluated = [full.evaluate(form, first, tol) for first in firsts]
    return [state for state in evaluated if state is not None]


def _starts(form: SiteForm, model: LatentLinearModel) -> list[SiteParameters]:
    """The curvature at the mode, where there is one; where it may help, that of other Gaussians or a typical one."""
    smooth = all(potential.smooth for potential in form.sites.potentials)
    starts = [_at_mode(form)] if smooth else []
    if smooth and form.sites.log_concave:
        return starts
    bounded = not form.sites.log_concave and all(potential.super_gaussian for potential in form.sites.potentials)
    other = [_at_local_bound(form)] if bounded else []
    other += [_at_diagonal(form, model)] if not form.sites.log_concave and _independent(model) else []
    return [*starts, *other, _at_centres(form)]


def _independent(model: LatentLinearModel) -> bool:
    """The prior has independent coordinates, so that a diagonal covariance costs no more than passes over the rows."""
    plain = all(g.H is None and g.factor is None for g in model.gaussians)
    return bool(model.gaussians) and plain and not needs_sparse(model)


def _at_diagonal(form: SiteForm, model: LatentLinearModel) -> SiteParameters:
    """What matches a diagonal fit, so that a covariance with fewer freedoms does not end above a full one."""
    diagonal = rough_diagonal(model)
    gamma, nu = matched_parameters(form, model, diagonal)
    x, _ = form.marginals(diagonal)
    kept = np.maximum(gamma, 0.0)
    return SiteParameters(kept, nu + (kept - gamma) * np.asarray(x))


def _at_local_bound(form: SiteForm) -> SiteParameters:
    """The Gaussian of the best local bound: from there the ascent ends above it (Challis (2013), §4.4.1)."""
    family = ExactFamily(form)
    rules = Rules(monotone=True, max_iter=300)
    best = maximise_local_bound(family, family.first(), rules, label="start", warn=False).state
    return SiteParameters(best.gamma, best.nu)


def _at_mode(form: SiteForm) -> SiteParameters:
    rough = Rules(gradient_tol=1.0, objective_tol=1e-3, max_iter=50)
    return find_mode(form, np.zeros(form.rank), rules=rough, label="start", warn=False).state.parameters


def _at_centres(form: SiteForm) -> SiteParameters:
    """One natural-gradient step from the Gaussian that the sites' typical curvature makes."""
    gamma = form.sites.typical_precision()
    first = full.evaluate(form, SiteParameters(gamma, np.zeros_like(gamma)), tol=0.0)
    if first is None:
        return SiteParameters(gamma, np.zeros_like(gamma))
    return SiteParameters(np.maximum(first.gamma_hat, 0.1 * gamma), first.nu_hat)

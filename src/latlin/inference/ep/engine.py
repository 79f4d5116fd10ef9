"""Expectation propagation: every site is replaced by the Gaussian that gives the approximation the right moments.

Challis (2013), §3.6 and A.2.5, corrected. Not a bound, and often the most accurate Gaussian of all. Sweeps over the
sites may not converge; then a double loop does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from latlin.inference.engine import checkpoint_for, refuse_extra_variance
from latlin.inference.ep.double_loop import iterate_double_loop
from latlin.inference.ep.sweeps import Parallel, Schedule, Sequential, SweepState, evaluate, past_steps
from latlin.inference.evidence.terms import TiltedEvidence
from latlin.inference.forms.chain import ChainForm
from latlin.inference.forms.dense import inherit_parameters, site_form
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.sparse import SparseForm
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ConvergenceWarning, alert, ignore_convergence_warnings
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend
from latlin.numerics.options import check_choice, check_number, check_whole
from latlin.numerics.stored import storable_by_arguments

SCHEDULES: dict[str, Callable[[SiteForm], Schedule]] = {
    "auto": lambda form: Parallel(form) if form.sites.log_concave else Sequential(form),
    "sequential": Sequential,
    "parallel": Parallel,
}
#: a step is shortened to no less than this share of the one wanted
SHORTEST = 0.02
REMEDY = "raise sweeps or damping, lower power (to 0.5), or use engine 'gkl', whose bound only rises"


@storable_by_arguments
@dataclass(frozen=True)
class ExpectationPropagation:
    """Gaussian whose marginals match the tilted moments of every site; the evidence is an approximation.

    Parameters
    ----------
    power : float in (0, 1]
        Sites are matched in this power; below 1 EP is less accurate for well-behaved sites and more stable for others.
    damping : float in [0, 1)
        Share of the old site parameters that a step keeps. More is kept by itself while the mismatch grows.
    schedule : {"auto", "sequential", "parallel"}
        One site after the other, or all at once (fewer operations per sweep, more sweeps). "auto" is all at once for
        log-concave sites, and one after the other for others. With a sparse precision it is always all at once.
    sweeps : int
        At most so many passes over the sites. One pass from the prior, one site after the other, is assumed-density
        filtering.
    tol : float
        Largest mismatch between a tilted and a marginal moment at convergence, in marginal standard deviations.
    double_loop : int
        Outer steps, at most, of the double loop that begins anew where the sweeps have not converged; 0 for none.

    Notes
    -----
    A site whose cavity is no density (it happens next to sites of negative precision, such as those of outliers under a
    Student t) waits for a later sweep. The double loop (Heskes and Zoeter 2002; Opper and Winther 2005) minimises the
    free energy whose stationary points are the fixed points of the sweeps, monotonically, at some tens of times the
    price of a sweep per outer step. A fit that did not converge is marked in `message` and `converged`, with a warning.
    `message` also has the Gaussian KL bound of the same Gaussian, `Posterior.kl_bound`, where it is finite.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
    >>> X = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]])
    >>> model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Logit([1, 0, 0]))])
    >>> round(infer(model, engines.ExpectationPropagation(schedule="parallel")).log_evidence, 4)
    -1.8389
    """

    name: ClassVar[str] = "ep"
    power: float = 1.0
    damping: float = 0.0
    schedule: Literal["auto", "sequential", "parallel"] = "auto"
    sweeps: int = 100
    tol: float = 1e-8
    double_loop: int = 300

    def __post_init__(self) -> None:
        check_number("power", self.power, above=0.0, most=1.0)
        check_number("damping", self.damping, least=0.0, below=1.0)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_whole("sweeps", self.sweeps, 1)
        check_whole("double_loop", self.double_loop, 0)

    def run(
        self,
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        started = time.perf_counter()
        model = require_in_memory(model, self.name)
        refuse_extra_variance(model, self.name)
        form = site_form(model)
        first = _prior_sites(form) if start is None else inherit_parameters(form, model, start)
        ascent = self._iterate(form, first, verbose, checkpoint_for(checkpoint, model, self))
        ascent = ascent if ascent.converged else self._finish(form, first, ascent)
        parameters = SiteParameters(ascent.state.gamma, ascent.state.nu)
        solution = form.solve(parameters)
        assert solution is not None  # the iteration ended there
        return Posterior(
            model=model,
            density=form.density(solution),
            log_evidence=ascent.state.log_z,
            evidence_kind="exact" if form.sites.gaussian and ascent.converged else "approximation",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=self._message(ascent) + _bound_note(form, solution),
            sites=parameters,
            power=self.power,
            evidence_term=TiltedEvidence(self.power),
        )

    def _iterate(
        self, form: SiteForm, first: SiteParameters, verbose: bool, checkpoint: Checkpoint | None
    ) -> Ascent[SweepState]:
        begin = evaluate(form, first, self.power, 1.0 - self.damping)
        if begin is None:
            raise ValueError("the start of expectation propagation is no proper Gaussian; start from another posterior")
        sweep = self._schedule(form)

        def step(state: SweepState) -> tuple[SweepState, Measure]:
            moved = _sweep(form, state, sweep, self.power, longest=1.0 - self.damping)
            return moved, Measure(moved.log_z, moved.residual, moved.grain)

        rules = Rules(gradient_tol=self.tol, max_iter=self.sweeps, remedy=REMEDY)
        return ascend(step, begin, rules, label="EP", verbose=verbose, checkpoint=checkpoint, warn=False)

    def _schedule(self, form: SiteForm) -> Schedule:
        if isinstance(form, SparseForm | ChainForm):
            return Parallel(form)
        return SCHEDULES["sequential" if self.sweeps == 1 and self.schedule == "auto" else self.schedule](form)

    def _finish(self, form: SiteForm, first: SiteParameters, swept: Ascent[SweepState]) -> Ascent[SweepState]:
        """What the double loop reaches from `first`, or from where the sweeps are; else the sweeps, after a warning."""
        if self.sweeps == 1:
            return swept
        begins = (first, SiteParameters(swept.state.gamma, swept.state.nu)) if self.double_loop else ()
        for begin in begins:
            if (ended := self._double_loop(form, begin, swept)) is not None:
                return ended
        alert(swept.message, ConvergenceWarning)
        return swept

    def _double_loop(
        self, form: SiteForm, begin: SiteParameters, swept: Ascent[SweepState]
    ) -> Ascent[SweepState] | None:
        """The fixed point that the double loop reaches; None where it does not converge."""
        rules = Rules(gradient_tol=self.tol, max_iter=self.double_loop, monotone=True, remedy=REMEDY)
        found = iterate_double_loop(form, begin, self.power, rules)
        end = evaluate(form, SiteParameters(found.state.gamma, found.state.nu), self.power, 1.0) if found else None
        # where a cavity is no density its moments have nothing to match: that is no fixed point
        if found is None or end is None or end.improper or not found.converged:
            return None
        trace = np.concatenate([swept.trace, found.trace])
        message = f"{found.message}, after {swept.n_iter} sweeps that had not"
        return replace(swept, state=end, trace=trace, converged=True, n_iter=len(trace), message=message)

    def _message(self, ascent: Ascent[SweepState]) -> str:
        if self.sweeps == 1 and not ascent.converged:
            return f"assumed-density filtering: one pass, moments still differ by {ascent.state.residual:.2g}"
        if ascent.state.improper:
            return f"{ascent.message}; {ascent.state.improper} sites have a cavity that is no density"
        return ascent.message


def _bound_note(form: SiteForm, solution: Solution) -> str:
    """The Gaussian KL bound of the same Gaussian, in words."""
    if form.sites.gaussian:
        return ""
    variance = form.variances(solution)
    try:
        expected = form.sites.finite_expected_log(solution.x, variance)
    except ValueError:  # sites that are −∞ somewhere have no expected log
        expected = None
    if expected is None:
        return "; its Gaussian KL bound is −∞"
    bound = float(expected.value.sum()) + form.gaussian_terms(solution, variance)
    return f"; the Gaussian KL bound there is {bound:.6g}"


def _prior_sites(form: SiteForm) -> SiteParameters:
    """No sites; without a proper prior, the curvature that makes the first precision definite."""
    zero = np.zeros(len(form.sites))
    return SiteParameters(zero if form.solve(SiteParameters(zero, zero)) else form.sites.typical_precision(), zero)


def _sweep(form: SiteForm, state: SweepState, sweep: Schedule, power: float, longest: float) -> SweepState:
    """One sweep, with a shorter step when it leaves the proper Gaussians or the mismatch has grown."""
    length = state.length
    while length >= SHORTEST * longest:
        try:
            moved = evaluate(form, sweep(state, power, length), power, length)
        except FloatingPointError:
            moved = None
        if moved is not None and moved.improper:
            moved = _relaxed(form, moved, power)
        if moved is not None:
            grown = moved.residual >= state.residual
            moved = moved._replace(length=max(0.7 * length, SHORTEST) if grown else min(1.1 * length, longest))
            if grown or not isinstance(sweep, Parallel):
                return moved
            points, residuals = past_steps(state)
            return moved._replace(points=points, residuals=residuals)
        length *= 0.5
    return state


def _relaxed(form: SiteForm, state: SweepState, power: float) -> SweepState | None:
    """Negative precisions halved, each site's slope at its mean kept, so that improper cavities recover."""
    x = form.projections.times(state.u)
    change = np.where(state.gamma < 0.0, -0.5 * state.gamma, 0.0)
    return evaluate(form, SiteParameters(state.gamma + change, state.nu + change * x), power, state.length)


# --- From a Gaussian KL optimum to the fixed point beside it, for corrected marginals.


#: sweeps from the stand-ins of Gaussian KL, and the mismatch of moments at their end: 2e-5 of a standard deviation
SWEEPS, MISMATCH = 30, 1e-4


def propagate(model: LatentLinearModel, optimum: Posterior) -> Posterior | None:
    """The fixed point of expectation propagation next to a Gaussian KL optimum; None where sweeps may not find it."""
    sites = stacked_sites(model)
    if optimum.sites is None or sites.extra is not None or not sites.log_concave or sites.gaussian:
        return None
    with ignore_convergence_warnings(), suppress(ValueError, FloatingPointError):
        found = ExpectationPropagation(tol=MISMATCH, sweeps=SWEEPS, double_loop=0).run(model, start=optimum)
        return found if found.converged else None
    return None


Posterior._propagate = propagate

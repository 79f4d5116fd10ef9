"""Expectation propagation: every site is replaced by the Gaussian that gives the approximation the right moments.

Challis (2013), §3.6 and A.2.5, corrected. Not a bound, and not guaranteed to converge; where it does it is often
the most accurate Gaussian of all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from latlin.inference.engine import checkpoint_for
from latlin.inference.ep.sweeps import Parallel, Schedule, Sequential, State, evaluate
from latlin.inference.evidence.engine_terms import TiltedEvidence
from latlin.inference.forms.chain import ChainForm
from latlin.inference.forms.site import SiteForm, inherit_parameters, site_form
from latlin.inference.forms.sites import SiteParameters, refuse_extra_variance
from latlin.inference.forms.sparse import SparseForm
from latlin.inference.model import Model, in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend
from latlin.numerics.options import number, one_of, whole
from latlin.numerics.stored import storable_by_arguments

SCHEDULES: dict[str, Callable[[SiteForm], Schedule]] = {"sequential": Sequential, "parallel": Parallel}
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
    schedule : {"sequential", "parallel"}
        One site after the other, or all at once (many sites: fewer operations per sweep, more sweeps). With a sparse
        precision it is all at once, whatever is asked for.
    sweeps : int
        At most so many passes over the sites. One sequential pass from the prior is assumed-density filtering.
    tol : float
        Largest mismatch between a tilted and a marginal moment at convergence, in marginal standard deviations.

    Notes
    -----
    A site whose cavity is no density (it happens next to sites of negative precision, such as those of outliers under a
    Student t) waits for a later sweep. What did not converge says so in `message`, in `converged` and in a warning.

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
    schedule: Literal["sequential", "parallel"] = "sequential"
    sweeps: int = 100
    tol: float = 1e-8

    def __post_init__(self) -> None:
        number("power", self.power, above=0.0, most=1.0)
        number("damping", self.damping, least=0.0, below=1.0)
        one_of("schedule", self.schedule, SCHEDULES)
        whole("sweeps", self.sweeps, 1)

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
        model = in_memory(model, self.name)
        refuse_extra_variance(model, self.name)
        form = site_form(model)
        first = _prior_sites(form) if start is None else inherit_parameters(form, model, start)
        ascent = self._iterate(form, first, verbose, checkpoint_for(checkpoint, model, self))
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
            message=self._message(ascent),
            sites=parameters,
            power=self.power,
            evidence_term=TiltedEvidence(self.power),
        )

    def _iterate(
        self, form: SiteForm, first: SiteParameters, verbose: bool, checkpoint: Checkpoint | None
    ) -> Ascent[State]:
        begin = evaluate(form, first, self.power, 1.0 - self.damping)
        if begin is None:
            raise ValueError("the start of expectation propagation is no proper Gaussian; start from another posterior")
        sweep = Parallel(form) if isinstance(form, SparseForm | ChainForm) else SCHEDULES[self.schedule](form)

        def step(state: State) -> tuple[State, Measure]:
            moved = _sweep(form, state, sweep, self.power, longest=1.0 - self.damping)
            return moved, Measure(moved.log_z, moved.residual)

        rules = Rules(gradient_tol=self.tol, max_iter=self.sweeps, remedy=REMEDY)
        warn = self.sweeps > 1
        return ascend(step, begin, rules, label="EP", verbose=verbose, checkpoint=checkpoint, warn=warn)

    def _message(self, ascent: Ascent[State]) -> str:
        if self.sweeps == 1 and not ascent.converged:
            return f"assumed-density filtering: one pass, moments still differ by {ascent.state.residual:.2g}"
        if ascent.state.improper:
            return f"{ascent.message}; {ascent.state.improper} sites have a cavity that is no density"
        return ascent.message


def _prior_sites(form: SiteForm) -> SiteParameters:
    """No sites; without a proper prior, the curvature that makes the first precision definite."""
    zero = np.zeros(len(form.sites))
    return SiteParameters(zero if form.solve(SiteParameters(zero, zero)) else form.sites.typical_precision(), zero)


def _sweep(form: SiteForm, state: State, sweep: Schedule, power: float, longest: float) -> State:
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
            return moved._replace(length=max(0.7 * length, SHORTEST) if grown else min(1.1 * length, longest))
        length *= 0.5
    return state


def _relaxed(form: SiteForm, state: State, power: float) -> State | None:
    """Negative precisions halved, each site's slope at its mean kept, so that improper cavities recover."""
    x = form.projections.times(state.u)
    change = np.where(state.gamma < 0.0, -0.5 * state.gamma, 0.0)
    return evaluate(form, SiteParameters(state.gamma + change, state.nu + change * x), power, state.length)

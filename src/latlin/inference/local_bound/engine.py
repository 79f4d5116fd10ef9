"""Local variational bounds: every site is bounded below by a Gaussian, so that the evidence is too.

Challis (2013), §3.8; the ascent is in `latlin.inference.local_bound.double_loop`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from latlin.densities.density import Density
from latlin.inference.engine import LOCAL, checkpoint_for, refuse_extra_variance
from latlin.inference.evidence.terms import BoundEvidence, RefusedEvidence
from latlin.inference.forms.dense import site_form
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.structured import structured_form
from latlin.inference.gaussian_kl.climber import local_bound_starts
from latlin.inference.local_bound.double_loop import BoundState, best_start, centres, maximise_local_bound
from latlin.inference.local_bound.families import ExactFamily, LanczosFamily, PerturbedFamily
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import EvidenceKind, Posterior
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.options import check_choice, check_whole
from latlin.numerics.stored import storable_by_arguments

REMEDY = "raise max_iter, rescale the columns of H, or start from another posterior"
NO_GRADIENT = "the evidence of approximate variances has no exact gradient; use variances='exact'"
DEFAULT_RANK = 100
#: residual of the means' conjugate gradients, relative to the tolerance of the gradient
CAREFUL = 1e-4


@storable_by_arguments
@dataclass(frozen=True)
class LocalBound:
    """The Gaussian of the best quadratic lower bounds of the sites.

    Needs super-Gaussian sites: logit, Laplace, logistic, Student t, Cauchy, generalised normal of shape ≤ 2.

    Parameters
    ----------
    variances : {"exact", "lanczos", "perturb"}
        Exact marginal variances give a lower bound on log Z. The others serve large sparse models, at the cost of some
        passes over H per step; their evidence is reported as an approximation. Lanczos' method underestimates
        variances; "perturb" (perturb and MAP) estimates them from random draws, without bias and with an error.
    rank : int, optional
        Lanczos steps; 100 (or the dimension) by default.
    samples : int, optional
        Draws of "perturb"; 100 by default.
    tol : float
        Largest gradient of the bound in the logarithms of where the site bounds touch.
    max_iter : int
        Outer steps; each takes the variances once.

    Notes
    -----
    With log-concave sites the optimum is unique; otherwise the ascent goes on from the best of several starts and says
    that the optimum may be local. `Posterior.kl_bound` gives the Gaussian KL bound of the same Gaussian,
    which is never lower (Challis (2013), §4.4.1).
    """

    name: ClassVar[str] = "lvb"
    variances: Literal["exact", "lanczos", "perturb"] = "exact"
    rank: int | None = None
    tol: float = 1e-6
    max_iter: int = 300
    samples: int | None = None

    def __post_init__(self) -> None:
        check_choice("variances", self.variances, ("exact", "lanczos", "perturb"))
        for name, least, kind in (("rank", 1, "lanczos"), ("samples", 2, "perturb")):
            value = getattr(self, name)
            if value is not None:
                check_whole(name, value, least)
            if value is not None and self.variances != kind:
                raise ValueError(
                    f"{name} is for variances='{kind}', got {name}={value} with {self.variances} variances"
                )

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
        centres(stacked_sites(model))
        solve = {"exact": _exact, "lanczos": _low_rank, "perturb": _perturbed}[self.variances]
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        options = {"rules": rules, "verbose": verbose, "checkpoint": checkpoint_for(checkpoint, model, self)}
        ascent, density, kind, note = solve(model, start, self.rank or self.samples or DEFAULT_RANK, options)
        return Posterior(
            model=model,
            density=density,
            log_evidence=ascent.state.bound,
            evidence_kind=kind,
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message + note,
            sites=SiteParameters(ascent.state.gamma, ascent.state.nu),
            evidence_term=BoundEvidence() if self.variances == "exact" else RefusedEvidence(NO_GRADIENT),
        )


Outcome = tuple[Ascent[BoundState], Density, EvidenceKind, str]


def _exact(model: LatentLinearModel, start: Posterior | None, rank: int, options: dict[str, Any]) -> Outcome:
    form = site_form(model)
    family = ExactFamily(form)
    inherited = (form.coordinates(start.mean), *form.marginals(start)) if start else None
    first = inherited or best_start(family, local_bound_starts(family, model))
    ascent = maximise_local_bound(family, first, label="local bound", **options)
    solution = form.solve(SiteParameters(ascent.state.gamma, ascent.state.nu))
    assert solution is not None  # the ascent ended there
    kind: EvidenceKind = "exact" if form.sites.gaussian else "lower bound"
    return ascent, form.density(solution), kind, "" if form.sites.log_concave else LOCAL


def _low_rank(model: LatentLinearModel, start: Posterior | None, rank: int, options: dict[str, Any]) -> Outcome:
    form = structured_form(model)
    rank = min(rank, form.dim)
    family = LanczosFamily(form, rank, accuracy=CAREFUL * options["rules"].gradient_tol)
    return _by_products(family, start, options, f"; variances by {rank} Lanczos steps in {form.dim} dimensions")


def _perturbed(model: LatentLinearModel, start: Posterior | None, samples: int, options: dict[str, Any]) -> Outcome:
    form = structured_form(model)
    family = PerturbedFamily(form, samples, accuracy=CAREFUL * options["rules"].gradient_tol)
    return _by_products(family, start, options, f"; variances by perturb and MAP with {samples} draws")


def _by_products(
    family: LanczosFamily | PerturbedFamily, start: Posterior | None, options: dict[str, Any], note: str
) -> Outcome:
    # the approximate evidence fluctuates in its first digits: the gradient alone tells when to stop
    options["rules"] = replace(options["rules"], monotone=False, objective_tol=np.inf)
    first = family.first() if start is None else family.inherited(start.density)
    ascent = maximise_local_bound(family, first, label="local bound", **options)
    parameters = SiteParameters(ascent.state.gamma, ascent.state.nu)
    return ascent, family.density(parameters, ascent.state.u), "approximation", note

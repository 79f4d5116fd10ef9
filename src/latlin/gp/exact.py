"""Gaussian noise: the posterior and the evidence in closed form, whatever the noise.

A Gaussian site is its own stand-in, ψ(x) = ψ(0) + νx − ½γx², so the value at the mean and the curvature there give the
log marginal likelihood (Gutteridge (2021), §7.1). No iteration, so nothing that could fail to converge when the
noise is next to nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from latlin.inference.forms.site_form import site_form
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.stored import storable_by_arguments


@storable_by_arguments
@dataclass(frozen=True)
class Exact:
    """The engine for models all of whose sites are Gaussian."""

    name: ClassVar[str] = "exact"

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """The posterior of `model`; nothing is started, shown or resumed."""
        started = time.perf_counter()
        form = site_form(model)
        if not form.sites.gaussian:
            raise ValueError("the closed form needs Gaussian noise; use engine 'gkl', 'ep', 'lvb' or 'laplace'")
        zero = np.zeros(len(form.sites))
        slope, curvature, _ = form.sites.derivatives(zero)
        parameters = SiteParameters(-curvature, slope)
        solution = form.solve(parameters)
        if solution is None:
            raise ValueError("the kernel matrix plus the noise is not positive definite to working precision")
        # log joint at the mean + ½ log det(2πP⁻¹)
        top = form.log_gaussian(solution.u) + float(form.sites.log_density(solution.x).sum())
        log_evidence = top + 0.5 * (form.rank * LOG_2PI - solution.precision.log_det)
        return Posterior(
            model=model,
            density=form.density(solution),
            log_evidence=log_evidence,
            evidence_kind="exact",
            engine=self.name,
            converged=True,
            n_iter=1,
            trace=np.array([log_evidence]),
            elapsed=time.perf_counter() - started,
            message="Gaussian noise: the posterior in closed form",
            sites=parameters,
        )

"""The Laplace approximation: a Gaussian with the mode and the curvature of the posterior.

log Z ≈ log p(w*) + ½ log det(2πS),  S⁻¹ = Λ + HᵀΓH,  Γ_nn = −ψ″(h_nᵀw*); Challis (2013), §3.5, corrected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh

from latlin.inference.engine import checkpoint_for
from latlin.inference.forms.site_form import SiteForm, Solution, site_form
from latlin.inference.mode.newton import Mode, find_mode
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import symmetrise
from latlin.numerics.stored import storable_by_arguments
from latlin.potentials.base import Potential


@storable_by_arguments
@dataclass(frozen=True)
class Laplace:
    """Gaussian at the mode; the evidence is an approximation (exact when every site is Gaussian).

    Parameters
    ----------
    tol : float
        Largest absolute gradient entry in whitened coordinates at convergence.
    max_iter : int
    """

    name: ClassVar[str] = "laplace"
    tol: float = 1e-6
    max_iter: int = 200

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        started = time.perf_counter()
        form = site_form(model)
        refuse_kinks(form.sites.potentials)
        first = np.zeros(form.rank) if start is None else form.coordinates(start.mean)
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        ascent = find_mode(form, first, rules, "Laplace", verbose, checkpoint_for(checkpoint, model, self))
        solution = _curvature(form, ascent)
        return Posterior(
            model=model,
            density=form.density(solution._replace(u=ascent.state.u)),
            log_evidence=_log_evidence(form, ascent.state, solution),
            evidence_kind="exact" if form.sites.gaussian else "approximation",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message,
            sites=solution.parameters,
        )


REMEDY = "raise max_iter, rescale the columns of H, or use engine 'gkl', which needs no mode"


def refuse_kinks(potentials: Sequence[Potential]) -> None:
    """A sentence for those who ask for curvature where there is none."""
    kinked = sorted({type(p).__name__ for p in potentials if not p.smooth})
    if kinked:
        raise ValueError(
            f"the Laplace approximation needs two derivatives at the mode, and {', '.join(kinked)} sites have a kink; "
            "use engine 'gkl', 'ep' or 'lvb' (or 'map' for the mode alone)"
        )


def _curvature(form: SiteForm, ascent: Ascent[Mode]) -> Solution:
    solution = form.solve(ascent.state.parameters)
    if solution is None or _vanishes(form, solution):
        raise vanished(ascent.n_iter, ascent.gradient)
    return solution


def vanished(step: int, gradient: float) -> ValueError:
    """What to say where Newton's method stopped at a point that is no mode."""
    return ValueError(
        "the curvature vanishes or has the wrong sign where Newton's method stopped "
        f"(step {step}, gradient {gradient:.2g}): use engine 'gkl' or 'ep', "
        "or add a GaussianFactor if the posterior is improper"
    )


def _vanishes(form: SiteForm, solution: Solution) -> bool:
    """Without a proper prior: the sites' typical curvature is the unit, and next to nothing of it is left."""
    if form.quadratic is None:
        return False
    smallest = np.linalg.svd(solution.precision.factor, compute_uv=False)[-1]
    if smallest**2 >= 1e-4:
        return False
    p, first = (symmetrise(form.precision(g)) for g in (solution.parameters.gamma, form.sites.typical_precision()))
    return bool(eigh(p, first, eigvals_only=True, subset_by_index=[0, 0])[0] < 1e-4)


def _log_evidence(form: SiteForm, mode: Mode, solution: Solution) -> float:
    # log p(u*) + ½ log det(2πP⁻¹)
    return mode.objective + 0.5 * (form.rank * LOG_2PI - solution.precision.log_det)

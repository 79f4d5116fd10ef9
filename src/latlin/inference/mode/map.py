"""Maximum a posteriori: the mode, and nothing about its neighbourhood."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from latlin.densities.point import PointMass
from latlin.inference.engine import checkpoint_for
from latlin.inference.forms.site_form import site_form
from latlin.inference.mode.kinks import find_kinked_mode
from latlin.inference.mode.newton import find_mode
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.stored import storable_by_arguments


@storable_by_arguments
@dataclass(frozen=True)
class MAP:
    """The mode of the posterior.

    Newton's method with a line search; where sites have a kink (Laplace, generalised normal), on a sequence of smoothed
    problems that ends at the kink.

    Parameters
    ----------
    tol : float
        Largest absolute gradient entry in whitened coordinates at convergence.
    max_iter : int
    """

    name: ClassVar[str] = "map"
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
        first = np.zeros(form.rank) if start is None else form.coordinates(start.mean)
        smooth = all(potential.smooth for potential in form.sites.potentials)
        climb: Callable[..., Ascent] = find_mode if smooth else find_kinked_mode
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=form.sites.log_concave, remedy=REMEDY)
        ascent = climb(form, first, rules, "MAP", verbose, checkpoint_for(checkpoint, model, self))
        return Posterior(
            model=model,
            density=PointMass(form.weights(ascent.state.u)),
            log_evidence=float("nan"),
            evidence_kind="none",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message,
        )


REMEDY = "raise max_iter, or rescale the columns of H"

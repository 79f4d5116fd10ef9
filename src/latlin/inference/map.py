"""Maximum a posteriori: the mode, and nothing about its neighbourhood."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from latlin.densities.point import PointMass
from latlin.inference.engine import checkpoint_for
from latlin.inference.forms.choice import form_of
from latlin.inference.forms.products import by_products, find_mode_by_products, product_form
from latlin.inference.mode import SmoothedJoint, find_kinked_mode, find_mode
from latlin.inference.model import LatentLinearModel, Model
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.stored import storable_by_arguments

REMEDY = "raise max_iter, or rescale the columns of H"


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
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        started = time.perf_counter()
        if isinstance(model, LatentLinearModel) and by_products(model):
            return self._by_products(model, start, verbose, checkpoint, started)
        form = form_of(model)
        first = form.first_coordinates() if start is None else form.coordinates(start.mean)
        climb: Callable[..., Ascent] = find_mode if model.smooth else find_kinked_mode
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=model.log_concave, remedy=REMEDY)
        ascent = climb(form, first, rules, "MAP", verbose, checkpoint_for(checkpoint, model, self))
        reached = ascent.state.at if isinstance(ascent.state, SmoothedJoint) else ascent.state
        return Posterior(
            model=model,
            density=PointMass(form.weights(reached.u)),
            log_evidence=float("nan"),
            evidence_kind="none",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message,
        )

    def _by_products(
        self,
        model: LatentLinearModel,
        start: Posterior | None,
        verbose: bool,
        checkpoint: str | os.PathLike[str] | None,
        started: float,
    ) -> Posterior:
        """The mode of a large sparse model, found without a factorisation."""
        form = product_form(model)
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        saved = checkpoint_for(checkpoint, model, self)
        ascent = find_mode_by_products(form, None if start is None else start.mean, rules, "MAP", verbose, saved)
        return Posterior(
            model=model,
            density=PointMass(form.prior.origin + ascent.state.deviation),
            log_evidence=float("nan"),
            evidence_kind="none",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=f"{ascent.message}, by conjugate gradients",
        )

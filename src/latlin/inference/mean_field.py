"""Mean field: the closest density that factorises over the coordinates of w.

Sites on single coordinates leave each factor free to take its best shape (Challis (2013), §3.4, A.7.1, corrected);
sites on projections make the free-form bound intractable, and the factors are Gaussian.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from latlin.inference.engine import LOCAL, checkpoint_for, refuse_extra_variance
from latlin.inference.evidence.terms import FreeFormEvidence
from latlin.inference.forms.free import FreeForm, FreeFormState, free_form
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.model import Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Measure, Rules, ascend
from latlin.numerics.options import check_number, check_whole
from latlin.numerics.stored import storable_by_arguments

REMEDY = "raise max_iter, or use engine 'gkl', which keeps the correlations"
GAUSSIAN = "; the sites are on projections of w, so the factors are Gaussian: factorised Gaussian KL"
#: largest gradient entry of the bound at convergence, in units of `tol`
GRADIENT = 10.0


@storable_by_arguments
@dataclass(frozen=True)
class MeanField:
    """The density ∏_d q_d(w_d) that maximises the lower bound on log Z.

    Free-form factors when every site is on a coordinate of its own (`SiteFactor(None, …)` or a scaled permutation for
    H); otherwise Gaussian factors, the same as `GaussianKL(covariance="diagonal")`, as `message` states.

    Parameters
    ----------
    tol : float
        Largest move of a factor in a sweep at convergence, in its own standard deviations; for Gaussian factors a tenth
        of the largest gradient entry of the bound, as in `GaussianKL`.
    max_iter : int
        Sweeps over the coordinates.

    Examples
    --------
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> cov = [[1.0, 0.6], [0.6, 1.0]]
    >>> model = LatentLinearModel([GaussianFactor(cov=cov), SiteFactor(None, potentials.Laplace([2.0, -1.0], 0.5))])
    >>> post = infer(model, "mean-field")
    >>> post.evidence_kind, post.mean.round(3).tolist()
    ('lower bound', [0.935, -0.376])
    """

    name: ClassVar[str] = "mean-field"
    tol: float = 1e-7
    max_iter: int = 500

    def __post_init__(self) -> None:
        check_number("tol", self.tol, least=0.0)
        check_whole("max_iter", self.max_iter, 1)

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
        form = free_form(model)
        if form is None:
            engine = GaussianKL(covariance="diagonal", tol=GRADIENT * self.tol, max_iter=self.max_iter)
            post = engine.run(model, start=start, verbose=verbose, checkpoint=checkpoint)
            return replace(post, engine=self.name, message=post.message + GAUSSIAN)
        first = form.evaluate(_first_centre(form, start))

        def step(state: FreeFormState) -> tuple[FreeFormState, Measure]:
            moved = form.step(state)
            return moved, Measure(moved.bound, moved.residual)

        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        saved = checkpoint_for(checkpoint, model, self)
        ascent = ascend(step, first, rules, label="mean field", verbose=verbose, checkpoint=saved)
        return Posterior(
            model=model,
            density=form.density(ascent.state),
            log_evidence=ascent.state.bound,
            evidence_kind="exact" if form.independent else "lower bound",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message + ("" if form.sites.log_concave else LOCAL),
            evidence_term=FreeFormEvidence(),
        )


def _first_centre(form: FreeForm, start: Posterior | None) -> np.ndarray:
    """The centres that other factors of a given mean ask for; the prior's mean by default."""
    mean = np.zeros(len(form.origin)) if start is None else np.asarray(start.mean) - form.origin
    if len(mean) != len(form.origin):
        raise ValueError(f"start has dimension {len(mean)}, but the model has {len(form.origin)}")
    return form.centres(mean)

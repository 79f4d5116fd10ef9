"""Gaussian KL: the Gaussian closest to the posterior in KL(q‖p), with a lower bound on the log evidence.

002_71af9439e55c646f chapter 4. The covariance is chosen by one word; the ascent for each lives in a file of its own.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from latlin.inference import gaussian_kl_full as full
from latlin.inference.engine import checkpoint_for
from latlin.inference.model import LatentLinearModel
from latlin.inference.newton import find_mode
from latlin.inference.posterior import Posterior
from latlin.inference.site_form import SiteForm, site_form
from latlin.inference.sites import SiteParameters
from latlin.numerics.ascent import Ascent, Checkpoint, Rules

Array = NDArray[np.float64]
REMEDY = "raise max_iter, rescale the columns of H, or start from another posterior"
LOCAL = "; the sites are not log-concave, so this optimum may be local"


@dataclass(frozen=True)
class GaussianKL:
    """The Gaussian that maximises the lower bound on log Z.

    Parameters
    ----------
    covariance : {"full"}
        Shape of the Gaussian.
    tol : float
        Largest absolute gradient entry of the bound, in coordinates whitened by the prior, at convergence.
    max_iter : int

    Notes
    -----
    With log-concave sites the optimum is unique and the ascent starts at the Laplace approximation; otherwise it starts
    from several places, keeps the best and says that the optimum may be local. With Gaussian sites the result is exact.
    """

    name: ClassVar[str] = "gkl"
    covariance: str = "full"
    tol: float = 1e-6
    max_iter: int = 300

    def __post_init__(self) -> None:
        if self.covariance != "full":
            raise ValueError(f"covariance must be 'full', got {self.covariance!r}")

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
        saved = checkpoint_for(checkpoint, model, self)
        ascent = self._climb(form, model, start, verbose, saved)
        parameters = SiteParameters(ascent.state.gamma, ascent.state.nu)
        solution = form.solve(parameters)
        assert solution is not None  # the ascent ended there
        return Posterior(
            model=model,
            density=form.density(solution),
            log_evidence=ascent.state.bound,
            evidence_kind="exact" if form.sites.gaussian else "lower bound",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message + ("" if form.sites.log_concave else LOCAL),
            sites=parameters,
        )

    def _climb(
        self,
        form: SiteForm,
        model: LatentLinearModel,
        start: Posterior | None,
        verbose: bool,
        checkpoint: Checkpoint | None,
    ) -> Ascent[full.State]:
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        firsts = _starts(form) if start is None else [_from_posterior(form, model, start)]
        firsts = [first for first in firsts if full.evaluate(form, first, self.tol) is not None]
        if not firsts:
            raise ValueError("no start gives a finite bound; rescale the columns of H or pass start=")
        ascents = [full.maximise_bound(form, f, rules, "Gaussian KL", verbose, checkpoint) for f in firsts[:1]]
        ascents += [full.maximise_bound(form, f, rules, "Gaussian KL", verbose, None) for f in firsts[1:]]
        return max(ascents, key=lambda ascent: ascent.state.bound)


def _starts(form: SiteForm) -> list[SiteParameters]:
    """The curvature at the mode, where there is one; a typical curvature of the sites, where it may help."""
    smooth = all(potential.smooth for potential in form.sites.potentials)
    starts = [_at_mode(form)] if smooth else []
    if not (smooth and form.sites.log_concave):
        starts.append(_at_centres(form))
    return starts


def _at_mode(form: SiteForm) -> SiteParameters:
    rough = Rules(gradient_tol=1e-2, objective_tol=1e-3, max_iter=50)
    return find_mode(form, np.zeros(form.rank), rules=rough, label="start", warn=False).state.parameters


def _at_centres(form: SiteForm) -> SiteParameters:
    """One natural-gradient step from the Gaussian that the sites' typical curvature makes."""
    gamma = form.sites.typical_precision()
    first = full.evaluate(form, SiteParameters(gamma, np.zeros_like(gamma)), tol=0.0)
    if first is None:
        return SiteParameters(gamma, np.zeros_like(gamma))
    return SiteParameters(np.maximum(first.gamma_hat, 0.1 * gamma), first.nu_hat)


def _from_posterior(form: SiteForm, model: LatentLinearModel, start: Posterior) -> SiteParameters:
    """The site parameters that match the sites' expected slopes and curvatures under another posterior."""
    if len(start.mean) != model.dim:
        raise ValueError(f"start has dimension {len(start.mean)}, but the model has {model.dim}")
    x, variance = form.marginals(start)
    expected = form.sites.expected_log(x, variance)
    gamma = -2.0 * expected.d_var
    return SiteParameters(gamma, expected.d_mean + gamma * x)

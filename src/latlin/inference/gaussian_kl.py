"""Gaussian KL: the Gaussian closest to the posterior in KL(q‖p), with a lower bound on the log evidence.

002_71af9439e55c646f chapter 4. The covariance is chosen by one word; the ascent for each lives in a file of its own.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from latlin.inference import gaussian_kl_full as full
from latlin.inference.double_loop import maximise_local_bound
from latlin.inference.engine import checkpoint_for
from latlin.inference.exact_family import ExactFamily
from latlin.inference.gaussian_kl_options import Options, plan_of, structured_posterior
from latlin.inference.gaussian_kl_plans import Plan
from latlin.inference.gaussian_kl_second_order import second_order
from latlin.inference.model import LatentLinearModel
from latlin.inference.newton import find_mode
from latlin.inference.posterior import Posterior
from latlin.inference.site_form import SiteForm, site_form
from latlin.inference.sites import SiteParameters
from latlin.inference.starts import inherited_parameters, matched_parameters
from latlin.inference.structured_starts import rough_diagonal
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.ascent import Ascent, Checkpoint, Rules

Array = NDArray[np.float64]
#: accelerated steps before second-order ones are tried, and the largest dimension for which they are
QUICK = 60
SECOND_ORDER = 200
REMEDY = "raise max_iter, rescale the columns of H, or start from another posterior"
NOWHERE = (
    "no start gives a finite bound: rescale the columns of H, pass start=, or use engine 'ep' if a site is −∞ somewhere"
)
LOCAL = "; the sites are not log-concave, so this optimum may be local"


@dataclass(frozen=True)
class GaussianKL:
    """The Gaussian that maximises the lower bound on log Z.

    Parameters
    ----------
    covariance : {"full", "diagonal", "banded", "chevron", "sparse", "subspace", "low-rank"}
        Shape of S = CᵀC. All but "full" act in the model's own coordinates and form nothing of size N×D or D×D.
    rank : int, optional
        Full rows of a chevron, dimension of a subspace, or number of loadings of "low-rank" (S = ΘΘᵀ + diag d²).
    bandwidth : int, optional
        Super-diagonals of a banded C (0 is diagonal), or of a subspace's inner factor.
    order : None, "natural" or array of int, optional
        The coordinates that get a chevron's full rows; None chooses those most correlated with others.
    pattern : matrix of shape (dim, dim), optional
        Its non-zeros are the places of a sparse C (upper triangle; the diagonal is always there).
    basis : {"eigen", "lanczos", "pca", "projected"} or array of shape (dim, rank), optional
        Of a subspace: eigenvectors of the precision chosen for the smallest loss, its leading ones (by Lanczos
        iterations up to 1,000 dimensions, by filtered steps from the last basis beyond), principal components of H, or
        gradient ascent on the basis; all but "pca" alternate with the fit. By default "eigen" up to 1,000 dimensions,
        "lanczos" beyond.
    inner : {"full", "banded", "diagonal"}
        Factor inside a subspace.
    probes : int
        Random sign vectors that stand in for the squares of a LinearOperator H without an attribute `squares`.
    tol : float
        Largest absolute gradient entry of the bound, in coordinates whitened by the prior, at convergence.
    max_iter : int
        Steps at most (20 times as many for quasi-Newton steps, which serve where the bound is not concave).

    Notes
    -----
    With log-concave sites the optimum is unique and the ascent starts at the Laplace approximation; otherwise it starts
    from several places, keeps the best and says that the optimum may be local. With Gaussian sites the result is exact.
    """

    name: ClassVar[str] = "gkl"
    covariance: str = "full"
    rank: int | None = None
    bandwidth: int | None = None
    order: Any = None
    pattern: Any = None
    basis: Any = None
    inner: str = "full"
    probes: int = 64
    tol: float = 1e-6
    max_iter: int = 300

    def __post_init__(self) -> None:
        self._plan()

    def _plan(self) -> Plan | None:
        return plan_of(
            Options(self.covariance, self.rank, self.bandwidth, self.order, self.pattern, self.basis, self.inner)
        )

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        plan = self._plan()
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        if plan is not None:
            return structured_posterior(self, plan, rules, model, start, verbose, checkpoint)
        started = time.perf_counter()
        form = site_form(model)
        saved = checkpoint_for(checkpoint, model, self)
        ascent = self._finished(form, model, self._climb(form, model, start, rules, verbose, saved), rules, verbose)
        solution = full.solution_of(form, ascent.state)
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
            sites=solution.parameters,
        )

    def _climb(
        self,
        form: SiteForm,
        model: LatentLinearModel,
        start: Posterior | None,
        rules: Rules,
        verbose: bool,
        checkpoint: Checkpoint | None,
    ) -> Ascent[full.State]:
        quick = replace(rules, max_iter=min(QUICK, rules.max_iter))
        firsts = _starts(form, model) if start is None else [inherited_parameters(form, model, start)]
        states = _finite(form, firsts, self.tol) or _finite(form, [_at_centres(form)], self.tol)
        if not states:
            raise ValueError(NOWHERE)
        saved = [checkpoint, *[None] * (len(states) - 1)]
        ascents = [
            full.maximise_bound(form, state, quick, "Gaussian KL", verbose, file, warn=False)
            for state, file in zip(states, saved, strict=True)
        ]
        return max(ascents, key=lambda ascent: ascent.state.bound)

    def _finished(
        self, form: SiteForm, model: LatentLinearModel, ascent: Ascent[full.State], rules: Rules, verbose: bool
    ) -> Ascent[full.State]:
        """The ascent, gone on with by second-order steps in (m, C) where the accelerated ones crawl."""
        left = rules.max_iter - ascent.n_iter
        if ascent.converged or (left < 1 and ascent.n_iter < QUICK):
            return _warned(ascent)
        state = ascent.state
        if model.dim <= SECOND_ORDER and left > 0:
            newton = second_order(model, form.density(full.solution_of(form, state)), replace(rules, max_iter=left))
            jumped = full.evaluate(form, matched_parameters(form, model, newton), self.tol)
            if jumped is not None and jumped.bound >= state.bound:
                state = jumped
        last = full.maximise_bound(form, state, replace(rules, max_iter=max(left, 1)), "Gaussian KL", verbose, None)
        trace = np.concatenate([ascent.trace, last.trace])
        message = f"{last.message}, after {ascent.n_iter} accelerated steps and second-order ones"
        return replace(last, trace=trace, n_iter=len(trace), message=message)


def _warned(ascent: Ascent[full.State]) -> Ascent[full.State]:
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
    return bool(model.gaussians) and all(g.H is None and g.factor is None for g in model.gaussians)


def _at_diagonal(form: SiteForm, model: LatentLinearModel) -> SiteParameters:
    """What matches a diagonal fit, so that a covariance with fewer freedoms does not end above a full one."""
    diagonal = rough_diagonal(model)
    gamma, nu = matched_parameters(form, model, diagonal)
    x, _ = form.marginals(diagonal)
    kept = np.maximum(gamma, 0.0)
    return SiteParameters(kept, nu + (kept - gamma) * np.asarray(x))


def _at_local_bound(form: SiteForm) -> SiteParameters:
    """The Gaussian of the best local bound: from there the ascent ends above it (002_71af9439e55c646f §4.4.1)."""
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

"""How the evidence changes with the model: derivatives of `Posterior.log_evidence` in every parameter of every factor.

At the optimum of a bound the posterior's own parameters drop out (envelope theorem), and what is left is

    ∂ log Z / ∂θ = ⟨∂ log factors / ∂θ⟩_q

under the approximation q; for local bounds with the sites replaced by their bounds, for expectation propagation with
site parameters taken under the tilted densities (its evidence is stationary in the stand-ins at a fixed point,
Challis (2013), §3.6). The Laplace evidence is not stationary in the mode, and the mode's movement is added.
Evidence maximisation (ML-II), Challis (2013), B.6, corrected, is ascent along these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latlin.densities.affine import AffineIndependent
from latlin.densities.factorised import Factorised
from latlin.densities.point import PointMass
from latlin.inference.ep.moments import cavity
from latlin.inference.evidence.gaussian import GaussianGradient, Turn, gaussian_gradients
from latlin.inference.evidence.sites import has_parameters, parameter_gradients
from latlin.inference.evidence.terms import AffineTerm, BoundTerm, CurvedTerm, ExpectedTerm, SiteTerm, TiltedTerm
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.site_form import site_form
from latlin.inference.forms.sites import Sites
from latlin.inference.forms.sparse import reference_point
from latlin.inference.mean_field.free_form import free_form
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array


@dataclass(frozen=True)
class EvidenceGradient:
    """Derivatives of the log evidence.

    Attributes
    ----------
    gaussians : tuple of GaussianGradient
        One a `GaussianFactor`, in the model's order: `.d_mean` (m,) and `.d_cov`, (m,) or (m, m).
    sites : tuple of dict
        One a `SiteFactor`: parameter → derivative, one number a site ("loc", "scale", "df", "shape"), or one a cut
        ("cuts", summed over sites). Labels and counts have none.
    note : str
        Why the numbers are less than exact, or empty.
    """

    gaussians: tuple[GaussianGradient, ...]
    sites: tuple[dict[str, Array], ...]
    note: str = ""


def evidence_gradient(posterior: Posterior) -> EvidenceGradient:
    """Derivatives of `posterior.log_evidence`, re-optimised, in the parameters of the model.

    Parameters
    ----------
    posterior : Posterior
        Of any engine with an evidence, converged. A subspace covariance is differentiated with its basis held.

    Returns
    -------
    EvidenceGradient

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> X = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]])
    >>> model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Logit([1, 0, 0]))])
    >>> gradient = evidence_gradient(infer(model, "gkl"))
    >>> gradient.gaussians[0].d_cov.round(4).tolist()
    [0.0069, 0.014]
    """
    if isinstance(posterior.density, PointMass) or posterior.evidence_kind == "none":
        raise ValueError(
            f"evidence_gradient() needs an evidence, and engine {posterior.engine!r} gives none; "
            "use 'laplace', 'ep' or 'gkl'"
        )
    if posterior.engine == "lvb" and posterior.evidence_kind == "approximation":
        raise ValueError("the evidence of low-rank variances has no exact gradient; use variances='exact'")
    rows, sites = stacked_rows(posterior.model), Sites.of(posterior.model)
    if posterior.engine != "laplace" and not any(has_parameters(p) for p in sites.potentials):
        none: tuple[dict[str, Array], ...] = tuple({} for _ in sites.blocks)
        return EvidenceGradient(gaussian_gradients(posterior, rows, None), none, note_of(posterior))
    term, turn = _site_term(posterior, rows, sites)
    found = tuple(parameter_gradients(term, p, span, sites.weight[span]) for span, p in sites.blocks)
    return EvidenceGradient(gaussian_gradients(posterior, rows, turn), found, note_of(posterior))


def note_of(posterior: Posterior) -> str:
    """Why a gradient is less than exact, or nothing."""
    if posterior.converged:
        return ""
    return f"the fit did not converge ({posterior.message}), so the gradient is only as good as the fit"


def _site_term(posterior: Posterior, rows: Any, sites: Sites) -> tuple[SiteTerm, Turn | None]:
    """What the evidence makes of the sites, and how the mode moves (Laplace only)."""
    density = posterior.density
    if isinstance(density, AffineIndependent):
        return AffineTerm(density.project(rows), sites.offset, sites.weight), None
    if isinstance(density, Factorised):
        return _free_form_term(posterior), None
    marginals = density.project(rows)
    at, variance = marginals.mean + sites.offset, marginals.variance
    if posterior.engine == "ep":
        return _tilted_term(posterior, rows, at, variance, sites), None
    if posterior.engine == "lvb":
        return BoundTerm(at, variance, sites.weight), None
    if posterior.engine == "laplace":
        return _curved_term(posterior, sites, at, variance)
    return ExpectedTerm(at, variance, sites.weight), None


def _tilted_term(posterior: Posterior, rows: Any, at: Array, variance: Array, sites: Sites) -> TiltedTerm:
    assert posterior.sites is not None  # expectation propagation always has them
    # the stand-ins count x from the prior mean, the potentials from their own zero
    start = rows @ reference_point(posterior.model) + sites.offset
    _, m, v = cavity(*posterior.sites, at - start, variance, posterior.power)
    return TiltedTerm(m + start, v, posterior.power * sites.weight, posterior.power)


def _free_form_term(posterior: Posterior) -> TiltedTerm:
    form = free_form(posterior.model)
    assert form is not None  # the density came from it
    centre = form.centres(posterior.mean - form.origin)[form.coordinates]
    own = np.diagonal(form.precision)[form.coordinates]
    at = form.scale * centre + form.sites.offset
    return TiltedTerm(at, form.scale**2 / own, form.sites.weight, 1.0)


def _curved_term(posterior: Posterior, sites: Sites, at: Array, variance: Array) -> tuple[CurvedTerm, Turn]:
    assert posterior.sites is not None  # the Laplace approximation always has them
    form = site_form(posterior.model)
    solution = form.solve(posterior.sites)
    assert solution is not None  # the fit ended there
    # ∂(−½ log det P)/∂x_n = ½s_n²ψ_n‴
    pull = 0.5 * variance * sites.derivatives(at - sites.offset).third
    u = solution.precision.solve(form.projections.transposed_times(pull))
    term = CurvedTerm(at, variance, sites.weight, form.projections.times(u))
    return term, Turn(pull, form.weights(u) - form.mean)

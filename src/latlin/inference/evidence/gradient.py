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

from latlin.densities.point import PointMass
from latlin.distributed.blocks import Block, add
from latlin.inference.blocks import BlockModel, Reading, pieces
from latlin.inference.evidence.gaussian import GaussianGradient, gaussian_gradients
from latlin.inference.evidence.sites import has_parameters, parameter_gradients
from latlin.inference.evidence.terms import EvidenceTerm, FittedPosterior, Movement
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites
from latlin.inference.model import in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array


@dataclass(frozen=True)
class EvidenceGradient:
    """Derivatives of the log evidence.

    Attributes
    ----------
    gaussians : tuple of GaussianGradient
        One per `GaussianFactor`, in the model's order: `.d_mean` (m,) and `.d_cov`, (m,) or (m, m).
    sites : tuple of dict
        One per `SiteFactor`: parameter → derivative, one number per site ("loc", "scale", "df", "shape"), or one per
        cut ("cuts", summed over sites). Labels and counts have none. Of observations in blocks of rows, totals.
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
    term, model = _term_of(posterior), posterior.model
    held = model.own if isinstance(model, BlockModel) else in_memory(model)
    rows, sites, movement = stacked_rows(held), Sites.of(held), term.movement(posterior)
    gaussians = gaussian_gradients(posterior, rows, movement)
    found: list[dict[str, Array]] = [{} for _ in sites.blocks]
    if any(has_parameters(p) for p in sites.potentials):
        term_here = term.site_term(posterior, rows, sites, movement)
        found = [parameter_gradients(term_here, p, span, sites.weight[span]) for span, p in sites.blocks]
    if isinstance(model, BlockModel):
        found.append(_totals(model, posterior, term, movement))
    return EvidenceGradient(gaussians, tuple(found), note_of(posterior))


def _term_of(posterior: Posterior) -> EvidenceTerm:
    """What the posterior carries, or a sentence for one that has nothing."""
    if isinstance(posterior.density, PointMass) or posterior.evidence_kind == "none":
        raise ValueError(
            f"evidence_gradient() needs an evidence, and engine {posterior.engine!r} gives none; "
            "use 'laplace', 'ep' or 'gkl'"
        )
    if posterior.evidence_term is None:
        raise ValueError(
            f"the posterior of engine {posterior.engine!r} does not say how its evidence depends on the sites: an "
            "engine sets evidence_term=, see latlin.inference.evidence.engine_terms"
        )
    return posterior.evidence_term


def note_of(posterior: Posterior) -> str:
    """Why a gradient is less than exact, or nothing."""
    if posterior.converged:
        return ""
    return f"the fit did not converge ({posterior.message}), so the gradient is only as good as the fit"


@dataclass(frozen=True)
class _Fitted:
    """A posterior without its rows, so that it can travel to them."""

    model: Any
    density: Any
    sites: None = None


def _totals(model: BlockModel, posterior: Posterior, term: EvidenceTerm, movement: Movement | None) -> dict[str, Array]:
    """Derivatives in the parameters of the observations in blocks, summed over all sites: one pass."""
    names = tuple(model.reading.kind().free)
    if not names:
        return {}
    fitted = _Fitted(None, posterior.density)
    return dict(zip(names, model.total(parameter_sums, fitted, term, movement), strict=True))


def parameter_sums(
    block: Block, reading: Reading, posterior: FittedPosterior, term: EvidenceTerm, movement: Movement | None
) -> tuple[Any, ...]:
    """Derivatives in the parameters of a block's sites."""
    kind = reading.kind()
    # one vector for all sites (cut points), or one number
    shapes = {name: np.shape(kind.value_of(name)) for name in kind.free}
    total: tuple[Any, ...] = tuple(np.zeros(shape) for shape in shapes.values())
    for observed in pieces(block, reading):
        sites = observed.sites
        here = term.site_term(posterior, observed.rows, sites, movement)
        found = parameter_gradients(here, observed.potential, slice(0, len(sites)), sites.weight)
        total = add(total, tuple(found[name] if shape else np.sum(found[name]) for name, shape in shapes.items()))
    return total

"""The Laplace approximation: a Gaussian with the mode and the curvature of the posterior.

log Z ≈ log p(w*) + ½ log det(2πS),  S⁻¹ = Λ + HᵀΓH,  Γ_nn = −ψ″(h_nᵀw*); Challis (2013), §3.5, corrected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from latlin.densities.density import PointMass
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening
from latlin.densities.structured.base import DiagonalStructure, StructuredCovariance
from latlin.inference.engine import checkpoint_for, form_of
from latlin.inference.estimated import (
    ExpansionPoint,
    ProductForm,
    find_mode_by_products,
    fit_estimated,
    is_quicker_by_products,
    product_form,
    refuse_estimated_checkpoint,
)
from latlin.inference.evidence.terms import CurvedEvidence
from latlin.inference.forms.dense import inherit_parameters
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sparse import SparseForm, sparse_form
from latlin.inference.forms.sums import SumForm
from latlin.inference.mode import SmoothedJoint, find_kinked_mode, find_mode
from latlin.inference.model import LatentLinearModel, Model, SiteFactor, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.options import check_choice
from latlin.numerics.stored import storable_by_arguments
from latlin.potentials.base import Potential
from latlin.potentials.gaussian import Gaussian as GaussianSites

COVARIANCES = ("full", "diagonal", "low-rank", "sparse", "estimated")
REMEDY = "raise max_iter, rescale the columns of H, or use engine 'gkl', which needs no mode"


@storable_by_arguments
@dataclass(frozen=True)
class Laplace:
    """Gaussian at the mode; the evidence is an approximation (exact when every site is Gaussian).

    Parameters
    ----------
    tol : float
        Largest absolute gradient entry in whitened coordinates at convergence.
    max_iter : int
    covariance : {"full", "diagonal", "low-rank", "sparse", "estimated"}
        "full" chooses the quickest way to the exact curvature. "sparse" is the same by the sparse Cholesky factor of
        the precision, however much it fills. "diagonal" and "low-rank" find the mode by products with H alone and keep
        the structure that is closest to the curvature; their evidence is below that of "full". "estimated" is the
        exact curvature of a sparse model whose factor would fill: variances and the log determinant are estimates by
        random probes, with standard errors.
    rank : int, optional
        Loadings of a low-rank covariance.
    probes : int
        Random sign vectors behind an "estimated" covariance.
    """

    name: ClassVar[str] = "laplace"
    tol: float = 1e-6
    max_iter: int = 200
    covariance: str = "full"
    rank: int | None = None
    probes: int = 64

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, COVARIANCES)
        if (self.rank is not None) != (self.covariance == "low-rank"):
            raise ValueError(f"rank goes with covariance='low-rank', got rank={self.rank} with {self.covariance!r}")

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
        refuse_kinks(model.potentials)
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=REMEDY)
        if self.covariance in ("diagonal", "low-rank"):
            held = require_in_memory(model, self.name)
            return structured_laplace(self, self.covariance, self.rank, rules, held, start, verbose, checkpoint)
        if self.covariance == "estimated":
            refuse_estimated_checkpoint(checkpoint)
            return fit_estimated(self, require_in_memory(model, self.name), start, rules, verbose, averaged=False)
        form = self._form(model)
        first, kept = _first(form, model, start), checkpoint_for(checkpoint, model, self)
        # threads of BLAS would spin beside compiled loops
        with form.analysis.threads if isinstance(form, SparseForm) else nullcontext():
            ascent = find_mode(form, first, rules, "Laplace", verbose, kept)
            found = form.gaussian_at(ascent.state)
        if found is None:
            raise ValueError(
                "the curvature vanishes or has the wrong sign where Newton's method stopped "
                f"(step {ascent.n_iter}, gradient {ascent.gradient:.2g}): use engine 'gkl' or 'ep', "
                "or add a GaussianFactor if the posterior is improper"
            )
        return Posterior(
            model=model,
            density=found.density,
            # log p(u*) + ½ log det(2πP⁻¹)
            log_evidence=ascent.state.objective + 0.5 * (form.rank * LOG_2PI - found.log_det),
            evidence_kind="exact" if model.gaussian else "approximation",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message,
            sites=found.sites,
            evidence_term=CurvedEvidence(),
        )

    def _form(self, model: Model) -> SiteForm | SumForm:
        if self.covariance == "full":
            return form_of(model)
        form = sparse_form(require_in_memory(model, self.name), forced=True)
        assert form is not None  # it was forced
        return form


def _first(form: SiteForm | SumForm, model: Model, start: Posterior | None) -> Array:
    """Where the search begins; from a fit of the same rows where its curvature and another prior lead.

    That is Newton's first step without a pass over the rows, right to first order in the change of the prior.
    """
    if start is None:
        return form.first_coordinates()
    curved = isinstance(start.evidence_term, CurvedEvidence)
    known = start.sites if curved and isinstance(model, LatentLinearModel) else None
    if isinstance(form, SparseForm) and known is not None and len(known.gamma) == len(form.sites):
        first = form.continued(inherit_parameters(form, require_in_memory(model), start))
        if first is not None:
            return first
    return form.coordinates(start.mean)


def refuse_kinks(potentials: Sequence[Potential]) -> None:
    """Refuse sites that have no curvature at a kink."""
    kinked = sorted({type(p).__name__ for p in potentials if not p.smooth})
    if kinked:
        raise ValueError(
            f"the Laplace approximation needs two derivatives at the mode, and {', '.join(kinked)} sites have a kink; "
            "use engine 'gkl', 'ep' or 'lvb' (or 'map' for the mode alone)"
        )


# --- Laplace approximations of large models: the mode by products alone, and a covariance with a simple structure.
#
# At the mode w* the log posterior is close to log p(w*) − ½δᵀPδ, P = Λ + HᵀΓH. Of all Gaussians of a given structure,
# the one that is closest to that parabola's in KL(q‖p) has the mean w* and maximises −½tr(PS) + ½ log det S. For a
# diagonal S it is S_dd = 1/P_dd; others are Gaussian KL fits with the sites replaced by parabolas (Challis (2013),
# §3.5 and §4.3). The evidence is the value that the parabola's bound has there.


#: smallest curvature of a site's parabola
FLOOR = 1e-12


def structured_laplace(
    engine: object,
    covariance: str,
    rank: int | None,
    rules: Rules,
    model: LatentLinearModel,
    start: Posterior | None,
    verbose: bool,
    checkpoint: str | os.PathLike[str] | None,
) -> Posterior:
    """The Laplace approximation with a diagonal or a low-rank covariance."""
    started, form = time.perf_counter(), product_form(model)
    first = None if start is None else start.mean
    ascent = find_mode_by_products(form, first, rules, "Laplace", verbose, checkpoint_for(checkpoint, model, engine))
    fit = _diagonal if covariance == "diagonal" else _low_rank
    density, log_evidence = fit(form, ascent.state, model, rank)
    return Posterior(
        model=model,
        density=density,
        log_evidence=log_evidence,
        evidence_kind="approximation",
        engine="laplace",
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=time.perf_counter() - started,
        message=f"{ascent.message}; the covariance is {covariance}",
    )


def _diagonal(
    form: ProductForm, mode: ExpansionPoint, model: LatentLinearModel, rank: int | None
) -> tuple[Gaussian, float]:
    precision = form.diagonal(-mode.curvature)
    if not np.all(precision > 0.0):
        raise ValueError("the curvature vanishes or has the wrong sign at the mode: use engine 'gkl' or 'ep'")
    ones, scale = DiagonalWhitening(np.ones(model.dim)), 1.0 / np.sqrt(precision)
    density = Gaussian(
        form.prior.origin + mode.deviation, StructuredCovariance(ones, DiagonalStructure(model.dim), scale)
    )
    return density, mode.objective + 0.5 * float(np.sum(LOG_2PI - np.log(precision)))


def _low_rank(
    form: ProductForm, mode: ExpansionPoint, model: LatentLinearModel, rank: int | None
) -> tuple[Gaussian, float]:
    """A fit to the parabolas, whose heights are put right afterwards."""
    from latlin.inference.gaussian_kl.engine import GaussianKL  # which itself starts at modes

    slope = form.sites.derivatives(mode.x).first
    gamma = np.maximum(-mode.curvature, FLOOR)
    # ψ(x*) + ψ′(x − x*) − ½γ(x − x*)² has its top, ψ(x*) + ½ψ′²/γ, at x* + ψ′/γ
    top = mode.x + slope / gamma
    heights = form.sites.log_density(mode.x) + 0.5 * slope**2 / gamma + 0.5 * (LOG_2PI - np.log(gamma))
    at = _split(model, top + form.rows @ form.prior.origin)
    scales = _split(model, 1.0 / np.sqrt(gamma))
    parabolas = [SiteFactor(f.H, GaussianSites(t, s)) for f, t, s in zip(model.sites, at, scales, strict=True)]
    fit = GaussianKL(covariance="low-rank", rank=rank).run(model.among([*model.gaussians, *parabolas]))
    density = fit.density
    assert isinstance(density, Gaussian)  # a structured fit is one
    return density, fit.log_evidence + float(heights.sum())


def _split(model: LatentLinearModel, values: Array) -> list[Array]:
    """One array per site factor."""
    return np.split(values, np.cumsum([model.site_count(factor) for factor in model.sites])[:-1])


# --- Maximum a posteriori: the mode, and nothing about its neighbourhood.


MODE_REMEDY = "raise max_iter, or rescale the columns of H"


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
        if isinstance(model, LatentLinearModel) and is_quicker_by_products(model):
            return self._by_products(model, start, verbose, checkpoint, started)
        form = form_of(model)
        first = form.first_coordinates() if start is None else form.coordinates(start.mean)
        climb: Callable[..., Ascent] = find_mode if model.smooth else find_kinked_mode
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=model.log_concave, remedy=MODE_REMEDY)
        ascent = climb(form, first, rules, "MAP", verbose, checkpoint_for(checkpoint, model, self))
        reached = ascent.state.at if isinstance(ascent.state, SmoothedJoint) else ascent.state
        return self._conclude(model, form.weights(reached.u), ascent, ascent.message, started)

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
        rules = Rules(gradient_tol=self.tol, max_iter=self.max_iter, monotone=True, remedy=MODE_REMEDY)
        saved = checkpoint_for(checkpoint, model, self)
        ascent = find_mode_by_products(form, None if start is None else start.mean, rules, "MAP", verbose, saved)
        mode = form.prior.origin + ascent.state.deviation
        return self._conclude(model, mode, ascent, f"{ascent.message}, by conjugate gradients", started)

    def _conclude(self, model: Model, mode: Array, ascent: Ascent, message: str, started: float) -> Posterior:
        """All mass at the mode, without an evidence."""
        return Posterior(
            model=model,
            density=PointMass(mode),
            log_evidence=float("nan"),
            evidence_kind="none",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=message,
        )

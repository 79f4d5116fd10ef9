"""The posterior of a model all of whose factors are Gaussian, in closed form.

A Gaussian site is its own stand-in, ψ(x) = ψ(0) + νx − ½γx². In coordinates u whitened by the prior, w = μ + Lu, with
rows A = Γ^½HL and residuals c = Γ^{−½}ν,

    P = I + AᵀA,   mean P⁻¹Aᵀc,   log Z = Σψ(0) − ½(log det P − cᵀA P⁻¹Aᵀc)

Challis (2013), §2.2.1, and for processes Gutteridge (2021), §7.1. Singular values of A give all of it without squaring
its condition, which matters when the noise is small; large rows, processes and rows in blocks go by a factorisation of
P. Sums of squares over blocks have half the digits of the rows: noise below 1e-7 of the response is not seen.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import svd
from scipy.sparse.linalg import LinearOperator

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import SubspaceCovariance, Whitening
from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.inference.blocks import BlockModel
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.forms.dense import site_form, sum_form
from latlin.inference.forms.prior import gaussian_part
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sparse import SparseForm, needs_sparse
from latlin.inference.forms.sparse_blocks import SparseBlockForm, sparse_block_form
from latlin.inference.forms.sparse_rows import has_one_noise, times_entries
from latlin.inference.forms.sums import SumForm, Sums, point_terms
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import Cholesky, cholesky, dot
from latlin.numerics.stored import storable_by_arguments

#: entries of the rows up to which singular values are taken
DECOMPOSED = 2 * 10**6
IN_ONE_PASS = ", from one pass over the blocks"
IMPROPER = "the precision of the posterior is not positive definite to working precision: rescale the columns of H"


class Solved(NamedTuple):
    """The posterior, its log evidence, and the sites as Gaussian stand-ins, where they are in memory."""

    density: Gaussian
    log_evidence: float
    sites: SiteParameters | None


@storable_by_arguments
@dataclass(frozen=True)
class Exact:
    """The exact posterior of a model of Gaussian factors and Gaussian sites.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> X, y = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]]), [1.0, 0.3, -0.5]
    >>> model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Gaussian(y, 0.5))])
    >>> post = infer(model, "exact")
    >>> post.evidence_kind, round(post.log_evidence, 4)
    ('exact', -3.9884)
    """

    name: ClassVar[str] = "exact"

    def run(
        self,
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """The posterior of `model`; there is nothing to start from, to show or to resume."""
        started = time.perf_counter()
        others = sorted({type(potential).__name__ for potential in model.potentials if not potential.gaussian})
        if others:
            raise ValueError(
                f"engine 'exact' needs Gaussian noise, that is Gaussian sites, and {', '.join(others)} sites are not; "
                "use engine 'gkl', 'ep', 'lvb' or 'laplace'"
            )
        if isinstance(model, BlockModel) and needs_sparse(model.own):
            return _posterior(model, _from_sparse_blocks(sparse_block_form(model)), started, IN_ONE_PASS)
        if isinstance(model, BlockModel):
            form = sum_form(model)
            assert form is not None  # blocks have one
            return conclude(model, form, form.sums(point_terms, np.zeros(form.rank)), started)
        return _posterior(model, _solve(require_in_memory(model)), started)


def conclude(model: Model, form: SumForm, sums: Sums, started: float) -> Posterior:
    """The posterior from the sums of ψ, of its slopes and of its curvatures over all sites, at u = 0."""
    origin = np.zeros(form.rank)
    chol = cholesky(form.precision(sums), name="the precision of the posterior")
    slope = form.slope(origin, sums)
    u = chol.solve(slope)
    # log joint at 0 + ½gᵀP⁻¹g + ½ log det(2πP⁻¹)
    top = form.own.log_gaussian(origin) + sums.value + 0.5 * dot(slope, u)
    evidence = top + 0.5 * (form.rank * LOG_2PI - chol.log_det)
    solved = Solved(form.gaussian(u, chol), float(evidence), None)
    return _posterior(model, solved, started, IN_ONE_PASS)


def _from_sparse_blocks(form: SparseBlockForm) -> Solved:
    """One Newton step from the prior mean is the whole way; of rows with one noise scale the sums are kept."""
    model = form.elsewhere
    if has_one_noise(model.potentials[-1]):
        return _by_normal_sums(normal_block_sums(model, form), form, _noise(model))
    at = form.expand(np.zeros(form.rank))
    step, found = form.newton_step(at), form.gaussian_at(at)
    if step is None or found is None:
        raise ValueError(IMPROPER)
    # log joint at 0 + ½gᵀP⁻¹g + ½ log det(2πP⁻¹)
    evidence = at.objective + 0.5 * dot(at.gradient, step) + 0.5 * (form.rank * LOG_2PI - found.log_det)
    return Solved(Gaussian(form.weights(step), found.density.structure), float(evidence), None)


def _posterior(model: Model, solved: Solved, started: float, note: str = "") -> Posterior:
    return Posterior(
        model=model,
        density=solved.density,
        log_evidence=solved.log_evidence,
        evidence_kind="exact",
        engine=Exact.name,
        converged=True,
        n_iter=1,
        trace=np.array([solved.log_evidence]),
        elapsed=time.perf_counter() - started,
        message=f"every factor is Gaussian: the posterior in closed form{note}",
        sites=solved.sites,
        evidence_term=ExpectedEvidence(),
    )


def _solve(model: LatentLinearModel) -> Solved:
    """By singular values where there is one proper prior and one block of rows that is not large, else by factors."""
    direct = bool(model.gaussians) and all(factor.H is None for factor in model.gaussians)
    rows = model.sites[0].H if direct and len(model.sites) == 1 and not needs_sparse(model) else None
    if rows is None or isinstance(rows, LinearOperator) or np.prod(rows.shape, dtype=float) > DECOMPOSED:
        return _factorise(model)
    part = gaussian_part(model)
    assert part.whitening is not None  # a factor on w itself is proper
    solved = _decompose(model, part.mean, part.whitening)
    # a product of several priors is not normalised
    total = part.constant + 0.5 * model.dim * LOG_2PI + part.whitening.log_det
    return solved if len(model.gaussians) == 1 else solved._replace(log_evidence=solved.log_evidence + total)


def _decompose(model: LatentLinearModel, prior_mean: Array, whitening: Whitening) -> Solved:
    rows = model.sites[0].H
    parameters, at_mean = _expand(stacked_sites(model), np.asarray(rows @ prior_mean))
    root = np.sqrt(parameters.gamma)
    residual = np.divide(parameters.nu, root, out=np.zeros_like(root), where=root > 0.0)
    dense = rows.toarray() if sparse.issparse(rows) else rows
    u, singular, vt = svd(root[:, None] * whitening.rows(dense), full_matrices=False)
    inside = u.T @ residual
    grown = 1.0 + singular**2
    mean = prior_mean + whitening.apply(vt.T @ (singular * inside / grown))
    inner = Cholesky(np.asfortranarray(np.diag(np.sqrt(grown))), 0.0)
    structure = SubspaceCovariance(whitening, np.ascontiguousarray(vt.T), inner)
    # Σψ at the prior mean holds −½cᵀc
    gained = float(np.sum((singular * inside) ** 2 / grown) - np.sum(np.log(grown)))
    return Solved(Gaussian(mean, structure), at_mean + 0.5 * gained, parameters)


def _factorise(model: LatentLinearModel) -> Solved:
    form = site_form(model)
    if isinstance(form, SparseForm) and _has_one_noise(model):
        sums = normal_sums(model, form)
        weighted = form.sites.weight / _noise(model) ** 2
        stand_ins = SiteParameters(weighted, weighted * _locations(form.sites))
        return _by_normal_sums(sums, form, _noise(model))._replace(sites=stand_ins)
    parameters, _ = _expand(form.sites, np.zeros(len(form.sites)))
    solution = form.solve(parameters)
    if solution is None:
        raise ValueError(IMPROPER)
    # log joint at the mean + ½ log det(2πP⁻¹)
    top = form.log_gaussian(solution.u) + float(form.sites.log_density(solution.x).sum())
    evidence = top + 0.5 * (form.rank * LOG_2PI - solution.precision.log_det)
    return Solved(form.density(solution), float(evidence), parameters)


# --- Many normal observations with one noise scale: sums over the rows are found once and serve every scale and prior.


class NormalSums(NamedTuple):
    """Sums over normal observations with residuals r = y − o − H(μ + δ₀) and weights w.

    They are taken about a δ₀ near the posterior mean, so that nothing cancels where the noise is small.
    """

    loc: Array
    origin: Array
    about: Array  # δ₀
    gram: Array  # HᵀWH on the entries
    pull: Array  # HᵀWr
    square: float  # Σwr²
    weight: float  # Σw


def _has_one_noise(model: LatentLinearModel) -> bool:
    return len(model.sites) == 1 and has_one_noise(model.sites[0].potential)


def normal_block_sums(model: BlockModel, form: SparseBlockForm) -> NormalSums:
    """The same of rows in blocks, in three passes; every later fit of these rows needs none."""
    known: NormalSums | None = model.kept.get("sums")
    if known is not None and np.array_equal(known.origin, form.mean):
        return known
    at = form.expand(np.zeros(form.rank))
    step = form.newton_step(at)
    if step is None:
        raise ValueError(IMPROPER)
    about = step * form.projections.scale
    found = form.normal_sums(about)
    nothing = np.zeros(0)
    sums = NormalSums(nothing, form.mean, about, found.entries, found.slope, found.value, form.total_weight())
    model.kept["sums"] = sums
    return sums


def _locations(sites: Sites) -> Array:
    """Where the normal densities of one factor have their means, counted as the form counts its projections."""
    ((_, potential),) = sites.blocks
    return np.asarray(getattr(potential, "loc")) - sites.offset  # noqa: B009


def normal_sums(model: LatentLinearModel, form: SparseForm) -> NormalSums:
    """The sums of a model's rows; those of an earlier fit of the same rows and responses, where there was one."""
    site = model.sites[0]
    loc, known = np.asarray(getattr(site.potential, "loc")), site.kept.get("sums")  # noqa: B009
    if known is not None and np.array_equal(known.loc, loc) and np.array_equal(known.origin, form.mean):
        found: NormalSums = known
        return found
    parameters, _ = _expand(form.sites, np.zeros(len(form.sites)))
    solution = form.solve(parameters)
    if solution is None:
        raise ValueError(IMPROPER)
    weight, about = form.sites.weight, solution.u * form.projections.scale
    residual = _locations(form.sites) - form.rows @ about
    pull = form.projections.summed(weight * residual)
    # what a projection leaves out counts as a residual
    left_out = 0.0 if form.sites.extra is None else form.sites.extra
    square = float(weight @ (residual**2 + left_out))
    # γ = w/σ², whose sum over the rows the solution has found
    gram = form.gram.total(parameters.gamma) * _noise(model) ** 2
    sums = NormalSums(loc, form.mean, about, gram, pull, square, float(weight.sum()))
    site.kept["sums"] = sums
    return sums


def _by_normal_sums(sums: NormalSums, form: SparseForm, scale: float) -> Solved:
    """With δ = δ₀ + η and τ = 1/σ²: P = Λ + τHᵀWH, Pη̂ = g = b − Λδ₀ + τHᵀWr, and no pass over the rows."""
    tau = scale**-2.0
    precision = form.precision_with(tau * sums.gram)
    if precision is None:
        raise ValueError(IMPROPER)
    linear, turned = form.prior.linear, form.prior.precision @ sums.about
    pull = linear - turned + tau * sums.pull
    eta = precision.solve(pull)
    # log joint at the mean: that at δ₀, and ½gᵀη̂
    prior = form.constant + dot(linear, sums.about) - 0.5 * dot(sums.about, turned)
    noise = -0.5 * sums.weight * (LOG_2PI + 2.0 * np.log(scale)) - 0.5 * tau * sums.square
    evidence = prior + noise + 0.5 * dot(pull, eta) + 0.5 * (form.rank * LOG_2PI - precision.log_det)
    density = Gaussian(form.mean + sums.about + eta, SparsePrecisionCovariance(precision))
    return Solved(density, float(evidence), None)


def _noise(model: Model) -> float:
    return float(np.ravel(getattr(model.potentials[-1], "scale"))[0])  # noqa: B009


def noise_slope(posterior: Posterior, at: float | None = None) -> float | None:
    """∂ log Z/∂σ = ⟨Σ w r²⟩/σ³ − Σw/σ where the sums over the rows are known, else None.

    `at` is another σ than the posterior's own, with the posterior held.
    """
    model, sums = posterior.model, None
    if isinstance(model, BlockModel):
        sums = model.kept.get("sums") if has_one_noise(model.potentials[-1]) else None
    elif _has_one_noise(require_in_memory(model)):
        sums = require_in_memory(model).sites[0].kept.get("sums")
    structure = getattr(posterior.density, "structure", None)
    if sums is None or not isinstance(structure, SparsePrecisionCovariance):
        return None
    precision, scale = structure.precision, _noise(model) if at is None else at
    a, covariances = precision.factor.analysis, precision.inverse_values
    eta = posterior.mean - sums.origin - sums.about
    # tr(G S), an entry off the diagonal counting twice
    trace = 2.0 * dot(sums.gram, covariances) - dot(sums.gram[a.diagonal], covariances[a.diagonal])
    expected = sums.square - 2.0 * dot(sums.pull, eta) + trace + dot(eta, times_entries(a, sums.gram, eta))
    return expected / scale**3 - sums.weight / scale


def _expand(sites: Sites, x: Array) -> tuple[SiteParameters, float]:
    """Gaussian sites about x: log φ(x + t) = ψ(x) + νt − ½γt², and Σ ψ(x)."""
    slope, curvature = sites.slopes(x)
    return SiteParameters(-curvature, slope), float(np.sum(sites.log_density(x)))

"""Full covariances of sparse models whose factor would fill: means by conjugate gradients, the rest by random probes.

The precision P = Λ + HᵀΓH of a Laplace approximation or of a Gaussian KL optimum (Challis (2013), eqs. 3.5.1 and
4.3.1) is never factorised. Means are found by Newton's method with products; variances of the sites and log det P come
from `latlin.numerics.probes`, with standard errors. Gaussian KL needs the variances v to know Γ = −2 ∂⟨ψ⟩/∂v, so they
are refreshed until they settle; at the optimum an error of v changes the bound only by its square,

    ∂B/∂v_n = ∂⟨ψ_n⟩/∂v_n + ½γ_n = 0,

so that the error of the evidence is half that of log det P. It is an estimate and no bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import ProbedPrecisionCovariance
from latlin.inference.evidence.terms import CurvedEvidence, ExpectedEvidence
from latlin.inference.forms.prior import PAIRS, Quadratic, may_be_sparse, needs_sparse, quadratic_of
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sparse import uses_sparse
from latlin.inference.forms.sparse_rows import SharedPattern, pattern_of
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, backtrack, rounding
from latlin.numerics.optimise import solve
from latlin.numerics.probes import SparseSum, sparse_times
from latlin.numerics.threads import one_blas_thread
from latlin.numerics.weighted_gram import WeightedGram

# --- Modes of large sparse models by products alone: Newton's method whose steps are found by conjugate gradients.
#
# With the Gaussian factors exp(bᵀδ − ½δᵀΛδ), δ = w − μ, a Newton step solves (Λ + HᵀΓH)δ = gradient, Γ = −ψ″, by
# products with Λ, H and Hᵀ: nothing is ever factorised, so that a step costs a few passes over the non-zeros of H
# (Challis (2013), §3.3). The steps are found only as well as the gradient is small (Dembo, Eisenstat and Steihaug
# 1982).


#: smaller of the numbers of rows and dimensions from which on products are quicker than a dense factorisation
LARGE = 500
#: residual of a Newton step relative to the gradient, at most, and steps of conjugate gradients for it
ROUGH, STEPS = 0.1, 500


class ExpansionPoint(NamedTuple):
    """A deviation δ from the prior mean, its projections, the log joint with its gradient, and the sites' ψ″ there."""

    deviation: Array
    x: Array
    objective: float
    curvature: Array
    gradient: Array


@dataclass(frozen=True)
class ProductForm:
    """A model by its products.

    Parameters
    ----------
    prior : Quadratic
        The Gaussian factors, without constraints.
    rows : csr_array of shape (n_sites, dim)
    sites : Sites
        As functions of x = Hδ.
    columns : csr_array of shape (dim, n_sites)
        Hᵀ.
    precision : callable, optional
        Γ ↦ P = Λ + HᵀΓH, where it has fewer entries than H.
    """

    prior: Quadratic
    rows: sparse.csr_array
    sites: Sites
    columns: sparse.csr_array
    precision: Callable[[Array], sparse.csr_array] | None = None

    @cached_property
    def _squares(self) -> sparse.csr_array:
        return sparse.csr_array(self.columns.multiply(self.columns))

    @cached_property
    def scale(self) -> Array:
        """Prior standard deviations of each coordinate given the others, in which gradients are measured."""
        return 1.0 / np.sqrt(self.prior.precision.diagonal())

    def expand(self, deviation: Array, x: Array) -> ExpansionPoint:
        """The log joint with its slopes."""
        prior = self.prior
        held = prior.precision @ deviation
        with np.errstate(over="ignore", invalid="ignore"):
            value, first, second = self.sites.expansion(x)
            objective = prior.constant + float(deviation @ (prior.linear - 0.5 * held)) + float(value.sum())
        gradient = prior.linear - held + sparse_times(self.columns, first)
        return ExpansionPoint(deviation, x, objective if np.isfinite(objective) else -np.inf, second, gradient)

    def diagonal(self, gamma: Array) -> Array:
        """The diagonal of P = Λ + HᵀΓH."""
        return self.prior.precision.diagonal() + self._squares @ gamma

    def direction(self, point: ExpansionPoint) -> Array:
        """Newton's step, found the better the smaller the gradient is."""
        gamma = np.maximum(-point.curvature, 0.0)
        size = float(np.abs(point.gradient * self.scale).max(initial=0.0))
        accuracy = (min(ROUGH, np.sqrt(size)), STEPS)
        if self.precision is not None:
            total = self.precision(gamma)
            return solve(lambda v: sparse_times(total, v), point.gradient, total.diagonal(), *accuracy)

        def product(v: Array) -> Array:
            return self.prior.precision @ v + sparse_times(self.columns, gamma * sparse_times(self.rows, v))

        return solve(product, point.gradient, self.diagonal(gamma), *accuracy)


def is_quicker_by_products(model: LatentLinearModel) -> bool:
    """Whether a mode is found quickest by products: many sparse rows and dimensions, and a factor that would fill."""
    potentials = [factor.potential for factor in model.sites]
    smooth = all(potential.smooth and potential.log_concave for potential in potentials)
    rows = sum(model.site_count(factor) for factor in model.sites)
    if needs_sparse(model) or not smooth or min(rows, model.dim) < LARGE:
        return False
    return may_be_sparse(model, pairs=np.inf) and not uses_sparse(model)


def product_form(model: LatentLinearModel) -> ProductForm:
    """The form of a model with a Gaussian factor on every coordinate and no constraints."""
    prior, rows, sites = quadratic_of(model), sparse.csr_array(stacked_rows(model)), stacked_sites(model)
    if len(prior.rows) or not np.all(prior.precision.diagonal() > 0.0):
        raise ValueError("this needs a GaussianFactor on every coordinate of w, and no constraints")
    sites = sites.shifted(np.asarray(rows @ prior.origin)) if prior.origin.any() else sites
    # Hᵀ stays with the rows, where refits under another prior find it
    kept = model.sites[0].kept if len(model.sites) == 1 else {}
    if "columns" not in kept:
        kept["columns"] = sparse.csr_array(rows.T)
    return ProductForm(prior, rows, sites, kept["columns"])


def find_mode_by_products(
    form: ProductForm,
    start: Array | None,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Ascent[ExpansionPoint]:
    """Climb the log joint from a w, or from the prior mean."""

    def step(point: ExpansionPoint) -> tuple[ExpansionPoint, Measure]:
        reached = _newton_step(form, point)
        return reached, Measure(reached.objective, float(np.abs(reached.gradient * form.scale).max(initial=0.0)))

    deviation = np.zeros(len(form.prior.origin)) if start is None else start - form.prior.origin
    first = form.expand(deviation, form.rows @ deviation)

    def evaluate(point: ExpansionPoint) -> float:
        return form.expand(point.deviation, form.rows @ point.deviation).objective

    with one_blas_thread():
        return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, evaluate=evaluate)


def _newton_step(form: ProductForm, point: ExpansionPoint) -> ExpansionPoint:
    """The longest of the steps 1, ½, ¼, … that raises the log joint, or the point itself."""
    direction = form.direction(point)
    shift = sparse_times(form.rows, direction)

    def evaluate(length: float) -> tuple[float, ExpansionPoint]:
        trial = form.expand(point.deviation + length * direction, point.x + length * shift)
        return trial.objective, trial

    slope = float(point.gradient @ direction)
    best = backtrack(evaluate, point.objective, slope, slack=1e-2 * rounding(point.objective))
    return point if best is None else best[2]


#: refreshments of the variances at most, and the largest relative change of one after which they have settled
REFRESHED, SETTLED = 12, 2e-2
LABELS = {"gkl": "Gaussian KL", "laplace": "Laplace"}
REFUSED = (
    "covariance='estimated' needs smooth log-concave sites, a GaussianFactor on every coordinate of w, "
    "and no constraints"
)


@dataclass(frozen=True)
class AveragedSites:
    """⟨ψ(x + √v z)⟩ over standard normal z as functions of x, v being held."""

    sites: Sites
    variance: Array

    def expansion(self, x: Array) -> tuple[Array, Array, Array]:
        """Values, slopes and curvatures: ∂²⟨ψ⟩/∂x² = 2 ∂⟨ψ⟩/∂v."""
        value, first, by_variance = self.sites.expected_log(x, self.variance)
        return value, first, 2.0 * by_variance


def can_be_estimated(model: LatentLinearModel) -> bool:
    """Whether a model has what the probes need."""
    proper = any(f.H is None and (not f.by_precision or f.rank == model.dim) for f in model.gaussians)
    return model.smooth and model.log_concave and proper and not model.constraints and not model.normalise_prior


def refuse_estimated_checkpoint(checkpoint: object) -> None:
    """Refuse to keep a state that these fits do not have."""
    if checkpoint is not None:
        raise ValueError(
            "covariance='estimated' keeps no checkpoint: start=, another posterior, spares the first steps"
        )


class ProbingEngine(Protocol):
    """An engine that says how many probes to draw."""

    name: ClassVar[str]

    @property
    def probes(self) -> int: ...


def fit_estimated(
    engine: ProbingEngine,
    model: LatentLinearModel,
    start: Posterior | None,
    rules: Rules,
    verbose: bool,
    averaged: bool,
) -> Posterior:
    """The Laplace approximation of a model, or its Gaussian KL optimum where the sites are `averaged` over q."""
    if not can_be_estimated(model):
        raise ValueError(f"{REFUSED}, got {model!r}")
    began, form = time.perf_counter(), product_form(model)
    probes = engine.probes
    precisions = PrecisionFamily.of(form, probes, model.sites[0].kept if len(model.sites) == 1 else {})
    if precisions.shared is not None:
        form = replace(form, precision=precisions.matrix)
    # threads of BLAS would spin beside compiled loops
    with one_blas_thread():
        found = (_averaged if averaged else _curved)(form, start, rules, verbose, precisions)
    ascent, covariance = found.ascent, found.covariance
    reached, error = ascent.state, 0.5 * covariance.error
    share = _typical_error(form, covariance)
    return Posterior(
        model=model,
        density=Gaussian(form.prior.origin + reached.deviation, covariance),
        log_evidence=found.evidence,
        evidence_kind="approximation",
        engine=engine.name,
        converged=ascent.converged and found.settled,
        n_iter=max(ascent.n_iter, 1),
        trace=ascent.trace,
        elapsed=time.perf_counter() - began,
        message=f"{ascent.message}, by conjugate gradients; variances are estimates from {probes} probes with a "
        f"median standard error of {100.0 * share:.2g} %, and so is the evidence, with one of {error:.2g} nat",
        sites=found.sites,
        bound_error=error,
        evidence_term=ExpectedEvidence() if averaged else CurvedEvidence(),
    )


@dataclass(frozen=True)
class SymmetricPattern:
    """The lower triangle of a symmetric pattern by columns, and the whole by rows with the place of each entry there.

    Both have the coordinates in their own order: `label` is 0, 1, ….
    """

    label: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    whole: sparse.csr_array
    places: NDArray[np.int64]

    @classmethod
    def of(cls, pattern: sparse.csr_array) -> SymmetricPattern:
        lower = sparse.csc_array(sparse.tril(pattern, format="csc"))
        lower.sort_indices()
        number = sparse.csc_array((np.arange(1.0, lower.nnz + 1.0), lower.indices, lower.indptr), shape=lower.shape)
        whole = sparse.csr_array(number + sparse.triu(number.T, 1))
        whole.sort_indices()
        indptr, indices, places = (part.astype(np.int64) for part in (lower.indptr, lower.indices, whole.data))
        return cls(np.arange(lower.shape[0]), indptr, indices, whole, places - 1)

    def matrix(self, values: Array) -> sparse.csr_array:
        """The matrix with these entries in its lower triangle."""
        return sparse.csr_array((values[self.places], self.whole.indices, self.whole.indptr), shape=self.whole.shape)


@dataclass(frozen=True)
class PrecisionFamily:
    """P = Λ + HᵀΓH of any Γ: on a pattern that is kept with the rows, or by products where rows have many non-zeros."""

    form: ProductForm
    probes: int
    shared: SharedPattern | None

    @classmethod
    def of(cls, form: ProductForm, probes: int, kept: dict[str, Any]) -> PrecisionFamily:
        """`kept` is where another fit of the same rows finds their pattern."""
        rows, prior = form.rows, form.prior.precision
        if float(np.sum(np.diff(rows.indptr).astype(float) ** 2)) > PAIRS:
            return cls(form, probes, None)
        shared: SharedPattern | None = kept.get("probed pattern")
        if shared is not None and shared.has_pattern(prior):
            return cls(form, probes, shared)
        pattern: Any = SymmetricPattern.of(pattern_of(prior, rows))
        shared = kept["probed pattern"] = SharedPattern.of(prior, WeightedGram(pattern, rows))
        return cls(form, probes, shared)

    def matrix(self, gamma: Array) -> sparse.csr_array:
        """P on its pattern."""
        shared = self.shared
        assert shared is not None  # asked for where there is a pattern
        pattern: Any = shared.gram.analysis
        return pattern.matrix(shared.prior_entries(self.form.prior.precision) + shared.gram.total(gamma))

    def covariance(self, gamma: Array) -> ProbedPrecisionCovariance:
        """P⁻¹ by probes."""
        if self.shared is None:
            total = SparseSum(self.form.prior.precision, self.form.rows, gamma)
        else:
            total = SparseSum(self.matrix(gamma))
        return ProbedPrecisionCovariance.of(total, self.probes)


class EstimatedFit(NamedTuple):
    """The mean, the covariance about it, the stand-ins of the sites, the evidence, and whether variances settled."""

    ascent: Ascent[ExpansionPoint]
    covariance: ProbedPrecisionCovariance
    sites: SiteParameters
    evidence: float
    settled: bool = True


def _curved(
    form: ProductForm, start: Posterior | None, rules: Rules, verbose: bool, precisions: PrecisionFamily
) -> EstimatedFit:
    """The mode with its curvature; log p(w*) + ½ log det(2πS)."""
    ascent = find_mode_by_products(form, None if start is None else start.mean, rules, LABELS["laplace"], verbose)
    at = ascent.state
    gamma = np.maximum(-at.curvature, 0.0)
    covariance = precisions.covariance(gamma)
    sites = SiteParameters(gamma, form.sites.derivatives(at.x).first + gamma * at.x)
    return EstimatedFit(ascent, covariance, sites, at.objective + _log_volume(covariance))


def _averaged(
    form: ProductForm, start: Posterior | None, rules: Rules, verbose: bool, precisions: PrecisionFamily
) -> EstimatedFit:
    """Variances, means given them, and Γ given both, in turn; the probes are the same ones every time."""
    begin, variance = _first(form, start, rules, precisions)
    settled = False
    for _ in range(REFRESHED):
        smooth = replace(form, sites=AveragedSites(form.sites, variance))  # type: ignore[arg-type]
        ascent = find_mode_by_products(smooth, begin, rules, LABELS["gkl"], verbose)
        at = ascent.state
        begin, gamma = form.prior.origin + at.deviation, np.maximum(-at.curvature, 0.0)
        covariance = precisions.covariance(gamma)
        before, variance = variance, covariance.project(form.rows)
        settled = bool(np.abs(variance - before).max(initial=0.0) <= SETTLED * variance.max(initial=0.0))
        if settled:
            break
    expected, delta = form.sites.expected_log(at.x, variance), at.deviation
    # Σ⟨ψ⟩ + ⟨log prior⟩ + ½ log det(2πeS) with tr(ΛS) = D − Σγv
    prior = form.prior.constant + float(delta @ (form.prior.linear - 0.5 * (form.prior.precision @ delta)))
    evidence = float(expected.value.sum()) + prior + 0.5 * float(gamma @ variance) + _log_volume(covariance)
    sites = SiteParameters(gamma, expected.d_mean + gamma * at.x)
    return EstimatedFit(ascent, covariance, sites, evidence, settled)


def _first(
    form: ProductForm, start: Posterior | None, rules: Rules, precisions: PrecisionFamily
) -> tuple[Array, Array]:
    """Means and variances to begin with: those of a like posterior, or those at a rough mode."""
    structure = None if start is None else getattr(start.density, "structure", None)
    if start is not None and isinstance(structure, ProbedPrecisionCovariance) and structure.dim == form.rows.shape[1]:
        return start.mean, structure.project(form.rows)
    rough = Rules(gradient_tol=1e-2, max_iter=rules.max_iter)
    at = find_mode_by_products(form, None if start is None else start.mean, rough, LABELS["gkl"]).state
    covariance = precisions.covariance(np.maximum(-at.curvature, 0.0))
    return form.prior.origin + at.deviation, covariance.project(form.rows)


def _log_volume(covariance: ProbedPrecisionCovariance) -> float:
    """½ log det(2πS)."""
    return 0.5 * (covariance.dim * LOG_2PI + covariance.log_det)


def _typical_error(form: ProductForm, covariance: ProbedPrecisionCovariance) -> float:
    """The median standard error of the sites' variances, as a share of them."""
    value, error = covariance.estimated(form.rows[: min(form.rows.shape[0], 1000)])
    return float(np.median(error / np.maximum(value, np.finfo(float).tiny)))

"""Gaussians in site form when the precision P = Λ + HᵀΓH is sparse: everything at the cost of its Cholesky factor.

The pattern of P is that of the prior precision Λ and of HᵀH, whatever Γ; it is ordered and analysed once for a model.
Every step then costs one numeric factorisation, and the variances of the sites, h_nᵀP⁻¹h_n, need only entries of P⁻¹ on
that pattern: the selected inverse, at the price of the factor itself. So the full covariance of Gaussian KL, at whose
optimum S⁻¹ = Λ + HᵀΓH (Challis (2013), eq. 4.3.1), costs what a Laplace approximation does.

Intrinsic priors and linear constraints A w = e are part of the form: w = μ + D u with A μ = e and A D u = 0, D being
diagonal, of typical standard deviations. Gradients and products that engines see are those along the constraints.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening
from latlin.densities.sparse_precision import SparsePrecision, SparsePrecisionCovariance, condition
from latlin.inference.forms.prior import (
    PAIRS,
    Quadratic,
    has_proper_factor,
    log_integral,
    may_be_sparse,
    may_take_sparse,
    needs_sparse,
    quadratic_of,
)
from latlin.inference.forms.projections import ScaledRows, stacked_rows, stacked_sites
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sparse_rows import (
    EntrySums,
    SharedPattern,
    expected_sums,
    is_hardly_sparse,
    pattern_of,
    times_band,
)
from latlin.inference.mode import Expansion
from latlin.inference.model import LatentLinearModel
from latlin.numerics import optimise
from latlin.numerics.arrays import LOG_2PI, Array, empty_array, max_abs
from latlin.numerics.intrinsic import hold_coordinates
from latlin.numerics.linalg import Cholesky, dot
from latlin.numerics.sparse_cholesky import Analysis, Plan, analyse, plan_elimination
from latlin.numerics.weighted_gram import WeightedGram, has_single_entries, same_numbers

Index = NDArray[np.int64]
#: share of the dense factor's entries and operations up to which a sparse factor is worth its while
THIN, LIGHT = 0.75, 0.3
#: entries of the factor and operations up to which the form is chosen
ENTRIES, OPERATIONS = 3 * 10**7, 1e11
#: operations per number of a factor from which on a Newton step tries to do with the factor of an earlier one, the
#: residual up to which its system is solved, and in how many steps at most
DEAR, NEAR, STEPS = 100.0, 1e-8, 8
Form = TypeVar("Form", bound="SparseForm")
#: analyses of patterns that are in use, by a digest of the pattern: refits with other values share them
_KNOWN: WeakValueDictionary[bytes, Analysis] = WeakValueDictionary()
#: digests of patterns whose factors fill
_FILLED: deque[bytes] = deque(maxlen=16)
IMPROPER = (
    "the posterior is improper: the factors leave some direction of w undetermined; "
    "add a GaussianFactor on w, a Constraint or more sites"
)


@dataclass(frozen=True)
class UnitPrecision:
    """The precision of a solution in the coordinates u; factorised again only when something is asked of it.

    Parameters
    ----------
    form : SparseForm
    gamma : ndarray of shape (n_sites,)
    """

    form: SparseForm
    gamma: Array

    @cached_property
    def found(self) -> SparsePrecision:
        """P itself, in the coordinates of w."""
        precision = self.form.sparse_precision(self.gamma)
        assert precision is not None  # an ascent has been there
        return precision

    @property
    def log_det(self) -> float:
        """Of P in the coordinates of w, in which the form's constant is; see `SparsePrecision`."""
        return self.found.log_det

    def solve(self, b: Array) -> Array:
        scale = self.form.projections.scale
        return self.found.solve(b / scale) / scale


@dataclass(frozen=True)
class SparseForm(SiteForm):
    """The family of a model with a sparse precision; see the module.

    Parameters
    ----------
    prior : Quadratic
    gram : WeightedGram
        Sums HᵀΓH on the analysed pattern.
    held : ndarray of int
        Coordinates that are held where only the constraints make P proper.
    weight : float
        How firmly.
    prior_entries : ndarray
        Λ on the analysed pattern.
    """

    projections: ScaledRows
    prior: Quadratic
    gram: WeightedGram
    held: Index
    weight: float
    prior_entries: Array

    @property
    def analysis(self) -> Analysis:
        return self.gram.analysis

    @cached_property
    def _prior_values(self) -> Array:
        values = self.prior_entries.copy()
        values[self.analysis.diagonal[self.analysis.label[self.held]]] += self.weight
        return values

    @cached_property
    def multiplicity(self) -> Array:
        """How often each entry stands in the matrix: once on the diagonal, twice off it."""
        counts = np.full(len(self.analysis.indices), 2.0)
        counts[self.analysis.diagonal] = 1.0
        return counts

    @cached_property
    def entry_scale(self) -> Array:
        """The product of the scales of an entry's two coordinates."""
        a, scale = self.analysis, self.projections.scale
        ordered = scale[a.order]
        return ordered[a.indices] * np.repeat(ordered, np.diff(a.indptr))

    def sparse_precision(self, gamma: Array) -> SparsePrecision | None:
        """P = Λ + HᵀΓH along the constraints, or None where it is not positive definite there; the last is kept."""
        known: tuple[Array, SparsePrecision | None] | None = vars(self).get("_last_precision")
        if known is not None and same_numbers(known[0], gamma):
            return known[1]
        found = self._precision_of(self.gram.added(self._prior_values, gamma))
        if found is not None:
            vars(self)["_last_precision"] = (gamma.copy(), found)
        return found

    def precision_with(self, entries: Array) -> SparsePrecision | None:
        """The same from the entries of HᵀΓH."""
        return self._precision_of(self._prior_values + entries)

    def _precision_of(self, values: Array) -> SparsePrecision | None:
        """The same from the entries of P, which are overwritten."""
        factor = self.analysis.factorise(values, overwrite=True)
        return None if factor is None else condition(factor, self.prior.rows, self.held, self.weight)

    def solve(self, parameters: SiteParameters) -> Solution | None:
        found = self.sparse_precision(parameters.gamma)
        if found is None:
            return None
        deviation = found.solve(self._pull(parameters.nu))
        precision: Any = UnitPrecision(self, parameters.gamma)
        vars(precision)["found"] = found
        u = np.divide(deviation, self.projections.scale, out=empty_array(self.rank))
        return Solution(parameters, precision, u, self.projections.seen(deviation))

    def _pull(self, nu: Array) -> Array:
        """b + Hᵀν."""
        own = self.projections.own
        return np.add(self.prior.linear, nu if own else self.gram.columns @ nu, out=empty_array(self.rank))

    def expand(self, u: Array, smoothing: float | None = None) -> Expansion:
        """The log joint about u; where sites are on the coordinates themselves, with few vectors of their length."""
        if smoothing is not None or not self.projections.own:
            return super().expand(u, smoothing)
        scale = self.projections.scale
        deviation = np.multiply(scale, u, out=empty_array(self.rank))
        with np.errstate(over="ignore", invalid="ignore"):
            value, slope, second = self.sites.expansion(deviation)
            held = self._times_prior(deviation)
            objective = self.constant + dot(self.linear, u) - 0.5 * dot(deviation, held) + float(value.sum())
        # b̃ + D(ψ′ − ΛDu)
        gradient = np.subtract(slope, held, out=held)
        gradient *= scale
        gradient = self.projections.along(gradient)
        gradient += self.linear
        kept = (deviation, slope, np.negative(second, out=empty_array(self.rank)))
        return Expansion(u, objective if np.isfinite(objective) else -np.inf, gradient, kept)

    def first_coordinates(self) -> Array:
        """The mean of the Gaussian with the sites' own centres and typical curvatures, as for a linear model."""
        gamma, centre = self.sites.typical_precision(), self.sites.centres()
        start = None if not centre.any() else self.solve(SiteParameters(gamma, gamma * centre))
        return super().first_coordinates() if start is None else start.u

    def newton_step(self, at: Expansion) -> Array | None:
        """By a factorisation; where one is dear, the next steps by conjugate gradients, preconditioned by the first."""
        known = vars(self).get("_first_factor")
        step = None if known is None else self._step_near(known, at)
        if step is not None:
            return step
        precision = self._first_precision(at.kept[2])
        if precision is None:
            return None
        # P⁻¹g is the way to the mean of the Gaussian with the curvature there
        step = precision.solve(np.divide(at.gradient, self.projections.scale, out=empty_array(self.rank)))
        return np.divide(step, self.projections.scale, out=step)

    def _first_precision(self, gamma: Array) -> SparsePrecision | None:
        """P, kept for steps near by where it is dear."""
        precision = self.sparse_precision(gamma)
        if precision is not None and self.analysis.flops > DEAR * self.analysis.numbers and not len(self.prior.rows):
            vars(self)["_first_factor"] = precision
        return precision

    def continued(self, parameters: SiteParameters) -> Array | None:
        """The mean of the Gaussian with these stand-ins, from which a search for the mode goes on."""
        precision = self._first_precision(parameters.gamma)
        if precision is None:
            return None
        return precision.solve(self._pull(parameters.nu)) / self.projections.scale

    def _is_flat(self, solution: Solution) -> bool:
        """A precision that is not definite has no factor."""
        return False

    def _step_near(self, known: SparsePrecision, at: Expansion) -> Array | None:
        """P⁻¹g with a near P as preconditioner; None where that takes long or P is not definite."""
        scale, gamma = self.projections.scale, at.kept[2]

        def times(v: Array) -> Array:
            return self.prior.precision @ v + self.projections.summed(gamma * (self.rows @ v))

        x = optimise.solve_near(times, known.solve, at.gradient / scale, NEAR, STEPS)
        return None if x is None else x / scale

    def precision(self, gamma: Array) -> Array:
        """P, dense and in the coordinates u: for small models whose Hessian is not definite."""
        scaled = sparse.diags_array(self.projections.scale)
        prior = (scaled @ self.prior.precision @ scaled).toarray()
        total = prior + self.projections.gram(gamma)
        normal = self.projections.normal
        inside = np.eye(len(total)) - normal @ normal.T
        return np.asfortranarray(inside @ total @ inside + normal @ normal.T)

    def variances(self, solution: Solution) -> Array:
        precision: Any = solution.precision
        found = self.gram.squares(precision.found.inverse_values)
        return np.maximum(found, 0.0, out=found)

    def entry_sums(self, deviation: Array, inverse: Array) -> tuple[EntrySums, SiteParameters | None] | None:
        """Sums over all sites under a Gaussian, and the stand-ins of those in memory; None where there are none."""
        return expected_sums(self.gram, self.sites, deviation, inverse)

    def kept(self, solution: Solution) -> Array:
        return np.zeros(0)

    def restored(self, parameters: SiteParameters, kept: Array) -> Cholesky:
        precision: Any = UnitPrecision(self, parameters.gamma)
        return precision

    def covariance_gradient(self, solution: Solution, variance: Array, excess: Array) -> float:
        """Largest absolute entry of Hᵀ(Γ − Γ̂)H, twice ∂B/∂S of the Gaussian KL bound, in the coordinates u."""
        scale, single = self.projections.scale, self.gram.single
        if single is None:
            return max_abs(self.gram.total(excess) * self.entry_scale)
        diagonal = np.bincount(self.rows.indices, single.squares * excess, self.rank)
        return max_abs(diagonal * scale * scale)

    def _times_prior(self, deviation: Array) -> Array:
        """Λδ."""
        found = times_band(self.analysis, self.prior_entries, deviation)
        return self.prior.precision @ deviation if found is None else found

    def times_quadratic(self, u: Array) -> Array:
        scale = self.projections.scale
        found = self._times_prior(np.multiply(scale, u, out=empty_array(self.rank)))
        found *= scale
        return self.projections.along(found)

    def gaussian_terms(self, solution: Solution, variances: Array) -> float:
        """⟨log Gaussian factors⟩_q + entropy of q: tr(ΛS) = D − k − Σ_n γ_n s_n² under k constraints."""
        degrees = self.rank - len(self.prior.rows)
        trace = degrees - dot(solution.parameters.gamma, variances)
        entropy = 0.5 * (degrees + self.rank * LOG_2PI - solution.precision.log_det)
        return self.log_gaussian(solution.u) - 0.5 * trace + entropy

    def coordinates(self, w: Array) -> Array:
        return self.projections.along(super().coordinates(w))

    def density(self, solution: Solution) -> Gaussian:
        precision: Any = solution.precision
        return Gaussian(self.weights(solution.u), SparsePrecisionCovariance(precision.found))


def uses_sparse(model: LatentLinearModel) -> bool:
    """Whether the sparse form is the one for a model."""
    if needs_sparse(model):
        return True
    return may_be_sparse(model) and _analysed(model, quadratic_of(model), _site_rows(model)) is not None


def sparse_form(model: LatentLinearModel, forced: bool = False) -> SparseForm | None:
    """The form of a model whose precision is sparse; None where another form is better, unless it is forced."""
    if not forced and not may_take_sparse(model):
        return None
    prior, rows = quadratic_of(model), _site_rows(model)
    shared = _shared(model, prior.precision)
    if shared is None:
        analysis = _analysed(model, prior, rows, forced)
        if analysis is None:
            return None
        shared = SharedPattern.of(prior.precision, WeightedGram(analysis, rows))
        if len(model.sites) == 1:
            model.sites[0].kept["pattern"] = shared
    return _built(model, prior, shared)


def _site_rows(model: LatentLinearModel) -> sparse.csr_array:
    rows = stacked_rows(model)
    return rows if isinstance(rows, sparse.csr_array) else sparse.csr_array(rows)


def _shared(model: LatentLinearModel, precision: sparse.csr_array) -> SharedPattern | None:
    """What an earlier fit of the same rows has left, if the prior's pattern is that of then."""
    known: SharedPattern | None = model.sites[0].kept.get("pattern") if len(model.sites) == 1 else None
    if known is None or model.dim != known.gram.analysis.dim:
        return None
    return known if known.has_pattern(precision) else None


def _analysed(
    model: LatentLinearModel, prior: Quadratic, rows: sparse.csr_array, forced: bool = False
) -> Analysis | None:
    """The analysis of P's pattern, taken over from a living posterior of the same pattern; None where P would fill."""
    patterns = [prior.precision.indptr, prior.precision.indices]
    if not has_single_entries(rows):
        patterns += [rows.indptr, rows.indices]
    digest = blake2b(digest_size=16)
    for part in patterns:
        digest.update(f"{part.dtype.str}{len(part)}".encode())
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    key, optional = digest.digest(), not forced and not needs_sparse(model)
    known = _KNOWN.get(key)
    if known is not None:
        return known
    if optional and (key in _FILLED or is_hardly_sparse(rows)):
        return None
    pattern = pattern_of(prior.precision, rows)
    plan = plan_elimination(pattern)
    if optional and _fills(plan, model.dim):
        _FILLED.append(key)
        return None
    analysis = analyse(pattern, plan)
    _KNOWN[key] = analysis
    return analysis


def filling_plan(model: LatentLinearModel) -> Plan | None:
    """The plan of a sparse precision's factor that would be too large or take too long; None where there is none."""
    if model.dim < (ENTRIES * 2) ** 0.5 or not may_take_sparse(model):
        return None
    prior, rows = quadratic_of(model), _site_rows(model)
    if float(np.sum(np.diff(rows.indptr).astype(float) ** 2)) > PAIRS:
        return None
    plan = plan_elimination(pattern_of(prior.precision, rows))
    return plan if plan.entries > ENTRIES or plan.flops > OPERATIONS else None


def _fills(plan: Plan, dim: int) -> bool:
    """Whether a factor is not much less than a dense one, or too large in any case."""
    thin = plan.entries < min(THIN * 0.5 * dim * dim, ENTRIES)
    return not (thin and plan.flops < min(LIGHT * dim**3 / 3.0, OPERATIONS))


def _built(model: LatentLinearModel, prior: Quadratic, shared: SharedPattern) -> SparseForm:
    sites = stacked_sites(model)
    sites = sites.shifted(shared.seen_from(prior.origin)) if prior.origin.any() else sites
    return assemble_form(SparseForm, model, prior, shared, sites, shared.typical_entries(sites))


def assemble_form(
    kind: type[Form],
    model: LatentLinearModel,
    prior: Quadratic,
    shared: SharedPattern,
    sites: Sites,
    curvature: Array,
    **more: Any,
) -> Form:
    """A form of some kind from the prior, the pattern of the rows, and HᵀΓH of typical curvatures."""
    gram, rows = shared.gram, shared.gram.rows
    own = shared.prior_entries(prior.precision)
    typical = own + curvature
    held, weight, grounded = np.zeros(0, np.int64), 0.0, None
    if len(prior.rows) or not has_proper_factor(model):
        grounded = hold_coordinates(gram.analysis, typical, len(prior.rows))
        if grounded is None:
            raise ValueError(IMPROPER)
        held, weight = grounded.held, grounded.weight if len(grounded.held) else 0.0
    diagonal = np.empty(model.dim)
    diagonal[gram.analysis.order] = typical[gram.analysis.diagonal]
    scale = 1.0 / np.sqrt(diagonal)
    normal = qr((prior.rows * scale).T, mode="economic")[0] if len(prior.rows) else np.zeros((model.dim, 0))
    projections = ScaledRows(gram, scale, normal)
    constant = prior.constant - (log_integral(model, prior) if model.normalise_prior else 0.0)
    form = kind(
        prior.origin,
        DiagonalWhitening(scale),
        None,
        None,
        projections.along(scale * prior.linear),
        constant,
        projections,
        sites,
        rows,
        prior,
        gram,
        held,
        weight,
        own,
        **more,
    )
    if grounded is not None and len(sites):
        # a search for the mode begins with these curvatures
        first = condition(grounded.factor, prior.rows, held, weight)
        vars(form)["_last_precision"] = (sites.typical_precision(), first)
    return form

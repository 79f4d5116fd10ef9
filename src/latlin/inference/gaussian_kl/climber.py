"""What the fit of a structured covariance is made of: where it starts, rough and final ascents, the best of several.

Every fit starts from a quick diagonal one, whose site curvatures say what is worth adding to the diagonal: which
coordinates a chevron should give full rows, which directions loadings should take. Log-concave sites need one place to
start from. Others have several, as for a full covariance: the mode with its curvature, the moments of local bounds
(Challis (2013), §4.4.1), and the prior's mean with the sites' typical curvature. A rough diagonal fit is made from
each; those that end apart are gone on with, and the best is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from latlin.densities.gaussian import Gaussian
from latlin.densities.structured.base import DiagonalStructure, Structure, StructuredCovariance
from latlin.densities.structured.rows import ProjectionRows
from latlin.distributed.blocks import Block
from latlin.inference.forms.prior import needs_sparse
from latlin.inference.forms.sites import Start
from latlin.inference.forms.structured import BlockView, StructuredForm, site_precision, structured_form
from latlin.inference.gaussian_kl.structured import StructuredBound, StructuredState, climb, finite_view
from latlin.inference.local_bound.double_loop import maximise_local_bound
from latlin.inference.local_bound.families import ExactFamily, LanczosFamily
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Rules
from latlin.potentials.gaussian_mixture import GaussianMixture

#: gradient at which a fit that only prepares another one may stop
ROUGH = 1e-2
#: gradient at the usual start beyond which there is a better one
FAR = 1e8
#: quasi-Newton steps are cheaper and more than Newton steps
PATIENCE = 20
#: Lanczos steps for the variances of local bounds, and outer steps of these
RANK, OUTER = 50, 50
#: steps towards the mode
STEPS = 200
#: dimensions up to which a rough diagonal fit is cheap enough to be one more start
FEW = 50
#: bounds of rough fits that differ relatively by more are different optima
APART = 1e-3


class StructuredFit(NamedTuple):
    """A structure, the ascent in it, and what a user should know."""

    structure: Structure
    ascent: Ascent[StructuredState]
    note: str = ""


@dataclass(frozen=True)
class Precision:
    """P = prior + HᵀΓH with the sites' curvatures at a diagonal Gaussian, by its products.

    Parameters
    ----------
    form : StructuredForm
    gamma : ndarray of shape (n_sites,)
        Of the sites in memory.
    m, scale : ndarray of shape (dim,)
        The diagonal Gaussian.
    diagonal_elsewhere : ndarray of shape (dim,) or float
        What sites in blocks of rows add to the diagonal.
    """

    form: StructuredForm
    gamma: Array
    m: Array
    scale: Array
    diagonal_elsewhere: Array | float

    @property
    def dim(self) -> int:
        return self.form.dim

    def diagonal(self) -> Array:
        return self.form.prior + self.form.rows.energy(self.gamma) + self.diagonal_elsewhere

    def times(self, block: Array) -> Array:
        """P times the columns of a narrow matrix; one pass."""
        rows = self.form.rows
        total = self.form.prior * block + rows.transposed_columns(self.gamma[:, None] * rows.times_columns(block))
        if self.form.elsewhere is None:
            return total
        return total + self.form.elsewhere.total(precision_sums, self.m, self.scale, block)[0]

    def among(self, chosen: NDArray[np.int64]) -> Array:
        """Entries between some coordinates; the diagonal need not be right."""
        total = weighted_gram(self.form.rows, self.gamma, chosen)
        if self.form.elsewhere is None:
            return total
        return total + self.form.elsewhere.total(gram_sums, self.m, self.scale, chosen)[0]


def precision_sums(block: Block, view: BlockView, m: Array, scale: Array, columns: Array) -> tuple[Any, ...]:
    """HᵀΓH times some columns, Γ at a diagonal Gaussian."""
    total = np.zeros(columns.shape)
    for sites in view.sites(block, DiagonalStructure(len(m))):
        gamma = site_precision(finite_view(sites, m, scale).expected.d_var)
        total += sites.rows.transposed_columns(gamma[:, None] * sites.rows.times_columns(columns))
    return (total,)


def gram_sums(block: Block, view: BlockView, m: Array, scale: Array, chosen: NDArray[np.int64]) -> tuple[Any, ...]:
    """HᵀΓH between some coordinates, Γ at a diagonal Gaussian."""
    total = np.zeros((len(chosen),) * 2)
    for sites in view.sites(block, DiagonalStructure(len(m))):
        gamma = site_precision(finite_view(sites, m, scale).expected.d_var)
        total += weighted_gram(sites.rows, gamma, chosen)
    return (total,)


def energy_sums(block: Block, view: BlockView) -> tuple[Any, ...]:
    """Diagonal of HᵀΓH with the sites' typical curvatures."""
    total = np.zeros(len(view.scale))
    for sites in view.sites(block, DiagonalStructure(len(view.scale))):
        total += sites.rows.energy(sites.sites.typical_precision())
    return (total,)


def weighted_gram(rows: ProjectionRows, gamma: Array, chosen: NDArray[np.int64]) -> Array:
    """HᵀΓH between some coordinates."""
    if hasattr(rows, "matrix") and sparse.issparse(rows.matrix):
        columns = rows.matrix.tocsc()[:, chosen]
        return (columns.T @ (sparse.diags_array(gamma) @ columns)).toarray()
    return rows.transposed_columns(gamma[:, None] * rows.times_columns(unit_columns(rows.shape[1], chosen)))[chosen]


def unit_columns(dim: int, chosen: NDArray[np.int64]) -> Array:
    """The unit vectors of some coordinates, one per column."""
    columns = np.zeros((dim, len(chosen)))
    columns[chosen, np.arange(len(chosen))] = 1.0
    return columns


def typical_scale(form: StructuredForm) -> Array:
    """Standard deviations of the coordinates when every site has its typical curvature."""
    energy: Array | float = form.rows.energy(form.sites.typical_precision()) if len(form.sites) else 0.0
    if form.elsewhere is not None:
        energy = energy + form.elsewhere.total(energy_sums)[0]
    return 1.0 / np.sqrt(form.prior + energy)


@dataclass(frozen=True)
class Climber:
    """A form, the rules of the final ascent, and where to report."""

    form: StructuredForm
    rules: Rules
    verbose: bool
    checkpoint: Checkpoint | None

    def rough(self, structure: Structure, start: Array, change: float = 1e-4) -> Ascent[StructuredState]:
        """An ascent good enough to start another, ended when the bound changes relatively by less than `change`."""
        rules = replace(self.rules, gradient_tol=max(ROUGH, self.rules.gradient_tol), objective_tol=change)
        return climb(StructuredBound(self.form, structure), start, rules, "start", warn=False)

    def final(self, structure: Structure, start: Array) -> Ascent[StructuredState]:
        """The ascent whose end is the fit."""
        objective = StructuredBound(self.form, structure)
        factor = 1 if objective.concave else PATIENCE
        rules = replace(self.rules, max_iter=factor * self.rules.max_iter)
        return climb(objective, start, rules, "Gaussian KL", self.verbose, self.checkpoint)

    def diagonal(self, mean: Array, scale: Array) -> tuple[Array, Array, Precision]:
        """Mean and scales of a rough diagonal fit, and the precision there."""
        dim = self.form.dim
        state = self.rough(DiagonalStructure(dim), np.concatenate([mean, scale])).state
        m, scale = state.point[:dim], state.point[dim:]
        away = state.elsewhere[:dim] if len(state.elsewhere) else 0.0
        return m, scale, Precision(self.form, site_precision(state.d_var), m, scale, away)


class CovarianceOption(Protocol):
    """A kind of covariance: options only; see `latlin.covariances`."""

    #: its name as a word
    name: ClassVar[str]

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        """Fit it from a mean and standard deviations in the coordinates of the climber's form."""
        ...

    def continue_fit(self, climber: Climber, start: Start) -> StructuredFit | None:
        """Fit it from a posterior with a covariance of this kind; None to start from its moments alone."""
        ...


class Structured:
    """What most structures share: a fit goes on from the moments of a posterior alone."""

    name: ClassVar[str]

    def continue_fit(self, climber: Climber, start: Start) -> StructuredFit | None:
        return None


def check_count(value: Any, name: str, covariance: str, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"covariance={covariance!r} needs {name}, an integer of at least {least}, got {value!r}")


class DiagonalMoments(NamedTuple):
    """Mean and standard deviations of a diagonal Gaussian in whitened coordinates."""

    mean: Array
    scale: Array


def structured_starts(form: StructuredForm) -> list[DiagonalMoments]:
    """Places to start from; the last always serves."""
    usual = DiagonalMoments(np.zeros(form.dim), np.broadcast_to(typical_scale(form), form.dim).astype(float))
    if form.elsewhere is not None:
        return [usual]
    if form.log_concave:
        return [_at_centres(form, usual) if _is_far(form, usual) else usual]
    potentials = form.sites.potentials
    mode = [_expand_mode(form, usual)] if all(p.smooth for p in potentials) else []
    bounded = form.sites.extra is None and all(p.super_gaussian for p in potentials)
    bound = [_match_local_bound(form, usual)] if bounded else []
    return [*mode, *bound, usual]


def _is_far(form: StructuredForm, usual: DiagonalMoments) -> bool:
    """Whether the sites pull so hard at the usual place that steps from there go astray, as large counts do."""
    if not len(form.sites) or not all(potential.smooth for potential in form.sites.potentials):
        return False
    slope = form.rows.transposed(form.sites.derivatives(form.rows.times(usual.mean)).first)
    return not np.abs(slope).max(initial=0.0) < FAR


def _at_centres(form: StructuredForm, usual: DiagonalMoments) -> DiagonalMoments:
    """The mean of the Gaussian whose sites stand at their own centres, with the curvature that they have there."""
    sites = form.sites
    spans = [(potential, span.stop - span.start) for span, potential in sites.blocks]
    centre = np.concatenate([np.broadcast_to(p.regions()[0][0], n) for p, n in spans]) - sites.offset
    gamma = np.maximum(-sites.derivatives(centre).second, 0.0)

    def times(u: Array) -> Array:
        return form.prior * u + form.rows.transposed(gamma * form.rows.times(u))

    operator = LinearOperator((form.dim, form.dim), matvec=times, dtype=float)
    u, _ = cg(operator, form.rows.transposed(gamma * centre), rtol=1e-8, maxiter=10 * form.dim)
    return DiagonalMoments(u, _scales(form, gamma, usual))


def _expand_mode(form: StructuredForm, usual: DiagonalMoments) -> DiagonalMoments:
    def loss(u: Array) -> tuple[float, Array]:
        x = form.rows.times(u)
        value = float(np.sum(form.sites.log_density(x))) - 0.5 * form.prior * float(u @ u)
        slope = form.rows.transposed(form.sites.derivatives(x).first) - form.prior * u
        return -value, -slope

    u = minimize(loss, usual.mean, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    curvature = -form.sites.derivatives(form.rows.times(u)).second
    return DiagonalMoments(u, _scales(form, curvature, usual))


def _match_local_bound(form: StructuredForm, usual: DiagonalMoments) -> DiagonalMoments:
    family = LanczosFamily(form, min(RANK, form.dim))
    rules = Rules(gradient_tol=1e-2, objective_tol=1e-4, max_iter=OUTER)
    best = maximise_local_bound(family, family.first(), rules, label="start", warn=False).state
    return DiagonalMoments(best.u, _scales(form, best.gamma, usual))


def _scales(form: StructuredForm, gamma: Array, usual: DiagonalMoments) -> Array:
    precision = form.prior + form.rows.energy(np.maximum(gamma, 0.0))
    return np.where(precision > 0.0, 1.0 / np.sqrt(np.maximum(precision, np.finfo(float).tiny)), usual.scale)


def fit_from_starts(covariance: CovarianceOption, climber: Climber, starts: list[DiagonalMoments]) -> StructuredFit:
    """The fit with the highest bound from several places."""
    if len(starts) == 1:
        return covariance.fit(climber, *starts[0])
    best, *others = _ends_apart(climber, starts)
    again = replace(climber, checkpoint=None)
    fits = [covariance.fit(climber, *best), *(covariance.fit(again, *start) for start in others)]
    return max(fits, key=lambda fit: float(fit.ascent.state.bound))


def fit_rough_diagonal(model: LatentLinearModel) -> Gaussian:
    """The better of rough diagonal fits from several places."""
    form = structured_form(model)
    climber = Climber(form, Rules(), verbose=False, checkpoint=None)
    best = _ends_apart(climber, structured_starts(form))[0]
    covariance = StructuredCovariance(form.whitening, DiagonalStructure(form.dim), best.scale)
    return Gaussian(form.weights(best.mean), covariance)


def local_bound_starts(family: ExactFamily, model: LatentLinearModel) -> list[tuple[Array, Array, Array]]:
    """Where an ascent of local bounds may start; from a rough diagonal fit too, for mixtures in few dimensions.

    Which weights a spike lets go is hard for local bounds to find, and easier for Gaussian KL.
    """
    firsts = family.firsts()
    mixed = any(isinstance(potential, GaussianMixture) for potential in model.potentials)
    if len(firsts) == 1 or not mixed or needs_sparse(model) or model.dim > FEW:
        return firsts
    diagonal = fit_rough_diagonal(model)
    return [*firsts, (family.form.coordinates(diagonal.mean), *family.form.marginals(diagonal))]


def _ends_apart(climber: Climber, starts: list[DiagonalMoments]) -> list[DiagonalMoments]:
    """Where rough diagonal fits from the starts end, the highest first and each optimum once."""
    diagonal = DiagonalStructure(climber.form.dim)
    objective = StructuredBound(climber.form, diagonal)
    points = [np.concatenate(start) for start in starts]
    finite = [point for point in points if objective.evaluate(point) is not None] or points[-1:]
    states = sorted((climber.rough(diagonal, point).state for point in finite), key=lambda state: -state.bound)
    apart = [states[0]]
    for state in states[1:]:
        if apart[-1].bound - state.bound > APART * (1.0 + abs(state.bound)):
            apart.append(state)
    return [DiagonalMoments(*np.split(state.point, 2)) for state in apart]


def inherit_moments(form: StructuredForm, start: Start) -> DiagonalMoments:
    """The moments of a posterior, with typical scales where it has none."""
    if len(start.mean) != form.dim:
        raise ValueError(f"start has dimension {len(start.mean)}, but the model has {form.dim}")
    scale = np.sqrt(start.variance) / form.whitening.scale
    usual = typical_scale(form)
    return DiagonalMoments(form.coordinates(start.mean), np.where(np.isfinite(scale) & (scale > 0.0), scale, usual))

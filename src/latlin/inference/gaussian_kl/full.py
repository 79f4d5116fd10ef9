"""How a full Gaussian KL fit is made: with stand-ins for every site, or by sums over the sites alone.

Both climb the same bound. With stand-ins a step mixes 2N numbers, and hard fits are finished by second-order steps;
with sums it mixes D²/2 and nothing is kept per row, as on blocks of rows. Where there are many rows for each dimension
the sums need less time and memory: on two cores, from about 40 rows per dimension on.

Wide priors on separable data, and some posteriors of sites that are not log-concave, bend the bound so much that site
parameters are poor coordinates. In (m, C) it is concave for concave sites (Challis (2013), §4.2.2), and Newton's
method with conjugate gradients needs few steps, each some tens of times dearer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.densities.structured.base import StructuredCovariance, banded_triangle
from latlin.inference.blocks import BlockModel
from latlin.inference.forms.dense import inherit_parameters, match_parameters, site_form, sum_form
from latlin.inference.forms.prior import may_take_sparse, needs_sparse
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.sparse import SparseForm, uses_sparse
from latlin.inference.forms.sparse_blocks import SparseBlockForm, sparse_block_form
from latlin.inference.forms.structured import structured_form
from latlin.inference.forms.sums import SumForm
from latlin.inference.gaussian_kl import entries, sites, sums
from latlin.inference.gaussian_kl.ascent import Reached, maximise_bound
from latlin.inference.gaussian_kl.climber import fit_rough_diagonal, local_bound_starts
from latlin.inference.gaussian_kl.sites import cavity_start, starts_from_cavity
from latlin.inference.gaussian_kl.structured import StructuredBound, climb
from latlin.inference.local_bound.double_loop import best_start, maximise_local_bound
from latlin.inference.local_bound.families import ExactFamily
from latlin.inference.mode import find_mode
from latlin.inference.model import IN_BLOCKS, LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.ascent import Ascent, Checkpoint, Rules
from latlin.numerics.linalg import cholesky

T = TypeVar("T", bound=tuple)
ALGORITHMS = ("auto", "sites", "sums")
#: rows per dimension from which on sums are faster
TALL = 40
#: accelerated steps before another algorithm is tried
QUICK = 60
#: gradient and relative change of the bound of an ascent that is to be compared with another
ROUGH, ROUGH_CHANGE = 1.0, 1e-5
#: gradient and relative change of the log joint near a mode whose curvature is the start
NEAR_MODE, NEAR_CHANGE = 1e-2, 1e-4
#: steps after which it is looked whether another start leads to the same optimum
GLANCE = 2
#: how near two of them are at the same optimum: in nat, and in standard deviations of the projections
CLOSE_BOUND, CLOSE_MEAN = 0.05, 0.1
#: rows per dimension from which on two starts that agree have found the optimum
MANY = 10
#: the largest dimension for which second-order steps are tried
SECOND_ORDER = 200
#: the same where each product is a pass over blocks of rows, and gradients of so many tolerances that call for them
FEW, CRAWLS = 50, 100.0
NO_START = (
    "no start gives a finite bound: rescale the columns of H, pass start=, or use engine 'ep' if a site is −∞ somewhere"
)


class FullTask(NamedTuple):
    """A fit to make: the model, where to start, when to stop, what to show and where to keep the state."""

    model: Model
    start: Posterior | None
    rules: Rules
    verbose: bool
    checkpoint: Checkpoint | None

    @property
    def short(self) -> FullTask:
        """The same for a few steps, after which another algorithm may be better."""
        return self._replace(rules=replace(self.rules, max_iter=min(QUICK, self.rules.max_iter)))

    @property
    def rough(self) -> Rules:
        """When an ascent is near enough to its optimum to be told from another."""
        return replace(self.rules, gradient_tol=ROUGH, objective_tol=ROUGH_CHANGE)


class FullFit(NamedTuple):
    """The ascent, the Gaussian it ended at with its bound, and the stand-ins of the sites, if rows are in memory."""

    ascent: Ascent[Any]
    density: Gaussian
    bound: float
    sites: SiteParameters | None


class Algorithm(Protocol):
    """How to reach the optimum."""

    def fit(self, task: FullTask) -> FullFit: ...


def choose_algorithm(name: str, model: Model) -> Algorithm:
    """What the name of an algorithm means for a model."""
    if isinstance(model, BlockModel):
        if name == "sites":
            raise ValueError(f"algorithm='sites' cannot be used: {IN_BLOCKS}")
        if needs_sparse(model.own):
            return ByBlockEntries(sparse_block_form(model))
        return BySums(_required(sum_form(model)))
    held = require_in_memory(model)
    by_entries = name == "auto" and may_take_sparse(held) and uses_sparse(held)
    if by_entries and held.log_concave:
        return ByEntries()
    if name == "sites" or by_entries or (name == "auto" and not _is_tall(held)):
        return BySites()
    form = sum_form(held)
    if form is not None:
        return BySumsFirst(form) if name == "auto" else BySums(form)
    if name == "auto":
        return BySites()
    raise ValueError(
        "algorithm='sums' needs a factor on w itself, sites on rows H, and no GaussianFactor with an H, "
        f"got {model!r}; use algorithm='sites'"
    )


def _required(form: SumForm | None) -> SumForm:
    assert form is not None  # blocks have one
    return form


def _is_tall(model: LatentLinearModel) -> bool:
    """Many rows for each dimension, and log-concave sites, which need but one start."""
    rows = sum(model.site_count(factor) for factor in model.sites if factor.H is not None)
    return rows >= TALL * model.dim and model.log_concave


def _warn(ascent: Ascent[T]) -> Ascent[T]:
    """The ascent, after a warning where it has not converged."""
    if not ascent.converged:
        alert(ascent.message, ConvergenceWarning)
    return ascent


@dataclass(frozen=True)
class BySums:
    """The ascent on (P, m) by sums over the sites."""

    form: SumForm

    def fit(self, task: FullTask) -> FullFit:
        ascent = self.climb(task.short)
        if ascent is None:
            raise ValueError(NO_START)
        if not ascent.converged and ascent.n_iter < task.rules.max_iter:
            ascent = self._finish(ascent, task)
        return self.conclude(_warn(ascent))

    def _finish(self, ascent: Ascent[Reached[sums.SumPlace]], task: FullTask) -> Ascent[Reached[sums.SumPlace]]:
        """The ascent, gone on with; by second-order steps in (m, C) first where it crawls in few dimensions."""
        now, left = ascent.state, task.rules.max_iter - ascent.n_iter
        crawls = ascent.gradient > CRAWLS * task.rules.gradient_tol and self.form.rank <= FEW
        if crawls:
            density = self.form.gaussian(now.place.m, cholesky(now.place.precision))
            newton = climb_second_order(task.model, density, replace(task.rules, max_iter=left))
            jumped = sums.place_of(self.form, newton)
            now = jumped if jumped is not None and jumped.bound >= now.bound else now
        coordinates = sums.SumCoordinates.about(self.form, now.place)
        rules = replace(task.rules, max_iter=left)
        last = maximise_bound(coordinates, now, rules, task.verbose, warn=False)
        trace = np.concatenate([ascent.trace, last.trace])
        message = f"{last.message}, after {ascent.n_iter} steps{' and second-order ones' * crawls}"
        return replace(last, trace=trace, n_iter=len(trace), message=message)

    def climb(self, task: FullTask) -> Ascent[Reached[sums.SumPlace]] | None:
        """The ascent, or None where no start has a finite bound."""
        model, start, rules, verbose, checkpoint = task
        first = sums.first_place(self.form, model.smooth, start)
        if first is None:
            return None
        coordinates = sums.SumCoordinates.about(self.form, first.place)
        return maximise_bound(coordinates, first, rules, verbose, checkpoint, warn=False)

    def conclude(self, ascent: Ascent[Reached[sums.SumPlace]]) -> FullFit:
        """What the ascent has found."""
        place = ascent.state.place
        chol = cholesky(place.precision)
        stand_ins = self.form.stand_ins(place.m, chol.factor)
        return FullFit(ascent, self.form.gaussian(place.m, chol), ascent.state.bound, stand_ins)


@dataclass(frozen=True)
class BySumsFirst(BySums):
    """The ascent by sums; from the beginning by sites where that crawls or ends before the optimum."""

    def fit(self, task: FullTask) -> FullFit:
        ascent = self.climb(task.short)
        if ascent is not None and (ascent.converged or ascent.n_iter == task.rules.max_iter):
            return self.conclude(_warn(ascent))
        found = BySites().fit(task._replace(checkpoint=None))
        steps = 0 if ascent is None else ascent.n_iter
        message = f"{found.ascent.message}; {steps} steps by sums had not"
        return found._replace(ascent=replace(found.ascent, message=message))


@dataclass(frozen=True)
class BySites:
    """The ascent on (γ, ν) of every site: several starts, accelerated steps, second-order ones at need."""

    def fit(self, task: FullTask) -> FullFit:
        return self._by_sites(site_form(require_in_memory(task.model)), task)

    def _by_sites(self, form: SiteForm, task: FullTask) -> FullFit:
        model = require_in_memory(task.model)
        ascent = self._finish(form, model, self._climb(form, model, task.short), task)
        solution = sites.solution_of(form, ascent.state.place)
        return FullFit(ascent, form.density(solution), ascent.state.bound, solution.parameters)

    @staticmethod
    def _climb(form: SiteForm, model: LatentLinearModel, task: FullTask) -> Ascent[Reached[sites.SitePlace]]:
        begin = partial(sites.evaluate, form, tol=task.rules.gradient_tol)
        known = [] if task.start is None else [partial(inherit_parameters, form, model, task.start)]
        starts = [cache(start) for start in known or _starts(form, model)]
        if not known and task.checkpoint is None and (quick := _climb_from_rough(form, task, starts[0])):
            return quick
        firsts = filter(None, (begin(start()) for start in starts))
        first = next(firsts, None) or begin(_expand_centres(form))
        if first is None:
            raise ValueError(NO_START)
        best, alone = _maximise(form, first, task.rules, task.verbose, task.checkpoint, warn=False), True
        for other in firsts:
            near = other
            for rules in (replace(task.rough, max_iter=GLANCE), task.rough):
                if not _is_same(near, best.state):
                    near = _maximise(form, near, rules, verbose=False, checkpoint=None, warn=False).state
            if not _is_same(near, best.state):
                found = _maximise(form, near, task.rules, task.verbose, None, warn=False)
                alone = alone and _is_same(found.state, best.state)
                best = max(best, found, key=_height)
            if alone and _has_many_rows(model):
                return best
        diagonal = begin(_match_diagonal(form, model)) if not known and _may_be_diagonal(model) else None
        if diagonal is not None:
            best = max(best, _maximise(form, diagonal, task.rules, task.verbose, None, warn=False), key=_height)
        return best

    @staticmethod
    def _finish(
        form: SiteForm, model: LatentLinearModel, ascent: Ascent[Reached[sites.SitePlace]], task: FullTask
    ) -> Ascent[Reached[sites.SitePlace]]:
        """The ascent, gone on with by second-order steps in (m, C) where the accelerated ones crawl."""
        rules = task.rules
        left = rules.max_iter - ascent.n_iter
        if ascent.converged or (left < 1 and ascent.n_iter < QUICK):
            return _warn(ascent)
        now = ascent.state
        if model.dim <= SECOND_ORDER and left > 0 and not needs_sparse(model):
            density = form.density(sites.solution_of(form, now.place))
            newton = climb_second_order(model, density, replace(rules, max_iter=left))
            jumped = sites.evaluate(form, match_parameters(form, model, newton), rules.gradient_tol)
            if jumped is not None and jumped.bound >= now.bound:
                now = jumped
        last = _maximise(form, now, replace(rules, max_iter=max(left, 1)), task.verbose, None)
        trace = np.concatenate([ascent.trace, last.trace])
        message = f"{last.message}, after {ascent.n_iter} accelerated steps and second-order ones"
        return replace(last, trace=trace, n_iter=len(trace), message=message)


@dataclass(frozen=True)
class ByEntries(BySites):
    """The ascent on the entries of a sparse precision, where they are fewer than the sites; else by sites."""

    def fit(self, task: FullTask) -> FullFit:
        model = require_in_memory(task.model)
        form = site_form(model)
        if not isinstance(form, SparseForm):
            return self._by_sites(form, task)
        # the limit of threads is set once, not at every factorisation
        with form.analysis.threads:
            if len(form.analysis.indices) + form.rank > len(form.sites):
                return self._by_sites(form, task)
            found = self._by_entries(form, model, task)
            return self._by_sites(form, task._replace(checkpoint=None)) if found is None else found

    @staticmethod
    def _by_entries(form: SparseForm, model: LatentLinearModel, task: FullTask) -> FullFit | None:
        """The fit, or None where it has no start or has not converged in a few steps."""
        start = _expand_mode(form) if task.start is None else inherit_parameters(form, model, task.start)
        coordinates = entries.EntryCoordinates(form)
        first = coordinates.begin(start)
        if first is None:
            return None
        _, _, rules, verbose, checkpoint = task.short
        ascent = maximise_bound(coordinates, first, rules, verbose, checkpoint, warn=False)
        if not ascent.converged and ascent.n_iter < task.rules.max_iter:
            return None
        density, stand_ins = coordinates.conclude(ascent.state.place)
        return FullFit(_warn(ascent), density, ascent.state.bound, stand_ins)


@dataclass(frozen=True)
class ByBlockEntries:
    """The ascent on the entries of a sparse precision by sums over blocks of rows."""

    form: SparseBlockForm

    def fit(self, task: FullTask) -> FullFit:
        coordinates = entries.EntryCoordinates(self.form)
        first = self._begin(coordinates, task.start)
        if first is None:
            raise ValueError(NO_START)
        ascent = maximise_bound(coordinates, first, task.rules, task.verbose, task.checkpoint)
        density, _ = coordinates.conclude(ascent.state.place)
        return FullFit(ascent, density, ascent.state.bound, None)

    def _begin(
        self, coordinates: entries.EntryCoordinates, start: Posterior | None
    ) -> Reached[entries.EntryPlace] | None:
        """Where a posterior of the same pattern leads in one step, or the curvature at a rough mode."""
        form = self.form
        structure: Any = None if start is None else getattr(start.density, "structure", None)
        if start is not None and isinstance(structure, SparsePrecisionCovariance):
            precision = structure.precision
            like = precision.factor.analysis is form.analysis
            found = form.entry_sums(start.mean - form.mean, precision.inverse_values) if like else None
            if found is not None:
                return coordinates.at(found[0].entries, found[0].pull)
        rough = Rules(gradient_tol=1.0, objective_tol=1e-3, max_iter=50)
        first = np.zeros(form.rank) if start is None else form.coordinates(start.mean)
        mode = find_mode(form, first, rules=rough, label="start", warn=False).state
        return coordinates.at(*form.coordinates_at(mode))


def _climb_from_rough(
    form: SiteForm, task: FullTask, start: Callable[[], SiteParameters]
) -> Ascent[Reached[sites.SitePlace]] | None:
    """The ascent after first steps in single precision; None where these are no gain, or no exact step goes on."""
    begun = sites.climb_roughly(form, task.rules.gradient_tol, start)
    if begun is None:
        return None
    coordinates, rough = begun
    ascent = maximise_bound(coordinates, rough, task.rules, task.verbose, warn=False)
    return None if ascent.state.place is rough.place else ascent


def _maximise(
    form: SiteForm,
    start: Reached[sites.SitePlace],
    rules: Rules,
    verbose: bool,
    checkpoint: Checkpoint | None,
    warn: bool = True,
) -> Ascent[Reached[sites.SitePlace]]:
    coordinates = sites.SiteCoordinates.about(form, start.place, rules.gradient_tol)
    return maximise_bound(coordinates, start, rules, verbose, checkpoint, warn)


def climb_second_order(model: Model, start: Gaussian, rules: Rules) -> Gaussian:
    """The Gaussian that Newton's method in (m, C) (L-BFGS where sites are not concave) reaches from `start`."""
    form = structured_form(model)
    structure = banded_triangle(form.dim, form.dim - 1)
    scale = form.whitening.scale
    # S̃ = L⁻¹SL⁻ᵀ = CᵀC
    factor = cholesky(start.covariance() / np.outer(scale, scale), name="the covariance", max_jitter=1e-8).factor
    point = np.concatenate([form.coordinates(start.mean), structure.flat(sparse.csc_array(factor))])
    end = climb(StructuredBound(form, structure), point, rules, "Gaussian KL", warn=False).state.point
    covariance = StructuredCovariance(form.whitening, structure, end[form.dim :])
    return Gaussian(form.weights(end[: form.dim]), covariance)


def _height(ascent: Ascent[Reached[sites.SitePlace]]) -> float:
    return ascent.state.bound


def _starts(form: SiteForm, model: LatentLinearModel) -> list[Callable[[], SiteParameters]]:
    """The curvature at the mode, where there is one; where it may help, that of a local bound or a typical one."""
    starts: list[Callable[[], SiteParameters]] = [partial(_expand_mode, form)] if model.smooth else []
    if model.smooth and model.log_concave:
        return starts
    bounded = not model.log_concave and form.sites.extra is None and all(p.super_gaussian for p in model.potentials)
    other = [partial(_match_local_bound, form, model)] if bounded else []
    return [*starts, *other, partial(_expand_centres, form)]


def _is_same(one: Reached[sites.SitePlace], other: Reached[sites.SitePlace]) -> bool:
    """Two ascents have come to the same place, or are about to."""
    apart = np.abs(one.place.x - other.place.x) / np.sqrt(np.maximum(other.place.variance, sites.TINY))
    return bool(abs(one.bound - other.bound) <= CLOSE_BOUND and apart.max(initial=0.0) <= CLOSE_MEAN)


def _has_many_rows(model: LatentLinearModel) -> bool:
    """Rows enough that two starts which agree leave no room for other optima."""
    return sum(model.site_count(factor) for factor in model.sites if factor.H is not None) >= MANY * model.dim


def _may_be_diagonal(model: LatentLinearModel) -> bool:
    """A diagonal fit may help to find the optimum, and is cheap."""
    return not model.log_concave and _is_independent(model)


def _is_independent(model: LatentLinearModel) -> bool:
    """The prior has independent coordinates, so that a diagonal covariance costs no more than passes over the rows."""
    plain = all(g.H is None and g.factor is None for g in model.gaussians)
    return bool(model.gaussians) and plain and not needs_sparse(model)


def _match_diagonal(form: SiteForm, model: LatentLinearModel) -> SiteParameters:
    """What matches a diagonal fit, so that a covariance with fewer freedoms does not end above a full one."""
    diagonal = fit_rough_diagonal(model)
    gamma, nu = match_parameters(form, model, diagonal)
    x, _ = form.marginals(diagonal)
    kept = np.maximum(gamma, 0.0)
    return SiteParameters(kept, nu + (kept - gamma) * np.asarray(x))


def _match_local_bound(form: SiteForm, model: LatentLinearModel) -> SiteParameters:
    """The Gaussian of the best local bound: from there the ascent ends above it (Challis (2013), §4.4.1)."""
    family = ExactFamily(form)
    rules = Rules(gradient_tol=1e-3, objective_tol=1e-7, monotone=True, max_iter=300)
    # many sites leave room for one optimum only
    many = len(form.sites) >= MANY * form.rank
    firsts = family.firsts()[:1] if many else local_bound_starts(family, model)
    best = maximise_local_bound(family, best_start(family, firsts), rules, label="start", warn=False).state
    return SiteParameters(best.gamma, best.nu)


def _expand_mode(form: SiteForm) -> SiteParameters:
    """The curvature at the mode, or something nearer to the optimum where that costs no more."""
    near_optimum = cavity_start(form) if starts_from_cavity(form) else None
    if near_optimum is not None:
        return near_optimum
    # a step of a sparse form without its variances costs a third of one with them
    near = (NEAR_MODE, NEAR_CHANGE) if isinstance(form, SparseForm) else (ROUGH, 1e-3)
    rough = Rules(gradient_tol=near[0], objective_tol=near[1], max_iter=50)
    return form.parameters(find_mode(form, form.first_coordinates(), rules=rough, label="start", warn=False).state)


def _expand_centres(form: SiteForm) -> SiteParameters:
    """One natural-gradient step from the Gaussian that the sites' typical curvature makes."""
    gamma = form.sites.typical_precision()
    first = sites.evaluate(form, SiteParameters(gamma, np.zeros_like(gamma)), tol=0.0)
    if first is None:
        return SiteParameters(gamma, np.zeros_like(gamma))
    return SiteParameters(np.maximum(first.place.gamma_hat, 0.1 * gamma), first.place.nu_hat)

"""Affine-independent KL: a skewed or heavy-tailed posterior, and the tightest of the lower bounds.

Challis (2013), chapter 6 and appendix C. The density is w = Av + b with independent bases of one family; the bound
is evaluated in the Fourier domain (`latlin.densities.characteristic`), climbed by limited-memory quasi-Newton steps in
L, U, b and the shapes jointly, and starts at the Gaussian KL optimum, so that it does not end below it. The frequency
grid is refined until the bound stands still, and what it still moves by is reported.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import FAMILIES, Base, Normal, Stacked
from latlin.inference.affine.bound import AffineBound
from latlin.inference.affine.start import AffineStart, best_starts, cumulants
from latlin.inference.engine import LOCAL, checkpoint_for, refuse_extra_variance
from latlin.inference.evidence.terms import AffineEvidence
from latlin.inference.forms.dense import dense_form
from latlin.inference.forms.prior import refuse_sparse
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.gaussian_kl.split import MOST_COMPONENTS, SPLIT_TOL, join_parts, refit_parts, split
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ignore_convergence_warnings
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, backtrack, rounding
from latlin.numerics.optimise import ascent_direction, remember
from latlin.numerics.options import check_choice, check_number, check_whole
from latlin.numerics.stored import storable_by_arguments
from latlin.potentials.base import Potential

MEMORY = 20
#: finest grid that is tried
LAST_LEVEL = 5
#: of the tolerance: a step that promises less is the last, since a quasi-Newton model promises too little
SHARE = 0.1
#: a family is left out where so many times its promise would not be enough
MARGIN = 10.0
#: what base="auto" tries: skew, tails, and both at once
AUTO = ("skew-normal", "generalised-normal", "gaussian-mixture")
REMEDY = "raise max_iter or tol, or choose another base"


class AffineState(NamedTuple):
    """A point, its bound and gradient on a grid, the bound on the next grid (NaN until it is asked for), steps on this
    grid, and the memory of the quasi-Newton steps."""

    point: Array
    bound: float
    finer: float
    gradient: Array
    level: int
    taken: int
    steps: Array
    changes: Array


class AffineFit(NamedTuple):
    """One family's result."""

    bound: AffineBound
    ascent: Ascent[AffineState]
    log_evidence: float
    error: float


@storable_by_arguments
@dataclass(frozen=True)
class AffineKL:
    """The affine-independent density that maximises the lower bound on log Z.

    Parameters
    ----------
    base : {"auto", "skew-normal", "generalised-normal", "gaussian-mixture", "student-t", "logistic", "normal"} or Base
        Family of the independent densities; "auto" tries the first three and keeps the best bound. An object of
        `latlin.densities.bases` brings its own shapes to start from; `Stacked` has different families for different
        coordinates, which are put where the families gain most.
    optimise_shape : bool
        Optimise the shapes together with A and b; otherwise they stay as the base object has them.
    tol : float
        In nat: the ascent ends when a step promises to gain less than a tenth of it, and the frequency grid is refined
        until the bound moves by less.
    max_iter : int
    rank : int or None
        Directions that get bases of their own; along the others the density stays the Gaussian KL optimum, but for its
        mean. None is all of them. In hundreds of dimensions a few directions cost far less, and hold most of the gain.

    components : int
        Parts into which soft gates divide the space, those of `GaussianKL(components=…)`, each with a density of its
        own: for several peaks. `Posterior.trace` has the bounds of 1, 2, … parts, which never fall.

    Notes
    -----
    `Posterior.bound_error` estimates the numerical error of the bound, and `Posterior.trace` holds the bounds on the
    last, finest grid, where they never fall. Families that hold the Gaussian never end below
    Gaussian KL; "student-t" and "logistic" do not hold it, and the message says when they did.
    """

    name: ClassVar[str] = "ai-kl"
    base: str | Base = "auto"
    optimise_shape: bool = True
    tol: float = 1e-6
    max_iter: int = 1000
    rank: int | None = None
    components: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.base, Base):
            check_choice("base", self.base, ("auto", *FAMILIES))
        if not self.optimise_shape and not isinstance(self.base, Base):
            raise ValueError(f"optimise_shape=False needs a base object with its shapes, got base={self.base!r}")
        check_number("tol", self.tol, above=0.0)
        if self.rank is not None:
            check_whole("rank", self.rank, least=1)
        check_whole("components", self.components, 1, MOST_COMPONENTS)

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
        model = require_in_memory(model, self.name)
        if self.components > 1:
            return self._run_split(model, start, verbose, checkpoint)
        refuse_extra_variance(model, self.name)
        refuse_sparse(model)
        gaussian = GaussianKL().run(model, start=start, verbose=verbose)
        form = dense_form(model)
        assert gaussian.sites is not None  # the full Gaussian KL always has them
        solution = form.solve(gaussian.sites)
        assert solution is not None  # the Gaussian KL ascent ended there
        if form.sites.gaussian:
            return replace(gaussian, engine=self.name, elapsed=time.perf_counter() - started)
        families: tuple[str | Base, ...] = AUTO if self.base == "auto" else (self.base,)
        kinds = {family: FAMILIES[family] if isinstance(family, str) else family for family in families}
        starts = best_starts(cumulants(form, solution), {kind.cumulants for kind in kinds.values()}, self.rank)
        promised = {family: starts[kind.cumulants].gain for family, kind in kinds.items()}
        best: AffineFit | None = None
        gains: list[tuple[float, float]] = []
        # fewer cumulants first: more of them can only add to what one gains
        for family in sorted(families, key=lambda name: (len(kinds[name].cumulants), -promised[name])):
            if self._adds_nothing(promised[family], gains):
                continue
            # the first has the very name that was given, where another model or engine finds that it is not its own
            path = checkpoint if checkpoint is None or best is None else f"{os.fspath(checkpoint)}.{family}"
            saved = checkpoint_for(path, model, self)
            fit = self._fit(self._bound(form, solution, family, starts[kinds[family].cumulants]), verbose, saved)
            gains.append((promised[family], fit.log_evidence - fit.error - gaussian.log_evidence))
            best = fit if best is None or fit.log_evidence - fit.error > best.log_evidence - best.error else best
        assert best is not None  # the first family is always climbed
        return self._posterior(model, gaussian, best, started)

    def _run_split(
        self,
        model: LatentLinearModel,
        start: Posterior | None,
        verbose: bool,
        checkpoint: str | os.PathLike[str] | None,
    ) -> Posterior:
        """A mixture of affine-independent densities in the parts that Gaussians choose (Challis (2013), §3.10)."""
        started, single = time.perf_counter(), replace(self, components=1)
        first = single.run(model, start=start, verbose=verbose, checkpoint=checkpoint)
        if model.gaussian:
            return first
        rough, rougher = GaussianKL(tol=SPLIT_TOL), replace(single, tol=max(self.tol, SPLIT_TOL))
        with np.errstate(all="ignore"), ignore_convergence_warnings():
            parts = split(model, rough.run(model), lambda part, near: rough.run(part, start=near), self.components)
            return join_parts(first, refit_parts(first, parts, rougher.run), self.components, started)

    def _adds_nothing(self, promised: float, gains: list[tuple[float, float]]) -> bool:
        """To first order a family gains far less than was found, or hardly more; promises have held until now."""
        return any(
            MARGIN * promised < gain and 0.5 * foretold <= gain <= 2.0 * foretold for foretold, gain in gains
        ) or any(
            promised < gain + 10.0 * self.tol and 0.98 * foretold <= gain <= 1.02 * foretold for foretold, gain in gains
        )

    def _bound(self, form: SiteForm, solution: Solution, family: str | Base, begin: AffineStart) -> AffineBound:
        """The bound of one family, from a rotation and shapes that suit it."""
        kind = FAMILIES[family] if isinstance(family, str) else family
        steep = [type(p).__name__ for p in form.sites.potentials if kind.polynomial_tails and _is_steep(p)]
        if steep:
            raise ValueError(f"{', '.join(steep)} sites have no expectation under a base with tails like {kind.name}")
        width = form.rank if self.rank is None else min(self.rank, form.rank)
        base = family if isinstance(family, Base) else FAMILIES[family].starting(width, begin.third, begin.fourth)
        order = np.arange(form.rank)
        if isinstance(base, Stacked) and base.rows == width:
            order[:width] = base.arrange(begin.gains())
        learnt = self.optimise_shape and base.n_free > 0
        return AffineBound(form, solution, begin.rotation[:, order], base, learnt, width)

    def _fit(self, bound: AffineBound, verbose: bool, checkpoint: Checkpoint | None) -> AffineFit:
        rules = Rules(gradient_tol=SHARE * self.tol, objective_tol=self.tol, max_iter=self.max_iter, remedy=REMEDY)

        def step(state: AffineState) -> tuple[AffineState, Measure]:
            reached = _climbed(bound, state)
            # half the product of step and gradient is what the quadratic model promises
            promised = 0.5 * float(_direction(bound, reached) @ reached.gradient)
            if promised > SHARE * self.tol or reached.level >= LAST_LEVEL:
                return reached, Measure(reached.bound, promised)
            finer = _state(bound, reached.point, reached.level + 1)
            if abs(finer.bound - reached.bound) <= self.tol:
                return reached._replace(finer=finer.bound), Measure(reached.bound, promised)
            # bounds on two grids are not comparable to the last digit: the trace begins again
            finer = finer._replace(taken=1, steps=reached.steps, changes=reached.changes)
            return finer, Measure(finer.bound, 2.0 * self.tol)

        label = f"affine-independent KL, {bound.base.name}"
        ascent = ascend(
            step, _state(bound, bound.start(), 0), rules, label=label, verbose=verbose, checkpoint=checkpoint
        )
        last = ascent.state
        ascent = replace(ascent, trace=ascent.trace[len(ascent.trace) - max(last.taken, 1) :])
        finest = last.finer if np.isfinite(last.finer) else bound.evaluate(last.point, last.level + 1)[0]
        # of two grids that disagree the lower value is stated: a bound may lose by its errors, not win
        return AffineFit(bound, ascent, min(finest, last.bound), abs(finest - last.bound) + rounding(finest))

    def _posterior(self, model: LatentLinearModel, gaussian: Posterior, fit: AffineFit, started: float) -> Posterior:
        sites, last = fit.bound.form.sites, fit.ascent
        posterior = Posterior(
            model=model,
            density=_density(fit.bound, last.state.point),
            log_evidence=fit.log_evidence,
            evidence_kind="lower bound",
            engine=self.name,
            converged=last.converged,
            n_iter=last.n_iter,
            trace=last.trace,
            elapsed=time.perf_counter() - started,
            message=last.message + ("" if sites.log_concave else LOCAL),
            bound_error=fit.error,
            evidence_term=AffineEvidence(),
        )
        lost = gaussian.log_evidence - fit.log_evidence
        # two grids that disagree by so much may both be wrong, and by more
        apart = fit.error if fit.error > 1e3 * self.tol else 0.0
        if lost <= 0.0 and not apart:
            return posterior
        reason = f"values on two grids are {apart:.3g} nat apart, so that neither is a bound" if apart else ""
        if fit.bound.base.has_gaussian and fit.bound.optimise_shape:
            message = f"{posterior.message}; {reason or 'no density of this base was better'}: the Gaussian is kept"
            kept = {"density": gaussian.density, "log_evidence": gaussian.log_evidence, "sites": gaussian.sites}
            kept["evidence_term"] = gaussian.evidence_term
            return replace(posterior, message=message, bound_error=0.0, **kept)  # type: ignore[arg-type]
        if apart:
            return replace(posterior, message=f"{posterior.message}; {reason}", evidence_kind="approximation")
        return replace(
            posterior, message=f"{posterior.message}; {lost:.3g} nat below Gaussian KL, which this base does not hold"
        )


def _is_steep(potential: Potential) -> bool:
    """The log density falls faster than a parabola far out."""
    centre, width = potential.regions()[0]
    far = np.stack(np.broadcast_arrays(centre - 1e4 * width, centre + 1e4 * width)).reshape(2, -1)
    with np.errstate(all="ignore"):
        values = potential.log_density(far)
    return not bool(np.all(np.abs(values) < 1e12))


def _state(bound: AffineBound, point: Array, level: int) -> AffineState:
    value, gradient = bound.evaluate(point, level)
    empty = np.zeros((0, len(point)))
    return AffineState(point, value, np.nan, gradient, level, 0, empty, empty)


def _direction(bound: AffineBound, state: AffineState) -> Array:
    return ascent_direction(state.gradient, state.steps, state.changes, bound.inverse)


def _climbed(bound: AffineBound, state: AffineState) -> AffineState:
    """One quasi-Newton step; along the gradient when the memory misleads; the same state when nothing helps."""
    return _along(bound, state, _direction(bound, state)) or (
        _along(bound, state._replace(steps=state.steps[:0], changes=state.changes[:0]), state.gradient) or state
    )


def _along(bound: AffineBound, state: AffineState, direction: Array) -> AffineState | None:
    slope = float(direction @ state.gradient)
    if not slope > 0.0:
        return None
    # without a memory the scale of a step is not known: let no parameter move by more than a quarter
    first = 1.0 if len(state.steps) else min(1.0, 0.25 / float(np.abs(direction).max()))

    def at(length: float) -> tuple[float, tuple[Array, float, Array]]:
        point = state.point + first * length * direction
        # a wild step may lead where a site or a density overflows, which only means that it is not taken
        with np.errstate(all="ignore"):
            value, gradient = bound.evaluate(point, state.level)
        return value if np.isfinite(value) else -np.inf, (point, value, gradient)

    found = backtrack(at, state.bound, first * slope, slack=1e-3 * rounding(state.bound), max_halvings=25)
    if found is None:
        return None
    point, value, gradient = found[2]
    steps, changes = remember(state.steps, state.changes, point - state.point, state.gradient - gradient, MEMORY)
    return AffineState(point, value, np.nan, gradient, state.level, state.taken + 1, steps, changes)


def _density(bound: AffineBound, point: Array) -> AffineIndependent:
    """The density over w; what the site form left out keeps its Gaussian prior."""
    form, parts = bound.form, bound.unpack(point)
    base = bound.base_at(parts)
    k = bound.served
    inner = np.hstack([bound.root[:, :k] @ parts.lower @ parts.upper, bound.root[:, k:]])
    base = base if k == bound.rank else Stacked([(base, k), (Normal(), bound.rank - k)])
    mean = form.weights(bound.solution.u + bound.root @ parts.b)
    if form.basis is None:
        return AffineIndependent(form.whitening.apply(inner), mean, base)
    dim, rank = form.basis.shape
    full = np.linalg.qr(form.basis, mode="complete")[0]
    spread = np.concatenate([form.basis @ inner, full[:, rank:]], axis=1)
    stacked = Stacked([(base, rank), (Normal(), dim - rank)])
    return AffineIndependent(form.whitening.apply(spread), mean, stacked)

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
from scipy.linalg import qr, svd

from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import FAMILIES, Base, Normal, Stacked
from latlin.inference.affine.bound import AffineBound
from latlin.inference.engine import checkpoint_for
from latlin.inference.evidence.engine_terms import AffineEvidence
from latlin.inference.forms.dense import dense_form
from latlin.inference.forms.prior import refuse_sparse
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import refuse_extra_variance
from latlin.inference.gaussian_kl.engine import LOCAL, GaussianKL
from latlin.inference.model import LatentLinearModel, Model, in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.optimise import ascent_direction, backtrack, remember
from latlin.numerics.options import number
from latlin.numerics.quadrature import gaussian_nodes
from latlin.numerics.stored import storable_by_arguments
from latlin.potentials.base import Potential

# --- Where an affine-independent ascent starts: a rotation of the Gaussian KL optimum that its bases can use.
#
# A Gaussian looks the same from every rotation, an affine-independent density does not. To first order in the third
# and fourth cumulants (κ₃, κ₄) of a base along the unit vector r, in coordinates where the Gaussian KL optimum is
# standard,
#
#     B ≈ B_G + ⅙κ₃ T₃(r) − κ₃²/12 + κ₄ T₄(r)/24 − κ₄²/48,   T_k(r) = Σ_n τ_kn (g_nᵀr)^k
#
# with τ_kn = ⟨He_k(z) ψ_n(m_n + s_n z)⟩ and g_n the projections at unit length (Gram–Charlier). The best κ_k is T_k
# itself, and the gain Σ_d T₃²/12 + T₄²/48 is maximised over rotations by polar steps from several places.


STEPS = 60
#: cumulants beyond these are out of the families' reach
CAPS = {3: 0.9, 4: 3.0}
#: share of an order's square in the gain
SHARES = {3: 1.0 / 12.0, 4: 1.0 / 48.0}


class AffineStart(NamedTuple):
    """A rotation, and the cumulants that the posterior asks for along its columns."""

    rotation: Array
    third: Array
    fourth: Array


class Cumulants(NamedTuple):
    """Unit projections g_n (sites, rank) and their coefficients τ_k."""

    directions: Array
    coefficients: dict[int, Array]

    def along(self, rotation: Array, order: int) -> Array:
        """T_k of every column."""
        return self.coefficients[order] @ _power(self.directions @ rotation, order)

    def gain(self, rotation: Array, orders: tuple[int, ...]) -> float:
        """What the bound can gain to first order, cumulants kept within reach."""
        total = 0.0
        for k in orders:
            t = self.along(rotation, k)
            kept = np.clip(t, -CAPS[k], CAPS[k])
            total += SHARES[k] * float(np.sum(2.0 * t * kept - kept * kept))
        return total

    def slope(self, rotation: Array, orders: tuple[int, ...]) -> Array:
        """Derivative of Σ_k share_k Σ_d T_k² with respect to the columns."""
        inner = self.directions @ rotation
        total = np.zeros_like(rotation)
        for k in orders:
            t, lower = self.coefficients[k], _power(inner, k - 1)
            weights = 2.0 * SHARES[k] * k * (t @ (lower * inner))
            total += (self.directions.T @ (t[:, None] * lower)) * weights
        return total


def best_start(form: SiteForm, solution: Solution, orders: tuple[int, ...]) -> AffineStart:
    """The rotation of the largest first-order gain for bases that move cumulants of these orders."""
    found = _cumulants(form, solution)
    if not orders or form.rank == 1:
        rotation = np.eye(form.rank)
    else:
        climbed = [_climb(found, first, orders) for first in _firsts(found, orders)]
        rotation = max(climbed, key=lambda r: found.gain(r, orders))
    return AffineStart(rotation, found.along(rotation, 3), found.along(rotation, 4))


def _cumulants(form: SiteForm, solution: Solution) -> Cumulants:
    """Projections whitened by the Gaussian KL optimum, and ⟨He_k ψ⟩ of each site under it."""
    root = solution.precision.unwhiten(np.eye(form.rank))
    rows = np.stack([form.projections.times(np.ascontiguousarray(column)) for column in root.T], axis=1)
    sd = np.maximum(np.linalg.norm(rows, axis=1), 1e-150)
    coefficients = {3: np.zeros(len(sd)), 4: np.zeros(len(sd))}
    for span, potential in form.sites.blocks:
        centre = solution.x[span] + form.sites.offset[span]
        x, z, w = gaussian_nodes(centre, sd[span], potential.regions())
        psi = form.sites.weight[span] * w * (potential.log_density(x) - potential.log_density(centre))
        square = z * z
        coefficients[3][span] = np.sum(psi * z * (square - 3.0), axis=0)
        coefficients[4][span] = np.sum(psi * (square * (square - 6.0) + 3.0), axis=0)
    return Cumulants(rows / sd[:, None], coefficients)


def _firsts(found: Cumulants, orders: tuple[int, ...]) -> list[Array]:
    """The Cholesky basis, one that follows the least Gaussian sites, and a random one."""
    rank = found.directions.shape[1]
    size = np.sum([np.abs(found.coefficients[k]) for k in orders], axis=0)
    leading = found.directions[np.argsort(-size)[:rank]]
    random = qr(np.random.default_rng(0).standard_normal((rank, rank)))[0]
    return [np.eye(rank), _polar(np.concatenate([leading, 1e-3 * np.eye(rank)])[:rank].T), random]


def _climb(found: Cumulants, rotation: Array, orders: tuple[int, ...]) -> Array:
    best, top = rotation, found.gain(rotation, orders)
    for _ in range(STEPS):
        slope = found.slope(rotation, orders)
        size = float(np.linalg.norm(slope))
        if size == 0.0:
            break
        # the inertia keeps a step from overshooting
        rotation = _polar(slope + size / np.sqrt(len(slope)) * rotation)
        gain = found.gain(rotation, orders)
        if gain > top:
            best, top, rose = rotation, gain, gain - top
            if rose < 1e-9 * (1.0 + top):
                break
    return best


def _power(x: Array, order: int) -> Array:
    """x^order by products: NumPy's own power of an array takes a hundred times as long beyond squares."""
    return x if order == 1 else x * _power(x, order - 1)


def _polar(a: Array) -> Array:
    """The orthogonal matrix closest to a."""
    left, _, right = svd(a)
    return left @ right


MEMORY = 20
#: finest grid that is tried
LAST_LEVEL = 5
#: what base="auto" tries: skew, tails, and both at once
AUTO = ("skew-normal", "generalised-normal", "gaussian-mixture")
REMEDY = "raise max_iter or tol, or choose another base"


class AffineState(NamedTuple):
    """A point, its bound and gradient on a grid, steps on this grid, and the memory of the quasi-Newton steps."""

    point: Array
    bound: float
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
        `latlin.densities.bases` brings its own shapes.
    optimise_shape : bool
        Optimise the shapes together with A and b; otherwise they stay as the base object has them.
    tol : float
        In nat: the ascent ends when a step promises to gain less, and the frequency grid is refined until the bound
        moves by less.
    max_iter : int

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

    def __post_init__(self) -> None:
        if not isinstance(self.base, Base) and self.base not in ("auto", *FAMILIES):
            raise ValueError(f"base must be one of {', '.join(['auto', *FAMILIES])}, or a Base, got {self.base!r}")
        if not self.optimise_shape and not isinstance(self.base, Base):
            raise ValueError(f"optimise_shape=False needs a base object with its shapes, got base={self.base!r}")
        number("tol", self.tol, above=0.0)

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
        model = in_memory(model, self.name)
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
        fits: list[AffineFit] = []
        for family in families:
            # the first has the very name that was given, where another model or engine finds that it is not its own
            path = checkpoint if checkpoint is None or not fits else f"{os.fspath(checkpoint)}.{family}"
            saved = checkpoint_for(path, model, self)
            fits.append(self._fit(self._bound(form, solution, family), verbose, saved))
        best = max(fits, key=lambda fit: fit.log_evidence - fit.error)
        return self._posterior(model, gaussian, best, started)

    def _bound(self, form: SiteForm, solution: Solution, family: str | Base) -> AffineBound:
        """The bound of one family, from a rotation and shapes that suit it."""
        kind = FAMILIES[family] if isinstance(family, str) else type(family)
        steep = [type(p).__name__ for p in form.sites.potentials if kind.polynomial_tails and _is_steep(p)]
        if steep:
            raise ValueError(f"{', '.join(steep)} sites have no expectation under a base with tails like {kind.name}")
        begin = best_start(form, solution, kind.cumulants)
        base = family if isinstance(family, Base) else kind.starting(form.rank, begin.third, begin.fourth)
        return AffineBound(form, solution, begin.rotation, base, self.optimise_shape and base.n_free > 0)

    def _fit(self, bound: AffineBound, verbose: bool, checkpoint: Checkpoint | None) -> AffineFit:
        rules = Rules(gradient_tol=self.tol, objective_tol=self.tol, max_iter=self.max_iter, remedy=REMEDY)

        def step(state: AffineState) -> tuple[AffineState, Measure]:
            reached = _climbed(bound, state)
            # half the product of step and gradient is what the quadratic model promises
            promised = 0.5 * float(
                ascent_direction(reached.gradient, reached.steps, reached.changes) @ reached.gradient
            )
            if promised > self.tol or reached.level >= LAST_LEVEL:
                return reached, Measure(reached.bound, promised)
            finer = _state(bound, reached.point, reached.level + 1)
            if abs(finer.bound - reached.bound) <= self.tol:
                return reached, Measure(reached.bound, promised)
            # bounds on two grids are not comparable to the last digit: the trace begins again
            finer = finer._replace(taken=1, steps=reached.steps, changes=reached.changes)
            return finer, Measure(finer.bound, 2.0 * self.tol)

        label = f"affine-independent KL, {bound.base.name}"
        ascent = ascend(
            step, _state(bound, bound.start(), 0), rules, label=label, verbose=verbose, checkpoint=checkpoint
        )
        last = ascent.state
        ascent = replace(ascent, trace=ascent.trace[len(ascent.trace) - max(last.taken, 1) :])
        finest = bound.evaluate(last.point, last.level + 1)[0]
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
        # a gain that numerical errors may have made is none
        uncertain = fit.error if fit.error > 1e3 * self.tol else 0.0
        lost = gaussian.log_evidence - fit.log_evidence + uncertain
        if lost <= 0.0:
            return posterior
        if fit.bound.base.has_gaussian and fit.bound.optimise_shape:
            message = f"{posterior.message}; the Gaussian was not improved upon"
            kept = {"density": gaussian.density, "log_evidence": gaussian.log_evidence, "sites": gaussian.sites}
            kept["evidence_term"] = gaussian.evidence_term
            return replace(posterior, message=message, bound_error=0.0, **kept)  # type: ignore[arg-type]
        message = f"{posterior.message}; {lost:.3g} nat below Gaussian KL, which this base does not hold"
        return replace(posterior, message=message)


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
    return AffineState(point, value, gradient, level, 0, empty, empty)


def _climbed(bound: AffineBound, state: AffineState) -> AffineState:
    """One quasi-Newton step; along the gradient when the memory misleads; the same state when nothing helps."""
    return _along(bound, state, ascent_direction(state.gradient, state.steps, state.changes)) or (
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
    return AffineState(point, value, gradient, state.level, state.taken + 1, steps, changes)


def _density(bound: AffineBound, point: Array) -> AffineIndependent:
    """The density over w; what the site form left out keeps its Gaussian prior."""
    form, parts = bound.form, bound.unpack(point)
    base = bound.base_at(parts)
    inner = bound.root @ parts.lower @ parts.upper
    mean = form.weights(bound.solution.u + bound.root @ parts.b)
    if form.basis is None:
        return AffineIndependent(form.whitening.apply(inner), mean, base)
    dim, rank = form.basis.shape
    full = np.linalg.qr(form.basis, mode="complete")[0]
    spread = np.concatenate([form.basis @ inner, full[:, rank:]], axis=1)
    stacked = Stacked([(base, rank), (Normal(), dim - rank)])
    return AffineIndependent(form.whitening.apply(spread), mean, stacked)

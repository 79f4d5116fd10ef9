"""Local variational bounds by the double loop: variances outside, penalised least squares inside.

Every super-Gaussian site is bounded below by ψ(x) ≥ −½ax² + bx + c, tight at a distance ξ from its centre l, so that

    log Z ≥ B(ξ) = Σ_n c_n + log ∫ Gaussian factors · ∏_n exp(−½a_n x_n² + b_n x_n)

Challis (2013), eqs. 3.8.1–3.8.4, corrected. As −log det(Λ + HᵀAH) is convex in a, replacing it by its tangent,
whose slopes are the marginal variances z, decouples the sites: what is left is to maximise over u and ξ together

    log Gaussian factors(u) + Σ_n [−½a_n(x_n² + z_n) + b_n x_n + c_n],   best at ξ_n² = (x_n − l_n)² + z_n,

by Newton's method, and then to take the variances anew. The bound never falls.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, backtrack, rounding

#: Newton steps for the means before the variances are taken anew
INNER_STEPS = 4
#: steps after which several starts are compared
ROUGH_STEPS = 20
TINY = 1e-300


class SiteFit(NamedTuple):
    """A Gaussian in site form: its mean, projections and their variances, and the log of its integral."""

    u: Array
    x: Array
    variance: Array
    log_integral: float


class SiteGaussians(Protocol):
    """The Gaussians in site form of one model, exact or approximate."""

    @property
    def sites(self) -> Sites: ...

    def log_gaussian(self, u: Array) -> float:
        """Log of the Gaussian factors at u."""
        ...

    def mean(self, parameters: SiteParameters, guess: Array) -> tuple[Array, Array] | None:
        """Mean u of the Gaussian with these site parameters and its projections; None if there is no such Gaussian."""
        ...

    def fit(self, parameters: SiteParameters, guess: Array) -> SiteFit | None:
        """The Gaussian with these site parameters."""
        ...


class BoundState(NamedTuple):
    """Where the bounds touch, the site parameters they give, their Gaussian, the bound and its gradient's size."""

    xi: Array
    gamma: Array
    nu: Array
    u: Array
    x: Array
    variance: Array
    bound: float
    gradient: float


class _Mean(NamedTuple):
    """A point of the inner problem."""

    u: Array
    x: Array
    objective: float


def maximise_local_bound(
    family: SiteGaussians,
    first: tuple[Array, Array, Array],
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
) -> Ascent[BoundState]:
    """Climb the local bound from (u, x, variance) of a first Gaussian."""
    centre = centres(family.sites)
    u, x, variance = first
    start = _evaluate(family, centre, _distance(x - centre, variance), u)

    def step(state: BoundState) -> tuple[BoundState, Measure]:
        inner = _best_mean(family, centre, state)
        moved = _evaluate(family, centre, _distance(inner.x - centre, state.variance), inner.u)
        if rules.monotone and moved.bound < state.bound - 1e-2 * rounding(state.bound):
            return state, Measure(state.bound, state.gradient)
        return moved, Measure(moved.bound, moved.gradient)

    def bound(state: BoundState) -> float:
        return _evaluate(family, centre, state.xi, state.u).bound

    again = bound if rules.monotone else None  # estimated log determinants differ from start to start
    return ascend(step, start, rules, label=label, verbose=verbose, checkpoint=checkpoint, warn=warn, evaluate=again)


def best_start(family: SiteGaussians, firsts: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """The (u, x, variance) from which a few steps lead highest."""
    if len(firsts) == 1:
        return firsts[0]
    rough = Rules(gradient_tol=1e-2, objective_tol=1e-3, max_iter=ROUGH_STEPS, monotone=True)
    ends = [maximise_local_bound(family, first, rough, label="start", warn=False).state for first in firsts]
    best = max(ends, key=lambda end: end.bound)
    return best.u, best.x, best.variance


def centres(sites: Sites) -> Array:
    """l_n of each site as a function of x; refuses sites without a quadratic bound."""
    others = sorted({type(p).__name__ for p in sites.potentials if not p.super_gaussian})
    if others:
        raise ValueError(
            f"local bounds need super-Gaussian sites, and {', '.join(others)} sites are not; "
            "use engine 'gkl' for a bound, or 'ep'"
        )
    parts = [np.broadcast_to(p.middle, span.stop - span.start) for span, p in sites.blocks]
    return (np.concatenate(parts) if parts else np.zeros(0)) - sites.offset


def _distance(deviation: Array, variance: Array) -> Array:
    # ξ² = ⟨(x − l)²⟩
    return np.sqrt(deviation**2 + variance)


def _evaluate(family: SiteGaussians, centre: Array, xi: Array, guess: Array) -> BoundState:
    a, b, c = family.sites.quadratic_bound(xi)
    fit = family.fit(SiteParameters(a, b), guess)
    if fit is None:
        raise ValueError("the sites' quadratic bounds give no proper Gaussian; rescale the columns of H")
    # ∂B/∂log ξ = −½ (da/d log ξ) (⟨(x−l)²⟩ − ξ²), and |da/d log ξ| ≤ 2a
    excess = a * ((fit.x - centre) ** 2 + fit.variance - xi**2)
    gradient = float(np.abs(excess).max(initial=0.0))
    return BoundState(xi, a, b, fit.u, fit.x, fit.variance, float(c.sum()) + fit.log_integral, gradient)


def _best_mean(family: SiteGaussians, centre: Array, state: BoundState) -> _Mean:
    """Newton's method on the inner problem, the variances held."""
    z = state.variance

    def step(mean: _Mean) -> tuple[_Mean, Measure]:
        moved = _newton(family, centre, z, mean)
        change = np.inf if moved is mean else float(np.abs(moved.x - mean.x).max(initial=0.0))
        return moved, Measure(moved.objective, change)

    rules = Rules(gradient_tol=0.1 * state.gradient, objective_tol=np.inf, max_iter=INNER_STEPS)
    first = _Mean(state.u, state.x, inner_objective(family, centre, z, state.u, state.x))
    return ascend(step, first, rules, warn=False).state


def inner_objective(family: SiteGaussians, centre: Array, z: Array, u: Array, x: Array) -> float:
    """What the inner problem maximises: the expected site bounds at the best ξ, and the Gaussian factors at u."""
    a, b, c = family.sites.quadratic_bound(_distance(x - centre, z))
    return family.log_gaussian(u) + float(np.sum(-0.5 * a * (x**2 + z) + b * x + c))


def _newton(family: SiteGaussians, centre: Array, z: Array, mean: _Mean) -> _Mean:
    """A step that raises the inner objective, or the mean as it is."""
    deviation = mean.x - centre
    xi = _distance(deviation, z)
    a, b, _ = family.sites.quadratic_bound(xi)
    # the curvature of g((x−l)² + z): a where z rules, −ψ″ where the deviation does
    share = deviation**2 / np.maximum(xi**2, TINY)
    kappa = a + share * (-family.sites.derivatives(centre + xi).second - a)
    slope = b - a * mean.x
    target = family.mean(SiteParameters(kappa, slope + kappa * mean.x), mean.u)
    if target is None:
        # majorise: a itself always gives a step upwards
        target = family.mean(SiteParameters(a, b), mean.u)
    if target is None:
        return mean
    du, dx = target[0] - mean.u, target[1] - mean.x

    def evaluate(length: float) -> tuple[float, _Mean]:
        u, x = mean.u + length * du, mean.x + length * dx
        objective = inner_objective(family, centre, z, u, x)
        return objective, _Mean(u, x, objective)

    found = backtrack(evaluate, mean.objective, 0.0, slack=1e-3 * rounding(mean.objective), max_halvings=20)
    return mean if found is None else found[2]

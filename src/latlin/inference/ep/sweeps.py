"""What expectation propagation matches, and its two schedules: all sites at once, or one after the other.

    cavity q₋ₙ ∝ q / t_n^η,   tilted ∝ q₋ₙ φ_n^η,   t_n = s_n exp(−½γ_n x² + ν_n x)

Challis (2013), eqs. 3.6.1–3.6.5, 3.6.4 corrected, with the power η of fractional EP. Every formula is in the
site's precision γ and pull ν; its mean ν/γ and variance 1/γ, which diverge as γ → 0, appear nowhere. Sites are visited
one after the other in compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from latlin.inference.ep.kernels import FIXED, visit_sites
from latlin.inference.forms.free import NodeTarget, site_nodes
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters, Sites, cavity
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import mix
from latlin.numerics.linalg import whitened_squares


class SweepState(NamedTuple):
    """An approximation in site form, the parameters its sites ask for, and how far it is from the fixed point."""

    gamma: Array
    nu: Array
    factor: Array  # what the site form keeps of the precision
    u: Array
    gamma_hat: Array
    nu_hat: Array
    log_z: float
    residual: float  # largest mismatch of mean or variance, in units of the marginals
    improper: int  # cavities that are no density
    length: float  # of the next step
    grain: float  # how far rounding alone moves log_z
    points: Array  # past parameters and how far they were from those asked for, one per row, where they are kept
    residuals: Array


class Matched(NamedTuple):
    """Cavities and the tilted moments they give, one per site."""

    proper: NDArray[np.bool_]
    mean: Array
    variance: Array
    log_z: Array
    tilted_mean: Array
    tilted_variance: Array


def match(sites: Sites, now: SiteParameters, x: Array, variance: Array, power: float, sure: bool = False) -> Matched:
    """Tilted moments at the cavities of a Gaussian with the given marginals; `sure` says that all are densities."""
    proper, mean, var = cavity(*now, x, variance, power, sure)
    tilted = sites.tilted_moments(mean, var, power)
    return Matched(proper, mean, var, *tilted)


def evaluate(form: SiteForm, parameters: SiteParameters, power: float, length: float) -> SweepState | None:
    """The state at given site parameters, or None where they give no proper Gaussian or no finite evidence."""
    solution = form.solve(parameters)
    if solution is None:
        return None
    variance = form.variances(solution)
    # next to a proper prior and other sites that are densities, the cavity of a site is one
    sure = type(form) is SiteForm and form.quadratic is None and bool(np.all(parameters.gamma >= 0.0))
    found = match(form.sites, parameters, solution.x, variance, power, sure)
    target = matching_parameters(found, parameters, power)
    log_z = log_evidence(form, solution, variance, found, power)
    if not np.isfinite(log_z):
        return None
    improper = int((~found.proper).sum())
    mismatch = _mismatch(found, solution.x, variance)
    residual, grain = (np.inf, 0.0) if improper else _beyond_rounding(form.sites, mismatch, found, solution, power)
    none = np.zeros((0, 2 * len(form.sites)))
    return SweepState(
        *parameters, form.kept(solution), solution.u, *target, log_z, residual, improper, length, grain, none, none
    )


def matching_parameters(found: Matched, now: SiteParameters, power: float) -> SiteParameters:
    """The site parameters with which the approximation has the tilted moments; as they are at improper cavities."""
    usable = found.proper & (found.tilted_variance > FIXED) & (found.variance > FIXED)
    v_in, v_out = (np.where(usable, v, 1.0) for v in (found.tilted_variance, found.variance))
    # ηγ = 1/v̂ − 1/v₋,  ην = m̂/v̂ − m₋/v₋
    gamma = (1.0 / v_in - 1.0 / v_out) / power
    nu = (found.tilted_mean - found.mean) / (v_in * power) + found.mean * gamma
    return SiteParameters(np.where(usable, gamma, now.gamma), np.where(usable, nu, now.nu))


def _mismatch(found: Matched, x: Array, variance: Array) -> Array:
    """Differences of the means, in standard deviations of the marginals, and of the variances, in these: (2, sites)."""
    some = variance > FIXED
    spread = np.where(some, variance, 1.0)
    means, variances = (
        np.abs(found.tilted_mean - x) / np.sqrt(spread),
        np.abs(found.tilted_variance - variance) / spread,
    )
    return np.where(some, np.stack([means, variances]), 0.0)


#: γm² of a site from which on its tilted moments lose digits, and the mismatch from which on that may be all of it
STEEP, HIDDEN = 1e6, 1e-4
#: last digits by which the modes of tilted distributions are moved to see what rounding does; multiple that is allowed
DIGITS, SURE = 4.0, 4.0


def _beyond_rounding(
    sites: Sites, mismatch: Array, found: Matched, solution: Solution, power: float
) -> tuple[float, float]:
    """The largest mismatch beyond what rounding of the tilted moments explains, and what rounding does to log Z.

    Terms of a count of 10⁹ cancel to some ten, which leaves seven digits. Cavities are moved so that modes go some last
    digits to either side: the moments change by rounding alone.
    """
    largest, x = float(mismatch.max(initial=0.0)), solution.x
    if largest > HIDDEN or not _is_steep(solution.parameters.gamma, x):
        return largest, 0.0
    spread = np.maximum(found.tilted_variance, FIXED)
    move = DIGITS * np.spacing(np.abs(x)) * found.variance / spread
    noise, grain = np.zeros_like(mismatch), 0.0
    for sign in (-1.0, 1.0):
        mean, variance = found.mean + sign * move, found.variance
        log_z, tilted_mean, tilted_variance = sites.tilted_moments(mean, variance, power)
        away = np.abs(tilted_mean - found.tilted_mean) / np.sqrt(spread)
        noise = np.maximum(noise, np.stack([away, np.abs(tilted_variance / spread - 1.0)]))
        grain = max(grain, float(np.abs(log_z - found.log_z).sum()))
    return float(np.max(mismatch - SURE * noise, initial=0.0)), SURE * grain / power


def _is_steep(gamma: Array, x: Array) -> bool:
    return float(np.max(gamma * x * x, initial=0.0)) >= STEEP


def log_evidence(form: SiteForm, solution: Solution, variance: Array, found: Matched, power: float) -> float:
    """log Z_EP = log ∫ Gaussian factors · ∏ t_n with log s_n = (log Ẑ_n − log C_n)/η.

    C_n = ∫ q₋ₙ exp(−½ηγx² + ηνx). With κ = v/v₋ = 1 − ηγv and g = ν − γm, the slope of the stand-in at m,
    log C_n = η(νm − ½γm²) + ½ log κ − ½η²g²v/κ. What is large, νm − ½γm², is in the integral too and cancels by hand.
    """
    gamma, nu = solution.parameters
    some = found.variance > 0.0
    share = np.where(some & found.proper, variance / np.where(some, found.variance, 1.0), 1.0)
    slope = nu - gamma * solution.x
    log_scale = (found.log_z - 0.5 * np.log(share)) / power + 0.5 * power * slope**2 * variance / share
    if not found.proper.all():
        log_scale = np.where(found.proper, log_scale, _mean_log_scale(form.sites, solution, variance))
    return form.log_volume(solution) + float(log_scale.sum())


def _mean_log_scale(sites: Sites, solution: Solution, variance: Array) -> Array:
    """The limit η → 0 of log s_n + νm − ½γm², ⟨ψ⟩ + ½γv, which needs no cavity."""
    return sites.expected_log(solution.x, variance).value + 0.5 * solution.parameters.gamma * variance


#: sites whose nodes are laid together: at first and after a stop, and at most
FIRST_BLOCK, LARGEST_BLOCK = 16, 512
#: nodes that are kept from one sweep to the next, at most
KEPT_NODES = 4 * 10**6


class Schedule(Protocol):
    """A sweep over all sites: new site parameters from a state."""

    def __call__(self, state: SweepState, power: float, length: float) -> SiteParameters: ...


#: steps that Anderson mixing remembers, and the mismatch from which on it does
MEMORY = 8
NEAR = 0.1


@dataclass(frozen=True)
class Parallel:
    """Every site moves towards the parameters that match its moments under the same approximation.

    Near the fixed point Anderson mixing extrapolates these steps.
    """

    form: SiteForm

    def __call__(self, state: SweepState, power: float, length: float) -> SiteParameters:
        gamma, nu = np.split(mix(*past_steps(state), length), 2)
        return SiteParameters(gamma, nu)


def past_steps(state: SweepState) -> tuple[Array, Array]:
    """The parameters of the last steps and where they led, one per row; far from the fixed point, those of this one."""
    here = np.concatenate([state.gamma, state.nu])
    gap = np.concatenate([state.gamma_hat, state.nu_hat]) - here
    kept = MEMORY if state.residual < NEAR else 0
    points, residuals = (part[len(part) - min(kept, len(part)) :] for part in (state.points, state.residuals))
    return np.concatenate([points, here[None]]), np.concatenate([residuals, gap[None]])


class _Plan(NamedTuple):
    """Nodes of the sites start … stop−1 and the Gaussians that they serve."""

    start: int
    stop: int
    nodes: Array
    log_weights: Array
    planned: Array


@dataclass
class Sequential:
    """Each site is matched under the approximation that the sites before it have already changed.

    Nodes are laid for blocks of sites and kept between sweeps, as long as they serve and memory allows. Last steps that
    are smaller than what rounding does to values on nodes are made all at once.
    """

    form: SiteForm
    _plans: list[_Plan] = field(default_factory=list)

    def __call__(self, state: SweepState, power: float, length: float) -> SiteParameters:
        if state.residual < HIDDEN and _is_steep(state.gamma, self.form.projections.times(state.u)):
            return Parallel(self.form)(state, power, length)
        walk = _Walk(self.form, state, power, length)
        old, self._plans = {plan.start: plan for plan in self._plans}, []
        size = FIRST_BLOCK
        for span, _ in self.form.sites.blocks:
            start = span.start
            while start < span.stop:
                plan = old.get(start)
                visited = 0 if plan is None else walk.visit(plan, fresh=False)
                if not visited:
                    plan = walk.plan(start, min(start + size, span.stop))
                    visited = walk.visit(plan, fresh=True)
                    size = min(2 * size, LARGEST_BLOCK) if start + visited == plan.stop else FIRST_BLOCK
                assert plan is not None
                self._keep(plan, visited)
                start += visited
        return walk.parameters

    def _keep(self, plan: _Plan, visited: int) -> None:
        if sum(kept.nodes.size for kept in self._plans) + plan.nodes.size <= KEPT_NODES:
            self._plans.append(_Plan(plan.start, plan.start + visited, *(part[:visited] for part in plan[2:])))


class _Walk:
    """The approximation while the sites are being visited."""

    def __init__(self, form: SiteForm, state: SweepState, power: float, length: float) -> None:
        self._form, self._power, self._length = form, power, length
        self.parameters = SiteParameters(state.gamma.copy(), state.nu.copy())
        precision = form.restored(self.parameters, state.factor)
        self._factor, self._u = np.array(precision.factor, order="C"), state.u.copy()

    def visit(self, plan: _Plan, fresh: bool) -> int:
        """Update the sites of a plan until one needs new nodes; returns how many were visited."""
        span = slice(plan.start, plan.stop)
        gamma, nu = (value[span] for value in self.parameters)
        rows = self._form.projections.block(span)
        step = (self._power, self._length)
        visited, intact = visit_sites(self._factor, self._u, rows, gamma, nu, *step, *plan[2:], fresh)
        if not intact:
            self._refresh()
        return visited

    def plan(self, start: int, stop: int) -> _Plan:
        """Nodes for the cavities as they are now."""
        span = slice(start, stop)
        sites, rows = self._form.sites.part(span), self._form.projections.block(span)
        gamma, nu = (value[span] for value in self.parameters)
        variance = whitened_squares(np.asfortranarray(self._factor), rows)
        # a row of zeros asks for nothing, but nodes need a width
        variance = np.where(variance > FIXED, variance, 1.0)
        found = match(sites, SiteParameters(gamma, nu), rows @ self._u, variance, self._power)
        floor = 1e-20 * found.variance
        target = NodeTarget(found.mean, found.variance, found.tilted_mean, np.maximum(found.tilted_variance, floor))
        return _Plan(start, stop, *site_nodes(sites, target, self._power), np.column_stack(target))

    def _refresh(self) -> None:
        solution = self._form.solve(self.parameters)
        if solution is None:
            raise FloatingPointError("the approximation lost its positive definite precision within a sweep")
        self._factor, self._u = np.array(solution.precision.factor, order="C"), solution.u

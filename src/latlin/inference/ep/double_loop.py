"""Expectation propagation by a double loop, which converges where sweeps over the sites do not.

With Gaussian marginals of natural parameters s_n = (m_n/v_n, 1/v_n) at hand, cavities are s_n − ηθ_n, and

    F(θ, s) = log ∫ Gaussian factors · ∏ exp(θ_n·g_n) + Σ_n [log ∫ φ_n^η exp((s_n − ηθ_n)·g_n) − log Z_G(s_n)]/η

is log Z_EP at the fixed points of expectation propagation; θ_n = (ν_n, γ_n) and g_n = (x_n, −½x_n²). It is convex in
θ. The inner loop minimises it over θ, where every tilted distribution has the moments μ of the approximation; the
outer loop takes s from these. Then F(θ, s) + Σ_n KL(N(μ_n)‖N(s_n))/η, minus the free energy of the moments μ, never
falls (Heskes and Zoeter 2002; Opper and Winther 2005). Anderson mixing extrapolates s, as long as it does not fall.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.inference.ep.kernels import FIXED
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import PROPER, SiteParameters
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend, backtrack, mix, rounding
from latlin.numerics.optimise import ascent_direction, remember

#: past steps that the outer and the inner loop remember
OUTER_MEMORY, INNER_MEMORY = 8, 20
INNER_STEPS = 200
#: the inner loop ends at this share of the mismatch that the outer loop has come to
SHARE = 1e-3
#: attempts to find a first s
TRIALS = 50


class MatchedMarginals(NamedTuple):
    """Marginals s, the sites whose tilted moments agree with them best, the moments there, and how s got there."""

    mean: Array
    variance: Array
    gamma: Array
    nu: Array
    to_mean: Array
    to_variance: Array
    objective: float  # minus the free energy of the moments
    residual: float  # largest mismatch of mean or variance, in units of the marginals
    inside: bool  # the inner loop has found its optimum
    points: Array
    residuals: Array


def iterate_double_loop(
    form: SiteForm, first: SiteParameters, power: float, rules: Rules
) -> Ascent[MatchedMarginals] | None:
    """The fixed point that the double loop reaches from `first`; None where that is no proper Gaussian in all sites."""
    solution = form.solve(first)
    if solution is None:
        return None
    variance = form.variances(solution)
    if not np.all(variance > FIXED):  # a site on nothing has no moments to match
        return None
    units = np.sqrt(variance)
    start = _begin(form, solution.x, variance, first, power)
    if start is None:
        return None

    def step(now: MatchedMarginals) -> tuple[MatchedMarginals, Measure]:
        moved = _extrapolate(form, units, now, power) or _plain(form, now, power) or now
        return moved, Measure(moved.objective, moved.residual)

    return ascend(step, start, rules, label="EP's double loop", warn=False)


def _begin(
    form: SiteForm, mean: Array, variance: Array, first: SiteParameters, power: float
) -> MatchedMarginals | None:
    """The first s whose inner problem has its optimum within the domain.

    It can be at the edge, at cavities without end, as long as s is far wider than the tilted distributions. Then the
    next s is the narrower of these and of the marginals there.
    """
    now = _match(form, mean, variance, first, power, np.inf)
    for _ in range(TRIALS):
        if now is None or now.inside:
            return now
        parameters = SiteParameters(now.gamma, now.nu)
        now = _match(form, *_narrower(form, now, parameters, power), parameters, power, now.residual)
    return now


def _narrower(form: SiteForm, now: MatchedMarginals, at: SiteParameters, power: float) -> tuple[Array, Array]:
    """Mean and variance of each tilted distribution, or of the marginal where that is narrower."""
    precision = 1.0 / now.variance - power * at.gamma
    pull = now.mean / now.variance - power * at.nu
    tilted = form.sites.tilted_moments(pull / precision, 1.0 / precision, power)
    narrow = tilted.variance < now.to_variance
    return np.where(narrow, tilted.mean, now.to_mean), np.where(narrow, tilted.variance, now.to_variance)


def _extrapolate(form: SiteForm, units: Array, now: MatchedMarginals, power: float) -> MatchedMarginals | None:
    """Anderson's proposal for s, if the objective rises there."""
    here, target = _encode(units, now.mean, now.variance), _encode(units, now.to_mean, now.to_variance)
    points = np.concatenate([now.points[-OUTER_MEMORY:].reshape(-1, here.size), here[None]])
    residuals = np.concatenate([now.residuals[-OUTER_MEMORY:].reshape(-1, here.size), (target - here)[None]])
    mean, log_variance = np.split(mix(points, residuals), 2)
    with np.errstate(over="ignore"):
        variance = np.exp(log_variance)
    if not np.all(np.isfinite(variance) & (variance > 0.0)):
        return None
    found = _match(form, mean * units, variance, SiteParameters(now.gamma, now.nu), power, now.residual)
    return found._replace(points=points, residuals=residuals) if _rises(found, now) and found else None


def _plain(form: SiteForm, now: MatchedMarginals, power: float) -> MatchedMarginals | None:
    """s from the moments; the memory begins anew."""
    found = _match(form, now.to_mean, now.to_variance, SiteParameters(now.gamma, now.nu), power, now.residual)
    return found if _rises(found, now) else None


def _rises(found: MatchedMarginals | None, now: MatchedMarginals) -> bool:
    return found is not None and found.objective >= now.objective - rounding(now.objective)


def _encode(units: Array, mean: Array, variance: Array) -> Array:
    return np.concatenate([mean / units, np.log(variance)])


def _match(
    form: SiteForm, mean: Array, variance: Array, first: SiteParameters, power: float, residual: float
) -> MatchedMarginals | None:
    """The inner loop at s = (mean, variance), to a share of the last residual."""
    near = _towards_proper(variance, first, power)
    solution = form.solve(near)
    if solution is None:
        return None
    inner = _Inner(form, mean, variance, near, power)
    start = inner.evaluate(np.zeros(2 * mean.size))
    if start is None:
        return None
    rules = Rules(gradient_tol=max(SHARE * min(residual, 1.0), 1e-13), objective_tol=np.inf, max_iter=INNER_STEPS)
    best = ascend(inner.step, start, rules, warn=False).state
    # KL of the Gaussian with the new moments from that of s
    ratio, shift = best.variance / variance, (best.mean - mean) / np.sqrt(variance)
    divergence = 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio) + shift * shift))
    gap = np.maximum(np.abs(best.mean - mean) / np.sqrt(best.variance), np.abs(1.0 - variance / best.variance))
    none = np.zeros((0, 0))
    moments = (best.mean, best.variance)
    value, residual = -best.objective + divergence / power, float(gap.max(initial=0.0))
    inside = _largest(best.gradient) <= 10.0 * rules.gradient_tol
    return MatchedMarginals(
        mean, variance, *inner.parameters(best.point), *moments, value, residual, inside, none, none
    )


def _towards_proper(variance: Array, given: SiteParameters, power: float) -> SiteParameters:
    """The sites, less of all of them where a cavity 1/v − ηγ would not be positive."""
    most = float(np.max(power * given.gamma * variance, initial=0.0))
    share = min(1.0, 0.9 / most) if most > 0.0 else 1.0
    return SiteParameters(share * given.gamma, share * given.nu)


class _Place(NamedTuple):
    """A point of the inner problem: −F and its gradient, the moments of the approximation, the steps remembered."""

    point: Array
    objective: float
    gradient: Array
    mean: Array
    variance: Array
    steps: Array
    changes: Array


class _Inner:
    """−F as a function of (α, β), with exp(αz + β(z² − 1)/√2) the change of a site, z = (x − m)/√v of s.

    In these coordinates the Hessian has a diagonal near one.
    """

    def __init__(self, form: SiteForm, mean: Array, variance: Array, origin: SiteParameters, power: float) -> None:
        self._form, self._mean, self._variance, self._origin, self._power = form, mean, variance, origin, power
        self._sd = np.sqrt(variance)
        self._log_marginal = _log_normaliser(mean / variance, 1.0 / variance)

    def parameters(self, point: Array) -> SiteParameters:
        alpha, beta = np.split(point, 2)
        gamma = -np.sqrt(2.0) * beta / self._variance
        return SiteParameters(self._origin.gamma + gamma, self._origin.nu + alpha / self._sd + gamma * self._mean)

    def _expected(self, mean: Array, variance: Array) -> Array:
        """⟨z⟩ and ⟨z² − 1⟩/√2."""
        z = (mean - self._mean) / self._sd
        return np.concatenate([z, (z * z + variance / self._variance - 1.0) / np.sqrt(2.0)])

    def evaluate(self, point: Array) -> _Place | None:
        """−F and its gradient; None outside its domain."""
        parameters = self.parameters(point)
        # the cavities s − ηθ
        precision = 1.0 / self._variance - self._power * parameters.gamma
        if not np.all(precision * self._variance > PROPER):
            return None
        solution = self._form.solve(parameters)
        if solution is None:
            return None
        pull = self._mean / self._variance - self._power * parameters.nu
        tilted = self._form.sites.tilted_moments(pull / precision, 1.0 / precision, self._power)
        # log ∫ φ^η exp(c·g) = log Ẑ + log Z_G(c)
        sites = tilted.log_z + _log_normaliser(pull, precision) - self._log_marginal
        value = self._form.log_integral(solution) + float(sites.sum()) / self._power
        variance = self._form.variances(solution)
        # ∂F/∂θ is the difference of the two moments
        gradient = self._expected(tilted.mean, tilted.variance) - self._expected(solution.x, variance)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return None
        none = np.zeros((0, point.size))
        return _Place(point, -value, gradient, solution.x, variance, none, none)

    def step(self, at: _Place) -> tuple[_Place, Measure]:
        """One quasi-Newton step."""
        direction = ascent_direction(at.gradient, at.steps, at.changes)

        def attempt(length: float) -> tuple[float, _Place | None]:
            place = self.evaluate(at.point + length * direction)
            return (-np.inf, None) if place is None else (place.objective, place)

        slack = 1e-2 * rounding(at.objective)
        found = backtrack(attempt, at.objective, float(direction @ at.gradient), slack=slack)
        if found is None or found[2] is None:
            return at, Measure(at.objective, _largest(at.gradient))
        moved = found[2]
        pairs = remember(at.steps, at.changes, moved.point - at.point, at.gradient - moved.gradient, INNER_MEMORY)
        return moved._replace(steps=pairs[0], changes=pairs[1]), Measure(moved.objective, _largest(moved.gradient))


def _largest(gradient: Array) -> float:
    return float(np.abs(gradient).max(initial=0.0))


def _log_normaliser(pull: Array, precision: Array) -> Array:
    # log ∫ exp(−½ρx² + νx)
    return 0.5 * (LOG_2PI - np.log(precision) + pull * pull / precision)

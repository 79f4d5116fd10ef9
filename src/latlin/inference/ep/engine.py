"""Expectation propagation: every site is replaced by the Gaussian that gives the approximation the right moments.

Challis (2013), §3.6 and A.2.5, corrected. Not a bound, and often the most accurate Gaussian of all. Sweeps over the
sites may not converge; then a double loop does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from latlin.inference.engine import checkpoint_for, refuse_extra_variance
from latlin.inference.ep.kernels import FIXED
from latlin.inference.ep.sweeps import Parallel, Schedule, Sequential, SweepState, evaluate, past_steps
from latlin.inference.evidence.terms import TiltedEvidence
from latlin.inference.forms.chain import ChainForm
from latlin.inference.forms.choice import site_form
from latlin.inference.forms.dense import inherit_parameters
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import PROPER, SiteParameters
from latlin.inference.forms.sparse import SparseForm
from latlin.inference.model import Model, in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, mix, rounding
from latlin.numerics.optimise import ascent_direction, backtrack, remember
from latlin.numerics.options import number, one_of, whole
from latlin.numerics.stored import storable_by_arguments

# --- Expectation propagation by a double loop, which converges where sweeps over the sites do not.
#
# With Gaussian marginals of natural parameters s_n = (m_n/v_n, 1/v_n) at hand, cavities are s_n − ηθ_n, and
#
#     F(θ, s) = log ∫ Gaussian factors · ∏ exp(θ_n·g_n) + Σ_n [log ∫ φ_n^η exp((s_n − ηθ_n)·g_n) − log Z_G(s_n)]/η
#
# is log Z_EP at the fixed points of expectation propagation; θ_n = (ν_n, γ_n) and g_n = (x_n, −½x_n²). It is convex in
# θ. The inner loop minimises it over θ, where every tilted distribution has the moments μ of the approximation; the
# outer loop takes s from these. Then F(θ, s) + Σ_n KL(N(μ_n)‖N(s_n))/η, minus the free energy of the moments μ, never
# falls (Heskes and Zoeter 2002; Opper and Winther 2005). Anderson mixing extrapolates s, as long as it does not fall.


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

    Exponential tails allow it to be at the edge, at cavities without end, as long as s is far wider than the tilted
    distributions; the moments there are narrower.
    """
    now = _match(form, mean, variance, first, power, np.inf)
    for _ in range(TRIALS):
        if now is None or now.inside:
            return now
        now = _match(form, now.to_mean, now.to_variance, SiteParameters(now.gamma, now.nu), power, now.residual)
    return now


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


SCHEDULES: dict[str, Callable[[SiteForm], Schedule]] = {
    "auto": lambda form: Parallel(form) if form.sites.log_concave else Sequential(form),
    "sequential": Sequential,
    "parallel": Parallel,
}
#: a step is shortened to no less than this share of the one wanted
SHORTEST = 0.02
REMEDY = "raise sweeps or damping, lower power (to 0.5), or use engine 'gkl', whose bound only rises"


@storable_by_arguments
@dataclass(frozen=True)
class ExpectationPropagation:
    """Gaussian whose marginals match the tilted moments of every site; the evidence is an approximation.

    Parameters
    ----------
    power : float in (0, 1]
        Sites are matched in this power; below 1 EP is less accurate for well-behaved sites and more stable for others.
    damping : float in [0, 1)
        Share of the old site parameters that a step keeps. More is kept by itself while the mismatch grows.
    schedule : {"auto", "sequential", "parallel"}
        One site after the other, or all at once (fewer operations per sweep, more sweeps). "auto" is all at once for
        log-concave sites, and one after the other for others. With a sparse precision it is always all at once.
    sweeps : int
        At most so many passes over the sites. One pass from the prior, one site after the other, is assumed-density
        filtering.
    tol : float
        Largest mismatch between a tilted and a marginal moment at convergence, in marginal standard deviations.
    double_loop : int
        Outer steps, at most, of the double loop that begins anew where the sweeps have not converged; 0 for none.

    Notes
    -----
    A site whose cavity is no density (it happens next to sites of negative precision, such as those of outliers under a
    Student t) waits for a later sweep. The double loop (Heskes and Zoeter 2002; Opper and Winther 2005) minimises the
    free energy whose stationary points are the fixed points of the sweeps, monotonically, at some tens of times the
    price of a sweep per outer step. A fit that did not converge is marked in `message` and `converged`, with a warning.
    `message` also has the Gaussian KL bound of the same Gaussian, `Posterior.kl_bound`, where it is finite.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
    >>> X = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]])
    >>> model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Logit([1, 0, 0]))])
    >>> round(infer(model, engines.ExpectationPropagation(schedule="parallel")).log_evidence, 4)
    -1.8389
    """

    name: ClassVar[str] = "ep"
    power: float = 1.0
    damping: float = 0.0
    schedule: Literal["auto", "sequential", "parallel"] = "auto"
    sweeps: int = 100
    tol: float = 1e-8
    double_loop: int = 300

    def __post_init__(self) -> None:
        number("power", self.power, above=0.0, most=1.0)
        number("damping", self.damping, least=0.0, below=1.0)
        one_of("schedule", self.schedule, SCHEDULES)
        whole("sweeps", self.sweeps, 1)
        whole("double_loop", self.double_loop, 0)

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
        form = site_form(model)
        first = _prior_sites(form) if start is None else inherit_parameters(form, model, start)
        ascent = self._iterate(form, first, verbose, checkpoint_for(checkpoint, model, self))
        ascent = ascent if ascent.converged else self._finish(form, first, ascent)
        parameters = SiteParameters(ascent.state.gamma, ascent.state.nu)
        solution = form.solve(parameters)
        assert solution is not None  # the iteration ended there
        return Posterior(
            model=model,
            density=form.density(solution),
            log_evidence=ascent.state.log_z,
            evidence_kind="exact" if form.sites.gaussian and ascent.converged else "approximation",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=self._message(ascent) + _bound_note(form, solution),
            sites=parameters,
            power=self.power,
            evidence_term=TiltedEvidence(self.power),
        )

    def _iterate(
        self, form: SiteForm, first: SiteParameters, verbose: bool, checkpoint: Checkpoint | None
    ) -> Ascent[SweepState]:
        begin = evaluate(form, first, self.power, 1.0 - self.damping)
        if begin is None:
            raise ValueError("the start of expectation propagation is no proper Gaussian; start from another posterior")
        sweep = self._schedule(form)

        def step(state: SweepState) -> tuple[SweepState, Measure]:
            moved = _sweep(form, state, sweep, self.power, longest=1.0 - self.damping)
            return moved, Measure(moved.log_z, moved.residual)

        rules = Rules(gradient_tol=self.tol, max_iter=self.sweeps, remedy=REMEDY)
        return ascend(step, begin, rules, label="EP", verbose=verbose, checkpoint=checkpoint, warn=False)

    def _schedule(self, form: SiteForm) -> Schedule:
        if isinstance(form, SparseForm | ChainForm):
            return Parallel(form)
        return SCHEDULES["sequential" if self.sweeps == 1 and self.schedule == "auto" else self.schedule](form)

    def _finish(self, form: SiteForm, first: SiteParameters, swept: Ascent[SweepState]) -> Ascent[SweepState]:
        """What the double loop reaches, where that converges; else the sweeps, after a warning."""
        if self.sweeps == 1:
            return swept
        rules = Rules(gradient_tol=self.tol, max_iter=max(self.double_loop, 1), monotone=True, remedy=REMEDY)
        found = iterate_double_loop(form, first, self.power, rules) if self.double_loop else None
        end = evaluate(form, SiteParameters(found.state.gamma, found.state.nu), self.power, 1.0) if found else None
        # where a cavity is no density its moments have nothing to match: that is no fixed point
        if found is None or end is None or end.improper or not found.converged:
            alert(swept.message, ConvergenceWarning)
            return swept
        trace = np.concatenate([swept.trace, found.trace])
        message = f"{found.message}, after {swept.n_iter} sweeps that had not"
        return replace(swept, state=end, trace=trace, converged=True, n_iter=len(trace), message=message)

    def _message(self, ascent: Ascent[SweepState]) -> str:
        if self.sweeps == 1 and not ascent.converged:
            return f"assumed-density filtering: one pass, moments still differ by {ascent.state.residual:.2g}"
        if ascent.state.improper:
            return f"{ascent.message}; {ascent.state.improper} sites have a cavity that is no density"
        return ascent.message


def _bound_note(form: SiteForm, solution: Solution) -> str:
    """The Gaussian KL bound of the same Gaussian, in words."""
    if form.sites.gaussian:
        return ""
    variance = form.variances(solution)
    try:
        expected = form.sites.finite_expected_log(solution.x, variance)
    except ValueError:  # sites that are −∞ somewhere have no expected log
        expected = None
    if expected is None:
        return "; its Gaussian KL bound is −∞"
    bound = float(expected.value.sum()) + form.gaussian_terms(solution, variance)
    return f"; the Gaussian KL bound there is {bound:.6g}"


def _prior_sites(form: SiteForm) -> SiteParameters:
    """No sites; without a proper prior, the curvature that makes the first precision definite."""
    zero = np.zeros(len(form.sites))
    return SiteParameters(zero if form.solve(SiteParameters(zero, zero)) else form.sites.typical_precision(), zero)


def _sweep(form: SiteForm, state: SweepState, sweep: Schedule, power: float, longest: float) -> SweepState:
    """One sweep, with a shorter step when it leaves the proper Gaussians or the mismatch has grown."""
    length = state.length
    while length >= SHORTEST * longest:
        try:
            moved = evaluate(form, sweep(state, power, length), power, length)
        except FloatingPointError:
            moved = None
        if moved is not None and moved.improper:
            moved = _relaxed(form, moved, power)
        if moved is not None:
            grown = moved.residual >= state.residual
            moved = moved._replace(length=max(0.7 * length, SHORTEST) if grown else min(1.1 * length, longest))
            if grown or not isinstance(sweep, Parallel):
                return moved
            points, residuals = past_steps(state)
            return moved._replace(points=points, residuals=residuals)
        length *= 0.5
    return state


def _relaxed(form: SiteForm, state: SweepState, power: float) -> SweepState | None:
    """Negative precisions halved, each site's slope at its mean kept, so that improper cavities recover."""
    x = form.projections.times(state.u)
    change = np.where(state.gamma < 0.0, -0.5 * state.gamma, 0.0)
    return evaluate(form, SiteParameters(state.gamma + change, state.nu + change * x), power, state.length)

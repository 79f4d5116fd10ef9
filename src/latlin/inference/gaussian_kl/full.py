"""Full-covariance Gaussian KL: accelerated natural-gradient steps in site form, safeguarded by the bound.

    B(m, S) = Σ_n ⟨ψ_n(x)⟩_{N(x|m_n, s_n²)} + ⟨log Gaussian factors⟩ + ½ log det(2πe S) ≤ log Z

Challis (2013), eq. 4.2.1, corrected. At a stationary point S⁻¹ = Λ + HᵀΓH with Γ_nn = −2 ∂⟨ψ_n⟩/∂s_n²
((4.3.1)–(4.3.2), corrected), so the optimum is in site form, and (γ, ν) ← (γ̂, ν̂) is the natural-gradient step of
length one. Anderson mixing extrapolates these steps, and where the sites' joint covariance is at hand Newton's steps
finish. A step is taken only if the bound rises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.inference.forms.site_form import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.site_newton import newton_parameters
from latlin.numerics.anderson import mix
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.line_search import backtrack
from latlin.potentials.base import ExpectedLog

MEMORY = 8
#: share of a natural-gradient step that is taken while there is no past to extrapolate from; whole ones overshoot
FIRST = 0.5
#: largest gradient entry from which on Newton's steps are tried
CLOSE = 0.2
#: a site whose γ is below this is as good as absent; its logarithm stays finite
FLOOR = 1e-30
#: smallest unit of a coordinate; a row of zeros has no variance to measure in
TINY = 1e-12


class State(NamedTuple):
    """A Gaussian in site form, its marginals, its bound, where the next natural-gradient step goes, and the past."""

    gamma: Array
    nu: Array
    u: Array
    factor: Array
    x: Array
    variance: Array
    bound: float
    gamma_hat: Array
    nu_hat: Array
    gradient: float
    points: Array
    residuals: Array


def maximise_bound(
    form: SiteForm,
    start: State,
    rules: Rules,
    label: str,
    verbose: bool,
    checkpoint: Checkpoint | None,
    warn: bool = True,
) -> Ascent[State]:
    """Climb the Gaussian KL bound from a state that `evaluate` gave."""
    coordinates = LogCoordinates(start) if form.sites.log_concave else PlainCoordinates(start)

    def step(state: State) -> tuple[State, Measure]:
        tol = rules.gradient_tol
        moved = _newton(form, state, tol) or _accelerated(form, state, coordinates, tol) or _plain(form, state, tol)
        reached = state if moved is None else moved
        return reached, Measure(reached.bound, reached.gradient)

    def bound(state: State) -> float:
        again = evaluate(form, SiteParameters(state.gamma, state.nu), rules.gradient_tol)
        return -np.inf if again is None else again.bound

    return ascend(step, start, rules, label=label, verbose=verbose, checkpoint=checkpoint, warn=warn, evaluate=bound)


def evaluate(form: SiteForm, parameters: SiteParameters, tol: float) -> State | None:
    """The state at given site parameters, or None where they give no proper Gaussian or no finite bound."""
    solution = form.solve(parameters)
    if solution is None:
        return None
    variance = form.variances(solution)
    expected = form.sites.finite_expected_log(solution.x, variance)
    if expected is None:
        return None
    bound = float(expected.value.sum()) + form.gaussian_terms(solution, variance)
    # γ̂ = −2 ∂⟨ψ⟩/∂s², ν̂ = ∂⟨ψ⟩/∂m + γ̂x
    gamma_hat = -2.0 * expected.d_var
    nu_hat = expected.d_mean + gamma_hat * solution.x
    gradient = _gradient(form, solution, variance, SiteParameters(gamma_hat, nu_hat), tol)
    moments = (solution.u, form.kept(solution), solution.x, variance)
    empty = np.zeros((0, 2 * len(variance)))
    return State(*parameters, *moments, bound, gamma_hat, nu_hat, gradient, points=empty, residuals=empty)


def solution_of(form: SiteForm, state: State) -> Solution:
    """The state as a member of the site form's family."""
    parameters = SiteParameters(state.gamma, state.nu)
    return Solution(parameters, form.restored(parameters, state.factor), state.u, state.x)


def _gradient(form: SiteForm, solution: Solution, variance: Array, hat: SiteParameters, tol: float) -> float:
    """Largest absolute entry of the bound's gradient in (m̃, C̃), S̃ = C̃ᵀC̃.

    ∂B/∂m̃ = H̃ᵀ[(ν̂ − ν) − (γ̂ − γ)x] and ∂B/∂C̃ = C̃ H̃ᵀ(Γ − Γ̂)H̃. The second costs a Gram matrix, so it is formed only
    when the first is already small; until then the first is what is reported.
    """
    now = solution.parameters
    excess = now.gamma - hat.gamma
    mean_part = form.projections.transposed_times(hat.nu - now.nu + excess * solution.x)
    largest = float(np.abs(mean_part).max(initial=0.0))
    return largest if largest > tol else max(largest, form.covariance_gradient(solution, variance, excess))


class LogCoordinates:
    """(log γ, ν), each in the units of the first marginals, for concave sites: γ stays positive."""

    def __init__(self, start: State) -> None:
        self._weight = np.maximum(start.gamma * start.variance, TINY)
        self._spread = np.sqrt(np.maximum(start.variance, TINY))

    def encode(self, gamma: Array, nu: Array) -> Array:
        return np.concatenate([self._weight * np.log(np.maximum(gamma, FLOOR)), self._spread * nu])

    def decode(self, point: Array) -> SiteParameters:
        log_gamma, nu = np.split(point, 2)
        return SiteParameters(np.exp(np.minimum(log_gamma / self._weight, 300.0)), nu / self._spread)


class PlainCoordinates:
    """(γ, ν) in the units of the first marginals, for sites whose γ may be negative."""

    def __init__(self, start: State) -> None:
        self._variance = np.maximum(start.variance, TINY)
        self._spread = np.sqrt(self._variance)

    def encode(self, gamma: Array, nu: Array) -> Array:
        return np.concatenate([self._variance * gamma, self._spread * nu])

    def decode(self, point: Array) -> SiteParameters:
        gamma, nu = np.split(point, 2)
        return SiteParameters(gamma / self._variance, nu / self._spread)


def _newton(form: SiteForm, state: State, tol: float) -> State | None:
    """Newton's step, close to the optimum and if the bound rises there."""
    covariance = form.site_covariance(solution_of(form, state)) if state.gradient < CLOSE else None
    if covariance is None:
        return None
    expected = ExpectedLog(state.x, state.nu_hat - state.gamma_hat * state.x, -0.5 * state.gamma_hat)
    now = SiteParameters(state.gamma, state.nu)
    proposed = newton_parameters(form.sites, covariance, now, state.x, state.variance, expected)
    proposal = None if proposed is None else evaluate(form, proposed, tol)
    if proposal is None or proposal.bound < state.bound - 1e-3 * rounding(state.bound):
        return None
    return proposal


def _accelerated(
    form: SiteForm, state: State, coordinates: LogCoordinates | PlainCoordinates, tol: float
) -> State | None:
    """Anderson's proposal, if the bound rises there."""
    here = coordinates.encode(state.gamma, state.nu)
    residual = coordinates.encode(state.gamma_hat, state.nu_hat) - here
    points = np.concatenate([state.points[-MEMORY:], here[None]])
    residuals = np.concatenate([state.residuals[-MEMORY:], residual[None]])
    damping = FIRST if len(points) == 1 else 1.0
    proposal = evaluate(form, coordinates.decode(mix(points, residuals, damping)), tol)
    if proposal is None or proposal.bound < state.bound - 1e-3 * rounding(state.bound):
        return None
    return proposal._replace(points=points, residuals=residuals)


def _plain(form: SiteForm, state: State, tol: float) -> State | None:
    """The natural-gradient step, halved once (a whole one has just failed or would) and until the bound rises."""

    def at(share: float) -> tuple[float, State | None]:
        length = FIRST * share
        gamma = state.gamma + length * (state.gamma_hat - state.gamma)
        nu = state.nu + length * (state.nu_hat - state.nu)
        trial = evaluate(form, SiteParameters(gamma, nu), tol)
        return (-np.inf, None) if trial is None else (trial.bound, trial)

    found = backtrack(at, state.bound, 0.0, slack=1e-3 * rounding(state.bound), max_halvings=30)
    return None if found is None else found[2]

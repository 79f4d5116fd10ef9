"""Gaussian KL with a structured covariance: Hessian-free Newton steps where the bound is concave, L-BFGS elsewhere.

    B(m, θ) = Σ_n ⟨ψ_n⟩_{N(m_n, s_n²)} − ½ prior (‖m‖² + tr S) + ½ log det S + constant,   s_n² = ‖F(θ) h_n‖²

in coordinates whitened by the prior (Challis (2013), eq. 4.2.1, B.1 and B.5, corrected). With log-concave sites and
a triangular F the bound is concave in (m, F) jointly (§4.2.2). A Newton direction is found by conjugate gradients on
Hessian products, preconditioned by the diagonal, so that no step costs more than some passes over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from latlin.densities.structured.base import Structure
from latlin.inference.forms.structured import StructuredForm
from latlin.inference.forms.structured_sites import SiteView, StructuredSites
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.conjugate_gradients import solve
from latlin.numerics.line_search import backtrack
from latlin.numerics.quasi_newton import ascent_direction, remember
from latlin.potentials.base import ExpectedLog

MEMORY = 10
#: conjugate-gradient steps for one Newton direction, at most
INNER_STEPS = 250


class State(NamedTuple):
    """A point (m, θ), the bound and its gradient there, the sites' expectations, and past L-BFGS steps."""

    point: Array
    bound: float
    gradient: Array
    x: Array
    variance: Array
    value: Array
    d_mean: Array
    d_var: Array
    steps: Array
    changes: Array

    @property
    def expected(self) -> ExpectedLog:
        return ExpectedLog(self.value, self.d_mean, self.d_var)


@dataclass(frozen=True)
class Objective:
    """The bound of a form as a function of (m, θ) for one structure."""

    form: StructuredForm
    structure: Structure

    @cached_property
    def sites(self) -> StructuredSites:
        return StructuredSites(self.form.rows, self.form.sites, self.structure)

    @property
    def concave(self) -> bool:
        return self.structure.concave and self.form.sites.log_concave

    def split(self, point: Array) -> tuple[Array, Array]:
        """m and θ."""
        return point[: self.form.dim], point[self.form.dim :]

    def evaluate(self, point: Array) -> State | None:
        """Bound and gradient at a point, or None where there is no Gaussian or no finite bound."""
        m, theta = self.split(point)
        log_det = self.structure.log_det(theta)
        view = self.sites.view(m, theta) if np.isfinite(log_det) else None
        if view is None:
            return None
        squares = float(m @ m) + self.structure.trace(theta)
        bound = float(view.expected.value.sum()) - 0.5 * self.form.prior * squares + 0.5 * log_det + self.form.constant
        if not np.isfinite(bound):
            return None
        by_mean, by_theta = self.sites.slopes(view)
        by_mean -= self.form.prior * m
        by_theta += 0.5 * self.structure.log_det_gradient(theta)
        by_theta -= (self.form.prior * self.structure.trace_weights) * theta
        gradient = np.concatenate([by_mean, by_theta])
        empty = np.zeros((0, len(point)))
        return State(point, bound, gradient, view.x, view.variance, *view.expected, steps=empty, changes=empty)

    def curvature(self, state: State) -> Callable[[Array], Array]:
        """Exact products of minus the Hessian of the bound with a vector."""
        _, theta = self.split(state.point)
        view = SiteView(self.sites.image(theta), state.x, state.variance, state.expected)
        sites, own = self.sites.products(view.image, self.sites.curvature(view)), self._own_curvature(theta)

        def product(direction: Array) -> Array:
            m_dot, theta_dot = self.split(direction)
            by_mean, by_theta = sites(m_dot, theta_dot)
            out = np.concatenate([self.form.prior * m_dot, by_theta])
            out[: self.form.dim] += by_mean
            by_theta = np.multiply(own, theta_dot, out=by_theta)
            out[self.form.dim :] += by_theta
            return out

        return product

    def diagonal(self, state: State) -> Array:
        """A positive diagonal near that of minus the Hessian: site curvatures held fixed."""
        return positive_diagonal(self.energy(state))

    def energy(self, state: State) -> Array:
        """That diagonal, where it may be zero."""
        by_mean, by_theta = self.sites.energies(state.d_var)
        return np.concatenate([self.form.prior + by_mean, self._own_curvature(self.split(state.point)[1]) + by_theta])

    def _own_curvature(self, theta: Array) -> Array:
        """Minus the diagonal of the Hessian in θ of what is not sites."""
        return self.form.prior * self.structure.trace_weights + 0.5 * self.structure.log_det_curvature(theta)


class Climbed(Protocol):
    """A bound that `climb` can climb; `State` or another state with its point, bound, gradient and past steps."""

    @property
    def concave(self) -> bool: ...

    def evaluate(self, point: Array) -> Any: ...

    def curvature(self, state: Any) -> Callable[[Array], Array]: ...

    def diagonal(self, state: Any) -> Array: ...


def positive_diagonal(energy: Array) -> Array:
    """The diagonal with its zeros raised."""
    return np.maximum(energy, 1e-12 * energy.max())


def climb(
    objective: Climbed,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
) -> Ascent[Any]:
    """Climb the bound from the point `start`."""
    first = objective.evaluate(start)
    if first is None:
        raise ValueError("the start of the Gaussian KL ascent has no finite bound; start from another posterior")
    move = _newton if objective.concave else _quasi_newton

    def step(state: Any) -> tuple[Any, Measure]:
        moved = move(objective, state)
        reached = state if moved is None else moved
        return reached, Measure(reached.bound, float(np.abs(reached.gradient).max()))

    def bound(state: Any) -> float:
        again = objective.evaluate(state.point)
        return -np.inf if again is None else again.bound

    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, warn=warn, evaluate=bound)


def _newton(objective: Climbed, state: Any) -> Any:
    """A Newton step, solved no better than the gradient deserves."""
    accuracy = float(np.clip(np.sqrt(np.abs(state.gradient).max()), 1e-4, 0.1))
    diagonal, product = objective.diagonal(state), objective.curvature(state)
    direction = solve(product, state.gradient, diagonal, accuracy, INNER_STEPS)
    return _search(objective, state, direction)


def _quasi_newton(objective: Climbed, state: Any) -> Any:
    """An L-BFGS step; when it leads nowhere, one along the scaled gradient that forgets the past."""
    inverse = 1.0 / objective.diagonal(state)
    moved = _search(objective, state, ascent_direction(state.gradient, state.steps, state.changes, inverse))
    if moved is None:
        return _search(objective, state, inverse * state.gradient) if len(state.steps) else None
    step, change = moved.point - state.point, state.gradient - moved.gradient
    steps, changes = remember(state.steps, state.changes, step, change, MEMORY)
    return moved._replace(steps=steps, changes=changes)


def _search(objective: Climbed, state: Any, direction: Array) -> Any:
    def at(length: float) -> tuple[float, Any]:
        trial = objective.evaluate(state.point + length * direction)
        return (-np.inf, None) if trial is None else (trial.bound, trial)

    slope = float(state.gradient @ direction)
    if slope <= 0.0:
        return None
    found = backtrack(at, state.bound, slope, slack=1e-2 * rounding(state.bound), max_halvings=25)
    if found is not None:
        return found[2]
    # where the bound's rounding hides its rise, the gradient still tells
    whole = at(1.0)[1]
    if whole is None or whole.bound < state.bound - 0.1 * rounding(state.bound):
        return None
    return whole if np.abs(whole.gradient).max() < np.abs(state.gradient).max() else None

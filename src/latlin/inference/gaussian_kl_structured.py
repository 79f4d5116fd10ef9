"""Gaussian KL with a structured covariance: Hessian-free Newton steps where the bound is concave, L-BFGS elsewhere.

    B(m, θ) = Σ_n ⟨ψ_n⟩_{N(m_n, s_n²)} − ½ prior (‖m‖² + tr S) + ½ log det S + constant,   s_n² = ‖F(θ) h_n‖²

in coordinates whitened by the prior (002_71af9439e55c646f (4.2.1), B.1 and B.5, corrected). With log-concave sites and
a triangular F the bound is concave in (m, F) jointly (§4.2.2). A Newton direction is found by conjugate gradients on
Hessian products, preconditioned by the diagonal, so that no step costs more than some passes over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.densities.structured.base import Structure
from latlin.inference.site_curvature import site_curvature
from latlin.inference.structured_form import StructuredForm
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.conjugate_gradients import solve
from latlin.numerics.line_search import backtrack
from latlin.numerics.quasi_newton import ascent_direction, remember
from latlin.potentials.base import ExpectedLog

Array = NDArray[np.float64]
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
    def prepared(self) -> Any:
        """The rows as the structure takes them."""
        return self.structure.prepare(self.form.rows)

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
        if not np.isfinite(log_det):
            return None
        image = self.structure.image(theta, self.prepared)
        x, variance = self.form.rows.times(m), self.structure.inner(image, image, self.prepared)
        expected = self.form.sites.finite_expected_log(x, variance)
        if expected is None:
            return None
        weights = self.structure.trace_weights
        squares = float(m @ m) + self.structure.trace(theta)
        bound = float(expected.value.sum()) - 0.5 * self.form.prior * squares + 0.5 * log_det + self.form.constant
        if not np.isfinite(bound):
            return None
        by_mean = self.form.rows.transposed(expected.d_mean) - self.form.prior * m
        by_theta = self.structure.pull([(2.0 * expected.d_var, image)], self.prepared)
        by_theta += 0.5 * self.structure.log_det_gradient(theta)
        by_theta -= (self.form.prior * weights) * theta
        gradient = np.concatenate([by_mean, by_theta])
        empty = np.zeros((0, len(point)))
        return State(point, bound, gradient, x, variance, *expected, steps=empty, changes=empty)

    def curvature(self, state: State) -> Callable[[Array], Array]:
        """Exact products of minus the Hessian of the bound with a vector."""
        _, theta = self.split(state.point)
        image = self.structure.image(theta, self.prepared)
        site = site_curvature(self.form.sites, state.x, state.variance, state.expected)
        own = self.form.prior * self.structure.trace_weights + 0.5 * self.structure.log_det_curvature(theta)

        def product(direction: Array) -> Array:
            m_dot, theta_dot = self.split(direction)
            x_dot = self.form.rows.times(m_dot)
            image_dot = self.structure.image(theta_dot, self.prepared)
            # ṡ² = 2 (F h)·(Ḟ h)
            v_dot = 2.0 * self.structure.inner(image, image_dot, self.prepared)
            terms = [(site.mv * x_dot + site.vv * v_dot, image), (state.d_var, image_dot)]
            by_theta = self.structure.pull(terms, self.prepared)
            by_theta *= -2.0
            out = np.concatenate([self.form.prior * m_dot, by_theta])
            out[: self.form.dim] -= self.form.rows.transposed(site.mm * x_dot + site.mv * v_dot)
            by_theta = np.multiply(own, theta_dot, out=by_theta)
            out[self.form.dim :] += by_theta
            return out

        return product

    def diagonal(self, state: State) -> Array:
        """A positive diagonal near that of minus the Hessian: site curvatures held fixed."""
        _, theta = self.split(state.point)
        gamma = np.maximum(-2.0 * state.d_var, 0.0)
        mean = self.form.prior + self.form.rows.energy(gamma)
        weights = self.structure.trace_weights
        own = self.form.prior * weights + 0.5 * self.structure.log_det_curvature(theta)
        both = np.concatenate([mean, own + self.structure.energy(gamma, self.prepared)])
        return np.maximum(both, 1e-12 * both.max())


def climb(
    objective: Objective,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
) -> Ascent[State]:
    """Climb the bound from the point `start`."""
    first = objective.evaluate(start)
    if first is None:
        raise ValueError("the start of the Gaussian KL ascent has no finite bound; start from another posterior")
    move = _newton if objective.concave else _quasi_newton

    def step(state: State) -> tuple[State, Measure]:
        moved = move(objective, state)
        reached = state if moved is None else moved
        return reached, Measure(reached.bound, float(np.abs(reached.gradient).max()))

    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, warn=warn)


def _newton(objective: Objective, state: State) -> State | None:
    """A Newton step, solved no better than the gradient deserves."""
    accuracy = float(np.clip(np.sqrt(np.abs(state.gradient).max()), 1e-4, 0.1))
    diagonal, product = objective.diagonal(state), objective.curvature(state)
    direction = solve(product, state.gradient, diagonal, accuracy, INNER_STEPS)
    return _search(objective, state, direction)


def _quasi_newton(objective: Objective, state: State) -> State | None:
    """An L-BFGS step; when it leads nowhere, one along the scaled gradient that forgets the past."""
    inverse = 1.0 / objective.diagonal(state)
    moved = _search(objective, state, ascent_direction(state.gradient, state.steps, state.changes, inverse))
    if moved is None:
        return _search(objective, state, inverse * state.gradient) if len(state.steps) else None
    step, change = moved.point - state.point, state.gradient - moved.gradient
    steps, changes = remember(state.steps, state.changes, step, change, MEMORY)
    return moved._replace(steps=steps, changes=changes)


def _search(objective: Objective, state: State, direction: Array) -> State | None:
    def at(length: float) -> tuple[float, State | None]:
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

"""Gaussian KL with a structured covariance: Hessian-free Newton steps where the bound is concave, L-BFGS elsewhere.

    B(m, θ) = Σ_n ⟨ψ_n⟩_{N(m_n, s_n²)} − ½ prior (‖m‖² + tr S) + ½ log det S + constant,   s_n² = ‖F(θ) h_n‖²

in coordinates whitened by the prior (Challis (2013), eq. 4.2.1, B.1 and B.5, corrected). With log-concave sites and
a triangular F the bound is concave in (m, F) jointly (§4.2.2). A Newton direction is found by conjugate gradients on
Hessian products, preconditioned by the diagonal, so that no step costs more than some passes over the rows.

A block of rows elsewhere gives its sites' part of the bound, its gradient and a diagonal in one pass, and of a Hessian
product in one pass more (§4.6.2 and B.1.2). For the products of one point, blocks of this process keep three numbers
per row; blocks that are elsewhere keep nothing between passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latlin.densities.structured.base import Structure
from latlin.distributed.blocks import Block, LocalBlocks, add
from latlin.inference.forms.sites import SiteCurvature
from latlin.inference.forms.structured import BlockView, SitesElsewhere, SiteView, StructuredForm, StructuredSites
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import (
    Ascent,
    Checkpoint,
    Measure,
    Rules,
    ascend,
    backtrack,
    gradient_or_distance,
    grain,
    may_be_rounding,
    rounding,
)
from latlin.numerics.optimise import ascent_direction, remember, solve
from latlin.potentials.base import ExpectedLog

TINY = 1e-300
MEMORY = 10
#: conjugate-gradient steps for one Newton direction, at most
INNER_STEPS = 250


class StructuredState(NamedTuple):
    """A point (m, θ), the bound and its gradient there, and past L-BFGS steps.

    Of the sites in memory their expectations are kept; of those elsewhere the diagonal of minus their Hessian. The
    grain is what rounding of large terms adds to the bound; zero until it is measured.
    """

    point: Array
    bound: float
    gradient: Array
    x: Array
    variance: Array
    value: Array
    d_mean: Array
    d_var: Array
    elsewhere: Array
    steps: Array
    changes: Array
    grain: float = 0.0

    @property
    def expected(self) -> ExpectedLog:
        return ExpectedLog(self.value, self.d_mean, self.d_var)


@dataclass(frozen=True)
class StructuredBound:
    """The bound of a form as a function of (m, θ) for one structure."""

    form: StructuredForm
    structure: Structure

    @cached_property
    def sites(self) -> StructuredSites:
        """The sites in memory."""
        return StructuredSites(self.form.rows, self.form.sites, self.structure)

    @property
    def concave(self) -> bool:
        return self.structure.concave and self.form.log_concave

    def split(self, point: Array) -> tuple[Array, Array]:
        """m and θ."""
        return point[: self.form.dim], point[self.form.dim :]

    def evaluate(self, point: Array) -> StructuredState | None:
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
        gradient, empty = np.concatenate([by_mean, by_theta]), np.zeros((0, len(point)))
        here = (view.x, view.variance, *view.expected)
        return self._completed(StructuredState(point, bound, gradient, *here, np.zeros(0), steps=empty, changes=empty))

    def _completed(self, state: StructuredState) -> StructuredState | None:
        """With the sites in blocks of rows: one pass."""
        if self.form.elsewhere is None:
            return state
        sums = self.form.elsewhere.total(slope_sums, self.structure, *self.split(state.point))
        bound = state.bound + float(sums[0])
        if not np.isfinite(bound):
            return None
        gradient = state.gradient + np.concatenate(sums[1:3])
        return state._replace(bound=bound, gradient=gradient, elsewhere=np.concatenate(sums[3:]))

    def curvature(self, state: StructuredState) -> Callable[[Array], Array]:
        """Exact products of minus the Hessian of the bound with a vector."""
        m, theta = self.split(state.point)
        view = SiteView(self.sites.image(theta), state.x, state.variance, state.expected)
        sites, own = self.sites.products(view.image, self.sites.curvature(view)), self._own_curvature(theta)
        away = None if self.form.elsewhere is None else _products(self.form.elsewhere, self.structure, (m, theta))

        def product(direction: Array) -> Array:
            m_dot, theta_dot = self.split(direction)
            by_mean, by_theta = sites(m_dot, theta_dot)
            out = np.concatenate([self.form.prior * m_dot, by_theta])
            out[: self.form.dim] += by_mean
            by_theta = np.multiply(own, theta_dot, out=by_theta)
            out[self.form.dim :] += by_theta
            return out if away is None else out + np.concatenate(away((m_dot, theta_dot)))

        return product

    def diagonal(self, state: StructuredState) -> Array:
        """A positive diagonal near that of minus the Hessian: site curvatures held fixed."""
        by_mean, by_theta = self.sites.energies(state.d_var)
        own = self._own_curvature(self.split(state.point)[1])
        energy = np.concatenate([self.form.prior + by_mean, own + by_theta])
        energy = energy + state.elsewhere if len(state.elsewhere) else energy
        return np.maximum(energy, 1e-12 * energy.max())

    def _own_curvature(self, theta: Array) -> Array:
        """Minus the diagonal of the Hessian in θ of what is not sites."""
        return self.form.prior * self.structure.trace_weights + 0.5 * self.structure.log_det_curvature(theta)


def slope_sums(block: Block, view: BlockView, structure: Structure, m: Array, theta: Array) -> tuple[Any, ...]:
    """Σ ⟨ψ_n⟩, its gradient and its diagonal energies in (m, θ); a value of −∞ where there is no finite one."""
    total: tuple[Any, ...] = (0.0, *(np.zeros(n) for n in (len(m), len(theta)) * 2))
    for sites in view.sites(block, structure):
        seen = sites.view(m, theta)
        if seen is None:
            return (-np.inf, *total[1:])
        part = (float(seen.expected.value.sum()), *sites.slopes(seen), *sites.energies(seen.expected.d_var))
        total = add(total, part)
    return total


def product_sums(
    block: Block, view: BlockView, structure: Structure, point: tuple[Array, Array], direction: tuple[Array, Array]
) -> tuple[Any, ...]:
    """Minus the Hessian of Σ ⟨ψ_n⟩ at (m, θ) times a direction."""
    total: tuple[Any, ...] = tuple(np.zeros(len(part)) for part in point)
    for sites in view.sites(block, structure):
        seen = finite_view(sites, *point)
        total = add(total, sites.products(seen.image, sites.curvature(seen))(*direction))
    return total


def curvatures(block: Block, view: BlockView, structure: Structure, m: Array, theta: Array) -> list[SiteCurvature]:
    """The curvatures of a block's sites, one piece after the other."""
    return [sites.curvature(finite_view(sites, m, theta)) for sites in view.sites(block, structure)]


def kept_product_sums(
    block: Block,
    view: BlockView,
    structure: Structure,
    theta: Array,
    kept: list[list[SiteCurvature]],
    direction: tuple[Array, Array],
) -> tuple[Any, ...]:
    """As `product_sums`, with the curvatures that every block has kept."""
    total: tuple[Any, ...] = tuple(np.zeros(len(part)) for part in direction)
    for sites, curvature in zip(view.sites(block, structure), kept[block.number], strict=True):
        total = add(total, sites.products(sites.image(theta), curvature)(*direction))
    return total


def _products(
    sites: SitesElsewhere, structure: Structure, point: tuple[Array, Array]
) -> Callable[[tuple[Array, Array]], tuple[Any, ...]]:
    """Products with a direction: blocks of this process keep their curvatures, which would be too long to travel."""
    if not isinstance(sites.blocks, LocalBlocks):
        return lambda direction: sites.total(product_sums, structure, point, direction)
    kept = sites.blocks.each(curvatures, sites.view, structure, *point)
    return lambda direction: sites.total(kept_product_sums, structure, point[1], kept, direction)


def finite_view(sites: StructuredSites, m: Array, theta: Array) -> SiteView:
    """The sites' expectations at a point with a finite bound."""
    view = sites.view(m, theta)
    assert view is not None  # the bound was finite there
    return view


def climb(
    objective: StructuredBound,
    start: Array,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
) -> Ascent[StructuredState]:
    """Climb the bound from the point `start`."""
    first = objective.evaluate(start)
    if first is None:
        raise ValueError("the start of the Gaussian KL ascent has no finite bound; start from another posterior")
    move = _newton if objective.concave else _quasi_newton

    def step(state: StructuredState) -> tuple[StructuredState, Measure]:
        moved = move(objective, state) or state
        gain, size, before = moved.bound - state.bound, *(float(np.abs(at.gradient).max()) for at in (moved, state))
        if objective.concave and size > rules.gradient_tol:
            if may_be_rounding(gain, state.bound, state.grain, size, before):
                state = state._replace(grain=_grain(objective, state))
                moved = move(objective, state) or moved
                gain, size = moved.bound - state.bound, float(np.abs(moved.gradient).max())
            away = lambda: _distance(objective, moved)  # noqa: E731
            size = gradient_or_distance(size, before, gain, state.bound, away, state.grain)
        moved = moved if moved.grain == state.grain else moved._replace(grain=state.grain)
        return moved, Measure(moved.bound, size, state.grain)

    def bound(state: Any) -> float:
        again = objective.evaluate(state.point)
        return -np.inf if again is None else again.bound

    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, warn=warn, evaluate=bound)


def _grain(objective: StructuredBound, state: StructuredState) -> float:
    """How far rounding alone moves the bound here."""

    def bound(point: Array) -> float | None:
        moved = objective.evaluate(point)
        return None if moved is None else moved.bound

    return grain(bound, state.point, state.bound)


def _distance(objective: StructuredBound, state: StructuredState) -> float:
    """About how many standard deviations the optimum is away, by the diagonal of the curvature."""
    return float(np.sqrt(np.sum(state.gradient**2 / np.maximum(np.abs(objective.diagonal(state)), TINY))))


def _newton(objective: StructuredBound, state: StructuredState) -> StructuredState | None:
    """A Newton step, solved no better than the gradient deserves."""
    accuracy = float(np.clip(np.sqrt(np.abs(state.gradient).max()), 1e-4, 0.1))
    diagonal, product = objective.diagonal(state), objective.curvature(state)
    direction = solve(product, state.gradient, diagonal, accuracy, INNER_STEPS)
    return _search(objective, state, direction)


def _quasi_newton(objective: StructuredBound, state: StructuredState) -> StructuredState | None:
    """An L-BFGS step; when it leads nowhere, one along the scaled gradient that forgets the past."""
    inverse = 1.0 / objective.diagonal(state)
    moved = _search(objective, state, ascent_direction(state.gradient, state.steps, state.changes, inverse))
    if moved is None:
        return _search(objective, state, inverse * state.gradient) if len(state.steps) else None
    step, change = moved.point - state.point, state.gradient - moved.gradient
    steps, changes = remember(state.steps, state.changes, step, change, MEMORY)
    return moved._replace(steps=steps, changes=changes)


def _search(objective: StructuredBound, state: StructuredState, direction: Array) -> StructuredState | None:
    def evaluate(length: float) -> tuple[float, StructuredState | None]:
        trial = objective.evaluate(state.point + length * direction)
        return (-np.inf, None) if trial is None else (trial.bound, trial)

    slope = float(state.gradient @ direction)
    if slope <= 0.0:
        return None
    found = backtrack(evaluate, state.bound, slope, slack=1e-2 * rounding(state.bound) + state.grain, max_halvings=25)
    if found is not None:
        return found[2]
    # where the bound's rounding hides its rise, the gradient still shows it
    whole = evaluate(1.0)[1]
    if whole is None or whole.bound < state.bound - 0.1 * rounding(state.bound) - state.grain:
        return None
    return whole if np.abs(whole.gradient).max() < np.abs(state.gradient).max() else None

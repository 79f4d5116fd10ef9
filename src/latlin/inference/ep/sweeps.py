"""The two schedules of expectation propagation: all sites at once, or one after the other in compiled code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from latlin.inference.ep.kernels import FIXED, visit_sites
from latlin.inference.ep.moments import State, match
from latlin.inference.forms.node_plan import Target
from latlin.inference.forms.site_form import SiteForm
from latlin.inference.forms.site_nodes import site_nodes
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import whitened_squares

#: sites whose nodes are laid together: at first and after a stop, and at most
FIRST_BLOCK, LARGEST_BLOCK = 16, 512
#: nodes that are kept from one sweep to the next, at most
KEPT_NODES = 4_000_000


class Schedule(Protocol):
    """A sweep over all sites: new site parameters from a state."""

    def __call__(self, state: State, power: float, length: float) -> SiteParameters: ...


@dataclass(frozen=True)
class Parallel:
    """Every site moves towards the parameters that match its moments under the same approximation."""

    form: SiteForm

    def __call__(self, state: State, power: float, length: float) -> SiteParameters:
        gamma = state.gamma + length * (state.gamma_hat - state.gamma)
        return SiteParameters(gamma, state.nu + length * (state.nu_hat - state.nu))


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

    Nodes are laid for blocks of sites and kept between sweeps, as long as they serve and memory allows.
    """

    form: SiteForm
    _plans: list[_Plan] = field(default_factory=list)

    def __call__(self, state: State, power: float, length: float) -> SiteParameters:
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

    def __init__(self, form: SiteForm, state: State, power: float, length: float) -> None:
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
        target = Target(found.mean, found.variance, found.tilted_mean, np.maximum(found.tilted_variance, floor))
        return _Plan(start, stop, *site_nodes(sites, target, self._power), np.column_stack(target))

    def _refresh(self) -> None:
        solution = self._form.solve(self.parameters)
        if solution is None:
            raise FloatingPointError("the approximation lost its positive definite precision within a sweep")
        self._factor, self._u = np.array(solution.precision.factor, order="C"), solution.u

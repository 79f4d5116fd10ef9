"""Modes of large sparse models by products alone: Newton's method whose steps are found by conjugate gradients.

With the Gaussian factors exp(bᵀδ − ½δᵀΛδ), δ = w − μ, a Newton step solves (Λ + HᵀΓH)δ = gradient, Γ = −ψ″, by products
with Λ, H and Hᵀ: nothing is ever factorised, so that a step costs a few passes over the non-zeros of H (Challis (2013),
§3.3). The steps are found only as well as the gradient is small (Dembo, Eisenstat and Steihaug 1982).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from latlin.inference.forms.prior import Quadratic, needs_sparse, quadratic_of
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites
from latlin.inference.forms.sparse import may_be_sparse, uses_sparse
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.optimise import backtrack, solve
from latlin.numerics.sparse_times import sparse_times

#: smaller of the numbers of rows and dimensions from which on products are quicker than a dense factorisation
LARGE = 500
#: residual of a Newton step relative to the gradient, at most, and steps of conjugate gradients for it
ROUGH, STEPS = 0.1, 500


class ExpansionPoint(NamedTuple):
    """A deviation δ from the prior mean, its projections, the log joint with its gradient, and the sites' ψ″ there."""

    deviation: Array
    x: Array
    objective: float
    curvature: Array
    gradient: Array


@dataclass(frozen=True)
class ProductForm:
    """A model by its products.

    Parameters
    ----------
    prior : Quadratic
        The Gaussian factors, without constraints.
    rows : csr_array of shape (n_sites, dim)
    sites : Sites
        As functions of x = Hδ.
    columns : csr_array of shape (dim, n_sites)
        Hᵀ.
    precision : callable, optional
        Γ ↦ P = Λ + HᵀΓH, where it has fewer entries than H.
    """

    prior: Quadratic
    rows: sparse.csr_array
    sites: Sites
    columns: sparse.csr_array
    precision: Callable[[Array], sparse.csr_array] | None = None

    @cached_property
    def _squares(self) -> sparse.csr_array:
        return sparse.csr_array(self.columns.multiply(self.columns))

    @cached_property
    def scale(self) -> Array:
        """Prior standard deviations of each coordinate given the others, in which gradients are measured."""
        return 1.0 / np.sqrt(self.prior.precision.diagonal())

    def expand(self, deviation: Array, x: Array) -> ExpansionPoint:
        """The log joint with its slopes."""
        prior = self.prior
        held = prior.precision @ deviation
        with np.errstate(over="ignore", invalid="ignore"):
            value, first, second = self.sites.expansion(x)
            objective = prior.constant + float(deviation @ (prior.linear - 0.5 * held)) + float(value.sum())
        gradient = prior.linear - held + sparse_times(self.columns, first)
        return ExpansionPoint(deviation, x, objective if np.isfinite(objective) else -np.inf, second, gradient)

    def diagonal(self, gamma: Array) -> Array:
        """The diagonal of P = Λ + HᵀΓH."""
        return self.prior.precision.diagonal() + self._squares @ gamma

    def direction(self, point: ExpansionPoint) -> Array:
        """Newton's step, found the better the smaller the gradient is."""
        gamma = np.maximum(-point.curvature, 0.0)
        size = float(np.abs(point.gradient * self.scale).max(initial=0.0))
        accuracy = (min(ROUGH, np.sqrt(size)), STEPS)
        if self.precision is not None:
            total = self.precision(gamma)
            return solve(lambda v: sparse_times(total, v), point.gradient, total.diagonal(), *accuracy)

        def product(v: Array) -> Array:
            return self.prior.precision @ v + sparse_times(self.columns, gamma * sparse_times(self.rows, v))

        return solve(product, point.gradient, self.diagonal(gamma), *accuracy)


def by_products(model: LatentLinearModel) -> bool:
    """Whether a mode is found quickest by products: many sparse rows and dimensions, and a factor that would fill."""
    potentials = [factor.potential for factor in model.sites]
    smooth = all(potential.smooth and potential.log_concave for potential in potentials)
    rows = sum(model.site_count(factor) for factor in model.sites)
    if needs_sparse(model) or not smooth or min(rows, model.dim) < LARGE:
        return False
    return may_be_sparse(model, pairs=np.inf) and not uses_sparse(model)


def product_form(model: LatentLinearModel) -> ProductForm:
    """The form of a model with a Gaussian factor on every coordinate and no constraints."""
    prior, rows, sites = quadratic_of(model), sparse.csr_array(stacked_rows(model)), Sites.of(model)
    if len(prior.rows) or not np.all(prior.precision.diagonal() > 0.0):
        raise ValueError("this needs a GaussianFactor on every coordinate of w, and no constraints")
    sites = sites.shifted(np.asarray(rows @ prior.origin)) if prior.origin.any() else sites
    # Hᵀ stays with the rows, where refits under another prior find it
    kept = model.sites[0].kept if len(model.sites) == 1 else {}
    if "columns" not in kept:
        kept["columns"] = sparse.csr_array(rows.T)
    return ProductForm(prior, rows, sites, kept["columns"])


def find_mode_by_products(
    form: ProductForm,
    start: Array | None,
    rules: Rules,
    label: str,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Ascent[ExpansionPoint]:
    """Climb the log joint from a w, or from the prior mean."""

    def step(point: ExpansionPoint) -> tuple[ExpansionPoint, Measure]:
        reached = _newton_step(form, point)
        return reached, Measure(reached.objective, float(np.abs(reached.gradient * form.scale).max(initial=0.0)))

    deviation = np.zeros(len(form.prior.origin)) if start is None else start - form.prior.origin
    first = form.expand(deviation, form.rows @ deviation)

    def evaluate(point: ExpansionPoint) -> float:
        return form.expand(point.deviation, form.rows @ point.deviation).objective

    return ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, evaluate=evaluate)


def _newton_step(form: ProductForm, point: ExpansionPoint) -> ExpansionPoint:
    """The longest of the steps 1, ½, ¼, … that raises the log joint, or the point itself."""
    direction = form.direction(point)
    shift = sparse_times(form.rows, direction)

    def evaluate(length: float) -> tuple[float, ExpansionPoint]:
        trial = form.expand(point.deviation + length * direction, point.x + length * shift)
        return trial.objective, trial

    slope = float(point.gradient @ direction)
    best = backtrack(evaluate, point.objective, slope, slack=1e-2 * rounding(point.objective))
    return point if best is None else best[2]

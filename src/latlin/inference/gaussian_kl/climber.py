"""What the fit of a structured covariance is made of: rough and final ascents, and the precision at a diagonal fit.

Every fit starts from a quick diagonal one, whose site curvatures say what is worth adding to the diagonal: which
coordinates a chevron should give full rows, which directions loadings should take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.structured.base import Structure
from latlin.densities.structured.diagonal import Diagonal
from latlin.densities.structured.rows import Rows
from latlin.distributed.blocks import Block
from latlin.inference.forms.structured import BlockView, StructuredForm, site_precision
from latlin.inference.gaussian_kl.structured import Objective, State, climb, finite_view
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Rules

#: gradient at which a fit that only prepares another one may stop
ROUGH = 1e-2
#: quasi-Newton steps are cheaper and more than Newton steps
PATIENCE = 20


class Fit(NamedTuple):
    """A structure, the ascent in it, and what a user should know."""

    structure: Structure
    ascent: Ascent[State]
    note: str = ""


@dataclass(frozen=True)
class Precision:
    """P = prior + HᵀΓH with the sites' curvatures at a diagonal Gaussian, by its products.

    Parameters
    ----------
    form : StructuredForm
    gamma : ndarray of shape (n_sites,)
        Of the sites in memory.
    m, scale : ndarray of shape (dim,)
        The diagonal Gaussian.
    diagonal_elsewhere : ndarray of shape (dim,) or float
        What sites in blocks of rows add to the diagonal.
    """

    form: StructuredForm
    gamma: Array
    m: Array
    scale: Array
    diagonal_elsewhere: Array | float

    @property
    def dim(self) -> int:
        return self.form.dim

    def diagonal(self) -> Array:
        return self.form.prior + self.form.rows.energy(self.gamma) + self.diagonal_elsewhere

    def times(self, block: Array) -> Array:
        """P times the columns of a narrow matrix; one pass."""
        rows = self.form.rows
        total = self.form.prior * block + rows.block_transposed(self.gamma[:, None] * rows.block_times(block))
        if self.form.elsewhere is None:
            return total
        return total + self.form.elsewhere.total(precision_sums, self.m, self.scale, block)[0]

    def among(self, chosen: NDArray[np.int64]) -> Array:
        """Entries between some coordinates; the diagonal need not be right."""
        total = weighted_gram(self.form.rows, self.gamma, chosen)
        if self.form.elsewhere is None:
            return total
        return total + self.form.elsewhere.total(gram_sums, self.m, self.scale, chosen)[0]


def precision_sums(block: Block, view: BlockView, m: Array, scale: Array, columns: Array) -> tuple[Any, ...]:
    """HᵀΓH times some columns, Γ at a diagonal Gaussian."""
    total = np.zeros(columns.shape)
    for sites in view.sites(block, Diagonal(len(m))):
        gamma = site_precision(finite_view(sites, m, scale).expected.d_var)
        total += sites.rows.block_transposed(gamma[:, None] * sites.rows.block_times(columns))
    return (total,)


def gram_sums(block: Block, view: BlockView, m: Array, scale: Array, chosen: NDArray[np.int64]) -> tuple[Any, ...]:
    """HᵀΓH between some coordinates, Γ at a diagonal Gaussian."""
    total = np.zeros((len(chosen),) * 2)
    for sites in view.sites(block, Diagonal(len(m))):
        gamma = site_precision(finite_view(sites, m, scale).expected.d_var)
        total += weighted_gram(sites.rows, gamma, chosen)
    return (total,)


def energy_sums(block: Block, view: BlockView) -> tuple[Any, ...]:
    """Diagonal of HᵀΓH with the sites' typical curvatures."""
    total = np.zeros(len(view.scale))
    for sites in view.sites(block, Diagonal(len(view.scale))):
        total += sites.rows.energy(sites.sites.typical_precision())
    return (total,)


def weighted_gram(rows: Rows, gamma: Array, chosen: NDArray[np.int64]) -> Array:
    """HᵀΓH between some coordinates."""
    if hasattr(rows, "matrix") and sparse.issparse(rows.matrix):
        columns = rows.matrix.tocsc()[:, chosen]
        return (columns.T @ (sparse.diags_array(gamma) @ columns)).toarray()
    return rows.block_transposed(gamma[:, None] * rows.block_times(unit_columns(rows.shape[1], chosen)))[chosen]


def unit_columns(dim: int, chosen: NDArray[np.int64]) -> Array:
    """The unit vectors of some coordinates, one per column."""
    columns = np.zeros((dim, len(chosen)))
    columns[chosen, np.arange(len(chosen))] = 1.0
    return columns


def typical_scale(form: StructuredForm) -> Array:
    """Standard deviations of the coordinates when every site has its typical curvature."""
    energy: Array | float = form.rows.energy(form.sites.typical_precision()) if len(form.sites) else 0.0
    if form.elsewhere is not None:
        energy = energy + form.elsewhere.total(energy_sums)[0]
    return 1.0 / np.sqrt(form.prior + energy)


@dataclass(frozen=True)
class Climber:
    """A form, the rules of the final ascent, and where to report."""

    form: StructuredForm
    rules: Rules
    verbose: bool
    checkpoint: Checkpoint | None

    def rough(self, structure: Structure, start: Array, change: float = 1e-4) -> Ascent[State]:
        """An ascent good enough to start another, ended when the bound changes relatively by less than `change`."""
        rules = replace(self.rules, gradient_tol=max(ROUGH, self.rules.gradient_tol), objective_tol=change)
        return climb(Objective(self.form, structure), start, rules, "start", warn=False)

    def final(self, structure: Structure, start: Array) -> Ascent[State]:
        """The ascent whose end is the fit."""
        objective = Objective(self.form, structure)
        factor = 1 if objective.concave else PATIENCE
        rules = replace(self.rules, max_iter=factor * self.rules.max_iter)
        return climb(objective, start, rules, "Gaussian KL", self.verbose, self.checkpoint)

    def diagonal(self, mean: Array, scale: Array) -> tuple[Array, Array, Precision]:
        """Mean and scales of a rough diagonal fit, and the precision there."""
        dim = self.form.dim
        state = self.rough(Diagonal(dim), np.concatenate([mean, scale])).state
        m, scale = state.point[:dim], state.point[dim:]
        away = state.elsewhere[:dim] if len(state.elsewhere) else 0.0
        return m, scale, Precision(self.form, site_precision(state.d_var), m, scale, away)

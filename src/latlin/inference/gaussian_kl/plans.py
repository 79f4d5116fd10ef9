"""How each covariance structure is fitted: a word and its options become one small object, once, at the edge.

Every plan starts from a quick diagonal fit, whose site curvatures say what is worth adding to the diagonal: which
coordinates a chevron should give full rows, which directions loadings should take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from latlin.densities.structured.base import Structure
from latlin.densities.structured.chevron import Chevron
from latlin.densities.structured.diagonal import Diagonal
from latlin.densities.structured.low_rank import SMALLEST, LowRank
from latlin.densities.structured.rows import Rows
from latlin.densities.structured.triangular import banded_triangle, sparse_triangle
from latlin.inference.forms.structured import StructuredForm
from latlin.inference.forms.structured_sites import site_precision
from latlin.inference.gaussian_kl.structured import Climbed, Objective, climb
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Checkpoint, Rules
from latlin.numerics.conjugate_gradients import solve_columns
from latlin.numerics.linalg import cholesky

#: gradient at which a fit that only prepares another one may stop
ROUGH = 1e-2
#: columns of a covariance solved for at once: at least some, and more while they have no more numbers than this
COLUMNS, NUMBERS = 16, 2**20
#: quasi-Newton steps are cheaper and more than Newton steps
PATIENCE = 20


class Fit(NamedTuple):
    """A structure, the ascent in it, and what a user should know."""

    structure: Structure
    ascent: Ascent[Any]
    note: str = ""


class Precision(Protocol):
    """P = prior + HᵀΓH for fixed curvatures of the sites, by its products."""

    @property
    def dim(self) -> int: ...

    def diagonal(self) -> Array: ...

    def times(self, block: Array) -> Array:
        """P times the columns of a narrow matrix."""
        ...

    def among(self, chosen: NDArray[np.int64]) -> Array:
        """Entries between some coordinates; the diagonal need not be right."""
        ...


@dataclass(frozen=True)
class SitePrecision:
    """The precision of a form in memory."""

    form: StructuredForm
    gamma: Array

    @property
    def dim(self) -> int:
        return self.form.dim

    def diagonal(self) -> Array:
        return self.form.prior + self.form.rows.energy(self.gamma)

    def times(self, block: Array) -> Array:
        rows = self.form.rows
        return self.form.prior * block + rows.block_transposed(self.gamma[:, None] * rows.block_times(block))

    def among(self, chosen: NDArray[np.int64]) -> Array:
        return weighted_gram(self.form.rows, self.gamma, chosen)


@dataclass(frozen=True)
class Climber:
    """A form, the rules of the final ascent, and where to report."""

    form: StructuredForm
    rules: Rules
    verbose: bool
    checkpoint: Checkpoint | None

    def objective(self, structure: Structure) -> Climbed:
        """The bound for one structure."""
        return Objective(self.form, structure)

    def precision(self, state: Any) -> Any:
        """What the sites' curvatures at the state of a diagonal fit make of the precision."""
        return SitePrecision(self.form, site_precision(state.d_var))

    def rough(self, structure: Structure, start: Array, change: float = 1e-4) -> Ascent[Any]:
        """An ascent good enough to start another, ended when the bound changes relatively by less than `change`."""
        rules = replace(self.rules, gradient_tol=max(ROUGH, self.rules.gradient_tol), objective_tol=change)
        return climb(self.objective(structure), start, rules, "start", warn=False)

    def final(self, structure: Structure, start: Array) -> Ascent[Any]:
        objective = self.objective(structure)
        factor = 1 if objective.concave else PATIENCE
        rules = replace(self.rules, max_iter=factor * self.rules.max_iter)
        return climb(objective, start, rules, "Gaussian KL", self.verbose, self.checkpoint)

    def diagonal(self, mean: Array, scale: Array) -> tuple[Array, Array, Any]:
        """Mean and scales of a rough diagonal fit, and the precision there."""
        state = self.rough(Diagonal(self.form.dim), np.concatenate([mean, scale])).state
        return state.point[: self.form.dim], state.point[self.form.dim :], self.precision(state)


class Plan(Protocol):
    """A way to fit one kind of covariance from a mean and per-coordinate scales."""

    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit: ...


def typical_scale(form: StructuredForm) -> Array:
    """Per-coordinate standard deviations when every site has its typical curvature."""
    return 1.0 / np.sqrt(form.prior + form.rows.energy(form.sites.typical_precision()))


@dataclass(frozen=True)
class DiagonalPlan:
    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit:
        structure = Diagonal(climber.form.dim)
        return Fit(structure, climber.final(structure, np.concatenate([mean, scale])))


@dataclass(frozen=True)
class BandedPlan:
    bandwidth: int

    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit:
        return _lifted(banded_triangle(climber.form.dim, self.bandwidth), climber, mean, scale)


@dataclass(frozen=True)
class SparsePlan:
    pattern: Any

    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit:
        return _lifted(sparse_triangle(climber.form.dim, self.pattern), climber, mean, scale)


def _lifted(structure: Structure, climber: Climber, mean: Array, scale: Array) -> Fit:
    mean, scale, _ = climber.diagonal(mean, scale)
    return Fit(structure, climber.final(structure, np.concatenate([mean, structure.spread(scale)])))


@dataclass(frozen=True)
class ChevronPlan:
    """`order`: None to choose the coordinates with full rows from the data, or the coordinates that come first."""

    rank: int
    order: Array | None

    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit:
        dim = climber.form.dim
        rank = min(self.rank, dim)
        mean, scale, precision = climber.diagonal(mean, scale)
        structure = Chevron(dim, entangled(precision, rank) if self.order is None else self._given(dim, rank))
        theta = best_chevron(precision, structure)
        start = np.concatenate([mean, structure.spread(scale) if theta is None else theta])
        return Fit(structure, climber.final(structure, start))

    def again(self, climber: Climber, mean: Array, structure: Chevron, theta: Array) -> Fit:
        """The fit from a chevron of a similar model, whose choice of coordinates is kept."""
        mean, _, precision = climber.diagonal(mean, theta[structure.pivots])
        best = best_chevron(precision, structure, near=theta)
        return Fit(structure, climber.final(structure, np.concatenate([mean, theta if best is None else best])))

    def makes(self, structure: Chevron) -> bool:
        """Whether a structure is one that this plan may choose."""
        rank = min(self.rank, structure.dim)
        return structure.rank == rank and (
            self.order is None or np.array_equal(structure.first, self._given(structure.dim, rank))
        )

    def _given(self, dim: int, rank: int) -> NDArray[np.int64]:
        order = np.asarray(self.order)
        whole = order.ndim == 1 and np.issubdtype(order.dtype, np.integer) and len(order) >= rank
        if not whole or len(np.unique(order)) != len(order) or order.min() < 0 or order.max() >= dim:
            raise ValueError(f"order must list at least {rank} different coordinates below {dim}, got {self.order!r}")
        return order[:rank].astype(np.int64)


@dataclass(frozen=True)
class LowRankPlan:
    rank: int

    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit:
        dim = climber.form.dim
        rank = min(self.rank, dim)
        mean, scale, precision = climber.diagonal(mean, scale)
        structure = LowRank(dim, rank)
        loadings = wide_directions(precision, scale, rank)
        rest = np.sqrt(np.maximum(scale**2 - 0.5 * np.sum(loadings**2, axis=1), (0.1 * scale) ** 2 + SMALLEST**2))
        start = np.concatenate([mean, structure.joined(loadings, rest)])
        note = "; the bound is not concave in a low-rank covariance, so this optimum may be local"
        return Fit(structure, climber.final(structure, start), note)


def entangled(precision: Precision, rank: int) -> NDArray[np.int64]:
    """The coordinates most correlated with others under P = prior + HᵀΓH, one after the other.

    Among candidates (all coordinates, or those with the largest Σ_j P_ij²/(P_iiP_jj), estimated by random signs), the
    one with the largest sum of squared correlations with those not yet taken is taken next.
    """
    diagonal = precision.diagonal()
    count = max(4 * rank, 512)
    if count < precision.dim:
        signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), (precision.dim, 32))
        image = precision.times(signs / np.sqrt(diagonal)[:, None])
        score = np.mean(image**2, axis=1) / diagonal
        candidates = np.sort(np.argsort(-score, kind="stable")[:count])
    else:
        candidates = np.arange(precision.dim)
    p = precision.among(candidates)
    unit = np.outer(diagonal[candidates], diagonal[candidates])
    squares = np.divide(p**2, unit, out=np.zeros_like(p), where=unit > 0.0)
    np.fill_diagonal(squares, 0.0)
    total, taken = squares.sum(axis=1), []
    for _ in range(rank):
        best = int(np.argmax(total))
        taken.append(candidates[best])
        total -= squares[best]
        total[best] = -np.inf
    return np.array(taken, dtype=np.int64)


def best_chevron(precision: Precision, structure: Chevron, near: Array | None = None) -> Array | None:
    """θ of the best chevron for fixed site curvatures, None where a coordinate has none or rounding spoils it.

    With P = prior + HᵀΓH the best C has as full rows the first rows of the Cholesky factor of S = P⁻¹, which need only
    the columns of S at the first coordinates, and P_jj^(−½) elsewhere. The columns are searched from those of the
    chevron `near`.
    """
    diagonal = precision.diagonal()
    if not np.all(diagonal > 0.0):
        return None
    columns = np.empty((precision.dim, structure.rank))
    count = max(COLUMNS, NUMBERS // precision.dim)
    for start in range(0, structure.rank, count):
        span = slice(start, start + count)
        chosen = structure.first[span]
        first = None if near is None else structure.columns(near, chosen)
        columns[:, span] = solve_columns(precision.times, unit(precision.dim, chosen), diagonal, start=first)
    try:
        chol = cholesky(0.5 * (columns[structure.first] + columns[structure.first].T))
    except ValueError:
        return None
    loadings = np.ascontiguousarray(chol.whiten(columns.T).T)
    loadings[structure.first] = np.tril(chol.factor.T)
    return structure.joined(loadings, diagonal**-0.5)


def unit(dim: int, chosen: NDArray[np.int64]) -> Array:
    """The unit vectors of some coordinates, one a column."""
    columns = np.zeros((dim, len(chosen)))
    columns[chosen, np.arange(len(chosen))] = 1.0
    return columns


def weighted_gram(rows: Rows, gamma: Array, chosen: NDArray[np.int64]) -> Array:
    """HᵀΓH between some coordinates."""
    if hasattr(rows, "matrix") and sparse.issparse(rows.matrix):
        columns = rows.matrix.tocsc()[:, chosen]
        return (columns.T @ (sparse.diags_array(gamma) @ columns)).toarray()
    return rows.block_transposed(gamma[:, None] * rows.block_times(unit(rows.shape[1], chosen)))[chosen]


def wide_directions(precision: Precision, scale: Array, rank: int) -> Array:
    """Loadings along the directions that a diagonal of these scales makes too narrow.

    In units of the scales, P has a unit diagonal; along eigenvectors of a small eigenvalue λ the posterior is wider
    than the diagonal by 1/λ.
    """
    dim = precision.dim

    def product(block: Array) -> Array:
        columns = block.reshape(dim, -1)
        return (scale[:, None] * precision.times(scale[:, None] * columns)).reshape(block.shape)

    if dim <= 600 or 2 * rank >= dim:
        values, vectors = np.linalg.eigh(product(np.eye(dim)))
        values, vectors = values[:rank], vectors[:, :rank]
    else:
        operator = LinearOperator((dim,) * 2, matvec=product, matmat=product, dtype=float)
        start = np.random.default_rng(0).standard_normal(dim)
        values, vectors = eigsh(operator, k=rank, which="SA", tol=1e-2, v0=start, ncv=min(dim, 2 * rank + 20))
    wider = np.sqrt(np.maximum(1.0 / np.maximum(values, 1e-3) - 1.0, 1e-2))
    return scale[:, None] * vectors * wider

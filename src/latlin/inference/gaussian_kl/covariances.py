"""Covariance structures for Gaussian KL: each knows its options, checks them, and how it is fitted.

S = CᵀC in the model's own coordinates (Challis (2013), §4.3.1). All but `Full` form nothing of size N×D or D×D.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from latlin.densities.structured.base import (
    DiagonalStructure,
    Structure,
    StructuredCovariance,
    banded_triangle,
    sparse_triangle,
)
from latlin.densities.structured.loadings import SMALLEST, ChevronStructure, LowRankStructure
from latlin.inference.forms.sites import Start
from latlin.inference.gaussian_kl.climber import (
    Climber,
    Precision,
    Structured,
    StructuredFit,
    check_count,
    unit_columns,
)
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky
from latlin.numerics.optimise import solve_columns
from latlin.numerics.stored import storable_by_arguments

#: columns of a covariance solved for at once: at least some, and more while they have no more numbers than this
COLUMNS, NUMBERS = 16, 2**20


@storable_by_arguments
@dataclass(frozen=True)
class Full:
    """Any covariance; the tightest bound, at the cost of matrices of min(N, D) square."""

    name: ClassVar[str] = "full"


@storable_by_arguments
@dataclass(frozen=True)
class Estimated:
    """Any covariance of a sparse model whose factor would fill: variances and log det S are estimates by probes.

    Nothing is factorised; the evidence is then an approximation with a standard error, `Posterior.bound_error`.
    """

    name: ClassVar[str] = "estimated"


@storable_by_arguments
@dataclass(frozen=True)
class Diagonal(Structured):
    """Independent coordinates."""

    name: ClassVar[str] = "diagonal"

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        structure = DiagonalStructure(climber.form.dim)
        return StructuredFit(structure, climber.final(structure, np.concatenate([mean, scale])))


@storable_by_arguments
@dataclass(frozen=True)
class Banded(Structured):
    """C with some super-diagonals.

    Parameters
    ----------
    bandwidth : int
        Number of super-diagonals; 0 is diagonal.
    """

    name: ClassVar[str] = "banded"
    bandwidth: int

    def __post_init__(self) -> None:
        check_count(self.bandwidth, "bandwidth", self.name, least=0)

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        return _lift_diagonal(banded_triangle(climber.form.dim, int(self.bandwidth)), climber, mean, scale)


@storable_by_arguments
@dataclass(frozen=True)
class Sparse(Structured):
    """C with a given pattern.

    Parameters
    ----------
    pattern : matrix of shape (dim, dim)
        Its non-zeros are the places of C (upper triangle; the diagonal is always there).
    """

    name: ClassVar[str] = "sparse"
    pattern: Any

    def __post_init__(self) -> None:
        if self.pattern is None:
            raise ValueError("covariance='sparse' needs pattern, a matrix whose non-zeros are the places of the factor")

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        return _lift_diagonal(sparse_triangle(climber.form.dim, self.pattern), climber, mean, scale)


@storable_by_arguments
@dataclass(frozen=True)
class BlockDiagonal(Structured):
    """Groups of coordinates that are independent of each other.

    Parameters
    ----------
    blocks : sequence of sequences of int
        The coordinates of each group; those in no group are independent of all others.
    """

    name: ClassVar[str] = "block-diagonal"
    blocks: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Iterable) or not list(self.blocks):
            raise ValueError("covariance='block-diagonal' needs blocks, a list of lists of coordinates, got none")
        listed = np.concatenate([np.atleast_1d(np.asarray(block)) for block in self.blocks])
        if not np.issubdtype(listed.dtype, np.integer) or len(np.unique(listed)) != len(listed) or listed.min() < 0:
            raise ValueError(f"blocks must list every coordinate at most once, got {self.blocks!r}")

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        dim = climber.form.dim
        places = [np.meshgrid(np.sort(block), np.sort(block), indexing="ij") for block in self.blocks]
        i, j = (np.concatenate([pair[k].ravel() for pair in places]) for k in (0, 1))
        if max(i.max(), j.max()) >= dim:
            raise ValueError(f"blocks must list coordinates below {dim}, got {int(i.max())}")
        pattern = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(dim, dim))
        return _lift_diagonal(sparse_triangle(dim, sparse.triu(pattern)), climber, mean, scale)


def _lift_diagonal(structure: Structure, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
    """The fit of a structure from a rough diagonal one."""
    mean, scale, _ = climber.diagonal(mean, scale)
    return StructuredFit(structure, climber.final(structure, np.concatenate([mean, structure.spread(scale)])))


@storable_by_arguments
@dataclass(frozen=True)
class Chevron(Structured):
    """C with some full rows, and a diagonal below them.

    Parameters
    ----------
    rank : int
        Number of full rows.
    order : None, "natural" or array of int, optional
        The coordinates that get the full rows; None chooses those most correlated with others, or keeps those of a
        chevron of this rank from which the fit starts.
    """

    name: ClassVar[str] = "chevron"
    rank: int
    order: Any = None

    def __post_init__(self) -> None:
        check_count(self.rank, "rank", self.name)
        if isinstance(self.order, str) and self.order != "natural":
            raise ValueError(f"order must be None, 'natural' or a list of coordinates, got {self.order!r}")

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        dim = climber.form.dim
        rank = min(int(self.rank), dim)
        mean, scale, precision = climber.diagonal(mean, scale)
        first = choose_entangled(precision, rank) if self.order is None else self._given(dim, rank)
        structure = ChevronStructure(dim, first)
        theta = best_chevron(precision, structure)
        start = np.concatenate([mean, structure.spread(scale) if theta is None else theta])
        return StructuredFit(structure, climber.final(structure, start))

    def continue_fit(self, climber: Climber, start: Start) -> StructuredFit | None:
        """From a chevron as this one, with the coordinates to which it gave full rows."""
        covariance = getattr(start.density, "structure", None)
        form = climber.form
        if not isinstance(covariance, StructuredCovariance) or len(start.mean) != form.dim:
            return None
        structure = covariance.structure
        if not (isinstance(structure, ChevronStructure) and self._makes(structure)):
            return None
        # S = L F̃ᵀF̃ L, so in the new coordinates F̃ L/L′
        ratio = covariance.whitening.scale / form.whitening.scale
        loadings, scale = structure.split(covariance.theta)
        theta = structure.joined(ratio[:, None] * loadings, ratio * scale)
        mean, _, precision = climber.diagonal(form.coordinates(start.mean), theta[structure.pivots])
        best = best_chevron(precision, structure, near=theta)
        return StructuredFit(
            structure, climber.final(structure, np.concatenate([mean, theta if best is None else best]))
        )

    def _makes(self, structure: ChevronStructure) -> bool:
        """Whether a structure is one that may be chosen here."""
        rank = min(int(self.rank), structure.dim)
        return structure.rank == rank and (
            self.order is None or np.array_equal(structure.first, self._given(structure.dim, rank))
        )

    def _given(self, dim: int, rank: int) -> NDArray[np.int64]:
        order = np.arange(rank) if isinstance(self.order, str) else np.asarray(self.order)
        whole = order.ndim == 1 and np.issubdtype(order.dtype, np.integer) and len(order) >= rank
        if not whole or len(np.unique(order)) != len(order) or order.min() < 0 or order.max() >= dim:
            raise ValueError(f"order must list at least {rank} different coordinates below {dim}, got {self.order!r}")
        return order[:rank].astype(np.int64)


@storable_by_arguments
@dataclass(frozen=True)
class LowRank(Structured):
    """S = ΘΘᵀ + diag d².

    Parameters
    ----------
    rank : int
        Number of loadings, the columns of Θ.
    """

    name: ClassVar[str] = "low-rank"
    rank: int

    def __post_init__(self) -> None:
        check_count(self.rank, "rank", self.name)

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        dim = climber.form.dim
        rank = min(int(self.rank), dim)
        mean, scale, precision = climber.diagonal(mean, scale)
        structure = LowRankStructure(dim, rank)
        loadings = wide_directions(precision, scale, rank)
        smallest = (0.1 * scale) ** 2 + SMALLEST**2
        rest = np.sqrt(np.maximum(scale**2 - 0.5 * np.sum(loadings**2, axis=1), smallest))
        start = np.concatenate([mean, structure.joined(loadings, rest)])
        note = "; the bound is not concave in a low-rank covariance, so this optimum may be local"
        return StructuredFit(structure, climber.final(structure, start), note)


def choose_entangled(precision: Precision, rank: int) -> NDArray[np.int64]:
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


def best_chevron(precision: Precision, structure: ChevronStructure, near: Array | None = None) -> Array | None:
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
        columns[:, span] = solve_columns(precision.times, unit_columns(precision.dim, chosen), diagonal, start=first)
    try:
        chol = cholesky(0.5 * (columns[structure.first] + columns[structure.first].T))
    except ValueError:
        return None
    loadings = np.ascontiguousarray(chol.whiten(columns.T).T)
    loadings[structure.first] = np.tril(chol.factor.T)
    return structure.joined(loadings, diagonal**-0.5)


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

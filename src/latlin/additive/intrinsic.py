"""Fields with an intrinsic precision: random walks, seasons, penalised splines, maps.

The field is kept away from the null space of its precision by constraints. A constant belongs to the intercept. What
else is in the null space, such as the slope of a second-order random walk, gets coefficients of its own with a wide
normal prior, so that the whole prior is proper and its evidence can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from latlin.additive.places import FieldPlace
from latlin.additive.term import Part, PartPrior, PredictorRows, Slope, Values, scaled_slope
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import Array
from latlin.numerics.sparse_cholesky import SparseCholesky, analyse
from latlin.numerics.stored import storable, storable_as

# --- Precisions of known rank, scaled so that a standard deviation means something.
#
# An intrinsic precision R has a null space (a constant, a line) that its field is kept away from by constraints. It is
# scaled to generalised variance one (Sørbye and Rue 2014): the geometric mean of the marginal variances of the field,
# diag(R⁻), is one, so that sd² R⁻ is a field whose typical standard deviation is sd, whatever the graph or the grid.

#: fields up to this size are inverted densely
DENSE = 600


@dataclass(frozen=True)
class ScaledPrecision:
    """A scaled precision R with orthonormal rows N that span its null space.

    Attributes
    ----------
    matrix : sparse matrix of shape (p, p)
    null : array of shape (k, p)
    log_determinant : float
        Of R on the complement of its null space.
    factor : float
        What the matrix that was given has been multiplied with.
    """

    matrix: sparse.csc_array
    null: Array
    log_determinant: float
    factor: float = 1.0

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def rank(self) -> int:
        return self.size - len(self.null)

    def log_normaliser(self, sd: float) -> float:
        """Of the field with precision R/sd² on Nw = 0: ½ log|R| − rank (½ log 2π + log sd)."""
        return 0.5 * self.log_determinant - self.rank * (0.5 * np.log(2.0 * np.pi) + np.log(sd))


def pack_matrix(matrix: sparse.csc_array) -> dict[str, Any]:
    """A sparse matrix as arrays."""
    return {"data": matrix.data, "indices": matrix.indices, "ends": matrix.indptr, "shape": matrix.shape}


def unpack_matrix(data: Array, indices: Any, ends: Any, shape: tuple[int, int]) -> sparse.csc_array:
    """The matrix of `pack_matrix`, checked."""
    matrix = sparse.csc_array((data, indices, ends), shape=tuple(shape))
    matrix.check_format(full_check=True)
    return matrix


storable_as(
    ScaledPrecision,
    lambda one: {
        "matrix": pack_matrix(one.matrix),
        "null": one.null,
        "log_determinant": one.log_determinant,
        "factor": one.factor,
    },
    lambda matrix, **rest: ScaledPrecision(unpack_matrix(**matrix), **rest),
)


def scale_structure(matrix: sparse.sparray, null: Array, at: sparse.sparray | None = None) -> ScaledPrecision:
    """A structure of generalised variance one.

    Parameters
    ----------
    matrix : sparse matrix of shape (p, p)
        Symmetric and positive semi-definite.
    null : array of shape (k, p)
        Rows that span the null space, of any length and angle.
    at : sparse matrix of shape (m, p), optional
        The field is `at @ w`; without it w itself.
    """
    R, N = sparse.csc_array(matrix), _orthonormal(null)
    variance, log_det = _field_moments(R, N, at)
    # what is always zero, such as the only node of a component, has no say
    seen = variance > 1e-12 * variance.max(initial=0.0)
    if not np.any(seen):
        raise ValueError("the field has no variance: a smooth or a map needs more than one place")
    generalised = float(np.exp(np.mean(np.log(variance[seen]))))
    rank = R.shape[0] - len(N)
    return ScaledPrecision(R * generalised, N, log_det + rank * np.log(generalised), generalised)


def _field_moments(R: sparse.csc_array, N: Array, at: sparse.sparray | None) -> tuple[Array, float]:
    """diag(B R⁻ Bᵀ) and the log determinant of R outside its null space.

    With k unit vectors E that see the null space, G = (R + EEᵀ)⁻¹ is a generalised inverse of R, so that
    R⁻ = PGP with P = I − NᵀN, and |R + EEᵀ| = |R|·|NE|².
    """
    seats = _pivot_rows(N)
    grounded = R + sparse.csc_array((np.ones(len(seats)), (seats, seats)), shape=R.shape)
    log_seen = 2.0 * np.linalg.slogdet(N[:, seats])[1] if len(seats) else 0.0
    if R.shape[0] <= DENSE:
        factor = linalg.cho_factor(grounded.toarray(), lower=True)
        G = linalg.cho_solve(factor, np.eye(R.shape[0]))
        G -= N.T @ (N @ G)
        G -= (G @ N.T) @ N
        log_det = 2.0 * float(np.sum(np.log(np.diagonal(factor[0])))) - log_seen
        return (np.diagonal(G).copy() if at is None else np.asarray((at @ G * at.toarray()).sum(axis=1))), log_det
    if at is not None:
        raise ValueError(f"a smooth has {R.shape[0]} coefficients; at most {DENSE} are supported")
    diagonal, log_det, solved = _inverse_diagonal(grounded, N)
    inner = N @ solved
    shift = np.einsum("kp,pk->p", N, solved)
    return diagonal - 2.0 * shift + np.einsum("kp,kl,lp->p", N, inner, N), log_det - log_seen


def _inverse_diagonal(matrix: sparse.csc_array, N: Array) -> tuple[Array, float, Array]:
    """diag(G), log|G⁻¹| and GNᵀ of a positive definite sparse matrix."""
    factor = factorise_definite(matrix)
    solved = factor.solve(np.ascontiguousarray(N.T)) if len(N) else np.zeros((matrix.shape[0], 0))
    return factor.inverse_diagonal, factor.log_det, solved


def factorise_definite(matrix: sparse.csc_array) -> SparseCholesky:
    """The sparse Cholesky factor of a positive definite matrix."""
    analysis = analyse(matrix)
    factor = analysis.factorise(analysis.values(matrix))
    if factor is None:
        raise ValueError("the precision of a field is not positive definite outside its null space")
    return factor


def _pivot_rows(N: Array) -> NDArray[np.int64]:
    """k coordinates on which the null space is seen well: pivots of a QR decomposition of N."""
    if not len(N):
        return np.zeros(0, dtype=np.int64)
    _, _, order = linalg.qr(N, mode="economic", pivoting=True)
    return np.asarray(order[: len(N)], dtype=np.int64)


def _orthonormal(rows: Array) -> Array:
    """Rows of the same span, orthonormal; their order and directions are kept as far as that goes."""
    rows = np.atleast_2d(np.asarray(rows, float))
    if not rows.size:
        return rows.reshape(0, rows.shape[-1])
    q, r = np.linalg.qr(rows.T)
    return np.asarray((q * np.sign(np.diagonal(r))).T)


@storable
@dataclass(frozen=True)
class IntrinsicPart(Part):
    """A field with precision R/sd² on nodes, and trends with a normal prior.

    Attributes
    ----------
    label : str
    place : Place
        How rows see the nodes.
    structure : Structure
        R, scaled.
    trends : array of shape (k, p)
        Fields of the null space that have coefficients.
    trend_names : tuple of str
    trend_scale : float
        Standard deviation of their prior.
    sd : Hyperparameter
    """

    label: str
    place: FieldPlace
    structure: ScaledPrecision
    trends: Array
    trend_names: tuple[str, ...]
    trend_scale: float
    sd: Hyperparameter

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *(f"{self.label}[{node}]" for node in self.place.labels),
            *(f"{self.label}:{name}" for name in self.trend_names),
        )

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (self.sd,)

    @property
    def constraint(self) -> sparse.csr_array | None:
        null = self.structure.null
        if not len(null):
            return None
        return sparse.csr_array(np.hstack([null, np.zeros((len(null), len(self.trends)))]))

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        return PredictorRows(self.with_trends(self.place.rows(frame)))

    def with_trends(self, rows: sparse.csr_array) -> sparse.csr_array:
        """Rows over the nodes, and what they see of the trends."""
        if not len(self.trends):
            return rows
        return sparse.csr_array(sparse.hstack([rows, sparse.csr_array(rows @ self.trends.T)]))

    def with_mean(self) -> Self:
        """The field with a coefficient for its mean, where its precision leaves that open."""
        null, ones = self.structure.null, np.ones(self.structure.size)
        if not np.allclose(null.T @ (null @ ones), ones):
            return self
        return replace(self, trends=np.vstack([ones, self.trends]), trend_names=("mean", *self.trend_names))

    def innovation(self, values: Values) -> float:
        """The standard deviation of one difference or sum that the precision penalises, scaled as R is."""
        return values[self.sd.name] / float(np.sqrt(self.structure.factor))

    def prior(self, values: Values) -> PartPrior:
        sd, count = values[self.sd.name], len(self.trends)
        # N(b | 0, s²) for the trends
        wide = -count * (0.5 * np.log(2.0 * np.pi) + np.log(self.trend_scale)) if count else 0.0
        precision = self.structure.matrix / sd**2
        if count:
            ridge = sparse.eye_array(count) / self.trend_scale**2
            precision = sparse.block_diag([precision, ridge], format="csc")
        return PartPrior(sparse.csc_array(precision), self.structure.log_normaliser(sd) + wide)

    def slopes(self, values: Values) -> dict[str, Slope]:
        sd, count = values[self.sd.name], len(self.trends)
        field = scaled_slope(PartPrior(self.structure.matrix / sd**2, 0.0), self.structure.rank, sd)
        if not count:
            return {self.sd.name: field}
        zero = sparse.csc_array((count, count))
        return {self.sd.name: field._replace(precision=sparse.block_diag([field.precision, zero], format="csc"))}

    def report(self) -> sparse.csr_array:
        """The field at its nodes with the trends in it, then the coefficients of the trends."""
        field = self.with_trends(sparse.eye_array(self.structure.size, format="csr"))
        if not len(self.trends):
            return field
        count = len(self.trends)
        own = sparse.hstack([sparse.csr_array((count, self.structure.size)), sparse.eye_array(count)])
        return sparse.csr_array(sparse.vstack([field, own]))

"""What every structure answers, what triangular ones share, and the triangular ones themselves.

S = FᵀF with F linear in a flat vector θ, so a projected variance is h_nᵀSh_n = ‖F(θ) h_n‖². Its gradient is twice the
*pull* Σ_n (∂F h_n/∂θ)ᵀ(F h_n), and derivatives of any order follow from images, inner products and pulls alone:
in a direction θ̇ the variance moves by 2 (F h_n)·(Ḟ h_n), and the gradient Σ_n g_n ∇‖F h_n‖² by
2 Σ_n [ġ_n pull of F h_n + g_n pull of Ḟ h_n], which is the exact Hessian product (Challis (2013), B.1.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve_triangular

from latlin.densities.precision import DiagonalWhitening
from latlin.densities.structured.rows import Pattern, ProjectionRows, Terms, banded_pattern, sparse_pattern
from latlin.densities.structured.stacked_rows import make_projection_rows
from latlin.numerics.arrays import Array
from latlin.numerics.stored import check_made_again, storable

Index = NDArray[np.integer]


class Structure(Protocol):
    """A family of covariances of dimension `dim` with `size` parameters."""

    #: log det S is concave in θ, so that the Gaussian KL bound of log-concave sites is
    concave: bool

    @property
    def dim(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def trace_weights(self) -> Array | float:
        """Weights ω of ∂ tr S/∂θ = 2ω∘θ."""
        ...

    def trace(self, theta: Array) -> float:
        """tr S."""
        ...

    def spread(self, scale: Array) -> Array:
        """θ of (a member near) S = diag(scale²)."""
        ...

    def factor(self, theta: Array) -> Any:
        """F, dense or sparse."""
        ...

    def flat(self, factor: Any) -> Array:
        """θ of a factor of this shape."""
        ...

    def prepare(self, rows: ProjectionRows) -> Any:
        """The rows in the form that `image`, `inner`, `pull` and `energy` take."""
        ...

    def image(self, theta: Array, rows: Any) -> Any:
        """F h_n of every row, in whatever form is cheap; linear in θ."""
        ...

    def inner(self, a: Any, b: Any, rows: Any) -> Array:
        """(F_a h_n)·(F_b h_n) of every row."""
        ...

    def pull(self, terms: Terms, rows: Any) -> Array:
        """Σ_t Σ_n weight_tn (∂F h_n/∂θ)ᵀ image_tn."""
        ...

    def energy(self, weights: Array, rows: Any) -> Array:
        """Σ_n weight_n ‖∂F h_n/∂θ_k‖² for every parameter."""
        ...

    def log_det(self, theta: Array) -> float:
        """log det S; −inf outside the family."""
        ...

    def log_det_gradient(self, theta: Array) -> Array: ...

    def log_det_curvature(self, theta: Array) -> Array:
        """Minus the diagonal of the Hessian of log det S, which for a triangular factor is all of it."""
        ...

    def variances(self, theta: Array) -> Array:
        """The diagonal of S."""
        ...

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        """Draws of N(0, S), one per column."""
        ...

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        """δᵀS⁻¹δ for each column δ."""
        ...


class Triangular:
    """log det S = 2 Σ_i log C_ii, each pivot C_ii a parameter; concave."""

    concave = True
    #: positions of the pivots in θ, one per coordinate
    pivots: Index
    size: int
    trace_weights: Array | float = 1.0

    def trace(self, theta: Array) -> float:
        return float(theta @ theta)

    def spread(self, scale: Array) -> Array:
        theta = np.zeros(self.size)
        theta[self.pivots] = scale
        return theta

    def log_det(self, theta: Array) -> float:
        pivots = theta[self.pivots]
        return 2.0 * float(np.log(pivots).sum()) if np.all(pivots > 0.0) else -np.inf

    def log_det_gradient(self, theta: Array) -> Array:
        gradient = np.zeros(self.size)
        gradient[self.pivots] = 2.0 / theta[self.pivots]
        return gradient

    def log_det_curvature(self, theta: Array) -> Array:
        curvature = np.zeros(self.size)
        curvature[self.pivots] = 2.0 / theta[self.pivots] ** 2
        return curvature


def variances_of(structure: Structure, theta: Array, rows: ProjectionRows) -> Array:
    """h_nᵀSh_n of every row."""
    prepared = structure.prepare(rows)
    image = structure.image(theta, prepared)
    return structure.inner(image, image, prepared)


# --- A member of a structured family as the covariance of a Gaussian: S = L FᵀF L with a diagonal L.


@storable
@dataclass(frozen=True)
class StructuredCovariance:
    """S = L F(θ)ᵀF(θ) L; every answer but `dense` costs what the structure costs.

    Parameters
    ----------
    whitening : DiagonalWhitening
        L.
    structure : Structure
    theta : ndarray of shape (structure.size,)
    """

    whitening: DiagonalWhitening
    structure: Structure
    theta: Array

    def check_stored(self) -> None:
        found, dim = (self.theta.shape, self.whitening.scale.shape), self.structure.dim
        if found != ((self.structure.size,), (dim,)):
            raise ValueError(f"theta and scale must have lengths {self.structure.size} and {dim}, got shapes {found}")

    @property
    def dim(self) -> int:
        return self.structure.dim

    @property
    def log_det(self) -> float:
        return 2.0 * self.whitening.log_det + self.structure.log_det(self.theta)

    def diagonal(self) -> Array:
        return self.whitening.scale**2 * self.structure.variances(self.theta)

    def dense(self) -> Array:
        factor = self.structure.factor(self.theta)
        square = factor.T @ factor
        middle = square.toarray() if sparse.issparse(square) else np.asarray(square)
        return self.whitening.scale[:, None] * middle * self.whitening.scale

    def project(self, rows: Any) -> Array:
        return variances_of(self.structure, self.theta, make_projection_rows(rows, self.whitening.scale))

    def quadratic(self, deviations: Array) -> Array:
        return self.structure.quadratic(self.theta, self.whitening.solve(deviations.T))

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        return self.whitening.apply(self.structure.draw(self.theta, count, rng)).T


# --- S = CᵀC with C upper triangular and zero off a pattern: banded, sparse or full.
#
# Challis (2013), §4.3.1.3 ("Banded Cholesky", "Sparse Cholesky"); the bandwidth counts super-diagonals (corrected:
# one convention).


@storable
class PatternedTriangle(Triangular):
    """S = CᵀC; θ holds the entries of C on a pattern, column by column.

    Parameters
    ----------
    pattern : Pattern
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.dim, self.size = pattern.dim, pattern.size
        self.pivots = pattern.diagonal

    def check_stored(self) -> None:
        check_made_again(self, PatternedTriangle(self.pattern))

    def factor(self, theta: Array) -> Any:
        return self.pattern.matrix(theta)

    def flat(self, factor: Any) -> Array:
        return self.pattern.values(factor)

    def prepare(self, rows: ProjectionRows) -> ProjectionRows:
        return rows

    def image(self, theta: Array, rows: ProjectionRows) -> Any:
        return rows.factor_image(self.pattern, theta)

    def inner(self, a: Any, b: Any, rows: ProjectionRows) -> Array:
        return rows.factor_inner(self.pattern, a, b)

    def pull(self, terms: Terms, rows: ProjectionRows) -> Array:
        return rows.factor_pull(self.pattern, terms)

    def energy(self, weights: Array, rows: ProjectionRows) -> Array:
        return rows.energy(weights)[self.pattern.column_of]

    def variances(self, theta: Array) -> Array:
        return np.add.reduceat(theta**2, self.pattern.columns[:-1])

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        return self.factor(theta).T @ rng.standard_normal((self.dim, count))

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        # ‖C⁻ᵀδ‖²
        solved = spsolve_triangular(self.factor(theta).T.tocsr(), np.ascontiguousarray(deviations), lower=True)
        return np.sum(solved**2, axis=0)


def banded_triangle(dim: int, bandwidth: int) -> PatternedTriangle:
    """C with `bandwidth` super-diagonals (dim − 1 of them: the full triangle)."""
    return PatternedTriangle(banded_pattern(dim, min(bandwidth, dim - 1)))


def sparse_triangle(dim: int, places: Any) -> PatternedTriangle:
    """C on the upper triangle of the non-zeros of a matrix, with the diagonal."""
    return PatternedTriangle(sparse_pattern(places, dim))


# --- S = diag(d²): independent coordinates (Challis (2013), §4.3.1.3, bandwidth 0).


@storable
class DiagonalStructure(Triangular):
    """S = diag(θ²).

    >>> DiagonalStructure(3).factor(np.array([1.0, 2.0, 3.0])).diagonal().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, dim: int) -> None:
        self.dim = self.size = dim
        self.pivots = np.arange(dim)

    def check_stored(self) -> None:
        check_made_again(self, DiagonalStructure(len(self.pivots)))

    def factor(self, theta: Array) -> sparse.dia_array:
        return sparse.diags_array(theta)

    def flat(self, factor: Any) -> Array:
        return np.asarray(factor.diagonal(), float)

    def prepare(self, rows: ProjectionRows) -> ProjectionRows:
        return rows

    def image(self, theta: Array, rows: ProjectionRows) -> Any:
        return rows.scaled_image(theta)

    def inner(self, a: Any, b: Any, rows: ProjectionRows) -> Array:
        return rows.scaled_inner(a, b)

    def pull(self, terms: Terms, rows: ProjectionRows) -> Array:
        return rows.scaled_pull(terms)

    def energy(self, weights: Array, rows: ProjectionRows) -> Array:
        return rows.energy(weights)

    def variances(self, theta: Array) -> Array:
        return theta**2

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        return theta[:, None] * rng.standard_normal((self.dim, count))

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        return np.sum((deviations / theta[:, None]) ** 2, axis=0)

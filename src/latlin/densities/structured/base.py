"""What every structure answers, and what triangular ones share.

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

from latlin.densities.precision import DiagonalWhitening
from latlin.densities.structured.rows import ProjectionRows, Terms
from latlin.densities.structured.stacked_rows import as_rows
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

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
        return variances_of(self.structure, self.theta, as_rows(rows, self.whitening.scale))

    def quadratic(self, deviations: Array) -> Array:
        return self.structure.quadratic(self.theta, self.whitening.solve(deviations.T))

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        return self.whitening.apply(self.structure.draw(self.theta, count, rng)).T

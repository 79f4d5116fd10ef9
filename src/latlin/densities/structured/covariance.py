"""A member of a structured family as the covariance of a Gaussian: S = L FᵀF L with a diagonal L."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.densities.structured.base import Structure, variances_of
from latlin.densities.structured.stacked_rows import as_rows
from latlin.densities.whitening import DiagonalWhitening
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


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

"""Factors F = [Θᵀ; diag(d)] of K long rows and a diagonal: the chevron and the low-rank structure.

Both have projected variances ‖Θᵀh‖² + Σ_j d_j²h_j² and differ in which entries are free and in log det S. θ holds Θ
(D×K, row by row) and then d. Entries that a structure keeps at zero stay in θ as zeros: every gradient is zero there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latlin.densities.structured.rows import ProjectionRows, Terms, row_dots
from latlin.numerics.arrays import Array


class Image(NamedTuple):
    """The images of every row under Θᵀ and under diag(d), and ∂d/∂θ."""

    long: Any
    scaled: Any
    slope: Array | float = 1.0


class Loadings:
    """Parameters, images and pulls of [Θᵀ; diag(d)]."""

    dim: int
    rank: int
    size: int
    trace_weights: Array | float = 1.0

    def trace(self, theta: Array) -> float:
        return float(theta @ theta)

    def split(self, theta: Array) -> tuple[Array, Array]:
        """Θ and d, views of θ."""
        return theta[: -self.dim].reshape(self.dim, self.rank), theta[-self.dim :]

    def joined(self, loadings: Array, scale: Array) -> Array:
        """θ of Θ and d, what is not free at zero."""
        theta = np.concatenate([np.ravel(loadings), scale])
        self.restrict(theta)
        return theta

    def restrict(self, theta: Array) -> None:
        """Set what is not free to zero, in place."""

    def prepare(self, rows: ProjectionRows) -> ProjectionRows:
        return rows

    def image(self, theta: Array, rows: ProjectionRows) -> Image:
        loadings, scale = self.split(theta)
        return Image(rows.loadings_image(loadings), rows.scaled_image(scale))

    def inner(self, a: Image, b: Image, rows: ProjectionRows) -> Array:
        return rows.loadings_inner(a.long, b.long) + rows.scaled_inner(a.scaled, b.scaled)

    def pull(self, terms: Terms, rows: ProjectionRows) -> Array:
        scale = rows.scaled_pull([(weights, image.scaled) for weights, image in terms])
        loadings = rows.loadings_pull([(weights, image.long) for weights, image in terms])
        return self.joined(loadings, terms[0][1].slope * scale)

    def energy(self, weights: Array, rows: ProjectionRows) -> Array:
        energy = rows.energy(weights)
        return np.concatenate([np.repeat(energy, self.rank), energy])

    def variances(self, theta: Array) -> Array:
        loadings, scale = self.split(theta)
        return row_dots(loadings, loadings) + scale**2

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        loadings, scale = self.split(theta)
        inside, outside = rng.standard_normal((self.rank, count)), rng.standard_normal((self.dim, count))
        return loadings @ inside + scale[:, None] * outside

"""Factors F = [Θᵀ; diag(d)] of K long rows and a diagonal: the chevron and the low-rank structure.

Both have projected variances ‖Θᵀh‖² + Σ_j d_j²h_j² and differ in which entries are free and in log det S. θ holds Θ
(D×K, row by row) and then d; entries that a structure keeps at zero stay in θ, where nothing depends on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.rows import Rows, Terms, row_dots

Array = NDArray[np.float64]


class Image(NamedTuple):
    """Θᵀh_n of every row, the image under diag(d), and ∂d/∂θ."""

    long: Array
    scaled: Any
    slope: Array | float = 1.0


class Loadings:
    """Parameters, images and pulls of [Θᵀ; diag(d)]; `free` masks the entries that may move."""

    dim: int
    rank: int
    size: int
    #: masks; True when every entry is free
    free_loadings: NDArray[np.bool_] | bool = True
    free_scale: NDArray[np.bool_] | bool = True

    @property
    def trace_weights(self) -> Array:
        return np.ones(self.size)

    def trace(self, theta: Array) -> float:
        return float(theta @ theta)

    def split(self, theta: Array) -> tuple[Array, Array]:
        """Θ and d, what is not free at zero."""
        loadings, scale = theta[: -self.dim].reshape(self.dim, self.rank), theta[-self.dim :]
        return loadings * self.free_loadings, scale * self.free_scale

    def joined(self, loadings: Array, scale: Array) -> Array:
        """θ of Θ and d."""
        return np.concatenate([np.ravel(loadings * self.free_loadings), scale * self.free_scale])

    def prepare(self, rows: Rows) -> Rows:
        return rows

    def image(self, theta: Array, rows: Rows) -> Image:
        loadings, scale = self.split(theta)
        return Image(rows.block_times(loadings), rows.scaled_image(scale))

    def inner(self, a: Image, b: Image, rows: Rows) -> Array:
        return row_dots(a.long, b.long) + rows.scaled_inner(a.scaled, b.scaled)

    def pull(self, terms: Terms, rows: Rows) -> Array:
        weighted = sum(weights[:, None] * image.long for weights, image in terms)
        scale = rows.scaled_pull([(weights, image.scaled) for weights, image in terms])
        return self.joined(rows.block_transposed(weighted), terms[0][1].slope * scale)

    def energy(self, weights: Array, rows: Rows) -> Array:
        energy = rows.energy(weights)
        return np.concatenate([np.repeat(energy, self.rank), energy])

    def variances(self, theta: Array) -> Array:
        loadings, scale = self.split(theta)
        return row_dots(loadings, loadings) + scale**2

    def draw(self, theta: Array, count: int, rng: np.random.Generator) -> Array:
        loadings, scale = self.split(theta)
        inside, outside = rng.standard_normal((self.rank, count)), rng.standard_normal((self.dim, count))
        return loadings @ inside + scale[:, None] * outside

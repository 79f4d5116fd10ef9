"""Where the rows of group factor analysis are, and the only thing asked of them: sums that belong to their latents.

Everything that a sweep needs of the rows, given how latents follow from them, are the sums of `LatentSums`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, qr

from latlin.factor.group.kernels import multiply_by_label, outer_sums
from latlin.numerics.linalg import Array

Labels = NDArray[np.int64]
#: power iterations for the principal components of a start
POWERS = 4
#: directions beyond those wanted, for accuracy
SPARE = 10


class LatentSums(NamedTuple):
    """Means ⟨z_n⟩ of the latents, and sums over rows that belong to them.

    Away from memory `latent` is not N×K but some K×K matrix with the same ΣZ = Σ_n⟨z_n⟩⟨z_n⟩ᵀ, which is all that the
    updates ask of it.
    """

    latent: Array
    moments: Array  # Σ_n ⟨z_n⟩⟨z_n⟩ᵀ over the rows of pattern r, (r, K, K)
    cross: Array  # Σ_n x_nd ⟨z_n⟩, D×K


class RowSource(Protocol):
    """Centred and scaled rows, zero where an entry is missing."""

    def latents(self, pull: Array, covariance: Array) -> LatentSums:
        """Sums for ⟨z_n⟩ = S_r Pᵀx_n, with `pull` P (D×K) and a covariance S_r for every pattern r of rows."""

    def principal(self, rank: int, rng: np.random.Generator) -> LatentSums:
        """Sums for principal components of unit variance, then noise when there are too few of them."""

    def random(self, rank: int, rng: np.random.Generator) -> LatentSums:
        """Sums for standard normal latents."""


@dataclass(frozen=True)
class RowsInMemory:
    """The rows themselves, and the pattern of each."""

    x: Array
    pattern: Labels
    n_patterns: int

    def latents(self, pull: Array, covariance: Array) -> LatentSums:
        return self.sums(multiply_by_label(covariance, self.pattern, product(self.x, pull)))

    def sums(self, latent: Array) -> LatentSums:
        """Sums for given latents (N×K)."""
        moments = outer_sums(latent, np.ones(len(latent)), self.pattern, self.n_patterns)
        return LatentSums(latent, moments, product(self.x.T, latent))

    def principal(self, rank: int, rng: np.random.Generator) -> LatentSums:
        x = self.x
        n, d = x.shape
        most = min(rank, n, d)
        span = rng.standard_normal((d, min(most + SPARE, n, d)))
        leading = product(x, principal_axes(lambda b: product(x.T, product(x, b)), span, most)) * np.sqrt(n)
        noise = rng.standard_normal((n, rank - leading.shape[1]))
        return self.sums(np.ascontiguousarray(np.concatenate([leading, noise], axis=1)))

    def random(self, rank: int, rng: np.random.Generator) -> LatentSums:
        return self.sums(rng.standard_normal((len(self.x), rank)))


def principal_axes(times: Callable[[Array], Array], span: Array, most: int) -> Array:
    """A with XA orthonormal principal components in the subspace X(XᵀX)ᵖ·span, fewer than `most` if X has no more.

    `times` is b → XᵀXb. The largest correlation of a component with a column of X is positive.
    """
    for _ in range(POWERS):
        span = np.ascontiguousarray(qr(times(span), mode="economic")[0])
    pushed = times(span)
    # XVT is orthonormal when TᵀVᵀXᵀXVT = I
    values, vectors = eigh(product(span.T, pushed))
    kept = values > 1e-12 * values[-1]
    t = np.ascontiguousarray(vectors[:, kept] / np.sqrt(values[kept]))
    inside = product(pushed, t)
    axes = np.ascontiguousarray(eigh(product(inside.T, inside))[1][:, ::-1][:, :most])
    return product(product(span, t), axes) * positive_signs(product(inside, axes))


def positive_signs(columns: Array) -> Array:
    """±1 for every column: the sign of its largest entry."""
    peaks = np.take_along_axis(columns, np.abs(columns).argmax(axis=0)[None], axis=0)[0]
    return np.where(peaks < 0.0, -1.0, 1.0)


def product(a: Any, b: Any) -> Array:
    """A B by SciPy's BLAS without copies: A and B are C- or Fortran-ordered, the result is C-ordered.

    NumPy's has threads of its own; a loop that goes to and fro between the two waits for either.
    """
    left, left_turned = (a.T, 0) if a.flags.c_contiguous else (a, 1)
    right, right_turned = (b.T, 0) if b.flags.c_contiguous else (b, 1)
    # (AB)ᵀ = BᵀAᵀ in Fortran order
    return blas.dgemm(1.0, right, left, trans_a=right_turned, trans_b=left_turned).T

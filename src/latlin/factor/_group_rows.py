"""Where the rows of group factor analysis are, and the only thing asked of them: sums that belong to their latents.

Everything that a sweep needs of the rows, given how latents follow from them, are the sums of `LatentSums`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, qr

from latlin.numerics.group_kernels import multiply_by_label, outer_sums
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
        # a random subspace, turned towards the leading directions by powers of XXᵀ
        span = product(x, rng.standard_normal((d, min(most + SPARE, n, d))))
        for _ in range(POWERS):
            span = product(x, product(x.T, np.ascontiguousarray(qr(span, mode="economic")[0])))
        span = np.ascontiguousarray(qr(span, mode="economic")[0])
        inside = product(span.T, x)
        vectors = eigh(product(inside, inside.T))[1][:, ::-1][:, :most]
        leading = product(span, np.ascontiguousarray(vectors)) * np.sqrt(n)
        noise = rng.standard_normal((n, rank - most))
        return self.sums(np.ascontiguousarray(np.concatenate([leading, noise], axis=1)))

    def random(self, rank: int, rng: np.random.Generator) -> LatentSums:
        return self.sums(rng.standard_normal((len(self.x), rank)))


def product(a: Any, b: Any) -> Array:
    """A B by SciPy's BLAS without copies: A and B are C- or Fortran-ordered, the result is C-ordered.

    NumPy's has threads of its own; a loop that goes to and fro between the two waits for either.
    """
    left, left_turned = (a.T, 0) if a.flags.c_contiguous else (a, 1)
    right, right_turned = (b.T, 0) if b.flags.c_contiguous else (b, 1)
    # (AB)ᵀ = BᵀAᵀ in Fortran order
    return blas.dgemm(1.0, right, left, trans_a=right_turned, trans_b=left_turned).T

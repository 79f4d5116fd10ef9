"""The Gaussian N(c, FFᵀ + Ψ) with K factors and a diagonal Ψ, without ever forming a d×d matrix.

Loadings are stored as Fᵀ, one factor per row (K×d), so that long vectors are contiguous. Every sum over the d
coordinates runs over blocks in float64, whatever the storage. Woodbury's identity with M = I + FᵀΨ⁻¹F gives

    (FFᵀ + Ψ)⁻¹ = Ψ⁻¹ − Ψ⁻¹F M⁻¹ FᵀΨ⁻¹,    log det(FFᵀ + Ψ) = log det M + Σ_i log ψ_i.

Source: Brownlie (2021), eqs. 3.3, 3.25, 3.26; Challis (2013), eq. 2.1.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import Cholesky, cholesky


def blocks(dim: int, width: int = 65536) -> Iterator[slice]:
    """Consecutive slices that cover `range(dim)`."""
    return (slice(start, min(start + width, dim)) for start in range(0, dim, width))


class LowRankNormal(NamedTuple):
    """N(mean, loadingsᵀ loadings + diag(noise)).

    Attributes
    ----------
    mean : ndarray of shape (d,)
    loadings : ndarray of shape (K, d)
    noise : ndarray of shape (d,)
        Positive variances.
    """

    mean: NDArray[np.floating]
    loadings: NDArray[np.floating]
    noise: NDArray[np.floating]

    def latent_precision(self) -> Cholesky:
        """The factorised M = I + FᵀΨ⁻¹F, the posterior precision of the latents."""
        return cholesky(np.eye(len(self.loadings)) + weighted_gram(self.loadings, self.noise), name="I + FᵀΨ⁻¹F")

    def latent_means(self, rows: NDArray[np.floating]) -> Array:
        """Posterior means m_n = M⁻¹FᵀΨ⁻¹(x_n − c) of the latents, shape (n, K)."""
        return self.latent_precision().solve(self._project(rows)[0]).T

    def log_det(self) -> float:
        """log det(FFᵀ + Ψ)."""
        logs = sum(float(np.log(self.noise[part], dtype=np.float64).sum()) for part in blocks(len(self.noise)))
        return self.latent_precision().log_det + logs

    def mahalanobis(self, rows: NDArray[np.floating]) -> Array:
        """(x_n − c)ᵀ(FFᵀ + Ψ)⁻¹(x_n − c) for every row."""
        projected, squares = self._project(rows)
        # dᵀΨ⁻¹d − ‖M^{−½} FᵀΨ⁻¹d‖²
        whitened = self.latent_precision().whiten(projected)
        return np.maximum(squares - np.einsum("kn,kn->n", whitened, whitened), 0.0)

    def logpdf(self, rows: NDArray[np.floating]) -> Array:
        """log N(x_n | c, FFᵀ + Ψ) for every row, with every constant."""
        return -0.5 * (self.mahalanobis(rows) + self.log_det() + len(self.mean) * LOG_2PI)

    def sample(self, n: int, random: np.random.Generator, *, scale: float = 1.0) -> NDArray[np.floating]:
        """`n` draws c + scale·(Fh + Ψ^{½}ε), in the storage's precision."""
        draws = np.empty((n, len(self.mean)), dtype=self.loadings.dtype)
        h = scale * random.standard_normal((n, len(self.loadings)))
        for part in blocks(len(self.mean)):
            noise = scale * np.sqrt(self.noise[part], dtype=np.float64)
            epsilon = random.standard_normal((n, len(noise)))
            draws[:, part] = self.mean[part] + h @ self.loadings[:, part].astype(np.float64) + epsilon * noise
        return draws

    def _project(self, rows: NDArray[np.floating]) -> tuple[Array, Array]:
        """FᵀΨ⁻¹(x_n − c) as the columns of a K×n matrix, and (x_n − c)ᵀΨ⁻¹(x_n − c)."""
        projected = np.zeros((len(self.loadings), len(rows)))
        squares = np.zeros(len(rows))
        for part in blocks(len(self.mean)):
            root = np.sqrt(self.noise[part], dtype=np.float64)
            d = (rows[:, part].astype(np.float64) - self.mean[part]) / root
            projected += (self.loadings[:, part] / root) @ d.T
            squares += np.einsum("nd,nd->n", d, d)
        return projected, squares


def weighted_gram(loadings: NDArray[np.floating], noise: NDArray[np.floating]) -> Array:
    """FᵀΨ⁻¹F, shape (K, K), in float64."""
    total = np.zeros((len(loadings), len(loadings)))
    for part in blocks(len(noise)):
        scaled = loadings[:, part] / np.sqrt(noise[part], dtype=np.float64)
        total += scaled @ scaled.T
    return total

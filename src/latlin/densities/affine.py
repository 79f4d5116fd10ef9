"""Affine-independent densities: w = Av + b with independent, standardised v_d.

    q(w) = |det A|⁻¹ ∏_d q_d([A⁻¹(w − b)]_d)

Challis (2013), eq. 6.2.1. The bases have mean zero and variance one, so that ⟨w⟩ = b and cov(w) = AAᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import get_lapack_funcs, lu_factor, lu_solve, solve_triangular

from latlin.densities import fourier_kernels as kernels
from latlin.densities.bases.base import Base
from latlin.densities.characteristic import (
    CharacteristicTable,
    FrequencyGrid,
    Regions,
    Windows,
    expect,
    tabulate,
    windows,
)
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable

# --- Exact one-dimensional marginals of projections of an affine-independent density.
#
# Each is the Fourier series of the product of characteristic functions (Challis (2013), eq. 6.3.2, corrected); its
# integral is summed term by term, so the distribution function is as accurate as the density. Absolute accuracy is near
# 1e-11 for light tails; for polynomial tails it is the mass beyond the window.

#: densities below this, a standard deviation being one, are rounding
FLOOR = 1e-15


@dataclass(frozen=True)
class ProjectedMarginals:
    """Densities of N projections x_n = α_nᵀv + mean_n.

    Attributes
    ----------
    mean, variance, skewness, kurtosis : ndarray of shape (n,)
        The kurtosis is in excess of the Gaussian's.
    """

    mean: Array
    alpha: Array
    table: CharacteristicTable
    third: Array
    fourth: Array

    @cached_property
    def variance(self) -> Array:
        return np.einsum("nd,nd->n", self.alpha, self.alpha)

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    @property
    def skewness(self) -> Array:
        return self._weighted(self.third, 3)

    @property
    def kurtosis(self) -> Array:
        return self._weighted(self.fourth, 4)

    def pdf(self, x: ArrayLike) -> Array:
        """The density at x, which broadcasts against the projections."""
        return np.maximum(self._series(x)[0], FLOOR) / self.std

    def logpdf(self, x: ArrayLike) -> Array:
        return np.log(self.pdf(x))

    def cdf(self, x: ArrayLike) -> Array:
        """P(x_n ≤ x)."""
        return np.clip(self._series(x)[1], 0.0, 1.0)

    def logcdf(self, x: ArrayLike) -> Array:
        return np.log(np.maximum(self.cdf(x), FLOOR))

    def quantile(self, q: ArrayLike) -> Array:
        """The q-quantiles; q broadcasts against the projections. Newton's method, kept in a bracket."""
        q = np.asarray(q, float)
        if not np.all((q > 0.0) & (q < 1.0)):
            raise ValueError("q must hold probabilities strictly between 0 and 1")
        q = np.broadcast_to(q, np.broadcast_shapes(q.shape, self.mean.shape))
        low = np.broadcast_to(-self._view.half_width, q.shape)
        high, z = -low, np.zeros(q.shape)
        for _ in range(100):
            density, mass = self._standard(z)
            excess = mass - q
            low, high = np.where(excess < 0.0, z, low), np.where(excess < 0.0, high, z)
            new = z - excess / np.maximum(density, FLOOR)
            new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
            if np.all(np.abs(new - z) <= 1e-13 * (1.0 + np.abs(z))):
                break
            z = new
        return self.mean + self.std * new

    def expectation(self, f: Callable[[Array], Array], regions: Regions = ((0.0, 1.0),), smooth: bool = False) -> Array:
        """⟨f(x_n)⟩ of each projection, for a vectorised f that bends in the regions (centre, width)."""
        return expect(f, self.mean, self.alpha, self.table, regions, smooth=smooth).value

    @cached_property
    def _view(self) -> Windows:
        return windows(self.alpha / self.std[:, None], self.table)

    @cached_property
    def _phi(self) -> NDArray[np.complex128]:
        view, table = self._view, self.table
        return kernels.products(view.half_width, view.counts, view.a, table.row, table.values, table.grid.step)

    def _series(self, x: ArrayLike) -> tuple[Array, Array]:
        z = (np.asarray(x, float) - self.mean) / self.std
        density, mass = self._standard(np.clip(z, -self._view.half_width, self._view.half_width))
        outside = np.abs(z) > self._view.half_width
        return np.where(outside, 0.0, density), np.where(outside, z > 0.0, mass)

    def _standard(self, z: Array) -> tuple[Array, Array]:
        flat = np.ascontiguousarray(np.broadcast_to(z, np.broadcast_shapes(z.shape, self.mean.shape)))
        rows = flat.reshape(-1, len(self.mean))
        density, mass = kernels.density_and_distribution(rows, self._view.half_width, self._view.counts, self._phi)
        return density.reshape(flat.shape), mass.reshape(flat.shape)

    def _weighted(self, cumulant: Array, order: int) -> Array:
        # infinite cumulants count only where the projection uses them
        a = self._view.a**order
        finite = np.where(np.isfinite(cumulant), cumulant, 0.0)
        total = a @ finite
        return np.where((np.abs(a) @ ~np.isfinite(cumulant)) > 0.0, np.inf, total)


#: level of the frequency grid of marginals
LEVEL = 2


@storable
@dataclass(frozen=True)
class AffineIndependent:
    """The density of Av + b.

    Parameters
    ----------
    A : ndarray of shape (dim, dim)
        Invertible.
    b : ndarray of shape (dim,)
        The mean.
    base : Base
        The densities of the v_d: one shape for all, or one per coordinate; see `latlin.densities.bases`.

    Examples
    --------
    >>> from latlin.densities.bases import SkewNormal
    >>> density = AffineIndependent(np.array([[1.0, 0.0], [0.5, 1.0]]), np.zeros(2), SkewNormal(3.0))
    >>> density.project(np.eye(2)).skewness.round(3)
    array([0.667, 0.537])
    """

    A: Array
    b: Array
    base: Base

    def __post_init__(self) -> None:
        a, b = np.asarray(self.A, float), np.asarray(self.b, float)
        if a.ndim != 2 or a.shape[0] != a.shape[1]:
            raise ValueError(f"A must be a square matrix, got shape {a.shape}")
        if b.shape != a.shape[:1]:
            raise ValueError(f"b must have shape {a.shape[:1]}, as A has {len(a)} rows, got {b.shape}")
        if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
            raise ValueError("A and b must be finite")
        if self.base.rows not in (1, len(b)):
            raise ValueError(f"base has {self.base.rows} shapes, but b has {len(b)} coordinates")
        object.__setattr__(self, "A", a)
        object.__setattr__(self, "b", b)
        condition = self._reciprocal_condition()
        if condition < 1e-15:
            raise ValueError(f"A must be invertible, got a matrix of reciprocal condition {condition:.1e}")

    def _reciprocal_condition(self) -> float:
        rows = np.abs(self.A).max(axis=1)
        if not np.all(rows > 0.0):
            return 0.0
        # rows of very different size (units of w) are no singularity
        scaled = self.A / rows[:, None]
        getrf, gecon = get_lapack_funcs(("getrf", "gecon"), (scaled,))
        return float(gecon(getrf(scaled)[0], np.abs(scaled).sum(axis=0).max())[0])

    @property
    def dim(self) -> int:
        return len(self.b)

    @property
    def mean(self) -> Array:
        return self.b

    @property
    def variance(self) -> Array:
        return np.einsum("de,de->d", self.A, self.A)

    def covariance(self) -> Array:
        """AAᵀ."""
        return self.A @ self.A.T

    @cached_property
    def _lu(self) -> tuple[Array, Array]:
        return lu_factor(self.A)

    @property
    def log_det(self) -> float:
        """log |det A|."""
        return float(np.log(np.abs(np.diagonal(self._lu[0]))).sum())

    @property
    def entropy(self) -> float:
        """log |det A| + Σ_d H[q_d], (C.1.1) with absolute values."""
        return self.log_det + float(np.broadcast_to(self.base.entropy(), self.dim).sum())

    def with_moments(self, mean: Array, cov: Array) -> AffineIndependent:
        """The density of these moments with the same bases, turned as little as Cholesky factors do: A′ = L′L⁻¹A."""
        own, other = (np.linalg.cholesky(each) for each in (self.covariance(), cov))
        return AffineIndependent(other @ solve_triangular(own, self.A, lower=True), mean, self.base)

    def entropy_gradients(self) -> tuple[Array, Array]:
        """∂H/∂A = A⁻ᵀ and ∂H/∂(free shapes), of shape (shapes, n_free)."""
        share = self.dim // self.base.rows
        return lu_solve(self._lu, np.eye(self.dim), trans=1), share * self.base.entropy_gradient()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        v = self.base.sample((count, self.dim), generator(random_state))
        return self.b + v @ self.A.T

    def logpdf(self, w: ArrayLike) -> Array:
        """log q(w) for one vector or each row of a matrix."""
        v = lu_solve(self._lu, (np.asarray(w, float) - self.b).T).T
        return self.base.logpdf(v).sum(axis=-1) - self.log_det

    def characteristic(self, t: ArrayLike) -> NDArray[np.complex128]:
        """⟨exp(i tᵀw)⟩ for one frequency vector or each row of a matrix."""
        points = np.asarray(t, float)
        s = np.atleast_2d(points) @ self.A
        finest = FrequencyGrid.level(LEVEL)
        table = tabulate(self.base, self.dim, finest._replace(last=max(finest.last, float(np.abs(s).max()))))
        # Φ at j = 1 of a window of half-width π is Φ(1)
        width, count = np.full(len(s), np.pi), np.ones(len(s), np.int64)
        phi = kernels.products(width, count, s, table.row, table.values, table.grid.step)[:, 1]
        turned = phi * np.exp(1j * (np.atleast_2d(points) @ self.b))
        return turned if points.ndim == 2 else turned[0]

    def project(self, rows: Any) -> ProjectedMarginals:
        """Exact marginals of Hw, one per row of H (dense or sparse)."""
        h = rows if sparse.issparse(rows) else np.atleast_2d(np.asarray(rows, float))
        third, fourth = (np.broadcast_to(c, self.dim) for c in self.base.third_and_fourth())
        return ProjectedMarginals(np.asarray(h @ self.b), np.asarray(h @ self.A), self._table, third, fourth)

    @cached_property
    def _table(self) -> CharacteristicTable:
        return tabulate(self.base, self.dim, FrequencyGrid.level(LEVEL))

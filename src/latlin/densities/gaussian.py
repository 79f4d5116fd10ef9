"""Gaussians and Student t densities over w: a mean and any covariance structure, or a full covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import blas
from scipy.special import digamma, gammaln
from scipy.stats import t as student

from latlin.densities.density import NormalMarginals
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable

#: distance from the mean beyond which a square may overflow
FAR = 1e100


class Covariance(Protocol):
    """What a Gaussian asks of its covariance S, however it is stored."""

    @property
    def dim(self) -> int: ...

    @property
    def log_det(self) -> float:
        """log det S."""
        ...

    def diagonal(self) -> Array:
        """Variances of the coordinates."""
        ...

    def dense(self) -> Array:
        """S itself, D×D."""
        ...

    def project(self, rows: Any) -> Array:
        """h_nᵀ S h_n for the rows of an N×D matrix, dense or sparse."""
        ...

    def quadratic(self, deviations: Array) -> Array:
        """δᵀ S⁻¹ δ for each row δ."""
        ...

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """`count` draws of N(0, S), one per row."""
        ...


@storable
@dataclass(frozen=True)
class Gaussian:
    """N(w | mean, S).

    Parameters
    ----------
    mean : ndarray of shape (dim,)
    structure : Covariance
        How S is stored; see `latlin.densities`.
    """

    mean: Array
    structure: Covariance

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> Array:
        return self.structure.diagonal()

    @property
    def degrees(self) -> int:
        """Dimension of the space on which this is a density: less than `dim` under linear constraints."""
        return int(getattr(self.structure, "degrees", self.dim))

    @property
    def entropy(self) -> float:
        """½ log det(2πe S)."""
        return 0.5 * (self.degrees * (1.0 + LOG_2PI) + self.structure.log_det)

    def covariance(self) -> Array:
        """S as a dense matrix."""
        return self.structure.dense()

    def times_covariance(self, v: Array) -> Array:
        """S v, without a dense S where the structure can do without."""
        times = getattr(self.structure, "times", None)
        return self.covariance() @ v if times is None else times(v)

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        return self.mean + self.structure.draw(count, generator(random_state))

    def logpdf(self, w: ArrayLike) -> Array:
        """log N(w | mean, S) for one vector or each row of a matrix."""
        square, size = self.squares(w)
        log_density = -0.5 * (square * size * size + self.structure.log_det + self.degrees * LOG_2PI)
        return log_density if np.ndim(w) == 2 else log_density[0]

    def squares(self, w: ArrayLike) -> tuple[Array, Array]:
        """δᵀS⁻¹δ/c² of δ = w − mean for each row, and c: one, but the size of δ where its square would overflow."""
        away = np.atleast_2d(np.asarray(w, float)) - self.mean
        far = np.max(np.abs(away), axis=1, initial=0.0)
        size = np.where(far > FAR, far, 1.0)
        return self.structure.quadratic(away / size[:, None]), size

    def project(self, rows: Any) -> NormalMarginals:
        """Marginals of Hw, one per row of H (dense or sparse)."""
        return NormalMarginals(np.asarray(rows @ self.mean), self.structure.project(rows))


# --- A full covariance as the matrix itself, with its log determinant.


PIECE = 1024


@storable
@dataclass(frozen=True)
class DenseCovariance:
    """S by its upper triangle.

    Parameters
    ----------
    upper : ndarray of shape (dim, dim)
        Fortran-ordered; what is below the diagonal is not meant.
    log_det : float
        log det S.
    """

    upper: Array
    log_det: float

    @property
    def dim(self) -> int:
        return len(self.upper)

    def diagonal(self) -> Array:
        return np.diagonal(self.upper).copy()

    def dense(self) -> Array:
        return symmetrise(self.upper)

    def times(self, v: Array) -> Array:
        """S v, for a vector or the columns of a matrix."""
        if v.ndim == 1:
            # six times as quick as a matrix of one column
            return np.asarray(blas.dsymv(1.0, self.upper, v, lower=0))
        return blas.dsymm(1.0, self.upper, v, lower=0)

    def project(self, rows: Any) -> Array:
        parts = [self._project_block(rows[i : i + PIECE]) for i in range(0, rows.shape[0], PIECE)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _project_block(self, rows: Any) -> Array:
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        return np.einsum("dn,nd->n", self.times(dense.T), dense)

    def quadratic(self, deviations: Array) -> Array:
        root = self._factor.whiten(np.asfortranarray(deviations.T))
        return np.einsum("dn,dn->n", root, root)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        # S = CᵀC
        return rng.standard_normal((count, self.dim)) @ self._factor.factor

    @cached_property
    def _factor(self) -> Cholesky:
        return cholesky(self.upper, name="the covariance")


# --- The multivariate Student t: a Gaussian whose covariance has a random scale, shared by all coordinates.
#
#     q(w) = ∫ N(w | m, αS) p(α) dα,   α = (df − 2)/χ²_df,   ⟨α⟩ = 1
#
# Challis (2013), eq. 4.6.4. S is the covariance of w; projections are one-dimensional Student t with the same df.


@storable
@dataclass(frozen=True)
class MultivariateT:
    """A Student t with the mean and covariance of a Gaussian.

    Parameters
    ----------
    gaussian : Gaussian
        It has the same mean and covariance.
    df : float
        Degrees of freedom, more than 2.

    Examples
    --------
    >>> from latlin import GaussianFactor, LatentLinearModel, infer
    >>> prior = infer(LatentLinearModel([GaussianFactor(cov=4.0, dim=1)]), "exact").density
    >>> q = MultivariateT(prior, 4.0)
    >>> q.variance, q.project(np.ones((1, 1))).cdf(0.0).item()
    (array([4.]), 0.5)
    """

    gaussian: Gaussian
    df: float

    def __post_init__(self) -> None:
        if not self.df > 2.0:
            raise ValueError(f"df must be a number above 2, got {self.df!r}")

    @property
    def dim(self) -> int:
        return int(self.gaussian.dim)

    @property
    def mean(self) -> Array:
        return self.gaussian.mean

    @property
    def variance(self) -> Array:
        return self.gaussian.variance

    def covariance(self) -> Array:
        """The covariance matrix, dense."""
        return self.gaussian.covariance()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        rng = generator(random_state)
        draws = self.gaussian.sample(count, rng)
        scale = np.sqrt((self.df - 2.0) / rng.chisquare(self.df, count))
        return self.mean + scale[:, None] * (draws - self.mean)

    def logpdf(self, w: ArrayLike) -> Array:
        """log q(w) for one vector or each row of a matrix."""
        d, df = self.gaussian.degrees, self.df
        # log(1 + δᵀS⁻¹δ/(ν − 2)), δᵀS⁻¹δ = c² times a number that does not overflow
        square, size = self.gaussian.squares(w)
        log_square = 2.0 * np.log(size) + np.log(1.0 / (size * size) + np.maximum(square, 0.0) / (df - 2.0))
        log_square = np.where(size == 1.0, np.log1p(np.maximum(square, 0.0) / (df - 2.0)), log_square)
        log_constant = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * (np.log(df - 2.0) + np.log(np.pi))
        log_root = self._top + 0.5 * d * LOG_2PI
        log_density = log_constant + log_root - 0.5 * (df + d) * log_square
        return np.asarray(log_density if np.ndim(w) == 2 else log_density[0])

    @cached_property
    def _top(self) -> float:
        """The Gaussian's log density at its mean: −½ log det 2πS."""
        return float(self.gaussian.logpdf(self.mean))

    def project(self, rows: Any) -> StudentMarginals:
        """Marginals of Hw, one per row of H (dense or sparse)."""
        found = self.gaussian.project(rows)
        return StudentMarginals(found.mean, found.variance, self.df)


@dataclass(frozen=True)
class StudentMarginals:
    """Densities of N projections hᵀw under a Student t.

    Attributes
    ----------
    mean, variance : ndarray of shape (n,)
    df : float
    """

    mean: Array
    variance: Array
    df: float

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    @property
    def _scale(self) -> Array:
        return np.sqrt(self.variance * (self.df - 2.0) / self.df)

    def logpdf(self, x: ArrayLike) -> Array:
        """The log density at x, which broadcasts against the projections."""
        return np.asarray(student.logpdf(np.asarray(x, float), self.df, self.mean, self._scale))

    def pdf(self, x: ArrayLike) -> Array:
        return np.exp(self.logpdf(x))

    def cdf(self, x: ArrayLike) -> Array:
        return np.asarray(student.cdf(np.asarray(x, float), self.df, self.mean, self._scale))

    def logcdf(self, x: ArrayLike) -> Array:
        return np.asarray(student.logcdf(np.asarray(x, float), self.df, self.mean, self._scale))

    def quantile(self, q: ArrayLike) -> Array:
        """The q-quantiles; q broadcasts against the projections."""
        return np.asarray(student.ppf(np.asarray(q, float), self.df, self.mean, self._scale))


def entropy_loss(dim: int, df: float) -> float:
    """H[N(m, S)] − H[t with covariance S], nat: a Gaussian has the largest entropy of its covariance.

    >>> round(entropy_loss(1, 4.0), 4)
    0.0838
    """
    half = 0.5 * (df + dim)
    # H[t] = ½ log det S + ½D log π(df − 2) + log Γ(df/2)/Γ((df + D)/2) + ½(df + D)(ψ((df + D)/2) − ψ(df/2))
    own = 0.5 * dim * (np.log(df - 2.0) + np.log(np.pi)) + gammaln(0.5 * df) - gammaln(half)
    own += half * (digamma(half) - digamma(0.5 * df))
    return float(0.5 * dim * (LOG_2PI + 1.0) - own)


# --- Covariances on complete grids: S = V diag(values) Vᵀ with V = V_1 ⊗ V_2 ⊗ …, one small orthogonal matrix per axis.
#
# A product with V is one small product per axis, so that nothing of the size of S is ever formed.


Index = NDArray[np.integer]


def times_kronecker(matrices: Sequence[Array], v: Array) -> Array:
    """(A_1 ⊗ A_2 ⊗ …)v, for a vector or the columns of a matrix.

    Examples
    --------
    >>> a, b = np.array([[1.0, 2.0], [0.0, 1.0]]), np.eye(2)
    >>> bool(np.allclose(times_kronecker([a, b], np.arange(4.0)), np.kron(a, b) @ np.arange(4.0)))
    True
    """
    grid = v.reshape(*(matrix.shape[1] for matrix in matrices), -1)
    for axis, matrix in enumerate(matrices):
        grid = np.moveaxis(np.tensordot(matrix, grid, axes=(1, axis)), 0, axis)
    found = grid.reshape(-1, grid.shape[-1])
    return found[:, 0] if v.ndim == 1 else found


@storable
@dataclass(frozen=True)
class KroneckerCovariance:
    """S of coordinates that are the points of a grid, in any order.

    Parameters
    ----------
    vectors : tuple of ndarray of shape (n_j, n_j)
        Orthogonal V_j.
    values : ndarray of shape (n,)
        Eigenvalues of S, in the order of the grid.
    place : ndarray of int, shape (n,)
        The point of the grid that each coordinate is.
    """

    vectors: tuple[Array, ...]
    values: Array
    place: Index

    @property
    def dim(self) -> int:
        return len(self.values)

    @property
    def log_det(self) -> float:
        with np.errstate(divide="ignore"):
            return float(np.log(self.values).sum())

    def rotated(self, v: Array) -> Array:
        """Vᵀv in the order of the grid, for a vector or the columns of a matrix in that of the coordinates."""
        grid = np.empty_like(v)
        grid[self.place] = v
        return times_kronecker([matrix.T for matrix in self.vectors], grid)

    def turned_back(self, v: Array) -> Array:
        """Vv in the order of the coordinates."""
        return times_kronecker(self.vectors, v)[self.place]

    def times(self, v: Array) -> Array:
        """Sv, for a vector or the columns of a matrix."""
        inner = self.rotated(v)
        return self.turned_back(self.values * inner if v.ndim == 1 else self.values[:, None] * inner)

    def diagonal(self) -> Array:
        return times_kronecker([matrix**2 for matrix in self.vectors], self.values)[self.place]

    def dense(self) -> Array:
        return self.times(np.eye(self.dim))

    def project(self, rows: Any) -> Array:
        if sparse.issparse(rows):
            csr = sparse.csr_array(rows)
            if csr.nnz == csr.shape[0] and np.all(np.diff(csr.indptr) == 1):
                return csr.data**2 * self.diagonal()[csr.indices]
            rows = csr.toarray()
        inner = self.rotated(np.asarray(rows, float).T)
        return np.einsum("dn,dn,d->n", inner, inner, self.values)

    def quadratic(self, deviations: Array) -> Array:
        inner = self.rotated(deviations.T)
        with np.errstate(divide="ignore"):
            return np.einsum("dn,dn,d->n", inner, inner, 1.0 / self.values)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((self.dim, count))
        return self.turned_back(np.sqrt(self.values)[:, None] * noise).T

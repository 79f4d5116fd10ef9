"""The sample covariance S as an operator: a matrix when d is moderate, the centred rows when it is not."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import blas, eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from latlin.numerics.linalg import Array, symmetrise

DENSE_UP_TO = 4000
FULL_UP_TO = 200
BLOCK = 256


class SampleMoments(Protocol):
    """N observations of d features with covariance S (divided by N)."""

    @property
    def n(self) -> int:
        """N."""

    @property
    def variance(self) -> Array:
        """diag(S)."""

    def times(self, b: Array) -> Array:
        """S b for a d×K matrix."""

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        """The `rank` largest eigenvalues (rising) and eigenvectors of diag(scale) S diag(scale)."""


class DenseMoments(NamedTuple):
    """S in memory."""

    n: int
    matrix: Array

    @property
    def variance(self) -> Array:
        return np.diagonal(self.matrix)

    def times(self, b: Array) -> Array:
        return blas.dsymm(1.0, self.matrix, b)

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        dim = len(scale)
        scaled = self.matrix * scale[:, None] * scale
        if dim <= FULL_UP_TO or 4 * rank > dim:
            return eigh(scaled, subset_by_index=[dim - rank, dim - 1])
        fortran = scaled.T
        return _lanczos(dim, lambda v: blas.dsymv(1.0, fortran, v), rank, start)


class RowMoments(NamedTuple):
    """The centred rows in memory; S is never formed."""

    rows: Array

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def variance(self) -> Array:
        return np.einsum("nd,nd->d", self.rows, self.rows) / self.n

    def times(self, b: Array) -> Array:
        return self.rows.T @ (self.rows @ b) / self.n

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        return leading(self, scale, rank, start)


def leading(s: SampleMoments, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
    """The largest eigenpairs of diag(scale) S diag(scale) from products with S alone."""

    def product(v: Array) -> Array:
        return scale * s.times(scale * v)

    return _lanczos(len(scale), product, rank, start)


def _lanczos(dim: int, product: object, rank: int, start: Array | None) -> tuple[Array, Array]:
    operator = LinearOperator((dim, dim), matvec=product, dtype=np.float64)
    v0 = np.ones(dim) if start is None else start
    basis = min(dim, max(2 * rank + 1, 20))
    values, vectors = eigsh(operator, rank, which="LA", v0=v0, ncv=basis, tol=1e-12)
    order = np.argsort(values)
    return values[order], vectors[:, order]


def mean_and_variance(rows: np.ndarray) -> tuple[Array, Array]:
    """Mean and variance of each column in one pass, by blocks of rows that stay in cache.

    Blocks are merged by Chan's update: M₂ ← M₂ + M₂,block + δ²·n·b/(n+b), so that no digits are lost to a large mean.

    Examples
    --------
    >>> mean, variance = mean_and_variance(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> mean.tolist(), variance.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    mean, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for seen in range(0, len(rows), BLOCK):
        block = rows[seen : seen + BLOCK].astype(np.float64)
        b, centre = len(block), block.mean(axis=0)
        block -= centre
        difference = centre - mean
        squares += np.einsum("nd,nd->d", block, block) + difference**2 * (seen * b / (seen + b))
        mean += difference * (b / (seen + b))
    return mean, squares / len(rows)


def moments(rows: Array, mean: Array) -> SampleMoments:
    """S of the rows about their mean, by blocks that stay in cache."""
    n, dim = rows.shape
    if dim > DENSE_UP_TO:
        return RowMoments(rows - mean)
    total = np.zeros((dim, dim), order="F")
    for start in range(0, n, 1024):
        part = rows[start : start + 1024] - mean
        total = blas.dsyrk(1.0 / n, part.T, beta=1.0, c=total, overwrite_c=1)
    return DenseMoments(n, symmetrise(total))

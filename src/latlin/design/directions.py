"""Directions of which a Gaussian is least certain, and rows to choose among: what a design asks of a covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh

from latlin.densities.dense import DenseCovariance
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import SubspaceCovariance
from latlin.densities.structured.base import StructuredCovariance
from latlin.design.information import equivalent_noise
from latlin.numerics.arrays import Array

#: dimension up to which a covariance without structure is decomposed
DENSE = 1500


def covariance_operator(density: Gaussian) -> LinearOperator:
    """Products with S, at the cost of its structure."""
    structure: Any = density.structure
    if isinstance(structure, StructuredCovariance):
        return _structured(structure)
    if isinstance(structure, SubspaceCovariance):
        return _subspace(structure)
    if isinstance(structure, DenseCovariance):
        return LinearOperator((structure.dim,) * 2, matvec=structure.times, matmat=structure.times, dtype=float)
    return aslinearoperator(density.covariance())


def leading_directions(density: Gaussian, count: int) -> Array:
    """Eigenvectors of S with the largest eigenvalues, one per row, largest first; their largest entry is positive."""
    dim = len(density.mean)
    structured = isinstance(density.structure, StructuredCovariance | SubspaceCovariance)
    if not structured or count >= dim - 1:
        if dim > DENSE and not structured:
            return _oriented(_lanczos(covariance_operator(density), count))
        return _oriented(eigh(density.covariance(), subset_by_index=[dim - count, dim - 1])[1].T[::-1])
    return _oriented(_lanczos(covariance_operator(density), count))


def greedy_rows(
    density: Gaussian, candidates: Array, gain: Callable[[Array, Array], Array], count: int
) -> NDArray[np.intp]:
    """Indices of candidates, each of largest information gain given those before it.

    Parameters
    ----------
    gain : callable
        Nat by the means and the variances of projections.

    What a chosen row will tell stands for Gaussian noise that tells as much.
    """
    images = covariance_operator(density).matmat(np.ascontiguousarray(candidates.T))
    means, variances = candidates @ density.mean, np.einsum("nd,dn->n", candidates, images)
    chosen: list[int] = []
    shared: list[Array] = []
    for _ in range(count):
        gains = gain(means, np.maximum(variances, 0.0))
        gains[chosen] = -np.inf
        best = int(np.argmax(gains))
        # S ← S − S x xᵀS / (xᵀSx + ν²), seen from every candidate
        column = candidates @ images[:, best] - sum((v * v[best] for v in shared), np.zeros(len(candidates)))
        noise = equivalent_noise(gains[best], column[best])
        shared.append(column / np.sqrt(column[best] + noise))
        variances = variances - shared[-1] ** 2
        chosen.append(best)
    return np.array(chosen)


def _lanczos(operator: LinearOperator, count: int) -> Array:
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    return eigsh(operator, k=count, which="LA", v0=start, tol=1e-6)[1].T[::-1]


def _oriented(rows: Array) -> Array:
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    return np.ascontiguousarray(rows * np.sign(largest)[:, None])


def _structured(structure: StructuredCovariance) -> LinearOperator:
    factor, scale = structure.structure.factor(structure.theta), structure.whitening.scale

    def times(block: Array) -> Array:
        return (scale * np.asarray(factor.T @ (factor @ (scale * block.T).T)).T).T

    return LinearOperator((structure.dim,) * 2, matvec=times, matmat=times, dtype=float)


def _subspace(structure: SubspaceCovariance) -> LinearOperator:
    basis, c2 = structure.basis, structure.complement**2

    def times(block: Array) -> Array:
        # hL for a row is (Lᵀhᵀ)ᵀ
        inner = structure.whitening.rows(np.atleast_2d(block.T)).T
        inside = basis.T @ inner
        mixed = c2 * (inner - basis @ inside) + basis @ structure.inner.solve(np.asfortranarray(inside))
        return structure.whitening.apply(mixed).reshape(block.shape)

    return LinearOperator((structure.dim,) * 2, matvec=times, matmat=times, dtype=float)

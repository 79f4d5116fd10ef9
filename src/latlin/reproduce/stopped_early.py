"""Gaussian and affine-independent KL by limited-memory quasi-Newton steps from A = I, looked at on the way.

Challis (2013) climbs its bounds so (§6.7) and does not say when it stops. The engines of latlin end at the
optimum and by another way; here is the way of the document, for what a stop after so many steps gives. Every potential
is a site: B = log |det A| + Σ_d H[q_d] + Σ_n ⟨log φ_n(h_nᵀ(Av + b))⟩ (6.3.1); A is triangular for the Gaussian, and LU
for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from latlin.densities.affine import AffineIndependent
from latlin.densities.bases import Normal
from latlin.densities.bases.base import Base
from latlin.densities.characteristic import Grid, expect, tabulate
from latlin.potentials.base import Potential

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]
#: of the grid on which affine expectations are taken
LEVEL = 0


class Stop(NamedTuple):
    """The bound and the density after so many steps."""

    steps: int
    bound: float
    density: AffineIndependent


def gaussian_stops(rows: Array, sites: Potential, counts: Sequence[int]) -> list[Stop]:
    """Gaussian KL; `rows` are the h_n, (sites, D)."""
    dim = rows.shape[1]
    places = np.tril_indices(dim)
    entropy = 0.5 * dim * (1.0 + np.log(2.0 * np.pi))

    def factor(point: Array) -> Array:
        A = np.zeros((dim, dim))
        A[places] = point[dim:]
        return A

    def objective(point: Array) -> tuple[float, Array]:
        A, b = factor(point), point[:dim]
        alpha, diagonal = rows @ A, np.diagonal(A)
        found = sites.expected_log(rows @ b, np.square(alpha).sum(axis=1))
        # ∂s²/∂A = 2 h αᵀ
        slope = 2.0 * rows.T @ (found.d_var[:, None] * alpha) + np.diag(1.0 / diagonal)
        value = float(np.log(np.abs(diagonal)).sum()) + entropy + float(found.value.sum())
        return -value, -np.concatenate([rows.T @ found.d_mean, slope[places]])

    start = np.concatenate([np.zeros(dim), np.eye(dim)[places]])
    return [
        Stop(n, -objective(point)[0], AffineIndependent(factor(point), point[:dim], Normal()))
        for n, point in _path(objective, start, counts)
    ]


def affine_stops(rows: Array, sites: Potential, base: Base, counts: Sequence[int]) -> list[Stop]:
    """Affine-independent KL with the shapes of `base` kept."""
    dim = rows.shape[1]
    below, above = np.tril_indices(dim, -1), np.triu_indices(dim)
    table = tabulate(base, dim, Grid.level(LEVEL))
    entropy = float(np.broadcast_to(base.entropy(), dim).sum())

    def factors(point: Array) -> tuple[Array, Array]:
        lower, upper = np.eye(dim), np.zeros((dim, dim))
        lower[below], upper[above] = np.split(point[dim:], [len(below[0])])
        return lower, upper

    def objective(point: Array) -> tuple[float, Array]:
        (lower, upper), b = factors(point), point[:dim]
        alpha, diagonal = rows @ (lower @ upper), np.diagonal(upper)
        found = expect(
            sites.log_density, rows @ b, alpha, table, sites.regions(), smooth=sites.smooth, with_shapes=False
        )
        slope = rows.T @ found.d_alpha
        # dA = dL U + L dU
        d_lower, d_upper = slope @ upper.T, lower.T @ slope + np.diag(1.0 / diagonal)
        value = float(np.log(np.abs(diagonal)).sum()) + entropy + float(found.value.sum())
        return -value, -np.concatenate([rows.T @ found.d_beta, d_lower[below], d_upper[above]])

    start = np.concatenate([np.zeros(dim), np.eye(dim)[below], np.eye(dim)[above]])
    return [
        Stop(n, -objective(point)[0], AffineIndependent(np.matmul(*factors(point)), point[:dim], base))
        for n, point in _path(objective, start, counts)
    ]


def _path(objective: Objective, start: Array, counts: Sequence[int]) -> list[tuple[int, Array]]:
    """The points after so many steps, or the last one."""
    points: list[Array] = []
    options = {"maxiter": max(counts), "maxfun": 10 * max(counts)}
    minimize(objective, start, jac=True, method="L-BFGS-B", options=options, callback=lambda x: points.append(x.copy()))
    return [(count, points[min(count, len(points)) - 1]) for count in counts]

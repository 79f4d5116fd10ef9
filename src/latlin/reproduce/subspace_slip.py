"""A slip that explains the subspace rows of Tables 5.2, 5.4 and 5.5 of Challis (2013).

With S = E M⁻¹ Eᵀ + c²(I − EEᵀ) the entropy holds L log c, L = D − K (B.2.1). If the optimiser is given K log c instead,
c² comes out K/L too small; the bound, evaluated rightly there, is what the tables print, with E the directions of
largest precision. The stationary point is found by damped fixed-point steps: the reason is tested, not fast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.potentials.base import Potential

Array = NDArray[np.float64]


class Subspace(NamedTuple):
    """N(mean, E C Eᵀ + c²(I − EEᵀ)) and its bound under a standard normal prior."""

    mean: Array
    basis: Array
    inner: Array
    off: float
    bound: float

    def variances(self, rows: Array) -> Array:
        """hᵀSh for each row h."""
        inside, rest = _parts(rows, self.basis)
        return _variances(inside, rest, self.inner, self.off)


def slipped_subspace(x: Array, site: Potential, basis: Array, weight: int | None = None, rounds: int = 100) -> Subspace:
    """The stationary point with `weight` log c in the entropy, K unless told; L = D − K gives the right optimum."""
    dim, k = basis.shape
    weight = k if weight is None else weight
    inside, rest = _parts(x, basis)
    mean, inner, off = np.zeros(dim), np.eye(k), weight / (dim - k)
    for _ in range(rounds):
        expected = site.expected_log(x @ mean, _variances(inside, rest, inner, off))
        gamma = -2.0 * expected.d_var
        precision = np.eye(dim) + x.T @ (gamma[:, None] * x)
        step = np.linalg.solve(precision, x.T @ expected.d_mean - mean)
        mean = mean + step
        inner = 0.5 * inner + 0.5 * np.linalg.inv(basis.T @ precision @ basis)
        # K/c² = L + Σ γ_n hᵀ(I − EEᵀ)h
        new = np.sqrt(off * weight / (dim - k + gamma @ rest))
        moved, off = abs(np.log(new / off)) + np.abs(step).max(), float(new)
        if moved < 1e-6:
            break
    sites = site.expected_log(x @ mean, _variances(inside, rest, inner, off)).value.sum()
    prior = -0.5 * (mean @ mean + np.trace(inner) + (dim - k) * off - dim)
    entropy = 0.5 * np.linalg.slogdet(inner)[1] + 0.5 * (dim - k) * np.log(off)
    return Subspace(mean, basis, inner, off, float(sites + prior + entropy))


def _parts(rows: Array, basis: Array) -> tuple[Array, Array]:
    """Coordinates in the subspace, and squared lengths outside it."""
    inside = rows @ basis
    return inside, np.square(rows).sum(axis=1) - np.square(inside).sum(axis=1)


def _variances(inside: Array, rest: Array, inner: Array, off: float) -> Array:
    return np.einsum("nk,nk->n", inside @ inner, inside) + off * rest

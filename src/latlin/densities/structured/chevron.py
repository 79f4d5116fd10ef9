"""The chevron: K coordinates have full rows in C, the others only a diagonal entry.

C_ij is free for i ≤ K, j ≥ i, and C_ii for i > K (Challis (2013), §4.3.1.3). Which K coordinates come first is
free too: with P the precision that the optimum would have, the loss against a full factor is
½(Σ_B log P_bb − log det P_BB) over the other coordinates B, so the first should be those most entangled with the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.structured.base import Triangular
from latlin.densities.structured.loadings import Loadings
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import solve_upper
from latlin.numerics.stored import storable

Index = NDArray[np.integer]


@storable
class ChevronStructure(Loadings, Triangular):
    """S = CᵀC, C with K full rows.

    Parameters
    ----------
    dim : int
    first : ndarray of shape (rank,)
        The coordinates with full rows, in order.
    """

    def __init__(self, dim: int, first: Index) -> None:
        self.dim, self.rank, self.size = dim, len(first), dim * (len(first) + 1)
        self.first = np.asarray(first, dtype=np.int64)
        order = np.full(dim, self.rank)
        order[self.first] = np.arange(self.rank)
        self.others = np.flatnonzero(order == self.rank)
        # row i of C reaches the coordinates that come i-th or later
        self.pivots = np.where(order == self.rank, dim * self.rank + np.arange(dim), np.arange(dim) * self.rank + order)

    def restrict(self, theta: Array) -> None:
        loadings, scale = self.split(theta)
        loadings[self.first] = np.tril(loadings[self.first])
        scale[self.first] = 0.0

    def factor(self, theta: Array) -> sparse.csr_array:
        """C, full rows on top, columns in the model's own order (triangular only after a permutation)."""
        loadings, scale = self.split(self.joined(*self.split(theta)))
        rest = sparse.diags_array(scale, format="csr")[self.others]
        return sparse.csr_array(sparse.vstack([sparse.csr_array(loadings.T), rest]))

    def columns(self, theta: Array, chosen: Index) -> Array:
        """Columns of S at some of the coordinates with full rows."""
        loadings, _ = self.split(theta)
        return np.ascontiguousarray(loadings @ loadings[chosen].T)

    def flat(self, factor: Any) -> Array:
        dense = factor.toarray() if sparse.issparse(factor) else np.asarray(factor, float)
        scale = np.zeros(self.dim)
        scale[self.others] = dense[self.rank + np.arange(len(self.others)), self.others]
        return self.joined(dense[: self.rank].T, scale)

    def quadratic(self, theta: Array, deviations: Array) -> Array:
        # Cᵀy = δ: the first K coordinates by a small triangular solve, the others follow
        loadings, scale = self.split(theta)
        y = solve_upper(np.ascontiguousarray(loadings[self.first].T), deviations[self.first], transposed=True)
        rest = (deviations[self.others] - loadings[self.others] @ y) / scale[self.others, None]
        return np.sum(y**2, axis=0) + np.sum(rest**2, axis=0)

"""Linear constraints A w = e as independent rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from latlin.numerics.arrays import Array

#: share of the largest pivot below which a row depends on others, and misfit from which on such a row contradicts them
DEPENDENT, MISFIT = 1e-10, 1e-8


def independent_rows(A: sparse.csr_array, e: Array) -> tuple[Array, Array]:
    """A and e without the rows that follow from others, dense; refuses rows that contradict others."""
    dense = A.toarray()
    norms = np.sqrt(np.einsum("kd,kd->k", dense, dense))
    if np.any(norms == 0.0):
        row = int(np.argmin(norms))
        raise ValueError(f"Constraint A must have no row of zeros, got one at {row} of {len(norms)}")
    scaled, target = dense / norms[:, None], e / norms
    triangle, order = qr(scaled.T, mode="r", pivoting=True)
    size = np.abs(np.diagonal(triangle))
    rank = int(np.sum(size > DEPENDENT * size[0]))
    kept, others = order[:rank], order[rank:]
    # the other rows are combinations of those kept: A_o = CᵀA_k with R_kk C = R_ko
    mixing = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
    misfit = np.abs(mixing.T @ target[kept] - target[others]).max(initial=0.0)
    if misfit > MISFIT * (1.0 + np.abs(target).max()):
        raise ValueError(f"the constraints contradict each other: dependent rows of A differ in e by {misfit:.3g}")
    kept = np.sort(kept)
    return dense[kept], e[kept]

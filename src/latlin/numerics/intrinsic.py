"""Positive semi-definite precisions of known rank, their generalised determinants, and linear constraints.

Where the factorisation of a singular Q has no pivot, at a coordinate u, a positive number c is added to Q_uu. After
dim − rank such additions Q′ = Q + cUUᵀ is positive definite, and with the null space N = cQ′⁻¹U

    log |Q|₊ = log det Q′ − k log c + log det NᵀN,   k = dim − rank,

because det(Q + R) = |Q|₊ det(VᵀRV) for orthonormal V spanning the null space and any R of rank k.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from latlin.numerics.arrays import Array
from latlin.numerics.sparse_cholesky import Analysis, SparseCholesky, analyse

#: largest entry of QN against those of Q and N for which N counts as a null space
NULL = 1e-6
#: share of a diagonal entry below which a pivot is taken for that of a singular matrix
SUSPECT = 1e-8


class HeldPrecision(NamedTuple):
    """Q + weight·UUᵀ, positive definite, U the coordinates that are held."""

    held: NDArray[np.int64]
    weight: float
    factor: SparseCholesky


def hold_coordinates(analysis: Analysis, values: Array, most: int, suspect: float = SUSPECT) -> HeldPrecision | None:
    """Hold at most `most` coordinates, one after the other where a pivot is no number or next to nothing.

    Parameters
    ----------
    analysis : Analysis
    values : ndarray
        Of a positive semi-definite matrix, on the entries of the analysis.
    most : int
    suspect : float
        Share of a diagonal entry below which a pivot is next to nothing.

    Returns
    -------
    HeldPrecision or None
        None where more coordinates would have to be held.
    """
    weight = float(values[analysis.diagonal].mean())
    held: list[int] = []
    while True:
        factor, place = analysis.attempt(values)
        if factor is not None:
            shares = factor.pivots / values[analysis.diagonal]
            place = int(np.argmin(shares))
            if len(held) == most or shares[place] >= suspect:
                return HeldPrecision(analysis.order[np.array(held, np.int64)], weight, factor)
        if len(held) == most or place in held or not weight > 0.0:
            return None
        values = values if held else values.copy()
        held.append(place)
        values[analysis.diagonal[place]] += weight


def generalised_log_det(precision: sparse.csr_array, rank: int, name: str) -> float:
    """log of the product of the positive eigenvalues of a matrix with `rank` of them; refuses any other matrix."""
    analysis = analyse(precision)
    missing = precision.shape[0] - rank
    found = hold_coordinates(analysis, analysis.values(precision), missing, suspect=np.inf)
    if found is None:
        if missing == 0:
            raise ValueError(
                f"{name} must be positive definite, and is not; an intrinsic (improper) one needs its rank="
            )
        raise ValueError(f"{name} must be positive semi-definite of rank {rank}, and is not")
    if not missing:
        return found.factor.log_det
    null = _null_space(found, precision.shape[0])
    excess = np.abs(precision @ null).max() / (np.abs(precision.data).max() * np.abs(null).max())
    if excess > NULL:
        raise ValueError(
            f"{name} must be positive semi-definite of rank {rank}, "
            f"and has fewer than {missing} directions of precision 0"
        )
    log_norms = np.linalg.slogdet(null.T @ null)[1]
    return found.factor.log_det - missing * float(np.log(found.weight)) + float(log_norms)


def _null_space(found: HeldPrecision, dim: int) -> Array:
    """N = cQ′⁻¹U."""
    units = np.zeros((dim, len(found.held)))
    units[found.held, np.arange(len(found.held))] = found.weight
    return found.factor.solve(units)


# --- Linear constraints A w = e as independent rows.


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

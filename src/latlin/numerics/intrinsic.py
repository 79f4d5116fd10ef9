"""Positive semi-definite precisions of known rank: their generalised determinants, by holding some coordinates.

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

from latlin.numerics.arrays import Array
from latlin.numerics.sparse_cholesky import Analysis, SparseCholesky, analyse

#: largest entry of QN against those of Q and N for which N counts as a null space
NULL = 1e-6
#: share of a diagonal entry below which a pivot is taken for that of a singular matrix
SUSPECT = 1e-8


class Grounded(NamedTuple):
    """Q + weight·UUᵀ, positive definite, U the coordinates that are held."""

    held: NDArray[np.int64]
    weight: float
    factor: SparseCholesky


def ground(analysis: Analysis, values: Array, most: int, suspect: float = SUSPECT) -> Grounded | None:
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
    Grounded or None
        None where more coordinates would have to be held.
    """
    weight = float(values[analysis.diagonal].mean())
    held: list[int] = []
    values = values.copy()
    while True:
        factor, place = analysis.attempt(values)
        if factor is not None:
            shares = factor.pivots / values[analysis.diagonal]
            place = int(np.argmin(shares))
            if len(held) == most or shares[place] >= suspect:
                return Grounded(analysis.order[np.array(held, np.int64)], weight, factor)
        if len(held) == most or place in held or not weight > 0.0:
            return None
        held.append(place)
        values[analysis.diagonal[place]] += weight


def generalised_log_det(precision: sparse.csr_array, rank: int, name: str) -> float:
    """log of the product of the positive eigenvalues of a matrix with `rank` of them; refuses any other matrix."""
    analysis = analyse(precision)
    missing = precision.shape[0] - rank
    found = ground(analysis, analysis.values(precision), missing, suspect=np.inf)
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


def _null_space(found: Grounded, dim: int) -> Array:
    """N = cQ′⁻¹U."""
    units = np.zeros((dim, len(found.held)))
    units[found.held, np.arange(len(found.held))] = found.weight
    return found.factor.solve(units)

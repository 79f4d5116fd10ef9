"""Linear filters whose responses are sparse in signals and images: finite differences and orthonormal wavelets.

Challis (2013), §5.4 puts Laplace priors on both. Signals and images are flattened row by row (C order).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy import sparse

from latlin.numerics.options import whole

ROOT3 = np.sqrt(3.0)
#: Daubechies' scaling filter with four taps and two vanishing moments
TAPS = np.array([1.0 + ROOT3, 3.0 + ROOT3, 3.0 - ROOT3, 1.0 - ROOT3]) / (4.0 * np.sqrt(2.0))


def finite_differences(shape: int | Sequence[int]) -> sparse.csr_array:
    """Differences of neighbours along every axis of a signal or image; one row a pair of neighbours.

    >>> finite_differences(4).toarray().astype(int).tolist()
    [[-1, 1, 0, 0], [0, -1, 1, 0], [0, 0, -1, 1]]
    >>> finite_differences((64, 64)).shape
    (8064, 4096)
    """
    sizes = _sizes(shape)
    blocks = []
    for axis, size in enumerate(sizes):
        if size < 2:
            continue
        step = sparse.diags_array([-np.ones(size - 1), np.ones(size - 1)], offsets=[0, 1], shape=(size - 1, size))
        parts = [step if i == axis else sparse.eye_array(other) for i, other in enumerate(sizes)]
        blocks.append(reduce(_kron, parts))
    if not blocks:
        raise ValueError(f"shape must have an axis of at least 2, got {tuple(sizes)}")
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def wavelet_transform(shape: int | Sequence[int], levels: int | None = None) -> sparse.csr_array:
    """Orthonormal periodic wavelet transform with Daubechies' four-tap filter (PyWavelets calls it db2).

    Parameters
    ----------
    shape : int or sequence of int
        Of the signal or image; axes are transformed one after the other at every level.
    levels : int, optional
        By default as many as the sizes can be halved while they stay at least 4.

    Returns
    -------
    csr_array of shape (size, size)
        Coarse responses first, then details from coarse to fine.

    Examples
    --------
    >>> W = wavelet_transform(16)
    >>> bool(abs((W @ W.T - sparse.eye_array(16)).toarray()).max() < 1e-14)
    True
    """
    sizes = _sizes(shape)
    deepest = _deepest(sizes)
    depth = deepest if levels is None else whole("levels", levels)
    if not 0 <= depth <= deepest:
        raise ValueError(f"levels must lie between 0 and {deepest} for shape {tuple(sizes)}, got {levels!r}")
    coarse, details = sparse.csr_array(sparse.eye_array(int(np.prod(sizes)))), []
    for _ in range(depth):
        both = reduce(_kron, [_one_level(size) for size in sizes]) @ coarse
        low = reduce(np.logical_and.outer, [np.arange(size) < size // 2 for size in sizes]).ravel()
        details.append(both[np.flatnonzero(~low)])
        coarse = both[np.flatnonzero(low)]
        sizes = [size // 2 for size in sizes]
    return sparse.csr_array(sparse.vstack([coarse, *details[::-1]], format="csr"))


def _one_level(size: int) -> sparse.csr_array:
    """Averages Σ_j h_j x_{2k+j}, then details with g_j = (−1)^j h_{3−j}, indices modulo the size."""
    rows = np.repeat(np.arange(size // 2), 4)
    columns = (2 * rows + np.tile(np.arange(4), size // 2)) % size
    mirrored = TAPS[::-1] * np.array([1.0, -1.0, 1.0, -1.0])
    values = np.concatenate([np.tile(TAPS, size // 2), np.tile(mirrored, size // 2)])
    places = (np.concatenate([rows, rows + size // 2]), np.concatenate([columns, columns]))
    return sparse.csr_array(sparse.coo_array((values, places), shape=(size, size)))


def _deepest(sizes: Sequence[int]) -> int:
    depth = 0
    while all(size % 2 ** (depth + 1) == 0 and size // 2**depth >= 4 for size in sizes):
        depth += 1
    return depth


def _kron(a: sparse.sparray, b: sparse.sparray) -> sparse.csr_array:
    return sparse.csr_array(sparse.kron(a, b, format="csr"))


def _sizes(shape: int | Sequence[int]) -> list[int]:
    sizes = [whole("shape", size, 1) for size in ([shape] if np.ndim(shape) == 0 else shape)]  # type: ignore[union-attr]
    if not sizes:
        raise ValueError(f"shape must hold positive sizes, got {shape!r}")
    return sizes

"""Whether a posterior can be normalised, decided before anything is fitted.

Along a direction d ≠ 0 in which no factor falls, p(w + td) stays positive for every t, and its integral is infinite. A
Gaussian factor falls along d unless Hd = 0; a site falls unless its potential has a positive limit on the side to which
h_nᵀd points. For log-concave sites a posterior without such a direction is proper; for others it need not be.

The classical case is classes that a plane separates, under a flat prior: all sites rise along its normal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import lapack
from scipy.optimize import linprog
from scipy.sparse.linalg import LinearOperator

from latlin.distributed.blocks import Block
from latlin.inference.blocks import BlockModel, Observed, Reading, read_pieces
from latlin.inference.forms.prior import is_proper
from latlin.inference.model import GaussianFactor, LatentLinearModel, Model, SiteFactor, require_in_memory
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

#: sites times dimensions beyond which directions are not searched
LARGEST = 10**7
#: distances, in widths of a potential, between which one that does not change any more has reached its limit
FAR = (1e6, 1e8)
#: eigenvalue of RᵀR, per row of length one, that rounding cannot take for zero
CLEAR = 1e-10
#: how far a row of length one may fall along a unit direction that it is orthogonal to
NOTHING = 1e-13


def refuse_improper(model: Model) -> None:
    """Raise a ValueError where the posterior is improper; with a proper prior on w itself it never is."""
    direction = flat_direction(model)
    if direction is None:
        return
    largest = int(np.argmax(np.abs(direction)))
    raise ValueError(
        "the posterior is improper: along a direction of w (most of it in coordinate "
        f"{largest}) no factor falls, as for separable classes under a flat prior; add a GaussianFactor on w, "
        "for example GaussianFactor(cov=100.0), to model.factors"
    )


def flat_direction(model: Model) -> Array | None:
    """A direction along which no factor falls, or None where there is none or the model is too large to search."""
    own = model.own if isinstance(model, BlockModel) else require_in_memory(model)
    held = _held_rows(own)
    if held is None:
        return None
    fixed, rising = held
    free = _null_space(fixed)
    if not free.shape[1]:
        return None
    if isinstance(model, BlockModel):
        return _flat_over_blocks(model, free, rising)
    inside = _cone_direction(rising @ free)
    return None if inside is None else free @ inside


def _held_rows(model: LatentLinearModel) -> tuple[Array, Array] | None:
    """Rows R with Rd = 0, and with Rd ≥ 0, along a direction d in which nothing falls; None where they are too many."""
    fixing = [_falling_rows(factor) for factor in model.gaussians] + [constraint.A for constraint in model.constraints]
    listed = (*fixing, *(factor.H for factor in model.sites))
    if sum(model.dim if H is None else H.shape[0] for H in listed) * model.dim > LARGEST:
        return None
    matrices = [_dense(H, model.dim) for H in listed]
    none = np.zeros((0, model.dim))
    fixed, rising = [none, *matrices[: len(fixing)]], [none]
    for factor, H in zip(model.sites, matrices[len(fixing) :], strict=True):
        left, right = _flat_sides(factor, len(H))
        fixed.append(H[~left & ~right])
        rising += [H[right & ~left], -H[left & ~right]]
    return np.concatenate(fixed), np.concatenate(rising)


def _flat_over_blocks(model: BlockModel, free: Array, rising: Array) -> Array | None:
    """A direction among the `free` ones along which no site of the blocks falls either.

    Rows against which a direction points are fetched, and the next direction is sought for those as well. When some
    rows leave no direction, all of them leave none; a direction against which no row stands is one.
    """
    (gram,) = model.total(_fixing_gram, free)
    free = free @ _null_space_of_gram(gram, model.blocks.n_blocks)
    size = max(free.shape[1], 1)
    most = max(1, min(20 * size, LARGEST // (size * model.blocks.n_blocks)))
    rows = np.concatenate([rising @ free, *model.blocks.each(_opposed, model.reading, free, None, most)])
    while free.shape[1] and rows.size <= LARGEST:
        inside = _cone_direction(rows)
        if inside is None:
            return None
        opposed = np.concatenate(model.blocks.each(_opposed, model.reading, free, inside, most))
        if not len(opposed):
            return free @ inside
        rows = np.concatenate([rows, opposed])
    return None


def _fixing_gram(block: Block, reading: Reading, free: Array) -> tuple[Array]:
    """RᵀR of the rows, of length one, whose sites fall on both sides, in the coordinates of `free`."""
    gram = np.zeros((free.shape[1], free.shape[1]))
    for observed in read_pieces(block, reading):
        left, right = _flat_sides(observed, observed.rows.shape[0])
        rows = _of_length_one(observed.rows[~left & ~right] @ free)
        gram += rows.T @ rows
    return (gram,)


def _opposed(block: Block, reading: Reading, free: Array, inside: Array | None, most: int) -> Array:
    """Rows r, turned so that their sites fall where rᵀd < 0, with rᵀ inside < 0; without `inside`, some of the rows."""
    found = [np.zeros((0, free.shape[1]))]
    for observed in read_pieces(block, reading):
        left, right = _flat_sides(observed, observed.rows.shape[0])
        one_sided = left != right
        rows = _of_length_one(np.where(right, 1.0, -1.0)[one_sided, None] * (observed.rows[one_sided] @ free))
        found.append(rows if inside is None else rows[rows @ inside < -1e-8 * np.linalg.norm(inside)])
    rows = np.concatenate(found)
    if inside is not None:
        return rows[np.argsort(rows @ inside)[:most]]
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))]


def _falling_rows(factor: GaussianFactor) -> Any:
    """Rows R with Rd ≠ 0 for the directions along which a Gaussian factor falls: H, or QH of an intrinsic one."""
    if is_proper(factor):
        return factor.H
    return factor.precision if factor.H is None else factor.precision @ factor.H


def _dense(H: Any, dim: int) -> Array:
    if H is None:
        return np.eye(dim)
    if isinstance(H, LinearOperator):
        return np.asarray(H @ np.eye(dim), float)
    return H.toarray() if sparse.issparse(H) else np.asarray(H)


def _flat_sides(factor: SiteFactor | Observed, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each site, whether its potential has a positive limit on the left, and on the right."""
    left, right = (_has_limit(factor.potential, sign, count) for sign in (-1.0, 1.0))
    if factor.weight is not None:
        absent = np.broadcast_to(factor.weight == 0.0, count)
        left, right = left | absent, right | absent
    return left, right


def _has_limit(potential: Potential, sign: float, count: int) -> np.ndarray:
    centres, widths = zip(*potential.regions(), strict=True)
    centre = np.broadcast_to(np.max([np.broadcast_to(sign * c, count) for c in centres], axis=0), count)
    width = np.broadcast_to(np.max([np.broadcast_to(w, count) for w in widths], axis=0), count)
    with np.errstate(all="ignore"):
        near, far = (potential.log_density(sign * (centre + step * width)) for step in FAR)
        return np.isfinite(near) & np.isfinite(far) & (np.abs(far - near) <= 1e-9 * (1.0 + np.abs(near)))


def _of_length_one(rows: Array) -> Array:
    """Rows divided by their lengths, without those that are zero."""
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(rows[norms > 1e-12] / norms[norms > 1e-12, None])


def _null_space(rows: Array) -> Array:
    """An orthonormal basis of the directions that are orthogonal to all rows."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled = rows / np.where(norms > 0.0, norms, 1.0)
    candidates = _null_space_of_gram(scaled.T @ scaled, len(rows))
    # squares lose half of the digits: a long random walk falls along a slow wave, by a millionth
    falls = scaled @ candidates
    _, sizes, turned = np.linalg.svd(falls, full_matrices=len(falls) < falls.shape[1])
    kept = np.r_[sizes, np.zeros(candidates.shape[1] - len(sizes))] <= NOTHING
    return candidates @ turned[kept].T


def _null_space_of_gram(gram: Array, count: int) -> Array:
    """The same from RᵀR of `count` rows of length one."""
    # a factor of RᵀR less a little says that no eigenvalue is near zero, at a twentieth of the cost of all of them
    little = np.diag(np.full(len(gram), CLEAR * max(count, 1)))
    if lapack.dpotrf(gram - little)[1] == 0:
        return np.zeros((len(gram), 0))
    values, vectors = np.linalg.eigh(gram)
    return vectors[:, values <= 1e-14 * max(count, 1)]


def _cone_direction(rows: Array) -> Array | None:
    """Some v ≠ 0 with rows·v ≥ 0, or None."""
    rows = _of_length_one(rows)
    silent = _null_space(rows)
    if silent.shape[1]:
        return silent[:, 0]
    # a v ≠ 0 of the cone has a positive product with some row, as the rows span the space
    found = linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=(-1.0, 1.0), method="highs")
    if found.x is None or -found.fun <= 1e-6 * len(rows):
        return None
    products = rows @ found.x
    return found.x if products.min() >= -1e-9 * products.max() else None

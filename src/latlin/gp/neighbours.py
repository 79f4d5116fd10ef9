"""Orders of inputs from coarse to fine, and the nearest inputs that come earlier: the skeleton of Vecchia's density.

Each input is conditioned on the nearest of those before it. Where the order is such that every next input is about as
far as possible from all before it (maximin), early inputs carry what is far and late ones what is near, and few
neighbours say nearly all (Guinness 2018; Katzfuss and Guinness 2021).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from latlin.numerics.arrays import Array
from latlin.numerics.threads import njit

Index = NDArray[np.int64]
#: distances that the exact part of the order may cost; beyond it the order goes on in rounds
DISTANCES = 2 * 10**8
#: a round takes inputs that are farther from those before than this share of the largest distance, and apart from
#: each other by as much
SHARE = 0.6
#: rows of the first block, and by how much every next one is longer, when earlier neighbours are sought
FIRST, GROWTH = 64, 1.5


def maximin_order(X: Array, seed: int = 0) -> Index:
    """Places of the inputs, each about as far as possible from all before it.

    Exactly so for the first ones; then by rounds of inputs that are far from those before and from each other.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    seed : int
        Of the order within rounds.

    Examples
    --------
    >>> maximin_order(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])).tolist()
    [2, 0, 4, 1, 3]
    """
    count = len(X)
    exact = int(min(count, max(100, DISTANCES // count)))
    middle = int(np.argmin(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))
    order, squares = farthest_first(np.ascontiguousarray(X, float), middle, exact)
    if exact == count:
        return order
    return np.concatenate([order, *_rounds(X, order, np.sqrt(squares), np.random.default_rng(seed))])


@njit(cache=True)
def farthest_first(X: Array, first: int, steps: int) -> tuple[Index, Array]:
    """The first `steps` inputs, each the farthest from those before, and squared distances of all to the nearest."""
    count, width = X.shape
    order, nearest = np.empty(steps, np.int64), np.full(count, np.inf)
    at = first
    for k in range(steps):
        order[k] = at
        nearest[at] = -1.0
        far, following = -1.0, 0
        for n in range(count):
            if nearest[n] < 0.0:
                continue
            square = 0.0
            for j in range(width):
                square += (X[n, j] - X[at, j]) ** 2
            if square < nearest[n]:
                nearest[n] = square
            if nearest[n] > far:
                far, following = nearest[n], n
        at = following
    return order, np.maximum(nearest, 0.0)


def _rounds(X: Array, before: Index, distance: Array, rng: np.random.Generator) -> list[Index]:
    """The other inputs, round by round; the number of ordered ones at most doubles in each."""
    left = np.setdiff1d(np.arange(len(X)), before)
    rng.shuffle(left)
    distance, done, parts = distance[left], len(before), []
    while len(left):
        limit = SHARE * float(distance.max())
        far = np.flatnonzero(distance >= limit)[:done]
        chosen = far[_apart(X[left[far]], limit)]
        parts.append(left[chosen])
        done += len(chosen)
        keep = np.ones(len(left), bool)
        keep[chosen] = False
        tree, (left, distance) = KDTree(X[left[chosen]]), (left[keep], distance[keep])
        if len(left):
            distance = np.minimum(distance, tree.query(X[left])[0])
    return parts


def _apart(X: Array, limit: float) -> NDArray[np.bool_]:
    """Which inputs stay when each one that is within a distance of an earlier one that stayed is left out."""
    pairs = KDTree(X).query_pairs(limit, output_type="ndarray")
    pairs = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    return thin_out(len(X), pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64))


@njit(cache=True)
def thin_out(count: int, earlier: Index, later: Index) -> NDArray[np.bool_]:
    """Pairs sorted by their later member: it goes where the earlier one stays."""
    stays = np.ones(count, np.bool_)
    for k in range(len(earlier)):
        if stays[earlier[k]]:
            stays[later[k]] = False
    return stays


def earlier_neighbours(X: Array, count: int) -> Index:
    """The `count` nearest of the rows above each row, as many as there are; −1 fills the rest.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        In their order.
    count : int

    Returns
    -------
    ndarray of int, shape (n, min(count, n − 1))
    """
    rows = len(X)
    count = min(count, rows - 1)
    found = np.full((rows, count), -1, np.int64)
    for n in range(1, min(rows, count + 1)):
        found[n, :n] = np.arange(n)
    begin = min(rows, count + 1)
    while begin < rows:
        end = min(rows, max(begin + FIRST, int(GROWTH * begin)))
        found[begin:end] = _nearest_above(X, begin, end, count)
        begin = end
    return found


def _nearest_above(X: Array, begin: int, end: int, count: int) -> Index:
    """For the rows begin … end − 1, their nearest rows above."""
    tree, found = KDTree(X[:end]), np.empty((end - begin, count), np.int64)
    missing, sought = np.arange(begin, end), min(end, int(GROWTH * count) + 8)
    while len(missing):
        near = np.asarray(tree.query(X[missing], k=sought)[1]).reshape(len(missing), sought)
        above = near < missing[:, None]
        enough = above.sum(axis=1) >= count
        # the first `count` that are above, in their order
        place = np.argsort(~above[enough], axis=1, kind="stable")[:, :count]
        found[missing[enough] - begin] = np.take_along_axis(near[enough], place, axis=1)
        missing, sought = missing[~enough], min(end, 2 * sought)
    return found

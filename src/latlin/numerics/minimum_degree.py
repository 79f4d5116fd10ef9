"""An order of elimination that keeps a sparse Cholesky factor sparse: approximate minimum degree.

The graph of a symmetric matrix is eliminated node by node, always one of (nearly) the fewest neighbours. What is
eliminated stays as an *element*, the clique of its neighbours, so that the quotient graph of nodes and elements never
needs more room than the factor; nodes with the same neighbours are merged, and degrees are bounded from above instead
of counted (Amestoy, Davis and Duff 1996). Nodes with very many neighbours (intercepts, covariates) come last.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.elimination import copy_part, sort_part
from latlin.numerics.threads import INNER, njit

Index = NDArray[np.int64]
#: a node counts as dense when it has more neighbours than this many times the root of their number
DENSE = 10.0


def minimum_degree(indptr: Index, indices: Index) -> Index:
    """The order in which to eliminate the nodes of a graph.

    Parameters
    ----------
    indptr, indices : ndarray of int64
        Neighbours of each node, both directions of every edge, without loops, in compressed form.

    Returns
    -------
    ndarray of int64
        The node that is eliminated first, second, ….
    """
    degree, dense = np.diff(indptr), dense_nodes(indptr)
    if not dense.any():
        return _ordered(indptr, indices)
    thin = np.flatnonzero(~dense)
    last = np.flatnonzero(dense)
    last = last[np.argsort(degree[last], kind="stable")]
    if not len(thin):
        return last.astype(np.int64)
    return np.concatenate([thin[_ordered(*_among(indptr, indices, ~dense))], last]).astype(np.int64)


def dense_nodes(indptr: Index) -> NDArray[np.bool_]:
    """Which nodes have so many neighbours that they come last."""
    n = len(indptr) - 1
    return np.diff(indptr) > max(16.0, DENSE * np.sqrt(n))


@njit(cache=True)
def independent_nodes(indptr: Index, indices: Index, candidates: Index) -> NDArray[np.bool_]:
    """A largest set, in the order of the candidates, of nodes that are not neighbours of each other."""
    chosen, near = np.zeros(len(indptr) - 1, np.bool_), np.zeros(len(indptr) - 1, np.bool_)
    for i in candidates:
        if not near[i]:
            chosen[i] = True
            for k in range(indptr[i], indptr[i + 1]):
                near[indices[k]] = True
    return chosen


def _among(indptr: Index, indices: Index, kept: NDArray[np.bool_]) -> tuple[Index, Index]:
    """The graph of some of the nodes."""
    label = np.cumsum(kept) - 1
    start = np.repeat(np.arange(len(kept)), np.diff(indptr))
    edges = kept[start] & kept[indices]
    counts = np.bincount(label[start[edges]], minlength=int(kept.sum()))
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), label[indices[edges]].astype(np.int64)


@njit(cache=True)
def _ordered(indptr: Index, indices: Index) -> Index:
    n = len(indptr) - 1
    room, free = np.empty(2 * len(indices) + 2 * n + 16, np.int64), len(indices)
    copy_part(indices, free, room)
    begin, length, degree = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        begin[i], length[i], degree[i] = indptr[i], indptr[i + 1] - indptr[i], indptr[i + 1] - indptr[i]
    elements = np.zeros(n, np.int64)  # how many of a node's list are elements; they come first
    size = np.ones(n, np.int64)  # nodes merged into this one; 0 when merged away, negative while in the pivot's clique
    gone = np.zeros(n, np.bool_)  # eliminated: an element, or absorbed into one
    seen, clock = np.zeros(n, np.int64), n + 1
    head, after, before = np.full(n + 1, -1), np.full(n, -1), np.full(n, -1)
    merged = np.full(n, -1)
    order, done, lowest = np.empty(n, np.int64), 0, 0
    for i in range(n):
        _insert(head, after, before, degree[i], i)
    while done < n:
        while head[lowest] < 0:
            lowest += 1
        pivot = head[lowest]
        _remove(head, after, before, degree[pivot], pivot)
        own = size[pivot]
        order[done] = pivot
        done += own
        if free + n >= len(room):
            longer = np.empty(2 * len(room) + n, np.int64)
            copy_part(room, free, longer)
            room = longer
        first = free
        free, clique = _form_element(
            pivot, room, free, begin, length, elements, size, gone, degree, head, after, before
        )
        clock = _outside(room, first, free, begin, elements, size, gone, length, degree, seen, clock)
        eliminated = _update_degrees(
            pivot, room, first, free, begin, length, elements, size, gone, degree, seen, clock, merged
        )
        done += eliminated
        clique -= eliminated
        clock += n + 1
        clock = _merge_alike(room, first, free, begin, length, elements, size, seen, clock, merged, degree)
        low, free = _finish(room, first, free, size, degree, clique, n - done, head, after, before)
        begin[pivot], length[pivot], gone[pivot] = first, free - first, True
        degree[pivot] = clique
        lowest = min(lowest, low)
    return _expanded(order, merged, n)


@njit(**INNER)
def _insert(head: Index, after: Index, before: Index, degree: int, i: int) -> None:
    old = head[degree]
    after[i], before[i] = old, -1
    if old >= 0:
        before[old] = i
    head[degree] = i


@njit(**INNER)
def _remove(head: Index, after: Index, before: Index, degree: int, i: int) -> None:
    if before[i] >= 0:
        after[before[i]] = after[i]
    else:
        head[degree] = after[i]
    if after[i] >= 0:
        before[after[i]] = before[i]


@njit(**INNER)
def _form_element(
    pivot: int,
    room: Index,
    free: int,
    begin: Index,
    length: Index,
    elements: Index,
    size: Index,
    gone: NDArray[np.bool_],
    degree: Index,
    head: Index,
    after: Index,
    before: Index,
) -> tuple[int, int]:
    """The pivot's neighbours, its own and those of its elements, which it absorbs; their sizes turn negative."""
    clique, own = 0, size[pivot]
    size[pivot] = -own
    for k in range(elements[pivot] + 1):
        if k < elements[pivot]:
            e = room[begin[pivot] + k]
            start, stop = begin[e], begin[e] + length[e]
            length[e] = 0
        else:
            start, stop = begin[pivot] + elements[pivot], begin[pivot] + length[pivot]
        for t in range(start, stop):
            i = room[t]
            if size[i] > 0 and not gone[i]:
                _remove(head, after, before, degree[i], i)
                clique += size[i]
                size[i] = -size[i]
                room[free] = i
                free += 1
    size[pivot] = own
    return free, clique


@njit(**INNER)
def _outside(
    room: Index,
    first: int,
    free: int,
    begin: Index,
    elements: Index,
    size: Index,
    gone: NDArray[np.bool_],
    length: Index,
    degree: Index,
    seen: Index,
    clock: int,
) -> int:
    """seen[e] − clock becomes the number of nodes of element e that are not in the pivot's clique."""
    largest = 0
    for t in range(first, free):
        i = room[t]
        for k in range(begin[i], begin[i] + elements[i]):
            e = room[k]
            if length[e] == 0:
                continue
            if seen[e] < clock:
                seen[e] = clock + degree[e]
                largest = max(largest, degree[e])
            seen[e] += size[i]
    return clock


@njit(**INNER)
def _update_degrees(
    pivot: int,
    room: Index,
    first: int,
    free: int,
    begin: Index,
    length: Index,
    elements: Index,
    size: Index,
    gone: NDArray[np.bool_],
    degree: Index,
    seen: Index,
    clock: int,
    merged: Index,
) -> int:
    """New lists and external degrees of the clique; nodes without other neighbours are eliminated with the pivot."""
    eliminated = 0
    for t in range(first, free):
        i = room[t]
        start, stop = begin[i], begin[i] + length[i]
        # element 0 will be the pivot; its place is free, because the pivot or an element of it was in the list
        kept, total = np.int64(0), np.int64(0)
        spare = room[start]
        for k in range(start, start + elements[i]):
            e = room[k] if k > start else spare
            if length[e] == 0:
                continue
            rest = seen[e] - clock
            if rest > 0:
                total += rest
                room[start + kept] = e
                kept += 1
            else:
                length[e] = 0
        cliques = kept
        for k in range(start + elements[i], stop):
            j = room[k]
            if size[j] > 0 and not gone[j] and j != pivot:
                total += size[j]
                room[start + kept] = j
                kept += 1
        if total == 0:
            eliminated -= size[i]
            merged[i] = pivot
            size[i] = 0
            gone[i] = True
            continue
        # make room for the pivot at the front: the first element goes to the end of the elements, that variable last
        if cliques < kept:
            room[start + kept] = room[start + cliques]
        if cliques > 0:
            room[start + cliques] = room[start]
        room[start] = pivot
        elements[i], length[i] = cliques + 1, kept + 1
        degree[i] = min(degree[i], total)
    return eliminated


@njit(**INNER)
def _merge_alike(
    room: Index,
    first: int,
    free: int,
    begin: Index,
    length: Index,
    elements: Index,
    size: Index,
    seen: Index,
    clock: int,
    merged: Index,
    degree: Index,
) -> int:
    """Nodes of the clique with the same lists become one."""
    count = free - first
    keys, who = np.empty(count, np.int64), np.empty(count, np.int64)
    alive = 0
    for t in range(first, free):
        i = room[t]
        if size[i] < 0:
            key = np.int64(0)
            for k in range(begin[i], begin[i] + length[i]):
                key += room[k]
            keys[alive], who[alive] = key * 1024 + min(length[i], 1023), i
            alive += 1
    # a plain zero would be of a type of its own, for which all would be compiled again
    sort_part(keys, who, np.int64(0), alive)  # type: ignore[arg-type]
    for a in range(alive):
        i = who[a]
        if size[i] == 0:
            continue
        marked = False
        for b in range(a + 1, alive):
            if keys[b] != keys[a]:
                break
            j = who[b]
            if size[j] == 0 or length[j] != length[i] or elements[j] != elements[i]:
                continue
            if not marked:
                clock += 1
                for k in range(begin[i], begin[i] + length[i]):
                    seen[room[k]] = clock
                marked = True
            same = True
            for k in range(begin[j], begin[j] + length[j]):
                if seen[room[k]] != clock:
                    same = False
                    break
            if same:
                size[i] += size[j]
                size[j] = 0
                merged[j] = i
    return clock + 1


@njit(**INNER)
def _finish(
    room: Index,
    first: int,
    free: int,
    size: Index,
    degree: Index,
    clique: int,
    left: int,
    head: Index,
    after: Index,
    before: Index,
) -> tuple[int, int]:
    """Put the clique's nodes back among the others and drop those that are gone from the element."""
    kept, low = first, len(head) - 1
    for t in range(first, free):
        i = room[t]
        if size[i] >= 0:
            continue
        size[i] = -size[i]
        degree[i] = max(min(degree[i] + clique - size[i], left - size[i]), 0)
        _insert(head, after, before, degree[i], i)
        low = min(low, degree[i])
        room[kept] = i
        kept += 1
    return low, kept


@njit(**INNER)
def _expanded(order: Index, merged: Index, n: int) -> Index:
    """The pivots in their order, each followed by what was merged into it."""
    head, after = np.full(n, -1), np.full(n, -1)
    for i in range(n - 1, -1, -1):
        if merged[i] >= 0:
            after[i] = head[merged[i]]
            head[merged[i]] = i
    full, done, k = np.empty(n, np.int64), 0, 0
    stack = np.empty(n, np.int64)
    while done < n:
        stack[0], depth = order[k], 1
        while depth > 0:
            depth -= 1
            i = stack[depth]
            full[done] = i
            done += 1
            j = head[i]
            while j >= 0:
                stack[depth] = j
                depth += 1
                j = after[j]
        k = done
    return full

"""Split and merge moves: ways out of a local optimum of the bound.

A move relabels rows (two components become one, or one becomes two in an empty place), climbs a few steps from
there, and is kept only if the bound is higher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from latlin.mixture.model import Belief, Mixture
from latlin.mixture.seeding import Sample, seed_labels
from latlin.numerics.ascent import Ascent
from latlin.numerics.linalg import Array

TRIAL_STEPS = 10
Labels = NDArray[np.intp]


def try_moves(
    mixture: Mixture,
    sample: Sample,
    climb: Any,
    ascent: Ascent[Any],
    attempts: int,
    settle: Callable[[Any], Ascent[Any]],
) -> tuple[Ascent[Any], int]:
    """Propose moves until `attempts` are used up or none helps; returns the best ascent and the moves kept.

    `settle` climbs from an accepted state to convergence.
    """
    kept = 0
    while attempts > 0:
        better = None
        for labels in _proposals(mixture, sample, climb.belief(ascent.state), climb.rng):
            if attempts == 0:
                break
            attempts -= 1
            better = _trial(mixture, sample, climb, labels, ascent.state.bound)
            if better is not None:
                break
        if better is None:
            break
        ascent, kept = settle(better), kept + 1
    return ascent, kept


def _trial(mixture: Mixture, sample: Sample, climb: Any, labels: Labels, bound: float) -> Any | None:
    """A few steps from the relabelled rows; the state if it is better than `bound`."""
    state = climb.start(sample.moments(mixture, labels, mixture.weights.components))  # type: ignore[attr-defined]
    for _ in range(TRIAL_STEPS):
        state, _ = climb.step(state)
    return state if state.bound > bound + 1e-6 * (1.0 + abs(bound)) else None


def _proposals(mixture: Mixture, sample: Sample, belief: Belief, rng: np.random.Generator) -> Iterator[Labels]:
    """Alternately merge the next most overlapping pair and split the next largest component."""
    r = softmax(mixture.log_joint(sample.rows, belief), axis=1)
    labels = r.argmax(axis=1)
    merges = _merges(r, labels, sample.weights)
    splits = _splits(sample, labels, r.shape[1], rng)
    while True:
        proposals = [p for p in (next(merges, None), next(splits, None)) if p is not None]
        if not proposals:
            return
        yield from proposals


def _merges(r: Array, labels: Labels, weights: Array) -> Iterator[Labels]:
    """Pairs by the cosine of their responsibilities, largest first."""
    products = (r * weights[:, None]).T @ r
    size = np.sqrt(np.diagonal(products))
    overlap = products / np.maximum(np.outer(size, size), 1e-300)
    first, second = np.triu_indices(len(size), 1)
    active = (size[first] > 1e-3) & (size[second] > 1e-3)
    order = np.argsort(-overlap[first, second], kind="stable")
    for pair in order[active[order]]:
        merged = labels.copy()
        merged[labels == second[pair]] = first[pair]
        yield merged


def _splits(sample: Sample, labels: Labels, components: int, rng: np.random.Generator) -> Iterator[Labels]:
    """Components by size, each cut in two by k-means++ seeds; needs an empty place."""
    sizes = np.bincount(labels, sample.weights, minlength=components)
    empty = np.flatnonzero(sizes == 0.0)
    if len(empty) == 0:
        return
    for k in np.argsort(-sizes, kind="stable"):
        own = np.flatnonzero(labels == k)
        if len(own) < 2:
            return
        part = Sample(sample.rows[own], sample.weights[own], sample.units[own], sample.scale)
        halves = seed_labels(part, 2, rng)
        cut = labels.copy()
        cut[own[halves == 1]] = empty[0]
        yield cut

"""Components joined and parted by their moments alone.

A merge adds two components' moments, a split replaces one's by two: what either does to the bound is arithmetic on
moments and the entropy between two components, without a pass over the data.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from latlin.mixture.moments import ComponentMoments, SecondMoments, scatter_between
from latlin.numerics.linalg import Array

P = TypeVar("P", bound=Any)


class Surgery(Protocol):
    """How scatter is handed over, by structures that keep one per component and by those that pool it."""

    def merged(self, structure: SecondMoments, moments: ComponentMoments, first: int, second: int) -> ComponentMoments:
        """`first` takes over what `second` answered for."""

    def parted(
        self, structure: SecondMoments, moments: ComponentMoments, old: int, new: int, parts: ComponentMoments
    ) -> ComponentMoments:
        """What `old` answered for goes to `old` and `new` as the two components of `parts` have it."""

    def few(self, params: P, chosen: NDArray[np.intp]) -> P:
        """The parameters of some components."""


class Separate:
    """One scatter per component."""

    def merged(self, structure: SecondMoments, moments: ComponentMoments, first: int, second: int) -> ComponentMoments:
        counts, mean, between = _joined(structure, moments, first, second)
        scatter = moments.scatter.copy()
        scatter[first] += scatter[second] + between
        scatter[second] = 0.0
        return ComponentMoments(counts, mean, scatter)

    def parted(
        self, structure: SecondMoments, moments: ComponentMoments, old: int, new: int, parts: ComponentMoments
    ) -> ComponentMoments:
        counts, mean = _replaced(moments, old, new, parts)
        scatter = moments.scatter.copy()
        scatter[[old, new]] = parts.scatter
        return ComponentMoments(counts, mean, scatter)

    def few(self, params: P, chosen: NDArray[np.intp]) -> P:
        return type(params)(*(part[chosen] for part in params))


class Pooled:
    """One scatter for all."""

    def merged(self, structure: SecondMoments, moments: ComponentMoments, first: int, second: int) -> ComponentMoments:
        counts, mean, between = _joined(structure, moments, first, second)
        return ComponentMoments(counts, mean, moments.scatter + between)

    def parted(
        self, structure: SecondMoments, moments: ComponentMoments, old: int, new: int, parts: ComponentMoments
    ) -> ComponentMoments:
        parts = _drawn_together(parts, moments.scatter)
        counts, mean = _replaced(moments, old, new, parts)
        return ComponentMoments(counts, mean, moments.scatter - scatter_between(structure, parts))

    def few(self, params: P, chosen: NDArray[np.intp]) -> P:
        return params._replace(mean=params.mean[chosen], strength=params.strength[chosen])


def _drawn_together(parts: ComponentMoments, scatter: Array) -> ComponentMoments:
    """Two components, their means no farther apart than the pooled scatter has room for: they come from a sample."""
    centre = parts.counts @ parts.mean / max(float(parts.counts.sum()), 1e-300)
    away = parts.mean - centre
    room = scatter + 1e-12 * np.trace(scatter) * np.eye(len(scatter))
    # δ₁ and δ₂ are parallel: Σ N δδᵀ ≤ scatter when Σ N δᵀ scatter⁻¹ δ ≤ 1
    used = float(parts.counts @ (away * np.linalg.lstsq(room, away.T)[0].T).sum(axis=1))
    return parts._replace(mean=centre + away * np.sqrt(min(1.0, 0.999 / used))) if used > 0.0 else parts


def _joined(structure: SecondMoments, moments: ComponentMoments, first: int, second: int) -> tuple[Array, Array, Array]:
    pair = [first, second]
    both = ComponentMoments(moments.counts[pair], moments.mean[pair], moments.scatter)
    counts, mean = moments.counts.copy(), moments.mean.copy()
    counts[pair] = both.counts.sum(), 0.0
    mean[first] = both.counts @ both.mean / both.counts.sum()
    return counts, mean, scatter_between(structure, both)


def _replaced(moments: ComponentMoments, old: int, new: int, parts: ComponentMoments) -> tuple[Array, Array]:
    counts, mean = moments.counts.copy(), moments.mean.copy()
    counts[[old, new]], mean[[old, new]] = parts.counts, parts.mean
    return counts, mean

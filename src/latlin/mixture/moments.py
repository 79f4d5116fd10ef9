"""Weighted moments of the rows that each component answers for, and their arithmetic.

Count, mean and scatter about the mean are the statistics (3.14)–(3.16) of Gutteridge (2021) (scatter not
divided by the count). With the priors they fix the optimal posterior, so natural-gradient steps, mini-batches,
streams, merges and splits are arithmetic on them. Scatter is kept about the means, which loses no digits.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.alerts import NumericalWarning
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable

# --- Stacks of small matrices, one per component: factors and inverses.


JITTER = 1e-13


def root(a: Array) -> Array:
    """Lower triangular L with a = L Lᵀ, along the last two axes.

    Matrices that rounding has made indefinite (one far row, features many digits apart) get 1e-13 of their
    diagonal added, with a `NumericalWarning`.
    """
    try:
        return np.asarray(np.linalg.cholesky(a), dtype=np.float64)
    except np.linalg.LinAlgError:
        diagonal = np.diagonal(a, axis1=-2, axis2=-1)
        warnings.warn(
            f"a scale matrix was not positive definite in floating point (diagonal {diagonal.min():.2g} to "
            f"{diagonal.max():.2g}); {JITTER:g} of its diagonal was added. Rescale or clip far rows",
            NumericalWarning,
            stacklevel=2,
        )
    jittered = a + JITTER * diagonal[..., None] * np.eye(a.shape[-1])
    return np.asarray(np.linalg.cholesky(jittered), dtype=np.float64)


def inverse(a: Array) -> Array:
    """a⁻¹ along the last two axes."""
    return np.asarray(np.linalg.inv(a), dtype=np.float64)


def log_det_of_root(factor: Array) -> Array:
    """ln|L Lᵀ| along the last two axes."""
    return 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)


_EMPTY = 1e-100


@storable
class ComponentMoments(NamedTuple):
    """Statistics of K components; the shape of `scatter` is the covariance structure's."""

    counts: Array  # (K,)  Σ_n w_n r_nk
    mean: Array  # (K, D)
    scatter: Array  # (K, D, D), (K, D), (K,) or, pooled, (D, D)


class SecondMoments(Protocol):
    """How a covariance structure keeps second moments."""

    def spread(self, delta: Array, weight: Array) -> Array:
        """The scatter weight_k δ_k δ_kᵀ of K components."""

    def scatter_of(self, delta: Array, weight: Array) -> Array:
        """The scatter Σ_n weight_n δ_n δ_nᵀ of one component."""

    def gather(self, parts: list[Array]) -> Array:
        """The scatter of all components from that of each."""


def centre_moments(
    structure: SecondMoments, reference: Array, count: Array, first: Array, second: Array
) -> ComponentMoments:
    """Moments about the mean from Σ r, Σ r(x − c) and Σ r(x − c)(x − c)ᵀ about reference points c."""
    occupied = count > _EMPTY
    delta = np.where(occupied[:, None], first / np.where(occupied, count, 1.0)[:, None], 0.0)
    kept = np.where(occupied, count, 0.0)
    return ComponentMoments(kept, reference + delta, second - structure.spread(delta, kept))


def find_centres(prior_mean: Array, prior_strength: float, moments: ComponentMoments) -> tuple[Array, Array, Array]:
    """β, m and the weights β₀N/β of (x̄ − m₀)(x̄ − m₀)ᵀ: the optimal means of all components."""
    beta = prior_strength + moments.counts
    pull = (moments.counts / beta)[:, None]
    return beta, prior_mean + pull * (moments.mean - prior_mean), prior_strength * pull[:, 0]


def combine(
    structure: SecondMoments, a: ComponentMoments, share_a: float, b: ComponentMoments, share_b: float
) -> ComponentMoments:
    """Moments of share_a copies of the data of `a` together with share_b copies of those of `b`."""
    count_a, count_b = share_a * a.counts, share_b * b.counts
    count = count_a + count_b
    pull = np.divide(count_b, count, out=np.zeros_like(count), where=count > _EMPTY)
    delta = b.mean - a.mean
    between = structure.spread(delta, count_a * pull)
    scatter = share_a * a.scatter + share_b * b.scatter + between
    return ComponentMoments(count, a.mean + pull[:, None] * delta, scatter)


def scale_moments(a: ComponentMoments, factor: float) -> ComponentMoments:
    """Moments of `factor` copies of the same data."""
    return ComponentMoments(factor * a.counts, a.mean, factor * a.scatter)


def scatter_between(structure: SecondMoments, a: ComponentMoments) -> Array:
    """The scatter of the means of the components about the mean of all."""
    centre = a.counts @ a.mean / max(float(a.counts.sum()), _EMPTY)
    return structure.scatter_of(a.mean - centre, a.counts)


def gather_moments(
    structure: SecondMoments, rows: Array, weights: Array, labels: NDArray[np.intp], components: int
) -> ComponentMoments:
    """Moments of the rows by hard labels 0 … K−1; a component without rows sits at the overall mean."""
    count = np.bincount(labels, weights, minlength=components).astype(np.float64)
    centre = np.average(rows, axis=0, weights=weights)
    mean = np.tile(centre, (components, 1))
    for k in np.flatnonzero(count > 0.0):
        own = labels == k
        mean[k] = np.average(rows[own], axis=0, weights=weights[own])
    parts = [structure.scatter_of(rows[labels == k] - mean[k], weights[labels == k]) for k in range(components)]
    return ComponentMoments(count, mean, structure.gather(parts))


# --- Components joined and parted by their moments alone.
#
# A merge adds two components' moments, a split replaces one's by two: what either does to the bound is arithmetic on
# moments and the entropy between two components, without a pass over the data.

P = TypeVar("P", bound=Any)


class SplitMerge(Protocol):
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

"""Where inducing inputs stand: at rows that the others explain least, or spread by k-means++."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.cluster import kmeans_plusplus

from latlin.gp.inducing_model import Basis
from latlin.gp.kernel_gradients import cross, diagonal
from latlin.gp.setting import Setting
from latlin.numerics.arrays import Array

Placement = Literal["conditional-variance", "k-means++"]
#: a conditional variance below this share of the largest prior variance is explained by the inputs that stand already
EXPLAINED = 1e-7
#: rows among which the least explained ones are sought: so many per point, and so many at least
PER_POINT, LEAST = 5, 2000
#: pairs of such rows up to which their kernel is evaluated at once: 128 MiB
PAIRS = 2**24


def place_inputs(how: Placement, setting: Setting, candidates: Array, count: int, rng: np.random.Generator) -> Array:
    """Inducing inputs among some rows, at most `count` of them."""
    distinct = np.unique(candidates, axis=0)
    if len(distinct) <= count:
        return distinct
    if how == "k-means++":
        return _seeded(distinct, count, rng)
    some = max(PER_POINT * count, LEAST)
    if some < len(distinct):
        distinct = distinct[np.sort(rng.permutation(len(distinct))[:some])]
    return distinct[conditional_variance_order(setting.kernel, distinct, count)]


def conditional_variance_order(kernel: Any, candidates: Array, count: int) -> Array:
    """Rows of largest variance given the ones before, greedily (Burt, Rasmussen and van der Wilk, 2019).

    A pivoted Cholesky factorisation of the kernel matrix, of which only the chosen columns are formed; it ends early
    where no row has a variance left.
    """
    left, size = diagonal(kernel, candidates), len(candidates)
    floor, columns, chosen = EXPLAINED * float(left.max()), np.empty((count, size)), []
    # one call for all pairs is quicker than one per chosen row
    pairs = cross(kernel, candidates, candidates) if size**2 <= PAIRS else None
    for m in range(count):
        n = int(np.argmax(left))
        if left[n] <= floor:
            break
        chosen.append(n)
        # column m of the factor: (k_n − Σ_j<m c_j c_j[n]) / √left_n
        own = pairs[n] if pairs is not None else cross(kernel, candidates[n : n + 1], candidates)[0]
        columns[m] = (own - columns[:m, n] @ columns[:m]) / np.sqrt(left[n])
        left = np.maximum(left - columns[m] ** 2, 0.0)
        left[chosen] = 0.0
    return np.array(chosen)


def variance_left(basis: Basis, X: Array) -> Array:
    """The mean variance of some rows given the first inducing input, the first two, and so on."""
    h = basis.rows(X)
    return np.maximum(basis.setting.diagonal(X).mean() - np.cumsum(np.einsum("nm,nm->m", h, h)) / len(X), 0.0)


def _seeded(candidates: Array, count: int, rng: np.random.Generator) -> Array:
    """k-means++ on columns of unit spread."""
    spread = candidates.std(axis=0)
    scaled = (candidates - candidates.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    _, chosen = kmeans_plusplus(scaled, count, random_state=int(rng.integers(2**31)))
    return candidates[chosen]

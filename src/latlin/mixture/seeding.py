"""Where a climb starts: greedy k-means++ centres and the moments of the rows nearest to each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.mixture.kernels import diagonal_joint
from latlin.mixture.model import Mixture
from latlin.mixture.moments import ComponentMoments, of_labels, scaled
from latlin.mixture.priors import FeatureSummary
from latlin.numerics.linalg import Array

#: rows at most that seeds, priors and moves are chosen by
SAMPLE = 50_000


class Sample(NamedTuple):
    """Some rows, completed, in units of the features' spread; moments of them are scaled to all the data."""

    rows: Array
    weights: Array
    units: Array
    scale: float

    def moments(self, mixture: Mixture, labels: NDArray[np.intp], components: int) -> ComponentMoments:
        """Moments of hard labels, scaled to all the data."""
        return scaled(of_labels(mixture.components, self.rows, self.weights, labels, components), self.scale)


def make_sample(rows: Array, weights: Array, total: float, summary: FeatureSummary) -> Sample:
    """Rows that stand for data of the given total weight; missing entries are set to the feature's middle."""
    rows = np.where(np.isnan(rows), summary.middle, rows)
    units = (rows - summary.middle) / np.sqrt(summary.variance)
    return Sample(rows, weights, units, total / weights.sum())


def seed_labels(sample: Sample, components: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Labels of the nearest k-means++ centre, the largest group first."""
    centres = _centres(sample.units, sample.weights, components, rng)
    return by_size(_squares(sample.units, centres).argmin(axis=1), sample.weights, components)


def _centres(units: Array, weights: Array, components: int, rng: np.random.Generator) -> Array:
    """Greedy k-means++: each centre is the best of a few rows drawn by weight times squared distance."""
    trials = 2 + int(np.log(components))
    chosen = [units[_pick(weights, 1, rng)[0]]]
    nearest = _squares(units, chosen[0][None])[:, 0]
    for _ in range(components - 1):
        candidates = units[_pick(weights * nearest, trials, rng)]
        reach = np.minimum(nearest[:, None], _squares(units, candidates))
        best = int((weights @ reach).argmin())
        chosen.append(candidates[best])
        nearest = reach[:, best]
    return np.stack(chosen)


def _pick(mass: Array, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows drawn in proportion to `mass`; the first row when there is none."""
    total = np.cumsum(mass)
    return np.minimum(np.searchsorted(total, rng.random(size) * total[-1], side="right"), len(mass) - 1)


def _squares(units: Array, centres: Array) -> Array:
    """‖x_n − c_k‖² from differences: a far row does not blur the near ones. Shape (N, K)."""
    return -2.0 * diagonal_joint(units, np.zeros(len(centres)), centres, np.ones_like(centres))


def by_size(labels: NDArray[np.intp], weights: Array, components: int) -> NDArray[np.intp]:
    """The same labels renumbered by falling weight (stick-breaking expects large groups first)."""
    order = np.argsort(-np.bincount(labels, weights, minlength=components), kind="stable")
    rank = np.empty(components, dtype=np.intp)
    rank[order] = np.arange(components)
    return rank[labels]

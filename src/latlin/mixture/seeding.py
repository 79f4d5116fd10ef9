"""Where a climb starts: k-means++ centres and the moments of the rows nearest to each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin

from latlin.mixture.model import Data, Mixture
from latlin.mixture.moments import Moments, of_labels, scaled
from latlin.mixture.priors import Summary
from latlin.mixture.sweep import Rows, widen
from latlin.numerics.linalg import Array

SAMPLE = 50_000


class Sample(NamedTuple):
    """Some rows, completed, in units of the features' spread; moments of them are scaled to all the data."""

    rows: Array
    weights: Array
    units: Array
    scale: float

    def moments(self, mixture: Mixture, labels: NDArray[np.intp], components: int) -> Moments:
        """Moments of hard labels, scaled to all the data."""
        return scaled(of_labels(mixture.components, self.rows, self.weights, labels, components), self.scale)


def take_sample(data: Data, summary: Summary) -> Sample:
    """At most 50,000 rows, evenly spaced; missing entries are set to the feature's middle."""
    stride = -(-len(data) // SAMPLE)
    rows = widen(data.values[::stride])
    rows = np.where(np.isnan(rows), summary.middle, rows)
    weights = data.weights[::stride] if data.weights is not None else np.ones(len(rows))
    units = (rows - summary.middle) / np.sqrt(summary.variance)
    return Sample(rows, weights, units, data.total / weights.sum())


def seed_labels(sample: Sample, components: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Labels of the nearest k-means++ centre, the largest group first."""
    seed = int(rng.integers(2**31))
    centres, _ = kmeans_plusplus(sample.units, components, sample_weight=sample.weights, random_state=seed)
    labels = pairwise_distances_argmin(sample.units, centres)
    return by_size(labels, sample.weights, components)


def by_size(labels: NDArray[np.intp], weights: Array, components: int) -> NDArray[np.intp]:
    """The same labels renumbered by falling weight (stick-breaking expects large groups first)."""
    order = np.argsort(-np.bincount(labels, weights, minlength=components), kind="stable")
    rank = np.empty(components, dtype=np.intp)
    rank[order] = np.arange(components)
    return rank[labels]


def as_rows(sample: Sample) -> Rows:
    """The sample as data."""
    return Rows(sample.rows, sample.weights)

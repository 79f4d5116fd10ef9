"""Priors of a mixture from words, with defaults read off the data robustly.

Defaults follow Fraley and Raftery (2007): the prior mean is the middle of the data, worth 0.01 rows; the prior
covariance is that of the data shrunk by K^(2/D), worth D + 2 rows (3 for one variance). Middle and spread are the
weighted median and the quartiles' distance, so that one far row does not set them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.mixture.fixed import KnownCovariance
from latlin.mixture.gamma import DiagonalPrecision, Spherical
from latlin.mixture.kernels import diagonal_joint
from latlin.mixture.model import Mixture
from latlin.mixture.moments import ComponentMoments, gather_moments, scale_moments
from latlin.mixture.wishart import Tied, WishartPrecision
from latlin.numerics.linalg import Array
from latlin.numerics.options import real_array

# --- Where a climb starts: greedy k-means++ centres and the moments of the rows nearest to each.


#: rows at most that seeds, priors and moves are chosen by
SAMPLE = 50_000


class SampledRows(NamedTuple):
    """Some rows, completed, in units of the features' spread; moments of them are scaled to all the data."""

    rows: Array
    weights: Array
    units: Array
    scale: float

    def moments(self, mixture: Mixture, labels: NDArray[np.intp], components: int) -> ComponentMoments:
        """Moments of hard labels, scaled to all the data."""
        return scale_moments(
            gather_moments(mixture.components, self.rows, self.weights, labels, components), self.scale
        )


def make_sample(rows: Array, weights: Array, total: float, summary: FeatureSummary) -> SampledRows:
    """Rows that stand for data of the given total weight; missing entries are set to the feature's middle."""
    rows = np.where(np.isnan(rows), summary.middle, rows)
    units = (rows - summary.middle) / np.sqrt(summary.variance)
    return SampledRows(rows, weights, units, total / weights.sum())


def seed_labels(sample: SampledRows, components: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Labels of the nearest k-means++ centre, the largest group first."""
    centres = _centres(sample.units, sample.weights, components, rng)
    return renumber_by_size(_squares(sample.units, centres).argmin(axis=1), sample.weights, components)


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


def renumber_by_size(labels: NDArray[np.intp], weights: Array, components: int) -> NDArray[np.intp]:
    """The same labels renumbered by falling weight (stick-breaking expects large groups first)."""
    order = np.argsort(-np.bincount(labels, weights, minlength=components), kind="stable")
    rank = np.empty(components, dtype=np.intp)
    rank[order] = np.arange(components)
    return rank[labels]


QUARTILE_RANGE = 1.3489795003921634  # of a standard normal


@dataclass(frozen=True)
class PriorWords:
    """What a user said about the components; None asks for the default."""

    mean: ArrayLike | None
    mean_precision: float
    mean_covariance: ArrayLike | None
    fixed_covariance: ArrayLike
    dof: float | None
    covariance: ArrayLike | None


@dataclass(frozen=True)
class FeatureSummary:
    """Middle and squared spread of each feature, and what the defaults need beside them."""

    middle: Array  # (D,)
    variance: Array  # (D,)
    components: int

    @property
    def dim(self) -> int:
        return len(self.middle)

    @property
    def component_variance(self) -> Array:
        """Spread of one of K components that fill the data's volume."""
        return self.variance / self.components ** (2.0 / self.dim)


def summarise(values: Array, weights: Array, components: int) -> FeatureSummary:
    """Weighted quartiles of each feature, ignoring missing entries."""
    quartiles = np.stack([_quantiles(column, weights) for column in values.T])
    spread = (quartiles[:, 2] - quartiles[:, 0]) / QUARTILE_RANGE
    deviation = np.array([_deviation(column, weights) for column in values.T])
    spread = np.where(spread > 1e-8 * np.abs(quartiles).max(axis=1), spread, deviation)
    floor = np.maximum(1e-3 * spread.max(initial=0.0), 1e-8 * np.abs(quartiles[:, 1]))
    variance = np.square(np.maximum(spread, floor))
    return FeatureSummary(quartiles[:, 1], np.where(variance > 0.0, variance, 1.0), components)


def _quantiles(column: Array, weights: Array) -> Array:
    """Quartiles of the weighted distribution function; a row of weight two counts as two rows."""
    seen = ~np.isnan(column)
    order = np.argsort(column[seen], kind="stable")
    mass = np.cumsum(weights[seen][order])
    index = np.searchsorted(mass, np.array([0.25, 0.5, 0.75]) * mass[-1] * (1.0 - 1e-12))
    return column[seen][order][index]


def _deviation(column: Array, weights: Array) -> float:
    seen = ~np.isnan(column)
    values, own = column[seen], weights[seen]
    return float(np.sqrt(np.average(np.square(values - np.average(values, weights=own)), weights=own)))


def _mean(words: PriorWords, summary: FeatureSummary) -> Array:
    if words.mean is None:
        return summary.middle
    mean = real_array("mean_prior", words.mean)
    if mean.shape != (summary.dim,):
        raise ValueError(f"mean_prior must have shape ({summary.dim},), got shape {mean.shape}")
    return mean


def expand_covariance(value: ArrayLike, dim: int, name: str) -> Array:
    """A positive definite matrix from a scalar, a vector of variances or a matrix."""
    given = real_array(name, value)
    if given.shape not in {(), (dim,), (dim, dim)}:
        raise ValueError(f"{name} must be a scalar, {dim} variances or a {dim}×{dim} matrix, got shape {given.shape}")
    matrix: Array = given if given.ndim == 2 else np.diag(np.broadcast_to(given, dim))
    symmetric = np.allclose(matrix, matrix.T, rtol=1e-10, atol=0.0)
    if not np.isfinite(matrix).all() or not symmetric or np.linalg.eigvalsh(matrix)[0] <= 0.0:
        raise ValueError(f"{name} must be symmetric and positive definite, got {value!r}")
    return matrix


def _dof(words: PriorWords, default: float, lowest: float) -> float:
    dof = default if words.dof is None else float(words.dof)
    if not dof > lowest:
        raise ValueError(f"degrees_of_freedom must be above {lowest:g} for this covariance, got {dof!r}")
    return dof


def _fixed(words: PriorWords, summary: FeatureSummary) -> KnownCovariance:
    covariance = expand_covariance(words.fixed_covariance, summary.dim, "fixed_covariance")
    spread = np.diag(np.maximum(summary.variance, np.diagonal(covariance)))
    given = spread if words.mean_covariance is None else words.mean_covariance
    return KnownCovariance(_mean(words, summary), expand_covariance(given, summary.dim, "mean_covariance"), covariance)


def _wishart(kind: type[WishartPrecision] | type[Tied]) -> Callable[[PriorWords, FeatureSummary], Any]:
    def build(words: PriorWords, summary: FeatureSummary) -> WishartPrecision | Tied:
        given = np.diag(summary.component_variance) if words.covariance is None else words.covariance
        scale = expand_covariance(given, summary.dim, "covariance_prior")
        dof = _dof(words, summary.dim + 2.0, summary.dim - 1.0)
        return kind(_mean(words, summary), words.mean_precision, dof, scale)

    return build


def _diagonal(words: PriorWords, summary: FeatureSummary) -> DiagonalPrecision:
    given = summary.component_variance if words.covariance is None else words.covariance
    scale = np.diagonal(expand_covariance(given, summary.dim, "covariance_prior")).copy()
    return DiagonalPrecision(_mean(words, summary), words.mean_precision, _dof(words, 3.0, 0.0), scale)


def _spherical(words: PriorWords, summary: FeatureSummary) -> Spherical:
    given = summary.component_variance.mean() if words.covariance is None else words.covariance
    scale = real_array("covariance_prior", given)
    if scale.ndim or not scale > 0.0 or not np.isfinite(scale):
        raise ValueError(f"covariance_prior must be a positive number for covariance='spherical', got {given!r}")
    return Spherical(_mean(words, summary), words.mean_precision, _dof(words, 3.0, 0.0), scale)


STRUCTURES: dict[str, Callable[[PriorWords, FeatureSummary], Any]] = {
    "fixed": _fixed,
    "spherical": _spherical,
    "diagonal": _diagonal,
    "full": _wishart(WishartPrecision),
    "tied": _wishart(Tied),
}

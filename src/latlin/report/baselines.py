"""What folds said about rows, as means that add up over blocks, and what is said of rows without their features."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, poisson
from sklearn.base import BaseEstimator, clone

from latlin.numerics.arrays import Array
from latlin.potentials.laplace import AsymmetricLaplace
from latlin.potentials.poisson import Poisson

# --- What the folds said about the rows: means with their errors, which add up over blocks, and some rows one by one.


@dataclass(frozen=True)
class RunningMoments:
    """How many numbers, their mean, and the sum of their squared deviations from it."""

    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, values: Array) -> RunningMoments:
        """
        Examples
        --------
        >>> RunningMoments.of(np.array([1.0, 3.0])) + RunningMoments.of(np.array([5.0]))
        RunningMoments(count=3, mean=3.0, squares=8.0)
        """
        mean = float(np.mean(values)) if len(values) else 0.0
        return cls(len(values), mean, float(np.sum((values - mean) ** 2)))

    def __add__(self, other: RunningMoments) -> RunningMoments:
        count = self.count + other.count
        shift, share = other.mean - self.mean, other.count / max(count, 1)
        return RunningMoments(
            count, self.mean + share * shift, self.squares + other.squares + self.count * share * shift**2
        )

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return math.sqrt(self.squares / (self.count - 1) / self.count)


@dataclass(frozen=True)
class Densities:
    """Log predictive densities of rows; the same without features; the differences, row by row."""

    density: RunningMoments
    baseline: RunningMoments
    gain: RunningMoments

    @classmethod
    def of(cls, density: Array, baseline: Array) -> Densities:
        return cls(RunningMoments.of(density), RunningMoments.of(baseline), RunningMoments.of(density - baseline))

    def __add__(self, other: Densities) -> Densities:
        return Densities(self.density + other.density, self.baseline + other.baseline, self.gain + other.gain)


class HeldOut(NamedTuple):
    """Every row predicted by a model fitted to the other folds.

    Parameters
    ----------
    folds : int
    log : Densities
    y : ndarray of shape (n,)
        Of all rows, or of some evenly chosen ones where there are very many.
    answers : dict of name → ndarray of shape (n, …)
        What the kind of target needs to know of these rows.
    classes : ndarray or None
    unconverged : int
        Folds whose fit did not converge.
    """

    folds: int
    log: Densities
    y: NDArray[Any]
    answers: dict[str, Array]
    classes: Any
    unconverged: int


#: rows from which on the parameters of a family without features are known well: they are not averaged over
KNOWN = 300


class Baseline(Protocol):
    """What was seen of the target of some rows, and of their offsets where they have such."""

    @property
    def count(self) -> int: ...

    def __add__(self, other: Self, /) -> Self: ...

    def log_density(self, y: NDArray[Any], offset: Array | None = None) -> Array: ...


@dataclass(frozen=True)
class FrequencyBaseline:
    """Labels in order, and how often each was seen."""

    classes: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, y: NDArray[Any]) -> FrequencyBaseline:
        return cls(*np.unique(y, return_counts=True))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def __add__(self, other: FrequencyBaseline) -> FrequencyBaseline:
        """
        Examples
        --------
        >>> (FrequencyBaseline.of(np.array(["no", "yes"])) + FrequencyBaseline.of(np.array(["yes"]))).counts.tolist()
        [1, 2]
        """
        classes, place = np.unique(np.concatenate([self.classes, other.classes]), return_inverse=True)
        counts = np.zeros(len(classes), np.int64)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        return FrequencyBaseline(classes, counts)

    def log_density(self, y: NDArray[Any], offset: Array | None = None) -> Array:
        """Log frequencies of the classes, one more of each than there were."""
        count = self.counts + 1.0
        return np.log(count / count.sum())[np.searchsorted(self.classes, y)]


@dataclass(frozen=True)
class NormalBaseline:
    """A normal density with the mean and the variance of the numbers seen, beyond their offsets."""

    seen: RunningMoments

    @classmethod
    def of(cls, y: NDArray[Any], offset: Array | None = None) -> Self:
        return cls(RunningMoments.of(_beyond(y, offset)))

    @property
    def count(self) -> int:
        return self.seen.count

    def __add__(self, other: Self) -> Self:
        return type(self)(self.seen + other.seen)

    def log_density(self, y: NDArray[Any], offset: Array | None = None) -> Array:
        spread = np.sqrt(self.seen.squares / self.seen.count)
        return np.asarray(norm.logpdf(_beyond(y, offset), self.seen.mean, spread))


def _beyond(y: NDArray[Any], offset: Array | None) -> Array:
    return np.asarray(y, float) - (0.0 if offset is None else offset)


@dataclass(frozen=True)
class RateBaseline:
    """Counts with the rate of those seen: their sum over the sum of the exposures e^offset."""

    counts: RunningMoments
    exposure: RunningMoments

    @classmethod
    def of(cls, y: NDArray[Any], offset: Array | None = None) -> RateBaseline:
        return cls(RunningMoments.of(np.asarray(y, float)), RunningMoments.of(_exposure(y, offset)))

    @property
    def count(self) -> int:
        return self.counts.count

    def __add__(self, other: RateBaseline) -> RateBaseline:
        return RateBaseline(self.counts + other.counts, self.exposure + other.exposure)

    def log_density(self, y: NDArray[Any], offset: Array | None = None) -> Array:
        return np.asarray(poisson.logpmf(y, self.counts.mean / self.exposure.mean * _exposure(y, offset)))


def _exposure(y: NDArray[Any], offset: Array | None) -> Array:
    return np.ones(len(y)) if offset is None else np.exp(offset)


@dataclass(frozen=True)
class FittedBaseline:
    """The same family without features, fitted to the observations seen."""

    estimator: BaseEstimator
    y: NDArray[Any]
    offset: Array | None = None

    @property
    def count(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> NDArray[Any]:
        """The labels that were seen, of a target with labels."""
        return np.unique(self.y)

    def __add__(self, other: FittedBaseline) -> FittedBaseline:
        y = np.concatenate([self.y, other.y])
        if self.offset is None or other.offset is None:
            return FittedBaseline(self.estimator, y)
        return FittedBaseline(self.estimator, y, np.concatenate([self.offset, other.offset]))

    def log_density(self, y: NDArray[Any], offset: Array | None = None) -> Array:
        return density_without_features(self.estimator, (self.y, _given(self.offset)), (y, _given(offset)))


def _given(offset: Array | None) -> dict[str, Any]:
    return {} if offset is None else {"offset": offset}


def density_without_features(
    estimator: BaseEstimator, seen: tuple[NDArray[Any], dict[str, Any]], new: tuple[NDArray[Any], dict[str, Any]]
) -> Array:
    """Log predictive density of new observations by the same family without features.

    Parameters
    ----------
    estimator : estimator
        Not fitted here.
    seen, new : (ndarray, dict)
        Observations, and their offsets where they have such: exposures are part of a baseline too.
    """
    (y, more), (others, beside) = seen, new
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # a feature that is the same everywhere, and next to no room for its coefficient
        held: dict[str, Any] = {"prior_scale": 1e-6, "ard": False}
        if len(y) > KNOWN:
            held["hyperparameters"] = "maximise"
        bare = clone(estimator)
        # a user's own family may lack some of these
        bare.set_params(**{name: value for name, value in held.items() if name in bare.get_params()})
        fitted = bare.fit(np.zeros((len(y), 1)), y, **more)
    return np.asarray(fitted.log_predictive_density(np.zeros((len(others), 1)), others, **beside))


def baseline_of(estimator: BaseEstimator) -> Callable[..., Baseline]:
    """What a model without features says: a normal density, Poisson counts, or else the same family."""
    family = estimator.response_family() if hasattr(estimator, "response_family") else None
    if family is None or (family.link == "identity" and quantile_of(estimator) is None):
        return NormalBaseline.of
    return RateBaseline.of if isinstance(family.template, Poisson) else partial(FittedBaseline, estimator)


def quantile_of(estimator: BaseEstimator) -> float | None:
    """The share of rows below what a quantile regression predicts; None of other models."""
    template = estimator.response_family().template if hasattr(estimator, "response_family") else None
    return float(template.quantile) if isinstance(template, AsymmetricLaplace) else None


def baseline_of_labels(estimator: BaseEstimator) -> Callable[..., Baseline]:
    """How often each label was seen; where rows have offsets, the same family."""
    return partial(_seen_labels, estimator)


def _seen_labels(estimator: BaseEstimator, y: NDArray[Any], offset: Array | None = None) -> Baseline:
    return FrequencyBaseline.of(y) if offset is None else FittedBaseline(estimator, y, offset)

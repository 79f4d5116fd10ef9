"""What a model without features says of new rows: learnt from summaries of the target that add up over blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import nbinom, norm, poisson
from sklearn.base import clone

from latlin.numerics.arrays import Array
from latlin.potentials.poisson import Poisson
from latlin.report.held_out import RunningMoments

#: rows from which on the parameters of a family without features are known well: they are not averaged over
KNOWN = 300


class Baseline(Protocol):
    """What was seen of the target of some rows."""

    @property
    def count(self) -> int: ...

    def __add__(self, other: Self, /) -> Self: ...

    def log_density(self, y: NDArray[Any]) -> Array: ...


@dataclass(frozen=True)
class Frequencies:
    """Labels in order, and how often each was seen."""

    classes: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, y: NDArray[Any]) -> Frequencies:
        return cls(*np.unique(y, return_counts=True))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def __add__(self, other: Frequencies) -> Frequencies:
        """
        Examples
        --------
        >>> (Frequencies.of(np.array(["no", "yes"])) + Frequencies.of(np.array(["yes"]))).counts.tolist()
        [1, 2]
        """
        classes, place = np.unique(np.concatenate([self.classes, other.classes]), return_inverse=True)
        counts = np.zeros(len(classes), np.int64)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        return Frequencies(classes, counts)

    def log_density(self, y: NDArray[Any]) -> Array:
        """Log frequencies of the classes, one more of each than there were."""
        count = self.counts + 1.0
        return np.log(count / count.sum())[np.searchsorted(self.classes, y)]


@dataclass(frozen=True)
class Bell:
    """A normal density with the mean and the variance of the numbers seen."""

    seen: RunningMoments

    @classmethod
    def of(cls, y: NDArray[Any]) -> Self:
        return cls(RunningMoments.of(np.asarray(y, float)))

    @property
    def count(self) -> int:
        return self.seen.count

    def __add__(self, other: Self) -> Self:
        return type(self)(self.seen + other.seen)

    def log_density(self, y: NDArray[Any]) -> Array:
        return np.asarray(norm.logpdf(y, self.seen.mean, np.sqrt(self.seen.squares / self.seen.count)))


class ScatteredRate(Bell):
    """Counts with the mean and the variance of those seen: negative binomial, or Poisson where they vary less."""

    def log_density(self, y: NDArray[Any]) -> Array:
        mean, variance = self.seen.mean, self.seen.squares / self.seen.count
        if variance <= mean * (1.0 + 1e-6) or mean <= 0.0:
            return np.asarray(poisson.logpmf(y, mean))
        # variance = mean + mean²/size
        return np.asarray(nbinom.logpmf(y, mean**2 / (variance - mean), mean / variance))


class MeanRate(Bell):
    """Counts with the mean of those seen."""

    def log_density(self, y: NDArray[Any]) -> Array:
        return np.asarray(poisson.logpmf(y, self.seen.mean))


@dataclass(frozen=True)
class Same:
    """The same family without features, fitted to the observations seen."""

    estimator: Any
    y: NDArray[Any]

    @property
    def count(self) -> int:
        return len(self.y)

    def __add__(self, other: Same) -> Same:
        return Same(self.estimator, np.concatenate([self.y, other.y]))

    def log_density(self, y: NDArray[Any]) -> Array:
        return density_without_features(self.estimator, (self.y, {}), (y, {}))


def density_without_features(
    estimator: Any, seen: tuple[NDArray[Any], dict[str, Any]], new: tuple[NDArray[Any], dict[str, Any]]
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


def baseline_of(estimator: Any) -> Callable[[NDArray[Any]], Baseline]:
    """What a model without features says: a normal density, Poisson counts, or else the same family."""
    family = estimator.response_family() if hasattr(estimator, "response_family") else None
    if family is None or family.link == "identity":
        return Bell.of
    return MeanRate.of if isinstance(family.template, Poisson) else partial(Same, estimator)

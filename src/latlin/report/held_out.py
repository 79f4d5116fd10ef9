"""What the folds said about the rows: means with their errors, which add up over blocks, and some rows one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array


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

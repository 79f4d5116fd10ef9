"""What a column of a mixed table should be, given the latents: mean and spread, or probabilities of its levels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from latlin.factor.mixed.columns import Column
from latlin.factor.mixed.sites import TYPES, family_of
from latlin.numerics.arrays import Array


class Prediction(NamedTuple):
    """Means and standard deviations (n,) of a number, or probabilities (n, levels); the other pair is empty."""

    mean: Array
    std: Array
    probabilities: Array

    def merged(self, column: Column, encoded: Array) -> tuple[NDArray[Any], Array]:
        """The column's values and certainty: as observed where it was, as predicted (this) in the gaps."""
        gap = np.isnan(encoded[:, 0])
        if not column.levels:
            values, std = encoded[:, 0] * column.scale + column.centre, np.zeros(len(gap))
            values[gap], std[gap] = self.mean, self.std
            return values, std
        codes = _codes(column, encoded)
        probabilities = (codes[:, None] == np.arange(len(column.levels))).astype(np.float64)
        probabilities[gap] = self.probabilities
        return labels(column)[probabilities.argmax(axis=1)], probabilities


def labels(column: Column) -> NDArray[Any]:
    """The levels as an array: of floats when they are numbers."""
    numeric = all(isinstance(level, bool | int | float | np.number | np.bool_) for level in column.levels)
    levels = np.empty(len(column.levels), dtype=object)
    levels[:] = column.levels
    return levels.astype(np.float64) if numeric else levels


def _codes(column: Column, encoded: Array) -> Array:
    """0 … L−1 of every row, whatever where it is missing."""
    return encoded.argmax(axis=1).astype(np.float64) if column.kind == "categorical" else encoded[:, 0]


def predict_column(column: Column, m: Array, v: Array, values: dict[str, Any]) -> Prediction:
    """The predictive distribution of a column whose η are N(m, v), each of shape (n, width)."""
    none = np.zeros(0)
    found: Any = family_of(TYPES[column.kind]).kind(values).predictive(m.ravel(), v.ravel())
    if not column.levels:
        return Prediction(found.mean * column.scale + column.centre, np.sqrt(found.variance) * column.scale, none)
    if column.kind != "categorical":
        return Prediction(none, none, found.probabilities)
    # one against the rest: the levels' probabilities need not add up, so they are made to
    ones = found.probabilities[:, 1].reshape(m.shape)
    return Prediction(none, none, ones / ones.sum(axis=1, keepdims=True))


def draw_column(column: Column, eta: Array, values: dict[str, Any], rng: np.random.Generator) -> NDArray[Any]:
    """One draw per row of a column whose η, of shape (n, width), are known."""
    if column.kind == "categorical":
        share = np.cumsum(expit(eta) / expit(eta).sum(axis=1, keepdims=True), axis=1)
        return labels(column)[(share[:, :-1] < rng.random((len(eta), 1))).sum(axis=1)]
    drawn = family_of(TYPES[column.kind]).kind(values).sample(eta[:, 0], rng)
    if not column.levels:
        return drawn * column.scale + column.centre
    return labels(column)[np.maximum(drawn, 0.0).astype(int)]

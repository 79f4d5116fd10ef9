"""What a column of a mixed table should be, given the latents: mean and spread, or probabilities of its levels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from latlin.factor.mixed.columns import Column
from latlin.numerics.linalg import Array
from latlin.potentials import Logit, Ordinal, Poisson


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


def predict_column(column: Column, m: Array, v: Array, noise: float, cuts: Array) -> Prediction:
    """The predictive distribution of a column whose η are N(m, v), each of shape (n, width)."""
    none = np.zeros(0)
    found: Any
    if column.kind == "real":
        std = np.sqrt(v[:, 0] + noise) * column.scale
        return Prediction(m[:, 0] * column.scale + column.centre, std, none)
    if column.kind == "count":
        found = Poisson(0).predictive(m[:, 0], v[:, 0])
        return Prediction(found.mean, np.sqrt(found.variance), none)
    if column.kind == "ordinal":
        inner = cuts[np.isfinite(cuts)]
        found = Ordinal(0, inner, link="logit").predictive(m[:, 0], v[:, 0])
        return Prediction(none, none, found.probabilities)
    found = Logit(1).predictive(m.ravel(), v.ravel())
    ones = found.probabilities[:, 1].reshape(m.shape)
    if column.kind == "binary":
        return Prediction(none, none, np.column_stack([1.0 - ones[:, 0], ones[:, 0]]))
    # one against the rest: the levels' probabilities need not add up, so they are made to
    return Prediction(none, none, ones / ones.sum(axis=1, keepdims=True))


def draw_column(column: Column, eta: Array, noise: float, cuts: Array, rng: np.random.Generator) -> NDArray[Any]:
    """One draw a row of a column whose η, of shape (n, width), are known."""
    first = eta[:, 0]
    if column.kind == "real":
        return (first + np.sqrt(noise) * rng.standard_normal(len(eta))) * column.scale + column.centre
    if column.kind == "count":
        return rng.poisson(np.exp(np.minimum(first, 40.0))).astype(np.float64)
    if column.kind == "categorical":
        share = np.cumsum(expit(eta) / expit(eta).sum(axis=1, keepdims=True), axis=1)
        return labels(column)[(share[:, :-1] < rng.random((len(eta), 1))).sum(axis=1)]
    # binary and ordinal: the interval that η plus logistic noise falls into
    inner = cuts[np.isfinite(cuts)] if column.kind == "ordinal" else np.zeros(1)
    return labels(column)[np.digitize(first + rng.logistic(size=len(eta)), inner)]

"""Proper scores: what a forecaster minimises only by saying what it believes. Smaller is better, one number a case."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array, number


def log_score(y: ArrayLike, probability: ArrayLike) -> Array:
    """−log of the probability of the class that happened.

    Parameters
    ----------
    y : array of shape (n,)
        Classes 0 … K−1; for two classes given by one probability, 0 or 1.
    probability : array of shape (n, K), or (n,) for the probability of class 1

    Examples
    --------
    >>> log_score([1, 0], [0.5, 0.5]).round(4).tolist()
    [0.6931, 0.6931]
    """
    index, p = _classes(y, probability)
    with np.errstate(divide="ignore"):
        return -np.log(np.take_along_axis(p, index[:, None], axis=1)[:, 0])


def brier_score(y: ArrayLike, probability: ArrayLike) -> Array:
    """Σ_k (p_k − [y = k])²; for two classes twice the squared error of the probability of class 1.

    Examples
    --------
    >>> brier_score([1, 0], [1.0, 0.5]).tolist()
    [0.0, 0.5]
    """
    index, p = _classes(y, probability)
    happened = np.eye(p.shape[1])[index]
    return np.sum((p - happened) ** 2, axis=1)


def crps_normal(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Array:
    """Continuous ranked probability score of a normal forecast, in the units of y.

    With z = (y − mean)/std: std·[z(2Φ(z) − 1) + 2φ(z) − 1/√π] (Gneiting and Raftery, 2007).

    Examples
    --------
    >>> float(crps_normal(0.0, 0.0, 1.0).round(4))
    0.2337
    """
    y, mean, std = together(y=y, mean=mean, std=std)
    if np.any(std < 0.0):
        raise ValueError(f"std must not be negative, got {std.min():g}")
    some = np.where(std > 0.0, std, 1.0)
    z = (y - mean) / some
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    spread = some * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
    return np.where(std > 0.0, spread, np.abs(y - mean))


def crps_draws(y: ArrayLike, draws: ArrayLike) -> Array:
    """Continuous ranked probability score from draws of the forecast, ⟨|X − y|⟩ − ½⟨|X − X′|⟩, without bias.

    Parameters
    ----------
    y : array of shape (n,)
    draws : array of shape (m, n)
        At least two per case.
    """
    y, x = float_array("y", y), float_array("draws", draws)
    m = len(x) if x.ndim else 0
    if m < 2 or x.shape[1:] != y.shape:
        raise ValueError(f"draws must have shape (m, {y.size}), as y, with m of at least 2, got {x.shape}")
    x = np.sort(x, axis=0)
    # Σ_{i<j} (x_j − x_i) of sorted draws = Σ_i (2i − m + 1) x_i
    pairs = np.tensordot(2.0 * np.arange(m) - m + 1.0, x, axes=1)
    return np.abs(x - y).mean(axis=0) - pairs / (m * (m - 1))


def interval_score(y: ArrayLike, low: ArrayLike, high: ArrayLike, coverage: float) -> Array:
    """Width of a central interval plus 2/α for every unit by which y lies outside, α = 1 − coverage.

    Examples
    --------
    >>> interval_score([0.0, 2.0], -1.0, 1.0, coverage=0.9).round(6).tolist()
    [2.0, 22.0]
    """
    coverage = number("coverage", coverage, above=0.0, below=1.0)
    y, low, high = together(y=y, low=low, high=high)
    if np.any(low > high):
        raise ValueError("low must not exceed high")
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return high - low + 2.0 / (1.0 - coverage) * outside


def together(**values: ArrayLike) -> tuple[Array, ...]:
    """Arrays of numbers that can be taken entry by entry."""
    arrays = {name: float_array(name, value) for name, value in values.items()}
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"the shapes do not go together: {shapes}") from None
    return tuple(arrays.values())


def _classes(y: ArrayLike, probability: ArrayLike) -> tuple[NDArray[np.int64], Array]:
    p, seen = float_array("probability", probability), float_array("y", y)
    p = np.column_stack([1.0 - p, p]) if p.ndim == 1 else p
    index = np.where(np.isfinite(seen), seen, -1.0).astype(np.int64)
    if p.ndim != 2 or index.shape != p.shape[:1]:
        raise ValueError(f"y of shape {index.shape} and probability of shape {p.shape} do not go together")
    if not np.all((p >= 0.0) & (p <= 1.0)) or np.any(np.abs(p.sum(axis=1) - 1.0) > 1e-6):
        raise ValueError("probability must lie in [0, 1] and sum to one over classes")
    if np.any(index != seen) or np.any((index < 0) | (index >= p.shape[1])):
        raise ValueError(f"y must hold classes 0 … {p.shape[1] - 1}")
    return index, p

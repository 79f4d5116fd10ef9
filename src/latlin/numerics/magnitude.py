"""Data whose squares can be summed: variances of larger numbers overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

#: its square, times as many rows as there can be, is a number
LARGEST = 1e140
#: its square is a number of full accuracy
SMALLEST = 1e-140
#: rows, copies included, beyond which a count loses its units
MOST_ROWS = 1e15


def summable(name: str, values: Any) -> Any:
    """`values` (an array, NaN allowed, or a sparse matrix) as they are, or a ValueError if one of them is too large.

    Examples
    --------
    >>> summable("y", np.array([1e150]))
    Traceback (most recent call last):
        ...
    ValueError: y must hold numbers of at most 1e+140 in size, got 1e+150: change its units
    """
    numbers = np.asarray(values.data if sparse.issparse(values) else values)
    if numbers.size and numbers.dtype == np.float64:
        size = max(np.fmax.reduce(numbers, axis=None), -np.fmin.reduce(numbers, axis=None))
        if size > LARGEST:
            raise ValueError(f"{name} must hold numbers of at most {LARGEST:g} in size, got {size:g}: change its units")
    return values


def measurable(name: str, values: Any) -> Any:
    """`values` as `summable` has them, and not all of them so small that their squares vanish.

    Examples
    --------
    >>> measurable("y", np.array([1e-300, 0.0]))
    Traceback (most recent call last):
        ...
    ValueError: y must hold a number of at least 1e-140 in size, or only zeros, got at most 1e-300: change its units
    """
    numbers = np.asarray(summable(name, values))
    if numbers.size and numbers.dtype.kind == "f":
        size = float(np.abs(numbers).max())
        if 0.0 < size < SMALLEST:
            raise ValueError(
                f"{name} must hold a number of at least {SMALLEST:g} in size, or only zeros, got at most {size:g}: "
                "change its units"
            )
    return values


def countable(name: str, weights: Any) -> Any:
    """Weights, if no more rows than a number can count are meant.

    Examples
    --------
    >>> countable("sample_weight", np.array([1e30]))
    Traceback (most recent call last):
        ...
    ValueError: sample_weight must add up to at most 1e+15 rows, got 1e+30: divide by a constant
    """
    total = float(np.sum(weights))
    if total > MOST_ROWS:
        raise ValueError(f"{name} must add up to at most {MOST_ROWS:g} rows, got {total:g}: divide by a constant")
    return weights

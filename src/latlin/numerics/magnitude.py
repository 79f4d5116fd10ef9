"""Data whose squares can be summed: variances of larger numbers overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

#: its square, times as many rows as there can be, is a number
LARGEST = 1e140


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

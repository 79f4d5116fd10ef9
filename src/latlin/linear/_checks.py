"""Arguments that come with the rows: weights and offsets."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.magnitude import summable
from latlin.numerics.visible import visible


def weights(value: Any, count: int) -> Array | None:
    """Non-negative exponents, one a row, not all zero; None stays None."""
    if value is None:
        return None
    array = np.asarray(visible("sample_weight", value), float)
    if array.ndim == 0:
        array = np.full(count, float(array))
    if array.shape != (count,):
        raise ValueError(f"sample_weight must have shape ({count},), one number a row, got shape {array.shape}")
    good = np.isfinite(array) & (array >= 0.0)
    if not np.all(good):
        raise ValueError(f"sample_weight must be finite and not negative, got {array[~good][0]:g}")
    if not np.any(array > 0.0):
        raise ValueError("sample_weight is zero everywhere: there is nothing to learn from")
    return np.asarray(summable("sample_weight", array))


def offsets(value: Any, count: int, width: int = 1) -> Array | None:
    """One number a row, or one a row and class; None stays None."""
    if value is None:
        return None
    array = np.asarray(visible("offset", value), float)
    if array.ndim == 0:
        array = np.full(count, float(array))
    allowed = {(count,)} | ({(count, width)} if width > 1 else set())
    if array.shape not in allowed:
        raise ValueError(f"offset must have shape {' or '.join(map(str, sorted(allowed)))}, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"offset must be finite, got {array[~np.isfinite(array)][0]:g}")
    return np.asarray(summable("offset", array))


def column(offset: Array | None, index: int) -> Array | None:
    """The offsets of one class."""
    return offset[:, index] if offset is not None and offset.ndim == 2 else offset

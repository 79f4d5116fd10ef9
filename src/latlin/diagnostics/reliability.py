"""Do events that were given probability p happen with frequency p? The reliability curve, with its uncertainty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array, whole


class ReliabilityCurve(NamedTuple):
    """Groups of about equal size, in rising order of what was predicted; every field one number per group."""

    predicted: Array
    observed: Array
    low: Array
    high: Array
    size: NDArray[np.int64]


def reliability_curve(happened: ArrayLike, probability: ArrayLike, *, bins: int = 10) -> ReliabilityCurve:
    """Mean predicted probability against observed frequency.

    Parameters
    ----------
    happened : array of shape (n,)
        0 or 1 (or bool).
    probability : array of shape (n,)
        What was predicted, in [0, 1].
    bins : int
        Groups at most. Equal probabilities are never put into different groups.

    Returns
    -------
    ReliabilityCurve
        `low` and `high` are the 90 % interval of the frequency under Jeffreys' prior, Beta(½, ½).

    Examples
    --------
    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.1, 0.9, 0.9], bins=2)
    >>> curve.predicted.tolist(), curve.observed.tolist()
    ([0.1, 0.9], [0.0, 1.0])
    """
    y, p = float_array("happened", happened), float_array("probability", probability)
    bins = whole("bins", bins, 1)
    if y.shape != p.shape or y.ndim != 1 or not y.size:
        raise ValueError(f"happened and probability must be vectors of one length, got shapes {y.shape} and {p.shape}")
    if not (np.all(np.isin(y, (0.0, 1.0))) and np.all((p >= 0.0) & (p <= 1.0))):
        raise ValueError("happened must hold 0 and 1, probability numbers in [0, 1]")
    edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
    group = np.searchsorted(edges, p, side="left")
    count = np.bincount(group)
    used = count > 0
    hits, total, count = (np.bincount(group, y)[used], np.bincount(group, p)[used], count[used])
    # Beta(k + ½, n − k + ½), with the ends closed where no other outcome was seen
    low = np.where(hits > 0, betaincinv(hits + 0.5, count - hits + 0.5, 0.05), 0.0)
    high = np.where(hits < count, betaincinv(hits + 0.5, count - hits + 0.5, 0.95), 1.0)
    return ReliabilityCurve(total / count, hits / count, low, high, count)

"""The logistic problems of Challis (2013), §5.2: correlated covariates, weights and labels from the model.

w ~ N(0, I); covariates standard normal, mixed by the identity plus one standard normal entry per row, scaled to unit
variance; labels y = ±1 with probability σ(y wᵀx). The text does not say whether labels are drawn from the covariates
as they are after the scaling (here, unless given) or before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.options import whole
from latlin.numerics.rng import RandomState, generator


class LabelledRows(NamedTuple):
    """Rows and labels in {−1, +1} to learn from and to be tested on, and the weights that made the labels."""

    x: Array
    y: NDArray[np.int_]
    new_x: Array
    new_y: NDArray[np.int_]
    weights: Array


def correlated_logistic(
    dim: int, n_train: int, n_test: int, random_state: RandomState = None, labels_first: bool = False
) -> LabelledRows:
    """A problem with `dim` covariates; `labels_first` draws the labels before the covariates are scaled.

    Examples
    --------
    >>> problem = correlated_logistic(5, 20, 100, random_state=0)
    >>> problem.x.shape, problem.new_y.shape, sorted(set(problem.y.tolist()))
    ((20, 5), (100,), [-1, 1])
    """
    dim, n_train, n_test = whole("dim", dim, 1), whole("n_train", n_train, 1), whole("n_test", n_test)
    rng = generator(random_state)
    w = rng.standard_normal(dim)
    mixing = np.eye(dim)
    mixing[np.arange(dim), rng.integers(0, dim, dim)] += rng.standard_normal(dim)
    x = rng.standard_normal((n_train + n_test, dim)) @ mixing.T
    scale = x.std(axis=0)
    x /= scale
    logits = x @ (w * scale if labels_first else w)
    y = np.where(rng.random(n_train + n_test) < 1.0 / (1.0 + np.exp(-logits)), 1, -1)
    return LabelledRows(x[:n_train], y[:n_train], x[n_train:], y[n_train:], w)

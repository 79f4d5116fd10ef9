"""Ten posteriors of real data, as plain arrays, for `accuracy.py` and the long runs that it is compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.datasets.bundled import load_dataset

Array = NDArray[np.float64]


class Problem(NamedTuple):
    """Rows, observations, the family with its shape and scale, and a prior: N(0, cov), or Laplace(0, scale)."""

    family: str
    X: Array | None
    y: Array
    cov: Any = None
    laplace: float | None = None
    scale: float = 1.0
    df: float = 4.0

    @property
    def dim(self) -> int:
        return len(self.y) if self.X is None else self.X.shape[1]


def _standard(x: Array) -> Array:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def _rows(name: str, count: int | None, seed: int = 0) -> tuple[Array, Array]:
    """Some rows, features standardised, a column of ones last."""
    data = load_dataset(name)
    index = np.random.default_rng(seed).permutation(len(data.y))[:count]
    X = _standard(data.X[index][:, data.X[index].std(axis=0) > 0.0])
    return np.column_stack([X, np.ones(len(X))]), data.y[index]


def _signs(y: Array, least: float) -> Array:
    return np.where(y >= least, 1.0, -1.0)


def _process() -> Problem:
    X, y = _rows("breast-cancer", 60)
    points = X[:, :2]
    squares = np.sum((points[:, None] - points) ** 2, axis=2)
    kernel = 4.0 * np.exp(-0.5 * squares) + 1e-6 * np.eye(60)
    return Problem("logit", None, _signs(y, 1.0), cov=kernel)


def problems() -> dict[str, Problem]:
    """Short name → problem."""
    found = {}
    X, y = _rows("breast-cancer", None)
    found["logistic-569x31"] = Problem("logit", X, _signs(y, 1.0), cov=1.0)
    X, y = _rows("breast-cancer", 40)
    found["logistic-40x31"] = Problem("logit", X, _signs(y, 1.0), cov=1.0)
    X, y = _rows("wine", 200)
    found["probit-200x12"] = Problem("probit", X, _signs(y, 6.0), cov=1.0)
    X, y = _rows("wine", 15, seed=1)
    found["probit-15x12"] = Problem("probit", X, _signs(y, 6.0), cov=4.0)
    X, y = _rows("doctor-visits", 300)
    found["poisson-300x10"] = Problem("poisson", X, y, cov=1.0)
    X, y = _rows("doctor-visits", 12, seed=2)
    found["poisson-12x10"] = Problem("poisson", X, y, cov=1.0)
    X, y = _rows("concrete", 200)
    found["robust-200x9"] = Problem("student", X, _standard(y), cov=1.0, scale=0.4, df=4.0)
    X, y = _rows("diabetes", 12)
    found["robust-12x11"] = Problem("student", X, _standard(y), cov=1.0, scale=0.4, df=3.0)
    X, y = _rows("diabetes", None)
    found["sparse-442x11"] = Problem("gaussian", X, _standard(y), laplace=0.2, scale=0.7)
    X, y = _rows("diabetes", 8, seed=3)
    found["sparse-8x11"] = Problem("gaussian", X, _standard(y), laplace=0.5, scale=0.5)
    found["process-60"] = _process()
    return found

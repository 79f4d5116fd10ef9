"""The data of a mixture, and compiled passes over it in slices of rows spread over threads.

Slices have a fixed length and are added in order, so a result does not depend on the number of threads. Rows
may be float32: a slice is widened when its turn comes, so memory stays that of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.incomplete_kernels import incomplete_pass
from latlin.numerics.linalg import Array
from latlin.numerics.mixture_kernels import thread_count

SLICE = 8192

Totals = tuple[float, Array, Array, Array]


@dataclass(frozen=True)
class Rows:
    """N complete rows and their weights."""

    values: NDArray[Any]
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(len(self)) if self.weights is None else float(self.weights.sum())

    def weights_of(self, part: slice) -> Array:
        """Weights of a slice of rows, ones where there are none."""
        if self.weights is None:
            return np.ones(len(range(*part.indices(len(self)))))
        return self.weights[part]

    def take(self, index: NDArray[np.intp], scale: float = 1.0) -> Rows:
        """Some of the rows, their weights multiplied by `scale`."""
        own = np.ones(len(index)) if self.weights is None else self.weights[index]
        return Rows(self.values[index], scale * own)

    def reduce(
        self,
        kernel: Callable[..., Totals],
        parameters: tuple[Array, ...],
        change: tuple[Array, Array] | None = None,
    ) -> Totals:
        """Sum of `kernel(rows, weights, *parameters)` over slices; `change` = (F, c) makes each row F(x − c) first."""

        def run(part: slice) -> Totals:
            values = widen(self.values[part])
            rows = values if change is None else mapped(values, *change)
            return kernel(rows, self.weights_of(part), *parameters)

        return _add(_spread(run, len(self)))

    def collect(self, structure: Any, params: Any, log_weights: Array) -> tuple[float, Any]:
        """Σ_n w_n log Σ_k ρ_nk and the moments under the optimal responsibilities."""
        return structure.collect(self, params, log_weights)


@dataclass(frozen=True)
class IncompleteRows:
    """N rows with missing entries (NaN), sorted by which entries are missing."""

    values: Array
    weights: Array
    patterns: NDArray[np.bool_]
    labels: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    def collect(self, structure: Any, params: Any, log_weights: Array) -> tuple[float, Any]:
        """Σ_n w_n log Σ_k ρ_nk and the expected moments, the missing entries integrated out."""
        offset = structure.offsets(params) + log_weights
        precision = structure.precisions(params)

        def run(part: slice) -> Totals:
            rows, weights, labels = self.values[part], self.weights[part], self.labels[part]
            return incomplete_pass(rows, weights, self.patterns, labels, offset, params.mean, precision)

        sum_log, count, first, second = _add(_spread(run, len(self)))
        return sum_log, structure.from_products(params.mean, count, first, second)


def make_rows(values: NDArray[Any], weights: Array | None) -> Rows | IncompleteRows:
    """Wrap data, sorting rows with missing entries by pattern."""
    if not any(np.isnan(values[part]).any() for part in slices(len(values))):
        return Rows(values, weights)
    missing = np.isnan(values)
    patterns, labels = np.unique(missing, axis=0, return_inverse=True)
    order = np.argsort(labels.ravel(), kind="stable")
    own = np.ones(len(values)) if weights is None else weights
    return IncompleteRows(widen(values[order]), own[order], patterns, labels.ravel()[order])


def widen(values: NDArray[Any]) -> Array:
    """float64 and C-ordered, a copy only where needed."""
    return np.ascontiguousarray(values, dtype=np.float64)


def mapped(values: Array, factor: Array, origin: Array) -> Array:
    """F(x − c) of every row x; the origin is taken off first, so that far data keep their digits."""
    return np.ascontiguousarray((values - origin) @ factor.T)


def slices(n: int, size: int = SLICE) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _spread(run: Callable[[slice], Totals], n: int) -> Iterator[Totals]:
    threads = min(thread_count(), -(-n // SLICE))
    if threads < 2:
        yield from map(run, slices(n))
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(run, slices(n))


def _add(parts: Iterator[Totals]) -> Totals:
    sum_log, count, first, second = next(parts)
    for part in parts:
        sum_log += part[0]
        count += part[1]
        first += part[2]
        second += part[3]
    return sum_log, count, first, second

"""The data of a mixture, what covariance structures do with them, and compiled passes in slices of rows.

Slices have a fixed length and are added in order, so a result does not depend on the number of threads. Rows
may be float32: a slice is widened when its turn comes, so memory stays that of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from latlin.mixture.kernels import incomplete_pass
from latlin.mixture.moments import ComponentMoments, SecondMoments, SplitMerge
from latlin.numerics.linalg import Array
from latlin.numerics.threads import thread_count

SLICE = 8192

T = TypeVar("T")
Totals = tuple[float, Array, Array, Array]
#: rows in double or single precision
FloatRows = NDArray[np.float64] | NDArray[np.float32]


class ComponentParams(Protocol):
    """Of q(θ) = Π_k q(θ_k), what all forms of covariances have: the means."""

    @property
    def mean(self) -> Array: ...


class ReducibleRows(Protocol):
    """Complete rows, in memory or in blocks, as far as a pass over all of them goes."""

    def reduce(
        self, kernel: Callable[..., Totals], parameters: tuple[Array, ...], change: tuple[Array, Array] | None = None
    ) -> Totals:
        """Sum of `kernel(rows, weights, *parameters)`; `change` = (F, c) makes each row F(x − c) first."""


Params = TypeVar("Params", bound=ComponentParams)


class CovarianceStructure(SecondMoments, Protocol[Params]):
    """A prior of the components, by the form of their covariances; `Params` are those of q(θ) = Π_k q(θ_k)."""

    @property
    def dim(self) -> int: ...

    @property
    def split_merge(self) -> SplitMerge:
        """How components are merged and split."""

    def posterior(self, moments: ComponentMoments) -> Params:
        """The optimal q(θ) given the moments of the rows that each component answers for."""

    def offsets(self, params: Params) -> Array:
        """E ln N(x|θ_k) where x is the mean of component k."""

    def squares(self, params: Params, second: Array) -> float:
        """Σ_k tr(E[Λ_k] second_k)."""

    def kl(self, params: Params) -> float:
        """KL(q(θ) ‖ p(θ))."""

    def best_factor(self, params: Params, used: NDArray[np.bool_]) -> float:
        """The t that gives t times the prior covariance the highest bound at q, by the components in use."""

    def with_factor(self, factor: float) -> Self:
        """The same with so many times the prior covariance."""

    def collect(self, rows: ReducibleRows, params: Params, log_weights: Array) -> tuple[float, ComponentMoments]:
        """Σ_n w_n log Σ_k ρ_nk and the moments under the optimal responsibilities."""

    def from_products(self, reference: Array, count: Array, first: Array, second: Array) -> ComponentMoments:
        """Moments from Σ r, Σ r(x − c) and Σ r(x − c)(x − c)ᵀ about reference points c, full matrices."""

    def precisions(self, params: Params) -> Array:
        """E[Λ_k], (K, D, D)."""

    def covariances(self, params: Params) -> Array:
        """Covariances that describe the components, in the form of the structure."""

    def joint(self, rows: Array, params: Params, log_weights: Array) -> Array:
        """ln ρ_nk, (N, K)."""

    def predictive(self, rows: Array, params: Params) -> Array:
        """ln of the density of new rows under each component, its parameters integrated out."""

    def draw(self, params: Params, labels: Array, rng: np.random.Generator) -> Array:
        """One new row per label."""

    def draw_parameters(self, params: Params, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Means and covariances drawn from q(θ)."""

    def restrict(self, params: Params, kept: NDArray[np.bool_]) -> tuple[Self, Params]:
        """The structure and the parameters of some of the columns."""


@dataclass(frozen=True)
class CompleteRows:
    """N complete rows, their weights, and where batches prefer some of them, the chances of each (of sum one)."""

    values: FloatRows
    weights: Array | None = None
    chances: Array | None = None

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

    def every(self, stride: int) -> tuple[Array, Array]:
        """Rows 0, stride, 2·stride … and their weights."""
        rows = widen(self.values[::stride])
        return rows, np.ones(len(rows)) if self.weights is None else self.weights[::stride]

    def take(self, index: NDArray[np.intp], scale: float | Array = 1.0) -> CompleteRows:
        """Some of the rows, their weights multiplied by `scale`."""
        own = np.ones(len(index)) if self.weights is None else self.weights[index]
        return CompleteRows(self.values[index], scale * own)

    def batch(self, size: int, rng: np.random.Generator, whole: int | None = None) -> CompleteRows:
        """Rows drawn without replacement, weighted by N/S so that sums over them are unbiased for all N = `whole`."""
        size = min(size, len(self))
        rows = len(self) if whole is None else whole
        if self.chances is not None:
            chosen, included = draw_unequal(self.chances, size, rng)
            return self.take(chosen, rows / len(self) / included)
        chosen = rng.choice(len(self), size, replace=False, shuffle=False)
        return self.take(chosen, rows / size)

    def walk(
        self, advance: Callable[[T, CompleteRows], T], state: T, steps: int, size: int, rng: np.random.Generator
    ) -> T:
        """`state = advance(state, batch)` for `steps` batches."""
        for _ in range(steps):
            state = advance(state, self.batch(size, rng))
        return state

    def reduce(
        self,
        kernel: Callable[..., Totals],
        parameters: tuple[Array, ...],
        change: tuple[Array, Array] | None = None,
    ) -> Totals:
        """Sum of `kernel(rows, weights, *parameters)` over slices; `change` = (F, c) makes each row F(x − c) first."""

        def run(part: slice) -> Totals:
            values = widen(self.values[part])
            rows = values if change is None else map_rows(values, *change)
            return kernel(rows, self.weights_of(part), *parameters)

        return add_totals(_spread(run, len(self)))

    def collect(
        self, structure: CovarianceStructure[Params], params: Params, log_weights: Array
    ) -> tuple[float, ComponentMoments]:
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

    def every(self, stride: int) -> tuple[Array, Array]:
        """Rows 0, stride, 2·stride … and their weights."""
        return self.values[::stride], self.weights[::stride]

    def products(self, offset: Array, mean: Array, precision: Array) -> Totals:
        """Σ_n w_n log Σ_k ρ_nk, and expected counts and moments about `mean`, the missing entries integrated out."""

        def run(part: slice) -> Totals:
            rows, weights, labels = self.values[part], self.weights[part], self.labels[part]
            return incomplete_pass(rows, weights, self.patterns, labels, offset, mean, precision)

        return add_totals(_spread(run, len(self)))

    def collect(
        self, structure: CovarianceStructure[Params], params: Params, log_weights: Array
    ) -> tuple[float, ComponentMoments]:
        """Σ_n w_n log Σ_k ρ_nk and the moments under the optimal responsibilities."""
        offset = structure.offsets(params) + log_weights
        sum_log, count, first, second = self.products(offset, params.mean, structure.precisions(params))
        return sum_log, structure.from_products(params.mean, count, first, second)


def active_chances(values: FloatRows) -> Array:
    """Half the same for all rows, half by squared distance from the mean in units of the columns' spread.

    Those are the sizes of what a row adds to sums of squares, and sums by Horvitz and Thompson (1952) vary least when
    rows are drawn in proportion to what they add.
    """
    rows = widen(values)
    spread = rows.std(axis=0)
    square = (((rows - rows.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)) ** 2).sum(axis=1)
    # where all rows are alike, all chances are
    square = square if square.any() else np.ones(len(rows))
    return np.asarray(0.5 / len(rows) + 0.5 * square / square.sum())


def draw_unequal(chances: Array, size: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Array]:
    """Rows without replacement and their probabilities of being in the batch, by a systematic draw in random order.

    Row n is in with π_n = min(1, c·chance_n), c such that Σπ = size, so that Σ f/π is unbiased for a sum over all rows.
    """
    included = np.minimum(size * chances / chances.sum(), 1.0)
    for _ in range(len(chances)):
        sure = included >= 1.0
        left = size - int(sure.sum())
        raised = np.where(sure, 1.0, np.minimum(chances * left / max(float(chances[~sure].sum()), 1e-300), 1.0))
        if np.array_equal(raised >= 1.0, sure):
            included = raised
            break
        included = raised
    order = rng.permutation(len(chances))
    steps = np.floor(np.cumsum(included[order]) - rng.random())
    chosen = order[np.diff(steps, prepend=-1.0) > 0.5]
    return chosen, included[chosen]


def make_rows(values: FloatRows, weights: Array | None) -> CompleteRows | IncompleteRows:
    """Wrap data, sorting rows with missing entries by pattern."""
    if not any(np.isnan(values[part]).any() for part in slices(len(values))):
        return CompleteRows(values, weights)
    return incomplete_rows(values, np.ones(len(values)) if weights is None else weights)


def incomplete_rows(values: FloatRows, weights: Array) -> IncompleteRows:
    """Rows sorted by pattern."""
    order, patterns, labels = sort_by_pattern(np.isnan(values))
    return IncompleteRows(widen(values[order]), weights[order], patterns, labels)


def sort_by_pattern(missing: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.intp]]:
    """The order that puts rows with the same pattern together, the patterns, and the sorted rows' labels."""
    patterns, labels = np.unique(missing, axis=0, return_inverse=True)
    order = np.argsort(labels.ravel(), kind="stable")
    return order, patterns, labels.ravel()[order]


def widen(values: FloatRows) -> Array:
    """float64 and C-ordered, a copy only where needed."""
    return np.ascontiguousarray(values, dtype=np.float64)


def map_rows(values: Array, factor: Array, origin: Array) -> Array:
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


def add_totals(parts: Iterator[Totals]) -> Totals:
    """The sums of a pass from those of its parts, in order; the first part's arrays are overwritten."""
    sum_log, count, first, second = next(parts)
    for part in parts:
        sum_log += part[0]
        count += part[1]
        first += part[2]
        second += part[3]
    return sum_log, count, first, second

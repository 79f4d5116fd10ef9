"""The data of a mixture, and compiled passes over it in slices of rows spread over threads.

Slices have a fixed length and are added in order, so a result does not depend on the number of threads. Rows
may be float32: a slice is widened when its turn comes, so memory stays that of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from latlin.mixture.kernels import incomplete_pass
from latlin.mixture.moments import ComponentMoments, scatter_between
from latlin.numerics.linalg import Array
from latlin.numerics.threads import thread_count

# --- Components joined and parted by their moments alone, and what that does to the bound.
#
# With responsibilities R held and q(π) q(θ) at its best for their moments, the bound is `evidence` plus the entropy of
# R. A merge adds two components' moments, a split replaces one's by two: what either promises is arithmetic on moments
# and the entropy between two components, without a pass over the data.


class Surgery(Protocol):
    """How scatter is handed over, by structures that keep one per component and by those that pool it."""

    def merged(self, structure: Any, moments: ComponentMoments, first: int, second: int) -> ComponentMoments:
        """`first` takes over what `second` answered for."""

    def parted(
        self, structure: Any, moments: ComponentMoments, old: int, new: int, parts: ComponentMoments
    ) -> ComponentMoments:
        """What `old` answered for goes to `old` and `new` as the two components of `parts` have it."""

    def few(self, params: Any, chosen: NDArray[np.intp]) -> Any:
        """The parameters of some components."""


class Separate:
    """One scatter a component."""

    def merged(self, structure: Any, moments: ComponentMoments, first: int, second: int) -> ComponentMoments:
        counts, mean, between = _joined(structure, moments, first, second)
        scatter = moments.scatter.copy()
        scatter[first] += scatter[second] + between
        scatter[second] = 0.0
        return ComponentMoments(counts, mean, scatter)

    def parted(
        self, structure: Any, moments: ComponentMoments, old: int, new: int, parts: ComponentMoments
    ) -> ComponentMoments:
        counts, mean = _replaced(moments, old, new, parts)
        scatter = moments.scatter.copy()
        scatter[[old, new]] = parts.scatter
        return ComponentMoments(counts, mean, scatter)

    def few(self, params: Any, chosen: NDArray[np.intp]) -> Any:
        return type(params)(*(part[chosen] for part in params))


class Pooled:
    """One scatter for all."""

    def merged(self, structure: Any, moments: ComponentMoments, first: int, second: int) -> ComponentMoments:
        counts, mean, between = _joined(structure, moments, first, second)
        return ComponentMoments(counts, mean, moments.scatter + between)

    def parted(
        self, structure: Any, moments: ComponentMoments, old: int, new: int, parts: ComponentMoments
    ) -> ComponentMoments:
        parts = _drawn_together(parts, moments.scatter)
        counts, mean = _replaced(moments, old, new, parts)
        return ComponentMoments(counts, mean, moments.scatter - scatter_between(structure, parts))

    def few(self, params: Any, chosen: NDArray[np.intp]) -> Any:
        return params._replace(mean=params.mean[chosen], strength=params.strength[chosen])


def _drawn_together(parts: ComponentMoments, scatter: Array) -> ComponentMoments:
    """Two components, their means no farther apart than the pooled scatter has room for: they come from a sample."""
    centre = parts.counts @ parts.mean / max(float(parts.counts.sum()), 1e-300)
    away = parts.mean - centre
    room = scatter + 1e-12 * np.trace(scatter) * np.eye(len(scatter))
    # δ₁ and δ₂ are parallel: Σ N δδᵀ ≤ scatter when Σ N δᵀ scatter⁻¹ δ ≤ 1
    used = float(parts.counts @ (away * np.linalg.lstsq(room, away.T)[0].T).sum(axis=1))
    return parts._replace(mean=centre + away * np.sqrt(min(1.0, 0.999 / used))) if used > 0.0 else parts


def _joined(structure: Any, moments: ComponentMoments, first: int, second: int) -> tuple[Array, Array, Array]:
    pair = [first, second]
    both = ComponentMoments(moments.counts[pair], moments.mean[pair], moments.scatter)
    counts, mean = moments.counts.copy(), moments.mean.copy()
    counts[pair] = both.counts.sum(), 0.0
    mean[first] = both.counts @ both.mean / both.counts.sum()
    return counts, mean, scatter_between(structure, both)


def _replaced(moments: ComponentMoments, old: int, new: int, parts: ComponentMoments) -> tuple[Array, Array]:
    counts, mean = moments.counts.copy(), moments.mean.copy()
    counts[[old, new]], mean[[old, new]] = parts.counts, parts.mean
    return counts, mean


def evidence(mixture: Any, moments: ComponentMoments) -> float:
    """The bound without the entropy of the responsibilities, with q at its best for these moments."""
    belief = mixture.belief(moments)
    log_weights = mixture.weights.expected_log(belief.weights)
    return expected(mixture.components, moments, belief.components, log_weights) - mixture.kl(belief)


def expected(structure: Any, moments: ComponentMoments, params: Any, log_weights: Array) -> float:
    """Σ_nk w_n r_nk ln ρ_nk from the moments."""
    # Σ_n r(x − m)(x − m)ᵀ = scatter + N(x̄ − m)(x̄ − m)ᵀ
    second = moments.scatter + structure.spread(moments.mean - params.mean, moments.counts)
    return float(moments.counts @ (structure.offsets(params) + log_weights)) - 0.5 * structure.squares(params, second)


def entropy_between(r: Array, weights: Array) -> float:
    """−Σ_nk w_n r_nk ln(r_nk / Σ_j r_nj): what responsibilities lose in entropy when their components are joined."""
    share = r / np.maximum(r.sum(axis=1, keepdims=True), 1e-300)
    return -float(weights @ (r * np.log(np.maximum(share, 1e-300))).sum(axis=1))


SLICE = 8192

T = TypeVar("T")
Totals = tuple[float, Array, Array, Array]


@dataclass(frozen=True)
class CompleteRows:
    """N complete rows, their weights, and where batches prefer some of them, the chances of each (of sum one)."""

    values: NDArray[Any]
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
            rows = values if change is None else mapped(values, *change)
            return kernel(rows, self.weights_of(part), *parameters)

        return add_totals(_spread(run, len(self)))

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

    def every(self, stride: int) -> tuple[Array, Array]:
        """Rows 0, stride, 2·stride … and their weights."""
        return self.values[::stride], self.weights[::stride]

    def products(self, offset: Array, mean: Array, precision: Array) -> Totals:
        """Σ_n w_n log Σ_k ρ_nk, and expected counts and moments about `mean`, the missing entries integrated out."""

        def run(part: slice) -> Totals:
            rows, weights, labels = self.values[part], self.weights[part], self.labels[part]
            return incomplete_pass(rows, weights, self.patterns, labels, offset, mean, precision)

        return add_totals(_spread(run, len(self)))

    def collect(self, structure: Any, params: Any, log_weights: Array) -> tuple[float, Any]:
        """Σ_n w_n log Σ_k ρ_nk and the moments under the optimal responsibilities."""
        offset = structure.offsets(params) + log_weights
        sum_log, count, first, second = self.products(offset, params.mean, structure.precisions(params))
        return sum_log, structure.from_products(params.mean, count, first, second)


def outlying_chances(values: NDArray[Any]) -> Array:
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


def make_rows(values: NDArray[Any], weights: Array | None) -> CompleteRows | IncompleteRows:
    """Wrap data, sorting rows with missing entries by pattern."""
    if not any(np.isnan(values[part]).any() for part in slices(len(values))):
        return CompleteRows(values, weights)
    return incomplete_rows(values, np.ones(len(values)) if weights is None else weights)


def incomplete_rows(values: NDArray[Any], weights: Array) -> IncompleteRows:
    """Rows sorted by pattern."""
    order, patterns, labels = by_pattern(np.isnan(values))
    return IncompleteRows(widen(values[order]), weights[order], patterns, labels)


def by_pattern(missing: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.intp]]:
    """The order that puts rows with the same pattern together, the patterns, and the sorted rows' labels."""
    patterns, labels = np.unique(missing, axis=0, return_inverse=True)
    order = np.argsort(labels.ravel(), kind="stable")
    return order, patterns, labels.ravel()[order]


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


def add_totals(parts: Iterator[Totals]) -> Totals:
    """The sums of a pass from those of its parts, in order; the first part's arrays are overwritten."""
    sum_log, count, first, second = next(parts)
    for part in parts:
        sum_log += part[0]
        count += part[1]
        first += part[2]
        second += part[3]
    return sum_log, count, first, second

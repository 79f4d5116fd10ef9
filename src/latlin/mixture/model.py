"""A Bayesian Gaussian mixture: priors on weights and components, what is believed of them, and the bound.

With the responsibilities at their optimum r = softmax(ρ) (Gutteridge (2021), eq. 3.23, corrected), the evidence
lower bound (3.27) collapses to

    L(q) = Σ_n w_n ln Σ_k exp ρ_nk − KL(q(π) ‖ p(π)) − KL(q(θ) ‖ p(θ)),

with every constant, so it can be compared with any other model of the same data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from latlin.densities.conjugate import beta_expected_logs, beta_kl, dirichlet_expected_log, dirichlet_kl
from latlin.distributed.blocks import Block, Blocks
from latlin.mixture import kernels as mixture_kernels
from latlin.mixture.moments import ComponentMoments
from latlin.mixture.sweep import (
    SLICE,
    CompleteRows,
    CovarianceStructure,
    IncompleteRows,
    Params,
    Totals,
    add_totals,
    incomplete_rows,
    slices,
    sort_by_pattern,
    widen,
)
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable, storable_by_arguments

# --- The data of a mixture in blocks of rows: passes are sums over the blocks, mini-batches are taken where the rows
# are.
#
# Every pass of `latlin.mixture.sweep` is a sum over rows, so that it can be a sum over blocks of them. Rows are
# counted, sampled and drawn among those of positive weight.

T = TypeVar("T")


@dataclass(frozen=True)
class MixtureBlockRows:
    """N rows of positive weight in blocks.

    Parameters
    ----------
    blocks : Blocks
    rows : ndarray of int of shape (blocks,)
        Rows of positive weight in each block.
    total : float
        Sum of the weights.
    seen : ndarray of shape (D,)
        Observed entries of each feature.
    """

    blocks: Blocks
    rows: NDArray[np.int64]
    total: float
    seen: Array

    def __len__(self) -> int:
        return int(self.rows.sum())

    @property
    def dim(self) -> int:
        return self.blocks.n_columns

    @property
    def complete(self) -> bool:
        return bool((self.seen == len(self)).all())

    def every(self, stride: int) -> tuple[Array, Array]:
        """Rows 0, stride, 2·stride … of those with positive weight, and their weights, wherever they are."""
        first = np.concatenate([[0], np.cumsum(self.rows)[:-1]])
        found = self.blocks.each(_every, stride, first)
        values, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = slice(None) if self.complete else sort_by_pattern(np.isnan(values))[0]
        return widen(values[order]), weights[order]

    def walk(
        self, advance: Callable[[T, CompleteRows], T], state: T, steps: int, size: int, rng: np.random.Generator
    ) -> T:
        """`state = advance(state, batch)` for `steps` batches, each from one block; a block is visited once.

        Blocks get batches by lot, in proportion to their rows, so that every row is as likely as any other.
        """
        steps_of = rng.multinomial(steps, self.rows / len(self))
        order = rng.permutation(self.blocks.n_blocks)
        seeds = rng.integers(2**63, size=self.blocks.n_blocks)
        visits = Visits(steps_of, seeds, size, len(self))
        return self.blocks.fold(_walk, state, advance, visits, order=order[steps_of[order] > 0].tolist())

    def reduce(
        self,
        kernel: Callable[..., Totals],
        parameters: tuple[Array, ...],
        change: tuple[Array, Array] | None = None,
    ) -> Totals:
        """As `Rows.reduce`, in one pass over the blocks; the kernel travels by its name."""
        sum_log, count, first, second = self.blocks.total(_pass, kernel.__name__, parameters, change)
        return sum_log, count, first, second

    def collect(
        self, structure: CovarianceStructure[Params], params: Params, log_weights: Array
    ) -> tuple[float, ComponentMoments]:
        """Σ_n w_n log Σ_k ρ_nk and the moments under the optimal responsibilities."""
        if self.complete:
            return structure.collect(self, params, log_weights)
        offset = structure.offsets(params) + log_weights
        totals = self.blocks.total(_incomplete_pass, offset, params.mean, structure.precisions(params))
        sum_log, count, first, second = totals
        return sum_log, structure.from_products(params.mean, count, first, second)


class Visits(NamedTuple):
    """How many batches of which size each block gives, its seed, and the rows of all blocks."""

    steps: NDArray[np.int64]
    seeds: NDArray[np.int64]
    size: int
    whole: int


def _walk(block: Block, state: T, advance: Callable[[T, CompleteRows], T], visits: Visits) -> T:
    rows, rng = select_positive(block), np.random.default_rng(visits.seeds[block.number])
    for _ in range(visits.steps[block.number]):
        state = advance(state, rows.batch(visits.size, rng, visits.whole))
    return state


def read_rows(blocks: Blocks, missing_allowed: bool) -> MixtureBlockRows:
    """One pass: counts, weights, and what is not finite or not a weight refused."""
    rows, seen, total = np.zeros(blocks.n_blocks, dtype=np.int64), np.zeros(blocks.n_columns), 0.0
    for number, n, weight, observed in blocks.each(_counts, missing_allowed):
        rows[number] = n
        total += weight
        seen += observed
    if not total > 0.0:
        raise ValueError("sample_weight must be finite, not negative, and not all zero")
    return MixtureBlockRows(blocks, rows, total, seen)


def select_positive(block: Block) -> CompleteRows:
    """The rows of a block that have positive weight; where there is none, a row that counts for nothing."""
    if block.weight is None:
        return CompleteRows(block.X)
    weights = np.asarray(block.weight, dtype=np.float64)
    kept = weights > 0.0
    if not kept.any():
        return CompleteRows(np.zeros((1, block.X.shape[1])), np.zeros(1))
    return CompleteRows(block.X, weights) if kept.all() else CompleteRows(block.X[kept], weights[kept])


def _counts(block: Block, missing_allowed: bool) -> tuple[int, int, float, Array]:
    weights = np.ones(block.n_rows) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
    if weights.shape != (block.n_rows,) or not np.isfinite(weights).all() or (weights < 0.0).any():
        raise ValueError("sample_weight must be one number per row, finite, not negative, and not all zero")
    seen = np.zeros(block.X.shape[1])
    for part in slices(block.n_rows):
        x = np.asarray(block.X[part])
        if not np.isfinite(x).all():
            _check_finite(x, missing_allowed)
        seen += (~np.isnan(x))[weights[part] > 0.0].sum(axis=0)
    return block.number, int((weights > 0.0).sum()), float(weights.sum()), seen


def _check_finite(x: NDArray[Any], missing_allowed: bool) -> None:
    if np.isinf(x).any():
        raise ValueError("Input X contains infinity")
    if not missing_allowed:
        raise ValueError("Input X contains NaN; algorithm='cavi' and 'natural' integrate missing entries out")


def _every(block: Block, stride: int, first: NDArray[np.int64]) -> tuple[NDArray[Any], Array]:
    kept = np.arange(block.n_rows) if block.weight is None else np.flatnonzero(np.asarray(block.weight) > 0.0)
    chosen = kept[-int(first[block.number]) % stride :: stride]
    weights = np.ones(len(chosen)) if block.weight is None else np.asarray(block.weight, dtype=np.float64)[chosen]
    return np.asarray(block.X[chosen]), weights


def _pass(block: Block, kernel: str, parameters: tuple[Array, ...], change: tuple[Array, Array] | None) -> Totals:
    return select_positive(block).reduce(getattr(mixture_kernels, kernel), parameters, change)


def _incomplete_pass(block: Block, offset: Array, mean: Array, precision: Array) -> Totals:
    """In runs of slices, so that no wide copy of a whole block is made."""
    rows = select_positive(block)
    runs = (
        incomplete_rows(rows.values[part], rows.weights_of(part)).products(offset, mean, precision)
        for part in slices(len(rows), 16 * SLICE)
    )
    return add_totals(runs)


# --- Mixing weights: a Dirichlet prior, or truncated stick-breaking of a Dirichlet process.
#
# Source: Gutteridge (2021), eqs. 3.7, 3.24, 3.30, 3.33. A posterior is one array of parameters, linear in
# the counts N_k.


class Weights(Protocol):
    """A prior on the mixing weights and what its posterior is asked for."""

    def posterior(self, count: Array) -> Array: ...

    def expected_log(self, params: Array) -> Array: ...

    def mean(self, params: Array) -> Array: ...

    def kl(self, params: Array) -> float: ...

    def draw_weights(self, params: Array, count: int, rng: np.random.Generator) -> Array: ...


@storable_by_arguments
@dataclass(frozen=True)
class DirichletWeights:
    """π ~ Dir(α₀, …, α₀)."""

    concentration: float
    components: int

    def posterior(self, count: Array) -> Array:
        """α_k = α₀ + N_k (3.24)."""
        return self.concentration + count

    def expected_log(self, params: Array) -> Array:
        return dirichlet_expected_log(params)

    def mean(self, params: Array) -> Array:
        return params / params.sum()

    def kl(self, params: Array) -> float:
        return float(dirichlet_kl(params, np.full(self.components, self.concentration)))

    def draw_weights(self, params: Array, count: int, rng: np.random.Generator) -> Array:
        """Draws of π, of shape (count, K)."""
        return rng.dirichlet(params, count)


@storable_by_arguments
@dataclass(frozen=True)
class StickWeights:
    """π_k = v_k ∏_{j<k}(1 − v_j), v_k ~ Beta(1, γ), v_K = 1; parameters of shape (2, K−1)."""

    concentration: float
    components: int

    def posterior(self, count: Array) -> Array:
        """v_k ~ Beta(1 + N_k, γ + Σ_{j>k} N_j)."""
        beyond = count[::-1].cumsum()[::-1] - count
        return np.stack([1.0 + count[:-1], self.concentration + beyond[:-1]])

    def expected_log(self, params: Array) -> Array:
        log_v, log_rest = beta_expected_logs(params[0], params[1])
        return np.append(log_v, 0.0) + np.insert(log_rest.cumsum(), 0, 0.0)

    def mean(self, params: Array) -> Array:
        v = params[0] / params.sum(axis=0)
        return _broken(v)

    def kl(self, params: Array) -> float:
        return float(beta_kl(params[0], params[1], 1.0, self.concentration).sum())

    def draw_weights(self, params: Array, count: int, rng: np.random.Generator) -> Array:
        """Draws of π, of shape (count, K)."""
        return _broken(rng.beta(params[0], params[1], size=(count, params.shape[1])))


def _broken(v: Array) -> Array:
    """The parts v_k ∏_{j<k}(1 − v_j) of a stick that breaks at shares v, the rest last."""
    ones = np.ones((*v.shape[:-1], 1))
    return np.concatenate([v, ones], axis=-1) * np.concatenate([ones, np.cumprod(1.0 - v, axis=-1)], axis=-1)


WEIGHT_PRIORS: dict[str, type[DirichletWeights] | type[StickWeights]] = {
    "dirichlet": DirichletWeights,
    "stick-breaking": StickWeights,
}


Walkable = CompleteRows | MixtureBlockRows
Data = Walkable | IncompleteRows


@storable
class Belief(NamedTuple):
    """q(π) q(θ): parameters of the weights and of the components."""

    weights: Array
    components: Any


#: rows from which on a component says something about its prior
OCCUPIED = 1.0


class MixtureEvaluation(NamedTuple):
    """One pass over the data at a belief."""

    bound: float
    moments: ComponentMoments


@storable
@dataclass(frozen=True)
class Mixture:
    """Priors of a mixture."""

    weights: Weights
    components: CovarianceStructure[Any]

    def belief(self, moments: ComponentMoments) -> Belief:
        """The optimal q(π) q(θ) given the responsibilities' moments."""
        return Belief(self.weights.posterior(moments.counts), self.components.posterior(moments))

    def best_factor(self, belief: Belief, counts: Array) -> float:
        """By how much to multiply the prior covariance for the highest bound; empty components follow their prior."""
        return float(self.components.best_factor(belief.components, counts >= OCCUPIED))

    def with_factor(self, factor: float) -> Mixture:
        """The same with so many times the prior covariance."""
        return replace(self, components=self.components.with_factor(factor))

    def kl(self, belief: Belief) -> float:
        """KL(q(π) q(θ) ‖ p(π) p(θ))."""
        return self.weights.kl(belief.weights) + self.components.kl(belief.components)

    def evaluate(self, data: Data, belief: Belief) -> MixtureEvaluation:
        """The bound at `belief`, and the moments under its optimal responsibilities."""
        log_weights = self.weights.expected_log(belief.weights)
        sum_log, moments = data.collect(self.components, belief.components, log_weights)
        return MixtureEvaluation(sum_log - self.kl(belief), moments)

    def log_joint(self, rows: Array, belief: Belief) -> Array:
        """ρ_nk, shape (N, K)."""
        return self.components.joint(rows, belief.components, self.weights.expected_log(belief.weights))

    def log_predictive(self, rows: Array, belief: Belief) -> Array:
        """ln Σ_k E[π_k] p(x_n | z_n = k), shape (N,)."""
        log_mean = np.log(self.weights.mean(belief.weights))
        density = np.empty(len(rows))
        for part in slices(len(rows)):
            terms = self.components.predictive(rows[part], belief.components) + log_mean
            density[part] = logsumexp(terms, axis=1)
        return density

"""The posterior of binary latents, row by row: factorised by sweeps, or exact by enumeration.

Both take a `RowProblem`, the energy of every row, and return the moments that
the other updates need. Lau (2020), eqs. 3–4, 8 corrected: the entropy is −λ log λ − (1 − λ) log(1 − λ).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky, gram, symmetrise
from latlin.numerics.special import exponentiate
from latlin.numerics.threads import INNER, njit, share_out

# --- Compiled mean-field sweeps over the rows of a binary latent factor model.
#
# A row has the energy log p(s) + bᵀs − ½ Σ_{i≠j} J_ij s_i s_j over s in {0, 1}^K, where b (`field`) holds its
# projections on the features and J (`coupling`) their inner products, both over the noise variance. A coordinate update
# is
#
#     λ_i ← σ(o_i + b_i − Σ_{j≠i} J_ij λ_j),   o_i = log π_i/(1 − π_i) − ½ J_ii,
#
# Lau (2020), eqs. 10 and 35. The projections cost O(K·D) per row, once; a sweep then costs O(K²) at most, because
# the sum is kept up to date. Rows are independent: blocks of them are swept side by side, so that loops over rows
# vectorise, and blocks are shared out over the threads.


#: rows that are swept side by side
PIECE = 32
#: nanoseconds per row and pair of factors, by measurement
PER_PAIR = 20.0


def _by_rows(kernel: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop over blocks of rows and share the blocks out among the threads that pay."""
    compiled = njit(cache=True, nogil=True)(kernel)

    @wraps(kernel)
    def run(means: Array, *others: object) -> None:
        blocks = -(-means.shape[0] // PIECE)
        share_out(compiled, blocks, PER_PAIR * PIECE * means.shape[1] ** 2, means, *others)

    return run


@njit(**INNER, inline="always")
def _sigmoid(x):  # type: ignore[no-untyped-def]
    """1/(1 + e^−x); 1 and 0 where the difference is below 1e-17."""
    if x > 40.0:
        return 1.0
    if x < -40.0:
        return 0.0
    if x >= 0.0:
        return 1.0 / (1.0 + np.exp(-x))
    e = np.exp(x)
    return e / (1.0 + e)


@njit(**INNER, inline="always")
def _entropy(p):  # type: ignore[no-untyped-def]
    """−p log p − (1 − p) log(1 − p)."""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return -p * np.log(p) - (1.0 - p) * np.log1p(-p)


@njit(**INNER)
def _residual_field(b, coupling, mean, out):  # type: ignore[no-untyped-def]
    """out_i = b_i − Σ_j J_ij λ_j, the sum including j = i."""
    k = mean.size
    for i in range(k):
        out[i] = b[i]
    for j in range(k):
        m = mean[j]
        if m != 0.0:
            for i in range(k):
                out[i] -= m * coupling[j, i]


@njit(**INNER)
def _sweep(mean, rest, coupling, offset, order, max_sweeps, tol):  # type: ignore[no-untyped-def]
    """Sweeps over one row until no λ moves by more than `tol`; `rest` follows."""
    for _ in range(max_sweeps):
        largest = 0.0
        for i in order:
            new = _sigmoid(offset[i] + rest[i] + coupling[i, i] * mean[i])
            step = new - mean[i]
            if step != 0.0:
                mean[i] = new
                for j in range(mean.size):
                    rest[j] -= step * coupling[i, j]
                largest = max(largest, abs(step))
        if largest <= tol:
            break


@njit(**INNER)
def _sweep_block(mean, rest, size, coupling, offset, order, max_sweeps, tol):  # type: ignore[no-untyped-def]
    """`_sweep` of a block of rows side by side, K×rows, until none of them moves: loops over rows are vectorised."""
    k = mean.shape[0]
    x, e, step, scratch = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
    for _ in range(max_sweeps):
        largest = 0.0
        for i in order:
            own, constant = coupling[i, i], offset[i]
            for b in range(size):
                x[b] = constant + rest[i, b] + own * mean[i, b]
                e[b] = -abs(x[b])
            exponentiate(e, size, scratch)
            moved = 0.0
            for b in range(size):
                new = (1.0 if x[b] >= 0.0 else e[b]) / (1.0 + e[b])
                step[b] = new - mean[i, b]
                mean[i, b] = new
                moved = max(moved, abs(step[b]))
            if moved > 0.0:
                for j in range(k):
                    c = coupling[i, j]
                    for b in range(size):
                        rest[j, b] -= step[b] * c
            largest = max(largest, moved)
        if largest <= tol:
            break


@njit(**INNER)
def _flip(mean, rest, coupling, offset, gain):  # type: ignore[no-untyped-def]
    """Turn the pair of factors over, λ → 1 − λ, that raises the bound most; False when none does.

    The entropy stays, so the rise is g_i + g_j − δ_i δ_j J_ij with δ = 1 − 2λ and g_i = δ_i (o_i + b_i − Σ_{j≠i} J_ij
    λ_j).
    """
    k = mean.size
    for i in range(k):
        gain[i] = (1.0 - 2.0 * mean[i]) * (offset[i] + rest[i] + coupling[i, i] * mean[i])
    best, first, second = 1e-9, -1, -1
    for i in range(k):
        turn = 1.0 - 2.0 * mean[i]
        for j in range(i):
            rise = gain[i] + gain[j] - turn * (1.0 - 2.0 * mean[j]) * coupling[i, j]
            if rise > best:
                best, first, second = rise, i, j
    if first < 0:
        return False
    for i in (first, second):
        step = 1.0 - 2.0 * mean[i]
        mean[i] += step
        for j in range(k):
            rest[j] -= step * coupling[i, j]
    return True


@_by_rows
def sweep_rows(first, last, means, field, coupling, offset, order, max_sweeps, max_flips, tol):  # type: ignore[no-untyped-def]
    """Coordinate sweeps in place; where a row stands still, turn a pair of factors over and go on.

    Sweeps alone leave a few rows in a hundred far from their best: two factors that explain the same pixels have to
    change places at once. Every change raises the bound.

    Parameters
    ----------
    first, last : int
        The blocks of rows to sweep (given by the loop that shares them out).
    means : ndarray of shape (N, K)
        λ where the sweeps start; overwritten.
    field : ndarray of shape (N, K)
    coupling : ndarray of shape (K, K)
    offset : ndarray of shape (K,)
    order : ndarray of int
        The factors a sweep visits.
    max_sweeps : int
        Between two turns.
    max_flips : int
        Turns of a pair at most.
    tol : float
        A row stands still when no λ moved by more in a sweep.
    """
    n, k = means.shape
    for block in range(first, last):
        start = block * PIECE
        size = min(PIECE, n - start)
        mean, rest = np.empty((k, PIECE)), np.empty((k, PIECE))
        for b in range(size):
            for i in range(k):
                mean[i, b] = means[start + b, i]
                rest[i, b] = field[start + b, i]
        for i in range(k):
            for j in range(k):
                for b in range(size):
                    rest[i, b] -= coupling[i, j] * mean[j, b]
        _sweep_block(mean, rest, size, coupling, offset, order, max_sweeps, tol)
        gain, one, left = np.empty(k), np.empty(k), np.empty(k)
        for b in range(size):
            for i in range(k):
                one[i], left[i] = mean[i, b], rest[i, b]
            for _ in range(max_flips):
                if not _flip(one, left, coupling, offset, gain):
                    break
                _sweep(one, left, coupling, offset, order, max_sweeps, tol)
            for i in range(k):
                means[start + b, i] = one[i]


@_by_rows
def row_values(first, last, means, field, coupling, offset, out):  # type: ignore[no-untyped-def]
    """out_n = Σ_i λ_i (o_i + b_i) − ½ Σ_{i≠j} λ_i λ_j J_ij + Σ_i h(λ_i): the row's bound up to terms free of λ."""
    n, k = means.shape
    for row in range(first * PIECE, min(last * PIECE, n)):
        rest = np.empty(k)
        mean = means[row]
        _residual_field(field[row], coupling, mean, rest)
        total = 0.0
        for i in range(k):
            own = coupling[i, i] * mean[i]
            total += mean[i] * (offset[i] + 0.5 * (field[row, i] + rest[i] + own)) + _entropy(mean[i])
        out[row] = total


@_by_rows
def row_entropies(first, last, means, out):  # type: ignore[no-untyped-def]
    """out_n = Σ_i h(λ_i)."""
    n, k = means.shape
    for row in range(first * PIECE, min(last * PIECE, n)):
        total = 0.0
        for i in range(k):
            total += _entropy(means[row, i])
        out[row] = total


#: most factors whose 2^K states are enumerated
MOST_ENUMERATED = 14
#: entries of a block of rows × states
BLOCK_ENTRIES = 1 << 20


class RowProblem(NamedTuple):
    """b (N×K), J (K×K), o (K) and Σ log(1 − π_i), which no latent changes."""

    field: Array
    coupling: Array
    offset: Array
    log_none: float


class BinaryLatents(NamedTuple):
    """⟨s⟩ (N×K), Σ_n ⟨ssᵀ⟩ (K×K) and the entropy of q summed over rows."""

    means: Array
    second: Array
    entropy: float


class LatentEngine(Protocol):
    """A way to infer the latents of all rows."""

    def infer(self, problem: RowProblem, start: Array) -> BinaryLatents:
        """The best q, never worse than that with means `start`."""

    def describe(self, problem: RowProblem) -> tuple[Array, Array]:
        """⟨s⟩ of rows never seen, and their bounds up to terms free of the latents."""

    def draw(self, problem: RowProblem, count: int, rng: np.random.Generator) -> Array:
        """Draws of the latents of rows never seen, of shape (count, N, K)."""


def independent_latents(means: Array) -> BinaryLatents:
    """The moments of independent latents: Σ⟨ssᵀ⟩ = ΛᵀΛ + diag Σ(λ − λ²)."""
    second = symmetrise(gram(means))
    second[np.diag_indices_from(second)] = means.sum(axis=0)
    return BinaryLatents(means, second, independent_entropy(means))


def independent_entropy(means: Array) -> float:
    """Σ_n Σ_i h(λ_ni)."""
    entropies = np.empty(len(means))
    row_entropies(means, entropies)
    return float(entropies.sum())


@dataclass(frozen=True)
class BernoulliField:
    """q(s_n) = ∏ Bernoulli(λ_ni) by coordinate sweeps."""

    max_sweeps: int = 20
    max_flips: int = 5
    tol: float = 1e-4

    def infer(self, problem: RowProblem, start: Array) -> BinaryLatents:
        means = start.copy()
        order = np.arange(means.shape[1])
        sweep_rows(means, *problem[:3], order, self.max_sweeps, self.max_flips, self.tol)
        return independent_latents(means)

    def describe(self, problem: RowProblem) -> tuple[Array, Array]:
        """From three starts (least squares, the prior, nothing on); each row keeps its best."""
        n, k = problem.field.shape
        odds = problem.offset + 0.5 * np.diagonal(problem.coupling)
        prior = 1.0 / (1.0 + np.exp(-odds))
        best, value = np.empty((n, k)), np.full(n, -np.inf)
        for start in (_least_squares(problem), np.tile(prior, (n, 1)), np.zeros((n, k))):
            sweep_rows(start, *problem[:3], np.arange(k), 500, 50, 1e-8)
            found = np.empty(n)
            row_values(start, *problem[:3], found)
            better = found > value
            best[better], value[better] = start[better], found[better]
        return best, value + problem.log_none

    def draw(self, problem: RowProblem, count: int, rng: np.random.Generator) -> Array:
        means = self.describe(problem)[0]
        return (rng.random((count, *means.shape)) < means).astype(np.float64)


def _least_squares(problem: RowProblem) -> Array:
    """Activations of least squares, a little ridge, moved into [0.02, 0.98]."""
    ridge = 1e-3 * np.diagonal(problem.coupling).mean()
    root = cholesky(problem.coupling + ridge * np.eye(len(problem.offset)), name="J", max_jitter=1e-6)
    return np.ascontiguousarray(np.clip(root.solve(problem.field.T).T, 0.02, 0.98))


@lru_cache(maxsize=4)
def _states(count: int) -> Array:
    """Every s in {0, 1}^K, one per row."""
    codes = np.arange(1 << count)
    return ((codes[:, None] >> np.arange(count)) & 1).astype(np.float64)


@dataclass(frozen=True)
class Enumeration:
    """q(s_n) = p(s_n | x_n), a table of 2^K probabilities per row."""

    def infer(self, problem: RowProblem, start: Array) -> BinaryLatents:
        states, constant = self._table(problem)
        means, total, entropy = np.empty_like(problem.field), np.zeros(len(states)), 0.0
        for part, weights, _, surprise in self._blocks(problem, states, constant):
            means[part] = weights @ states
            total += weights.sum(axis=0)
            entropy += surprise
        return BinaryLatents(means, (states.T * total) @ states, entropy)

    def describe(self, problem: RowProblem) -> tuple[Array, Array]:
        states, constant = self._table(problem)
        means, value = np.empty_like(problem.field), np.empty(len(problem.field))
        for part, weights, log_z, _ in self._blocks(problem, states, constant):
            means[part], value[part] = weights @ states, log_z
        return means, value + problem.log_none

    def draw(self, problem: RowProblem, count: int, rng: np.random.Generator) -> Array:
        states, constant = self._table(problem)
        found = np.empty((count, *problem.field.shape))
        for part, weights, _, _ in self._blocks(problem, states, constant):
            ladder = weights.cumsum(axis=1)
            level = rng.random((count, len(weights))) * ladder[:, -1]
            for n, steps in enumerate(ladder):
                found[:, part.start + n] = states[np.searchsorted(steps, level[:, n])]
        return found

    @staticmethod
    def _table(problem: RowProblem) -> tuple[Array, Array]:
        """The states, and oᵀs − ½ Σ_{i≠j} J_ij s_i s_j of each."""
        states = _states(len(problem.offset))
        pair = problem.coupling - np.diag(np.diagonal(problem.coupling))
        return states, states @ problem.offset - 0.5 * np.einsum("sk,sk->s", states @ pair, states)

    @staticmethod
    def _blocks(problem: RowProblem, states: Array, constant: Array):  # type: ignore[no-untyped-def]
        """(rows, probabilities of the states, log normalisers, entropy) of one block after another."""
        size = max(1, BLOCK_ENTRIES // len(states))
        for start in range(0, len(problem.field), size):
            part = slice(start, start + size)
            joint = problem.field[part] @ states.T + constant
            log_z = logsumexp(joint, axis=1)
            weights = np.exp(joint - log_z[:, None])
            yield part, weights, log_z, float(log_z.sum() - (weights * joint).sum())

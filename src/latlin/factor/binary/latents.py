"""The posterior of binary latents, row by row: factorised by sweeps, or exact by enumeration.

Both take a `RowProblem`, the energy of every row as in `latlin.factor.binary.kernels`, and return the moments that
the other updates need. Lau (2020), eqs. 3–4, 8 corrected: the entropy is −λ log λ − (1 − λ) log(1 − λ).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from latlin.factor.binary.kernels import row_entropies, row_values, sweep_rows
from latlin.numerics.linalg import Array, cholesky, gram, symmetrise

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


def factorised(means: Array) -> BinaryLatents:
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
        return factorised(means)

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

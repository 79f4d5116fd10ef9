"""Mixing weights: a Dirichlet prior, or truncated stick-breaking of a Dirichlet process.

Source: Gutteridge (2021), eqs. 3.7, 3.24, 3.30, 3.33. A posterior is one array of parameters, linear in
the counts N_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from latlin.densities.conjugate import beta_expected_logs, beta_kl, dirichlet_expected_log, dirichlet_kl
from latlin.numerics.linalg import Array


class Weights(Protocol):
    """A prior on the mixing weights and what its posterior is asked for."""

    def posterior(self, count: Array) -> Array: ...

    def expected_log(self, params: Array) -> Array: ...

    def mean(self, params: Array) -> Array: ...

    def kl(self, params: Array) -> float: ...


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
        return np.append(v, 1.0) * np.insert(np.cumprod(1.0 - v), 0, 1.0)

    def kl(self, params: Array) -> float:
        return float(beta_kl(params[0], params[1], 1.0, self.concentration).sum())


WEIGHT_PRIORS: dict[str, type[DirichletWeights] | type[StickWeights]] = {
    "dirichlet": DirichletWeights,
    "stick-breaking": StickWeights,
}

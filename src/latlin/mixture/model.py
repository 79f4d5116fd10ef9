"""A Bayesian Gaussian mixture: priors on weights and components, what is believed of them, and the bound.

With the responsibilities at their optimum r = softmax(ρ) (Gutteridge (2021), eq. 3.23, corrected), the evidence
lower bound (3.27) collapses to

    L(q) = Σ_n w_n ln Σ_k exp ρ_nk − KL(q(π) ‖ p(π)) − KL(q(θ) ‖ p(θ)),

with every constant, so it can be compared with any other model of the same data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from latlin.densities.conjugate import beta_expected_logs, beta_kl, dirichlet_expected_log, dirichlet_kl
from latlin.mixture.block_rows import MixtureBlockRows
from latlin.mixture.moments import ComponentMoments
from latlin.mixture.sweep import CompleteRows, CovarianceStructure, IncompleteRows, slices
from latlin.numerics.linalg import Array
from latlin.numerics.stored import storable, storable_by_arguments

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

"""A Bayesian Gaussian mixture: priors on weights and components, what is believed of them, and the bound.

With the responsibilities at their optimum r = softmax(ρ) (Gutteridge (2021), eq. 3.23, corrected), the evidence
lower bound (3.27) collapses to

    L(q) = Σ_n w_n ln Σ_k exp ρ_nk − KL(q(π) ‖ p(π)) − KL(q(θ) ‖ p(θ)),

with every constant, so it can be compared with any other model of the same data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from latlin.mixture.block_rows import BlockRows
from latlin.mixture.moments import Moments
from latlin.mixture.sweep import IncompleteRows, Rows, slices
from latlin.mixture.weights import Weights
from latlin.numerics.linalg import Array

Walkable = Rows | BlockRows
Data = Walkable | IncompleteRows


class Belief(NamedTuple):
    """q(π) q(θ): parameters of the weights and of the components."""

    weights: Array
    components: Any


class Evaluation(NamedTuple):
    """One pass over the data at a belief."""

    bound: float
    moments: Moments


@dataclass(frozen=True)
class Mixture:
    """Priors of a mixture."""

    weights: Weights
    components: Any

    def belief(self, moments: Moments) -> Belief:
        """The optimal q(π) q(θ) given the responsibilities' moments."""
        return Belief(self.weights.posterior(moments.counts), self.components.posterior(moments))

    def kl(self, belief: Belief) -> float:
        """KL(q(π) q(θ) ‖ p(π) p(θ))."""
        return self.weights.kl(belief.weights) + self.components.kl(belief.components)

    def evaluate(self, data: Data, belief: Belief) -> Evaluation:
        """The bound at `belief`, and the moments under its optimal responsibilities."""
        log_weights = self.weights.expected_log(belief.weights)
        sum_log, moments = data.collect(self.components, belief.components, log_weights)
        return Evaluation(sum_log - self.kl(belief), moments)

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

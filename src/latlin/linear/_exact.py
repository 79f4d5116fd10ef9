"""The evidence of a linear model with Gaussian noise, for every prior scale and noise scale at once.

With Z = W^{½} X / spread, a = W^{½} 1 and c = W^{½}(y − offset − b₀), the observations have covariance

    M + τ² aaᵀ,   M = s² ZZᵀ + σ² I

and one singular value decomposition of Z turns M into numbers: each evaluation costs O(min(N, D)), and the intercept's
wide prior is a rank-one update. Challis (2013), §2.2.1 and (2.2.10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import svd

from latlin.linear._problem import Problem
from latlin.numerics.arrays import Array


@dataclass(frozen=True)
class Spectrum:
    """What the evidence needs of the data, in the basis of the left singular vectors.

    Parameters
    ----------
    energy : ndarray of shape (r,)
        Squared singular values of Z.
    ones, response : ndarray of shape (r,)
        a and c in that basis.
    rest : ndarray of shape (2, 2)
        Inner products of a and c outside it.
    count, weight : float
        Number of observations, and the sum of their weights.
    wide : float
        τ², zero without an intercept.
    """

    energy: Array
    ones: Array
    response: Array
    rest: Array
    count: int
    weight: float
    wide: float

    def log_evidence(self, log_scale: float, log_noise: float) -> tuple[float, Array]:
        """log Z and its derivatives in log s and log σ."""
        s2, v = np.exp(2.0 * log_scale), np.exp(2.0 * log_noise)
        m = s2 * self.energy + v
        # of a and c: inner products under M⁻¹, and minus their derivatives in log s and log σ
        inner = self._inner(1.0 / m) + self.rest / v
        by_scale = 2.0 * s2 * self._inner(self.energy / m**2)
        by_noise = 2.0 * v * (self._inner(1.0 / m**2) + self.rest / v**2)
        outside = self.count - len(m)
        log_det = np.log(m).sum() + outside * np.log(v)
        d_det = np.array([2.0 * s2 * np.sum(self.energy / m), 2.0 * v * np.sum(1.0 / m) + 2.0 * outside])
        grown = 1.0 + self.wide * inner[0, 0]
        pull = self.wide * inner[0, 1] / grown
        # log det(M + τ²aaᵀ) = log det M + log(1 + τ²aᵀM⁻¹a); the quadratic form loses τ²(aᵀM⁻¹c)²/(1 + τ²aᵀM⁻¹a)
        square = inner[1, 1] - pull * inner[0, 1]
        slopes = np.stack([by_scale, by_noise])
        d_square = -(slopes[:, 1, 1] - 2.0 * pull * slopes[:, 0, 1] + pull**2 * slopes[:, 0, 0])
        d_grown = -self.wide * slopes[:, 0, 0] / grown
        # weights are exponents: ∏ N(y | x, σ²)^{w} has σ^{−Σw}, not σ^{−n}
        extra = self.weight - self.count
        value = -0.5 * (self.weight * np.log(2.0 * np.pi) + log_det + np.log(grown) + square) - extra * log_noise
        gradient = -0.5 * (d_det + d_grown + d_square) - np.array([0.0, extra])
        return float(value), gradient

    def _inner(self, weight: Array) -> Array:
        a, c = self.ones, self.response
        across = np.sum(weight * a * c)
        return np.array([[np.sum(weight * a * a), across], [across, np.sum(weight * c * c)]])


def spectrum(problem: Problem, relative: Any = 1.0) -> Spectrum:
    """Decompose the rows of a problem once; prior scales are s times the `relative` ones."""
    design, targets = problem.design, problem.targets
    rows = problem.rows[:, : design.n_features]
    dense = rows.toarray() if sparse.issparse(rows) else rows
    weight = np.ones(len(dense)) if targets.weight is None else targets.weight
    root = np.sqrt(weight)
    centre, width = problem.intercept if design.intercept else (0.0, 0.0)
    u, singular, _ = svd(root[:, None] * dense * (relative / design.spread), full_matrices=False)
    pair = np.stack([root, root * (targets.residual() - centre)])
    inside = pair @ u
    outside = pair - inside @ u.T
    return Spectrum(singular**2, inside[0], inside[1], outside @ outside.T, len(dense), float(weight.sum()), width**2)

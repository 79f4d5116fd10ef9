"""How strongly each factor may load on each view: the precisions α of p(w_dk) = N(0, 1/α_mk), d in view m.

`GammaRelevance`: independent gamma priors and posteriors. `LowRankRelevance`: log α = UVᵀ + μ_u1ᵀ + 1μ_vᵀ with priors
N(0, 1/λ) on U and V and points for all, 001_249bff80906c04e4; views that share factors then share strength. The bound
with the second is penalised by log p(U, V) and is called so.

Both answer from the energies e_mk = Σ_{d∈m} ⟨w_dk²⟩ and the sizes D_m of the views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import digamma

from latlin.densities.conjugate import gamma_kl
from latlin.numerics.linalg import Array
from latlin.numerics.low_rank import LOG_2PI

#: factor by which a leap shrinks the variances of faint loadings
LEAP = 1e-3


class Precisions(NamedTuple):
    """⟨α⟩ and ⟨log α⟩, each views × factors."""

    mean: Array
    log_mean: Array


class Relevance(Protocol):
    """A model of α with the parameters `theta` of its posterior."""

    @property
    def kind(self) -> str: ...

    def start(self, energy: Array) -> Array:
        """Parameters fitted to energies, without any before them."""

    def update(self, theta: Array, energy: Array) -> Array:
        """Parameters that maximise the bound given the loadings."""

    def moments(self, theta: Array) -> Precisions: ...

    def value(self, theta: Array) -> float:
        """⟨log p(α)⟩ and the entropy of q(α), or log p(U, V)."""

    def leap(self, theta: Array, faint: NDArray[np.bool_]) -> Array:
        """A guess of where the precisions of faint loadings, which grow without end, are going."""

    def profile(self, theta: Array, energy: Array) -> tuple[float, Array]:
        """How the bound depends on energies, up to a constant, and its derivative: for a rotation of the loadings."""

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        """The parameters of some factors."""


@dataclass(frozen=True)
class GammaRelevance:
    """α_mk ~ Gamma(a, b); q(α_mk) = Gamma(a + D_m/2, b + e_mk/2); theta holds the rates."""

    sizes: Array
    a: float
    b: float
    kind: str = "lower bound"

    @property
    def shape(self) -> Array:
        return (self.a + 0.5 * self.sizes)[:, None]

    def start(self, energy: Array) -> Array:
        return self.b + 0.5 * energy

    def update(self, theta: Array, energy: Array) -> Array:
        return self.b + 0.5 * energy

    def moments(self, theta: Array) -> Precisions:
        return Precisions(self.shape / theta, digamma(self.shape) - np.log(theta))

    def value(self, theta: Array) -> float:
        return -float(gamma_kl(np.broadcast_to(self.shape, theta.shape), theta, self.a, self.b).sum())

    def leap(self, theta: Array, faint: NDArray[np.bool_]) -> Array:
        # near b the prior itself holds α back
        floor = np.minimum(theta, 1e6 * self.shape * self.b)
        return np.where(faint, np.maximum(LEAP * theta, floor), theta)

    def profile(self, theta: Array, energy: Array) -> tuple[float, Array]:
        # with its best rate the bound depends on e through −(a + D_m/2) log(b + e/2)
        rate = self.b + 0.5 * energy
        return -float((self.shape * np.log(rate)).sum()), -0.5 * self.shape / rate

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        return theta[:, kept]


@dataclass(frozen=True)
class LowRankRelevance:
    """log α = UVᵀ + μ_u1ᵀ + 1μ_vᵀ; theta is [U μ_u; V μ_v], of shape (views + factors, R + 1)."""

    sizes: Array
    rank: int
    penalty: float
    kind: str = "penalised lower bound"

    def start(self, energy: Array) -> Array:
        # μ's from row and column means of log(D_m/e_mk), U and V from the leading directions of the rest
        target = np.log(self.sizes)[:, None] - np.log(energy)
        level = target.mean(axis=1)
        shift = (target - level[:, None]).mean(axis=0)
        left, gains, right = np.linalg.svd(target - level[:, None] - shift, full_matrices=False)
        u, v = np.zeros((len(level), self.rank)), np.zeros((len(shift), self.rank))
        r = min(self.rank, len(gains))
        u[:, :r], v[:, :r] = left[:, :r] * np.sqrt(gains[:r]), right[:r].T * np.sqrt(gains[:r])
        packed = np.concatenate([np.column_stack([u, level]), np.column_stack([v, shift])])
        return self.update(packed, energy)

    def update(self, theta: Array, energy: Array) -> Array:
        def objective(flat: Array) -> tuple[float, Array]:
            value, slope = self.objective(flat.reshape(theta.shape), energy)
            return -value, -slope.ravel()

        found = minimize(objective, theta.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 100})
        before, after = self.objective(theta, energy)[0], -float(found.fun)
        return found.x.reshape(theta.shape) if after > before else theta

    def objective(self, theta: Array, energy: Array) -> tuple[float, Array]:
        """Σ_mk ½(D_m log α_mk − α_mk e_mk) + log p(U, V), and its gradient in theta."""
        u, v = self._parts(theta)
        log_alpha = self._log_alpha(theta)
        pull = np.exp(np.minimum(log_alpha, 600.0)) * energy
        value = 0.5 * float((self.sizes[:, None] * log_alpha - pull).sum()) + self.value(theta)
        slope = 0.5 * (self.sizes[:, None] - pull)
        d_u = np.column_stack([slope @ v - self.penalty * u, slope.sum(axis=1)])
        d_v = np.column_stack([slope.T @ u - self.penalty * v, slope.sum(axis=0)])
        return value, np.concatenate([d_u, d_v])

    def moments(self, theta: Array) -> Precisions:
        log_alpha = self._log_alpha(theta)
        return Precisions(np.exp(np.minimum(log_alpha, 600.0)), log_alpha)

    def value(self, theta: Array) -> float:
        # log p(U, V) = ½ Σ (log λ − log 2π − λu²)
        u, v = self._parts(theta)
        count = u.size + v.size
        squares = float((u * u).sum() + (v * v).sum())
        return 0.5 * (count * (np.log(self.penalty) - LOG_2PI) - self.penalty * squares)

    def leap(self, theta: Array, faint: NDArray[np.bool_]) -> Array:
        return theta

    def profile(self, theta: Array, energy: Array) -> tuple[float, Array]:
        alpha = self.moments(theta).mean
        return -0.5 * float((alpha * energy).sum()), -0.5 * alpha

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        views = len(self.sizes)
        return np.concatenate([theta[:views], theta[views:][kept]])

    def _parts(self, theta: Array) -> tuple[Array, Array]:
        views = len(self.sizes)
        return theta[:views, :-1], theta[views:, :-1]

    def _log_alpha(self, theta: Array) -> Array:
        u, v = self._parts(theta)
        views = len(self.sizes)
        # μ_u is set against the views, μ_v against the factors
        return u @ v.T + theta[:views, -1][:, None] + theta[views:, -1]

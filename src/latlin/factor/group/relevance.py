"""How strongly each factor may load on each view: the precisions α of p(w_dk) = N(0, 1/α_mk), d in view m.

`GammaRelevance`: independent gamma priors and posteriors. `LowRankRelevance`: views that share
factors share strength. Both answer from the energies e_mk = Σ_{d∈m} ⟨w_dk²⟩ and the sizes D_m of the views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import digamma

from latlin.densities.conjugate import gamma_kl
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import rounding
from latlin.numerics.linalg import Array

#: factor by which a leap shrinks the variances of faint loadings
LEAP = 1e-3


class Precisions(NamedTuple):
    """⟨α⟩ and ⟨log α⟩, each views × factors."""

    mean: Array
    log_mean: Array


class EnergyProfile(NamedTuple):
    """The bound as a function of the energies, up to a constant, and its first two derivatives in each of them."""

    value: float
    slope: Array
    bend: Array


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

    def profile(self, theta: Array, energy: Array) -> EnergyProfile:
        """How the bound depends on energies: for a rotation of the loadings."""

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

    def profile(self, theta: Array, energy: Array) -> EnergyProfile:
        # with its best rate the bound depends on e through −(a + D_m/2) log(b + e/2)
        rate = self.b + 0.5 * energy
        slope = -0.5 * self.shape / rate
        return EnergyProfile(-float((self.shape * np.log(rate)).sum()), slope, -0.5 * slope / rate)

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        return theta[:, kept]


# --- Precisions of low rank: log α = UVᵀ + μ_u1ᵀ + 1μ_vᵀ with priors N(0, 1/λ) on U and V and points for all.
#
# Source: Mancevo (2016). Views that share factors share strength. The bound is penalised by log p(U, V) and is called
# so. U, V and μ are found by Newton's method, to where their gradient is rounding: see `latlin.factor.group.fit` for
# why.

#: Newton steps at most
STEPS = 100
#: the climb ends at a gradient of this size, relative to the number of loadings
GOAL = 1e-14
#: below it, relative to the same, the gradient may be rounding and must halve with every step
SMALL = 1e-8


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
        (value, slope), last = self.objective(theta, energy), np.inf
        total, damping = float(self.sizes.sum() * energy.shape[1]), 0.0
        for _ in range(STEPS):
            norm = float(np.abs(slope).max())
            if norm <= GOAL * total or (norm < SMALL * total and norm > 0.5 * last):
                break
            curvature = self.curvature(theta, energy)
            floor = 1e-3 * float(np.trace(curvature)) / len(curvature)
            factor, failed = lapack.dpotrf(curvature + damping * np.eye(len(curvature)), lower=1)
            if not failed:
                ahead = theta + lapack.dpotrs(factor, slope.ravel(), lower=1)[0].reshape(theta.shape)
                higher, new = self.objective(ahead, energy)
                if higher >= value - 0.1 * rounding(value):
                    theta, value, slope, last = ahead, higher, new, norm
                    damping = 0.1 * damping if damping > floor else 0.0
                    continue
            damping = max(10.0 * damping, floor)
        return theta

    def curvature(self, theta: Array, energy: Array) -> Array:
        """Minus the second derivatives of `objective`, and a wall along the directions in which α stands still."""
        u, v = self._parts(theta)
        pull = 0.5 * self.moments(theta).mean * energy
        beside_u, beside_v = _with_one(u), _with_one(v)
        views, factors, r = len(u), len(v), self.rank + 1
        second = np.zeros((views + factors, r, views + factors, r))
        rows, columns = np.arange(views), views + np.arange(factors)
        second[rows, :, rows, :] = np.einsum("mk,kp,kq->mpq", pull, beside_v, beside_v)
        second[columns, :, columns, :] = np.einsum("mk,mp,mq->kpq", pull, beside_u, beside_u)
        both = np.einsum("mk,kp,mq->mpkq", pull, beside_v, beside_u)
        shared = np.diag([1.0] * self.rank + [0.0])
        both -= np.einsum("mk,pq->mpkq", 0.5 * self.sizes[:, None] - pull, shared)
        second[:views, :, views:, :], second[views:, :, :views, :] = both, both.transpose(2, 3, 0, 1)
        flat = second.reshape(theta.size, theta.size)
        flat[np.diag_indices(theta.size)] += np.tile(self.penalty * np.diag(shared), views + factors)
        still = _standing(u, v)
        return flat + still.T @ still

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

    def profile(self, theta: Array, energy: Array) -> EnergyProfile:
        alpha = self.moments(theta).mean
        return EnergyProfile(-0.5 * float((alpha * energy).sum()), -0.5 * alpha, np.zeros_like(alpha))

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


def _with_one(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))])


def _standing(u: Array, v: Array) -> Array:
    """Directions of theta along which log α stands still: μ_u against μ_v, and U, V turned together."""
    (views, rank), factors = u.shape, len(v)
    shift = np.zeros((views + factors, rank + 1))
    shift[:, -1] = np.repeat([1.0, -1.0], [views, factors])
    found, stacked = [shift], np.concatenate([u, v])
    for p in range(rank):
        for q in range(p):
            turn = np.zeros_like(shift)
            turn[:, p], turn[:, q] = stacked[:, q], -stacked[:, p]
            found.append(turn)
    return np.array([one.ravel() for one in found])

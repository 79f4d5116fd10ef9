"""How strongly each factor may load on each view: the precisions α of p(w_dk) = N(0, 1/α_mk), d in view m.

`GammaRelevance`: independent gamma priors and posteriors. `LowRankRelevance` of `_group_low_rank`: views that share
factors share strength. Both answer from the energies e_mk = Σ_{d∈m} ⟨w_dk²⟩ and the sizes D_m of the views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from latlin.densities.conjugate import gamma_kl
from latlin.numerics.linalg import Array

#: factor by which a leap shrinks the variances of faint loadings
LEAP = 1e-3


class Precisions(NamedTuple):
    """⟨α⟩ and ⟨log α⟩, each views × factors."""

    mean: Array
    log_mean: Array


class Profile(NamedTuple):
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

    def profile(self, theta: Array, energy: Array) -> Profile:
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

    def profile(self, theta: Array, energy: Array) -> Profile:
        # with its best rate the bound depends on e through −(a + D_m/2) log(b + e/2)
        rate = self.b + 0.5 * energy
        slope = -0.5 * self.shape / rate
        return Profile(-float((self.shape * np.log(rate)).sum()), slope, -0.5 * slope / rate)

    def select(self, theta: Array, kept: NDArray[np.intp]) -> Array:
        return theta[:, kept]

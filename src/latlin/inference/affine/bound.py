"""The affine-independent KL bound and its gradient, in coordinates where the Gaussian KL optimum is standard.

    B = log |det A| + Σ_d H[q_d] + ⟨log Gaussian factors⟩ + Σ_n ⟨ψ_n(h_nᵀw)⟩,   w = Av + b

Challis (2013), eq. 6.3.1, C.1. Here u = u₀ + M(LUv + b) with M the inverse precision factor of the Gaussian KL
optimum times a rotation: L = U = I, b = 0 and Gaussian shapes are that optimum. L has a unit diagonal. The bases are
standardised, so ⟨log Gaussian factors⟩ depends on A = LU and b alone: −½ tr(AᵀΛA) − ½bᵀΛb + lᵀb (C.1.3, corrected).

In many dimensions only the first K columns of the rotation get bases and a K × K map LU; along the others the density
stays the Gaussian KL optimum. What a site sees of these is one Gaussian variable more, so that a step costs O(NK²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from latlin.densities.bases import Base, Normal, Stacked
from latlin.densities.characteristic import CharacteristicTable, FrequencyGrid, expect, tabulate
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

#: standard deviations within which a base must lie; a line search can ask for more
FARTHEST = 1e4


#: curvatures in a shape that are believed
BENDS = 1e-2, 1.0


class AffineParameters(NamedTuple):
    """L (unit lower) and U (upper) of the K columns with bases, b and the free shapes."""

    lower: Array
    upper: Array
    b: Array
    free: Array


@dataclass(frozen=True)
class AffineBound:
    """The bound as a function of one vector.

    Parameters
    ----------
    form : SiteForm
        The model.
    solution : Solution
        The Gaussian KL optimum.
    rotation : ndarray of shape (rank, rank)
        Orthogonal.
    base : Base
        The family, with the shapes to start from (or to keep).
    optimise_shape : bool
        The free shapes are part of the vector.
    width : int or None
        K, the columns of the rotation that the bases serve; all of them by default.
    """

    form: SiteForm
    solution: Solution
    rotation: Array
    base: Base
    optimise_shape: bool
    width: int | None = None

    @cached_property
    def root(self) -> Array:
        """M, which whitens the Gaussian KL optimum."""
        return self.solution.precision.unwhiten(self.rotation)

    @cached_property
    def rows(self) -> Array:
        """The projections H̃M."""
        columns = [self.form.projections.times(np.ascontiguousarray(column)) for column in self.root.T]
        return np.stack(columns, axis=1)

    @cached_property
    def quadratic(self) -> Array:
        """Λ = MᵀΛ̃M."""
        middle = self.root if self.form.quadratic is None else self.form.quadratic @ self.root
        return self.root.T @ middle

    @cached_property
    def linear(self) -> Array:
        """l = Mᵀ(b̃ − Λ̃u₀)."""
        return self.root.T @ (self.form.linear - self.form.times_quadratic(self.solution.u))

    @cached_property
    def inverse(self) -> Array:
        """A diagonal guess of the inverse of minus the Hessian: one but for shapes, which bend −κ₃²/12 − κ₄²/48."""
        guess = np.ones_like(self.start())
        if self.optimise_shape:
            bend = np.zeros_like(self.base.free)
            for parameter in range(bend.shape[1]):
                move = np.zeros_like(bend)
                move[:, parameter] = 1e-4
                ends = [self.base.with_free(self.base.free + side * move).third_and_fourth() for side in (1.0, -1.0)]
                third, fourth = ((after - before) / 2e-4 for after, before in zip(*ends, strict=True))
                bend[:, parameter] = self.served // self.base.rows * (third**2 / 6.0 + fourth**2 / 24.0)
            guess[len(guess) - bend.size :] = (1.0 / np.clip(bend, *BENDS)).ravel()
        return guess

    @cached_property
    def constant(self) -> float:
        """The Gaussian factors at u₀, and log |det M|."""
        return self.form.log_gaussian(self.solution.u) - 0.5 * self.solution.precision.log_det

    @cached_property
    def _fixed_tables(self) -> dict[int, CharacteristicTable]:
        return {}

    @property
    def rank(self) -> int:
        return self.form.rank

    @property
    def served(self) -> int:
        """K, the columns that the bases serve."""
        return self.rank if self.width is None else self.width

    @cached_property
    def _rest(self) -> Array:
        """Standard deviations of what sites see of the other columns, (sites, 1); (sites, 0) if there are none."""
        others = self.rows[:, self.served :]
        return np.sqrt(np.einsum("nd,nd->n", others, others))[:, None][:, : others.shape[1]]

    @cached_property
    def _rest_term(self) -> float:
        """−½ tr Λ of the other columns, and their entropy: the part of the bound that never moves."""
        others = np.diagonal(self.quadratic)[self.served :]
        return -0.5 * float(others.sum()) + len(others) * float(Normal().entropy()[0])

    def start(self) -> Array:
        """The Gaussian KL optimum, with the base's own shapes."""
        eye = np.eye(self.served)
        return self._pack(AffineParameters(eye, eye, np.zeros(self.rank), self.base.free))

    def gaussian(self) -> Array:
        """The Gaussian KL optimum itself, where the free shapes at zero are the Gaussian."""
        eye = np.eye(self.served)
        return self._pack(AffineParameters(eye, eye, np.zeros(self.rank), np.zeros_like(self.base.free)))

    def unpack(self, point: Array) -> AffineParameters:
        k = self.served
        below, above = np.tril_indices(k, -1), np.triu_indices(k)
        lower, upper = np.eye(k), np.zeros((k, k))
        ends = np.cumsum([len(below[0]), len(above[0]), self.rank])
        lower[below], upper[above] = point[: ends[0]], point[ends[0] : ends[1]]
        free = point[ends[2] :].reshape(self.base.free.shape) if self.optimise_shape else self.base.free
        return AffineParameters(lower, upper, point[ends[1] : ends[2]], free)

    def _pack(self, parts: AffineParameters) -> Array:
        k = self.served
        shapes = parts.free.ravel() if self.optimise_shape else np.zeros(0)
        packed = [parts.lower[np.tril_indices(k, -1)], parts.upper[np.triu_indices(k)], parts.b, shapes]
        return np.concatenate(packed)

    def base_at(self, parts: AffineParameters) -> Base:
        return self.base.with_free(parts.free) if self.optimise_shape else self.base

    def evaluate(self, point: Array, level: int) -> tuple[float, Array]:
        """The bound and its gradient; −inf where L U is singular or a base has mass absurdly far out."""
        parts = self.unpack(point)
        diagonal = np.diagonal(parts.upper)
        if not np.all(diagonal > 0.0) or not np.all(np.isfinite(point)):
            return -np.inf, np.zeros_like(point)
        base = self.base_at(parts)
        if not np.all(base.reach() < FARTHEST):
            return -np.inf, np.zeros_like(point)
        a = blas.dgemm(1.0, parts.lower, parts.upper)
        sites, d_a, d_b, d_free = self._sites(a, parts.b, base, self._table(base, level))
        # ⟨log Gaussian factors⟩ = lᵀb − ½bᵀΛb − ½ tr(AᵀΛA)
        k = self.served
        turned, pushed = blas.dgemm(1.0, self.quadratic[:k, :k], a), self.quadratic @ parts.b
        gaussian = float(self.linear @ parts.b) - 0.5 * float(parts.b @ pushed) - 0.5 * float(np.vdot(a, turned))
        entropy = float(np.log(diagonal).sum()) + float(np.broadcast_to(base.entropy(), k).sum())
        d_a -= turned
        # dA = dL U + L dU
        d_upper = blas.dgemm(1.0, parts.lower, d_a, trans_a=1) + np.diag(1.0 / diagonal)
        d_lower = blas.dgemm(1.0, d_a, parts.upper, trans_b=1)
        if self.optimise_shape:
            d_free = d_free + k // base.rows * base.entropy_gradient()
        gradient = self._pack(AffineParameters(d_lower, d_upper, d_b + self.linear - pushed, d_free))
        return self.constant + self._rest_term + sites + gaussian + entropy, gradient

    def _table(self, base: Base, level: int) -> CharacteristicTable:
        def made() -> CharacteristicTable:
            if self.served == self.rank:
                return tabulate(base, self.rank, FrequencyGrid.level(level))
            both = Stacked([(base, self.served), (Normal(), 1)])
            return tabulate(both, self.served + 1, FrequencyGrid.level(level))

        if self.optimise_shape:
            return made()
        if level not in self._fixed_tables:
            self._fixed_tables[level] = made()
        return self._fixed_tables[level]

    def _sites(self, a: Array, b: Array, base: Base, table: CharacteristicTable) -> tuple[float, Array, Array, Array]:
        """Σ_n ⟨ψ_n⟩ and its derivatives with respect to A, b and the free shapes."""
        sites = self.form.sites
        k = self.served
        alpha = np.ascontiguousarray(np.hstack([blas.dgemm(1.0, a, self.rows[:, :k].T, trans_a=1).T, self._rest]))
        beta = self.solution.x + self.rows @ b
        value, d_beta, d_alpha = 0.0, np.zeros_like(beta), np.zeros_like(alpha)
        d_free = np.zeros_like(table.base.free)
        for span, potential in sites.blocks:
            weight, at = sites.weight[span], beta[span] + sites.offset[span]
            if potential.gaussian:
                # ⟨ψ⟩ = ψ(β) + ½ψ″|α|²
                first, second, _ = potential.derivatives(at)
                square = np.einsum("nd,nd->n", alpha[span], alpha[span])
                value += float(weight @ (potential.log_density(at) + 0.5 * second * square))
                d_beta[span], d_alpha[span] = weight * first, (weight * second)[:, None] * alpha[span]
                continue
            found = expect(
                _weighted(potential, weight),
                at,
                alpha[span],
                table,
                potential.regions(),
                smooth=potential.smooth,
                with_shapes=self.optimise_shape,
            )
            value += float(found.value.sum())
            d_beta[span], d_alpha[span] = found.d_beta, found.d_alpha
            d_free = d_free + found.d_free
        d_a = blas.dgemm(1.0, self.rows[:, :k], d_alpha[:, :k], trans_a=1)
        # beside other columns the table has a row per served column, also where these share one shape
        own = d_free if table.base is base else d_free[:k].reshape(base.rows, k // base.rows, base.n_free).sum(axis=1)
        return value, d_a, self.rows.T @ d_beta, own


def _weighted(potential: Potential, weight: Array) -> Callable[[Array], Array]:
    return lambda x: weight * potential.log_density(x)

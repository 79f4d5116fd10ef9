"""The affine-independent KL bound and its gradient, in coordinates where the Gaussian KL optimum is standard.

    B = log |det A| + Σ_d H[q_d] + ⟨log Gaussian factors⟩ + Σ_n ⟨ψ_n(h_nᵀw)⟩,   w = Av + b

Challis (2013), eq. 6.3.1, C.1. Here u = u₀ + M(LUv + b) with M the inverse precision factor of the Gaussian KL
optimum times a rotation: L = U = I, b = 0 and Gaussian shapes are that optimum. L has a unit diagonal. The bases are
standardised, so ⟨log Gaussian factors⟩ depends on A = LU and b alone: −½ tr(AᵀΛA) − ½bᵀΛb + lᵀb (C.1.3, corrected).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import blas, qr, svd

from latlin.densities.bases.base import Base
from latlin.densities.characteristic import CharacteristicTable, FrequencyGrid, expect, tabulate
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.numerics.arrays import Array
from latlin.numerics.quadrature import gaussian_nodes
from latlin.potentials.base import Potential

#: standard deviations within which a base must lie; a line search can ask for more
FARTHEST = 1e4


#: curvatures in a shape that are believed
BENDS = 1e-2, 1.0


class AffineParameters(NamedTuple):
    """L (unit lower), U (upper), b and the free shapes."""

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
    """

    form: SiteForm
    solution: Solution
    rotation: Array
    base: Base
    optimise_shape: bool

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
                bend[:, parameter] = self.rank // self.base.rows * (third**2 / 6.0 + fourth**2 / 24.0)
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

    def start(self) -> Array:
        """The Gaussian KL optimum, with the base's own shapes."""
        eye = np.eye(self.rank)
        return self._pack(AffineParameters(eye, eye, np.zeros(self.rank), self.base.free))

    def gaussian(self) -> Array:
        """The Gaussian KL optimum itself, where the free shapes at zero are the Gaussian."""
        eye = np.eye(self.rank)
        return self._pack(AffineParameters(eye, eye, np.zeros(self.rank), np.zeros_like(self.base.free)))

    def unpack(self, point: Array) -> AffineParameters:
        d = self.rank
        below, above = np.tril_indices(d, -1), np.triu_indices(d)
        lower, upper = np.eye(d), np.zeros((d, d))
        ends = np.cumsum([len(below[0]), len(above[0]), d])
        lower[below], upper[above] = point[: ends[0]], point[ends[0] : ends[1]]
        free = point[ends[2] :].reshape(self.base.free.shape) if self.optimise_shape else self.base.free
        return AffineParameters(lower, upper, point[ends[1] : ends[2]], free)

    def _pack(self, parts: AffineParameters) -> Array:
        d = self.rank
        shapes = parts.free.ravel() if self.optimise_shape else np.zeros(0)
        packed = [parts.lower[np.tril_indices(d, -1)], parts.upper[np.triu_indices(d)], parts.b, shapes]
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
        turned, pushed = blas.dgemm(1.0, self.quadratic, a), self.quadratic @ parts.b
        gaussian = float(self.linear @ parts.b) - 0.5 * float(parts.b @ pushed) - 0.5 * float(np.vdot(a, turned))
        entropy = float(np.log(diagonal).sum()) + float(np.broadcast_to(base.entropy(), self.rank).sum())
        d_a -= turned
        # dA = dL U + L dU
        d_upper = blas.dgemm(1.0, parts.lower, d_a, trans_a=1) + np.diag(1.0 / diagonal)
        d_lower = blas.dgemm(1.0, d_a, parts.upper, trans_b=1)
        if self.optimise_shape:
            d_free = d_free + self.rank // base.rows * base.entropy_gradient()
        gradient = self._pack(AffineParameters(d_lower, d_upper, d_b + self.linear - pushed, d_free))
        return self.constant + sites + gaussian + entropy, gradient

    def _table(self, base: Base, level: int) -> CharacteristicTable:
        if self.optimise_shape:
            return tabulate(base, self.rank, FrequencyGrid.level(level))
        if level not in self._fixed_tables:
            self._fixed_tables[level] = tabulate(base, self.rank, FrequencyGrid.level(level))
        return self._fixed_tables[level]

    def _sites(self, a: Array, b: Array, base: Base, table: CharacteristicTable) -> tuple[float, Array, Array, Array]:
        """Σ_n ⟨ψ_n⟩ and its derivatives with respect to A, b and the free shapes."""
        sites = self.form.sites
        alpha = np.ascontiguousarray(blas.dgemm(1.0, a, self.rows.T, trans_a=1).T)
        beta = self.solution.x + self.rows @ b
        value, d_beta, d_alpha = 0.0, np.zeros_like(beta), np.zeros_like(alpha)
        d_free = np.zeros_like(base.free)
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
        d_a = blas.dgemm(1.0, self.rows, d_alpha, trans_a=1)
        return value, d_a, self.rows.T @ d_beta, d_free


def _weighted(potential: Potential, weight: Array) -> Callable[[Array], Array]:
    return lambda x: weight * potential.log_density(x)


# --- Where an affine-independent ascent starts: a rotation of the Gaussian KL optimum that its bases can use.
#
# A Gaussian looks the same from every rotation, an affine-independent density does not. To first order in the third and
# fourth cumulants (κ₃, κ₄) of a base along the unit vector r, in coordinates where the Gaussian KL optimum is standard,
#
#     B ≈ B_G + ⅙κ₃ T₃(r) − κ₃²/12 + κ₄ T₄(r)/24 − κ₄²/48,   T_k(r) = Σ_n τ_kn (g_nᵀr)^k
#
# with τ_kn = ⟨He_k(z) ψ_n(m_n + s_n z)⟩ and g_n the projections at unit length (Gram–Charlier). The best κ_k is T_k
# itself, and the gain Σ_d T₃²/12 + T₄²/48 is maximised over rotations by turning one pair of columns after the other
# (Comon, 1994): along the angle of a pair it is a short trigonometric sum.


#: sweeps over all pairs: from every first rotation, and from the best of them
TRIAL, SWEEPS = 4, 60
#: a sweep that gains a smaller share is the last, and a gain below so many nat is none
LEAST_SHARE, LEAST = 1e-4, 1e-8
#: cumulants beyond these are out of the families' reach
CAPS = {3: 0.9, 4: 3.0}
#: share of an order's square in the gain
SHARES = {3: 1.0 / 12.0, 4: 1.0 / 48.0}
#: angles at which a pair is tried; a quarter of a turn changes nothing but names and signs
ANGLES = 16
FAST = {"reassoc", "contract", "nsz", "arcp"}


class AffineStart(NamedTuple):
    """A rotation, the cumulants that the posterior asks for along its columns, and what they promise to gain."""

    rotation: Array
    third: Array
    fourth: Array
    gain: float


class Cumulants(NamedTuple):
    """Unit projections g_n (sites, rank) and their coefficients τ_k."""

    directions: Array
    coefficients: dict[int, Array]

    def along(self, rotation: Array, order: int) -> Array:
        """T_k of every column."""
        inner = self.directions @ rotation
        square = inner * inner
        return self.coefficients[order] @ (square * (inner if order == 3 else square))

    def gain(self, rotation: Array, orders: tuple[int, ...]) -> float:
        """What the bound can gain to first order, cumulants kept within reach."""
        total = 0.0
        for k in orders:
            t = self.along(rotation, k)
            kept = np.clip(t, -CAPS[k], CAPS[k])
            total += SHARES[k] * float(np.sum(2.0 * t * kept - kept * kept))
        return total


def cumulants(form: SiteForm, solution: Solution) -> Cumulants:
    """Projections whitened by the Gaussian KL optimum, and ⟨He_k ψ⟩ of each site under it."""
    root = solution.precision.unwhiten(np.eye(form.rank))
    rows = np.stack([form.projections.times(np.ascontiguousarray(column)) for column in root.T], axis=1)
    sd = np.maximum(np.linalg.norm(rows, axis=1), 1e-150)
    coefficients = {3: np.zeros(len(sd)), 4: np.zeros(len(sd))}
    for span, potential in form.sites.blocks:
        centre = solution.x[span] + form.sites.offset[span]
        x, z, w = gaussian_nodes(centre, sd[span], potential.regions())
        psi = form.sites.weight[span] * w * (potential.log_density(x) - potential.log_density(centre))
        square = z * z
        coefficients[3][span] = np.sum(psi * z * (square - 3.0), axis=0)
        coefficients[4][span] = np.sum(psi * (square * (square - 6.0) + 3.0), axis=0)
    return Cumulants(rows / sd[:, None], coefficients)


def best_starts(found: Cumulants, wanted: set[tuple[int, ...]]) -> dict[tuple[int, ...], AffineStart]:
    """The rotations of the largest first-order gain for bases that move cumulants of these orders."""
    starts: dict[tuple[int, ...], AffineStart] = {}
    for orders in sorted(wanted, key=len):
        # what is best for one order is a place to begin for more of them
        known = [start.rotation for of, start in starts.items() if of and set(of) < set(orders)]
        starts[orders] = _best_start(found, orders, known)
    return starts


def _best_start(found: Cumulants, orders: tuple[int, ...], known: list[Array]) -> AffineStart:
    rank = found.directions.shape[1]
    if not orders or rank == 1:
        rotation = np.eye(rank)
    else:
        climbed = [_climb(found, first, orders, TRIAL) for first in known or _firsts(found, orders)]
        rotation = _climb(found, max(climbed, key=lambda r: found.gain(r, orders)), orders, SWEEPS)
    third, fourth = found.along(rotation, 3), found.along(rotation, 4)
    return AffineStart(rotation, third, fourth, found.gain(rotation, orders))


def _firsts(found: Cumulants, orders: tuple[int, ...]) -> list[Array]:
    """The Cholesky basis, one that follows the least Gaussian sites, and a random one."""
    rank = found.directions.shape[1]
    size = np.sum([np.abs(found.coefficients[k]) for k in orders], axis=0)
    leading = found.directions[np.argsort(-size)[:rank]]
    random = qr(np.random.default_rng(0).standard_normal((rank, rank)))[0]
    return [np.eye(rank), _polar(np.concatenate([leading, 1e-3 * np.eye(rank)])[:rank].T), random]


def _polar(a: Array) -> Array:
    """The orthogonal matrix closest to a."""
    left, _, right = svd(a)
    return left @ right


def _climb(found: Cumulants, rotation: Array, orders: tuple[int, ...], sweeps: int) -> Array:
    columns = np.array(rotation.T, order="C")
    inner = np.ascontiguousarray((found.directions @ rotation).T)
    shares = [SHARES[k] if k in orders else 0.0 for k in (3, 4)]
    for _ in range(sweeps):
        rise, gain = _sweep(inner, columns, found.coefficients[3], found.coefficients[4], *shares)
        if rise <= LEAST_SHARE * gain + LEAST:
            break
    return columns.T


# --- Turns of pairs.


@njit(cache=True, fastmath=FAST)
def _thirds(weight: Array, u: Array, v: Array) -> tuple[float, float, float, float]:
    """Σ τ u^{3−j} v^j for j = 0 … 3."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for n in range(len(weight)):
        uu, vv = weight[n] * u[n] * u[n], weight[n] * v[n] * v[n]
        a += uu * u[n]
        b += uu * v[n]
        c += vv * u[n]
        d += vv * v[n]
    return a, b, c, d


@njit(cache=True, fastmath=FAST)
def _fourths(weight: Array, u: Array, v: Array) -> tuple[float, float, float, float, float]:
    """Σ τ u^{4−j} v^j for j = 0 … 4."""
    a, b, c, d, e = 0.0, 0.0, 0.0, 0.0, 0.0
    for n in range(len(weight)):
        uu, uv, vv = u[n] * u[n], u[n] * v[n], v[n] * v[n]
        a += weight[n] * uu * uu
        b += weight[n] * uu * uv
        c += weight[n] * uu * vv
        d += weight[n] * vv * uv
        e += weight[n] * vv * vv
    return a, b, c, d, e


@njit(cache=True)
def _turned(angle: float, a: tuple[float, ...], b: tuple[float, ...], share_3: float, share_4: float) -> float:
    """The gain of the pair cu + sv and cv − su."""
    c, s = math.cos(angle), math.sin(angle)
    cc, cs, ss = c * c, c * s, s * s
    third = c * (cc * a[0] + 3.0 * ss * a[2]) + s * (3.0 * cc * a[1] + ss * a[3])
    other_third = c * (cc * a[3] + 3.0 * ss * a[1]) - s * (3.0 * cc * a[2] + ss * a[0])
    middle = 6.0 * cc * ss * b[2]
    fourth = cc * cc * b[0] + 4.0 * cs * (cc * b[1] + ss * b[3]) + middle + ss * ss * b[4]
    other_fourth = ss * ss * b[0] - 4.0 * cs * (ss * b[1] + cc * b[3]) + middle + cc * cc * b[4]
    return share_3 * (third * third + other_third * other_third) + share_4 * (
        fourth * fourth + other_fourth * other_fourth
    )


@njit(cache=True)
def _best_angle(a: tuple[float, ...], b: tuple[float, ...], share_3: float, share_4: float) -> float:
    """The best of evenly spaced angles, then the tops of three parabolas, each a tenth as wide as the one before."""
    step = 0.5 * math.pi / ANGLES
    best, angle = _turned(0.0, a, b, share_3, share_4), 0.0
    for j in range(1, ANGLES):
        tried = _turned(step * j, a, b, share_3, share_4)
        if tried > best:
            best, angle = tried, step * j
    for _ in range(3):
        before = _turned(angle - step, a, b, share_3, share_4)
        after = _turned(angle + step, a, b, share_3, share_4)
        bend = before - 2.0 * best + after
        if bend >= 0.0:
            break
        top = angle + 0.5 * step * (before - after) / bend
        tried = _turned(top, a, b, share_3, share_4)
        if tried > best:
            best, angle = tried, top
        step *= 0.1
    return angle


@njit(cache=True)
def _turn(rows: Array, p: int, q: int, c: float, s: float) -> None:
    for i in range(rows.shape[1]):
        x, y = rows[p, i], rows[q, i]
        rows[p, i], rows[q, i] = c * x + s * y, c * y - s * x


@njit(cache=True)
def _sweep(
    inner: Array, columns: Array, tau_3: Array, tau_4: Array, share_3: float, share_4: float
) -> tuple[float, float]:
    """Turn every pair of columns where it gains most; returns what was gained, and the gain of all pairs in the mean.

    `inner` (rank, sites) holds the projections on the columns, `columns` (rank, rank) the columns as rows.
    """
    rank = len(inner)
    rise, gain = 0.0, 0.0
    a, b = (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)
    for p in range(rank):
        for q in range(p + 1, rank):
            if share_3 > 0.0:
                a = _thirds(tau_3, inner[p], inner[q])
            if share_4 > 0.0:
                b = _fourths(tau_4, inner[p], inner[q])
            before = _turned(0.0, a, b, share_3, share_4)
            angle = _best_angle(a, b, share_3, share_4)
            after = _turned(angle, a, b, share_3, share_4)
            if after > before:
                _turn(inner, p, q, math.cos(angle), math.sin(angle))
                _turn(columns, p, q, math.cos(angle), math.sin(angle))
                rise += after - before
            # every column is in rank − 1 pairs
            gain += max(after, before) / (rank - 1)
    return rise, gain

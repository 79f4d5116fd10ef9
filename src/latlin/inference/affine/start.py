"""Where an affine-independent ascent starts: a rotation of the Gaussian KL optimum that its bases can use.

A Gaussian looks the same from every rotation, an affine-independent density does not. To first order in the third and
fourth cumulants (κ₃, κ₄) of a base along the unit vector r, in coordinates where the Gaussian KL optimum is standard,

    B ≈ B_G + ⅙κ₃ T₃(r) − κ₃²/12 + κ₄ T₄(r)/24 − κ₄²/48,   T_k(r) = Σ_n τ_kn (g_nᵀr)^k

with τ_kn = ⟨He_k(z) ψ_n(m_n + s_n z)⟩ and g_n the projections at unit length (Gram–Charlier). The best κ_k is T_k
itself, and the gain Σ_d T₃²/12 + T₄²/48 is maximised over rotations by turning one pair of columns after the other
(Comon, 1994): along the angle of a pair it is a short trigonometric sum.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, svd

from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.numerics.arrays import Array
from latlin.numerics.quadrature import gaussian_nodes
from latlin.numerics.threads import INNER, njit

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
#: sites whose directions one column of a few is looked for from, and steps of each search
LEADS, POWER_STEPS = 2, 50
FAST = {"reassoc", "contract", "nsz", "arcp"}


class AffineStart(NamedTuple):
    """A rotation, the cumulants that the posterior asks for along its columns, and what they promise to gain."""

    rotation: Array
    third: Array
    fourth: Array
    gain: float

    def gains(self) -> dict[int, Array]:
        """What each order of cumulants promises to gain along each column."""
        return {k: _gains(k, t) for k, t in ((3, self.third), (4, self.fourth))}


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
        return sum(float(_gains(k, self.along(rotation, k)).sum()) for k in orders)


def _gains(order: int, t: Array) -> Array:
    """max over κ_k within reach of (2Tκ − κ²)·share: what a cumulant of this order gains along each column."""
    kept = np.clip(t, -CAPS[order], CAPS[order])
    return SHARES[order] * (2.0 * t * kept - kept * kept)


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


def best_starts(
    found: Cumulants, wanted: set[tuple[int, ...]], width: int | None = None
) -> dict[tuple[int, ...], AffineStart]:
    """The rotations of the largest first-order gain for bases that move cumulants of these orders.

    With a `width` only the first so many columns are to gain, and the others complete the rotation.
    """
    if width is not None and width < found.directions.shape[1]:
        return {orders: _leading_start(found, orders, width) for orders in wanted}
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


def _leading_start(found: Cumulants, orders: tuple[int, ...], width: int) -> AffineStart:
    """One column after the other, each the best that is orthogonal to those before; then turns of their pairs."""
    rank = found.directions.shape[1]
    columns = np.zeros((rank, 0))
    while columns.shape[1] < width:
        columns = np.column_stack([columns, _next_column(found, orders, columns)])
    columns = _climb(found, columns, orders, SWEEPS) if width > 1 and orders else columns
    rest = qr(columns)[0][:, width:]
    third, fourth = found.along(columns, 3), found.along(columns, 4)
    return AffineStart(np.hstack([columns, rest]), third, fourth, found.gain(columns, orders))


def _next_column(found: Cumulants, orders: tuple[int, ...], columns: Array) -> Array:
    """A unit vector r, orthogonal to `columns`, with a large gain f(r) = Σ_k share_k T_k(r)².

    f is homogeneous, so that r ∝ ∇f at a maximum on the sphere; steps towards ∇f are halved until f rises.
    """

    def project(r: Array) -> Array:
        # twice, as rounding leaves a share of what was taken away
        for _ in range(2):
            r = r - columns @ (columns.T @ r)
        return r / max(float(np.linalg.norm(r)), 1e-300)

    def measure(r: Array) -> tuple[float, Array]:
        inner = found.directions @ r
        value, slope = 0.0, np.zeros_like(inner)
        for k in orders:
            tau = found.coefficients[k]
            power = tau * inner ** (k - 1)
            total = float(power @ inner)
            value += SHARES[k] * total**2
            slope += 2.0 * k * SHARES[k] * total * power
        return value, slope @ found.directions

    size = np.sum([np.abs(found.coefficients[k]) for k in orders], axis=0) if orders else np.ones(len(found.directions))
    left = np.linalg.norm(found.directions - (found.directions @ columns) @ columns.T, axis=1)
    best, column = -1.0, project(np.random.default_rng(columns.shape[1]).standard_normal(len(columns)))
    for first in (column, *(project(row) for row in found.directions[np.argsort(-size * left**3)[:LEADS]])):
        r, (value, slope) = first, measure(first)
        for _ in range(POWER_STEPS):
            toward = project(slope)
            moved = [project(r + share * (toward - r)) for share in (1.0, 0.5, 0.1)]
            tried = max(moved, key=lambda at: measure(at)[0])
            after, turned = measure(tried)
            if after <= value * (1.0 + LEAST_SHARE):
                break
            r, value, slope = tried, after, turned
        if value > best:
            best, column = value, r
    return column


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


@njit(**INNER, fastmath=FAST)
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


@njit(**INNER, fastmath=FAST)
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


@njit(**INNER)
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


@njit(**INNER)
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


@njit(**INNER)
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

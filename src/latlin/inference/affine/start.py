"""Where an affine-independent ascent starts: a rotation of the Gaussian KL optimum that its bases can use.

A Gaussian looks the same from every rotation, an affine-independent density does not. To first order in the third and
fourth cumulants (κ₃, κ₄) of a base along the unit vector r, in coordinates where the Gaussian KL optimum is standard,

    B ≈ B_G + ⅙κ₃ T₃(r) − κ₃²/12 + κ₄ T₄(r)/24 − κ₄²/48,   T_k(r) = Σ_n τ_kn (g_nᵀr)^k

with τ_kn = ⟨He_k(z) ψ_n(m_n + s_n z)⟩ and g_n the projections at unit length (Gram–Charlier). The best κ_k is T_k
itself, and the gain Σ_d T₃²/12 + T₄²/48 is maximised over rotations by polar steps from several places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, svd

from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.numerics.arrays import Array
from latlin.numerics.quadrature import gaussian_nodes

STEPS = 60
#: cumulants beyond these are out of the families' reach
CAPS = {3: 0.9, 4: 3.0}
#: share of an order's square in the gain
SHARES = {3: 1.0 / 12.0, 4: 1.0 / 48.0}


class Start(NamedTuple):
    """A rotation, and the cumulants that the posterior asks for along its columns."""

    rotation: Array
    third: Array
    fourth: Array


class Cumulants(NamedTuple):
    """Unit projections g_n (sites, rank) and their coefficients τ_k."""

    directions: Array
    coefficients: dict[int, Array]

    def along(self, rotation: Array, order: int) -> Array:
        """T_k of every column."""
        return self.coefficients[order] @ _power(self.directions @ rotation, order)

    def gain(self, rotation: Array, orders: tuple[int, ...]) -> float:
        """What the bound can gain to first order, cumulants kept within reach."""
        total = 0.0
        for k in orders:
            t = self.along(rotation, k)
            kept = np.clip(t, -CAPS[k], CAPS[k])
            total += SHARES[k] * float(np.sum(2.0 * t * kept - kept * kept))
        return total

    def slope(self, rotation: Array, orders: tuple[int, ...]) -> Array:
        """Derivative of Σ_k share_k Σ_d T_k² with respect to the columns."""
        inner = self.directions @ rotation
        total = np.zeros_like(rotation)
        for k in orders:
            t, lower = self.coefficients[k], _power(inner, k - 1)
            weights = 2.0 * SHARES[k] * k * (t @ (lower * inner))
            total += (self.directions.T @ (t[:, None] * lower)) * weights
        return total


def best_start(form: SiteForm, solution: Solution, orders: tuple[int, ...]) -> Start:
    """The rotation of the largest first-order gain for bases that move cumulants of these orders."""
    found = _cumulants(form, solution)
    if not orders or form.rank == 1:
        rotation = np.eye(form.rank)
    else:
        climbed = [_climb(found, first, orders) for first in _firsts(found, orders)]
        rotation = max(climbed, key=lambda r: found.gain(r, orders))
    return Start(rotation, found.along(rotation, 3), found.along(rotation, 4))


def _cumulants(form: SiteForm, solution: Solution) -> Cumulants:
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


def _firsts(found: Cumulants, orders: tuple[int, ...]) -> list[Array]:
    """The Cholesky basis, one that follows the least Gaussian sites, and a random one."""
    rank = found.directions.shape[1]
    size = np.sum([np.abs(found.coefficients[k]) for k in orders], axis=0)
    leading = found.directions[np.argsort(-size)[:rank]]
    random = qr(np.random.default_rng(0).standard_normal((rank, rank)))[0]
    return [np.eye(rank), _polar(np.concatenate([leading, 1e-3 * np.eye(rank)])[:rank].T), random]


def _climb(found: Cumulants, rotation: Array, orders: tuple[int, ...]) -> Array:
    best, top = rotation, found.gain(rotation, orders)
    for _ in range(STEPS):
        slope = found.slope(rotation, orders)
        size = float(np.linalg.norm(slope))
        if size == 0.0:
            break
        # the inertia keeps a step from overshooting
        rotation = _polar(slope + size / np.sqrt(len(slope)) * rotation)
        gain = found.gain(rotation, orders)
        if gain > top:
            best, top, rose = rotation, gain, gain - top
            if rose < 1e-9 * (1.0 + top):
                break
    return best


def _power(x: Array, order: int) -> Array:
    """x^order by products: NumPy's own power of an array takes a hundred times as long beyond squares."""
    return x if order == 1 else x * _power(x, order - 1)


def _polar(a: Array) -> Array:
    """The orthogonal matrix closest to a."""
    left, _, right = svd(a)
    return left @ right

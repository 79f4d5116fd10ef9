"""Tilted moments by panels about the mode, for a ψ so steep that its values there lose their digits.

With d = x − x₀ and R(d) = ψ(x₀ + d) − ψ(x₀) − ψ′(x₀)d, which such a family knows without cancellation,

    log N(x|m, v) + pψ(x) = const − d²/(2v) + pR(d) + residue·d.
"""

from __future__ import annotations

import numpy as np

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential, TiltedMoments


def tilted_moments(block: Potential, m: Array, v: Array, power: Array, start: Array) -> TiltedMoments:
    """Moments of N(x|m, v) φ(x)^power; `start` is a place from which its mode is looked for."""
    if not m.size:
        return TiltedMoments(m, m, m)
    return TiltedMoments(*block._in_blocks(_tilted_block, m, v, power, start))


def _tilted_block(block: Potential, m: Array, v: Array, power: Array, start: Array) -> tuple[Array, Array, Array]:
    mode, s = find_mode(block, m, v, power, start), np.sqrt(v)
    with np.errstate(over="ignore", invalid="ignore"):
        residue = power * block.derivatives(mode).first - (mode - m) / np.maximum(v, 1e-300)
    # a slope that is lost in rounding is none
    residue = np.where(np.abs(residue) * s < 1.0, residue, 0.0)

    def log_f(d: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return power * block._remainder(mode, d) + residue * d

    regions = [(np.asarray(centre) - mode, width) for centre, width in block.regions()]
    nodes = quadrature.tilted_nodes(log_f, np.zeros_like(m), s, regions, block.log_concave)
    log_sum, shift, spread = quadrature.moments(*nodes)
    with np.errstate(over="ignore"):
        away = (mode - m) / np.maximum(s, 1e-150)
        log_z = power * block.log_density(mode) - 0.5 * away * away + log_sum
    return log_z, mode + s * shift, v * spread


def find_mode(block: Potential, m: Array, v: Array, power: Array, start: Array) -> Array:
    """A maximum of N(x|m, v) φ(x)^power: Newton steps, kept in a bracket by bisection once there is one."""
    x, push = np.array(start), power * v
    reach = 8.0 * np.maximum(np.sqrt(v), 1e-300)
    low, high = np.full_like(x, -np.inf), np.full_like(x, np.inf)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        last = np.full_like(x, np.inf)
        for _ in range(300):
            first, second, _ = block.derivatives(x)
            slope = push * first - (x - m)
            low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
            newton = x + slope / np.maximum(1.0 - push * second, 1e-3)
            # a step that is not half the last one does not converge fast: bisection
            inside = (newton > low) & (newton < high) & (np.abs(newton - x) < 0.5 * last)
            unknown = np.isinf(low) | np.isinf(high)
            new = np.where(unknown, np.clip(newton, x - reach, x + reach), np.where(inside, newton, 0.5 * (low + high)))
            new = np.where(np.isfinite(new) & (slope != 0), new, x)
            reach, last = 2.0 * reach, np.where(inside, np.abs(new - x), np.inf)
            if np.all(np.abs(new - x) <= 1e-15 * np.abs(x) + 1e-300):
                break
            x = new
    return x


def curl(t: Array) -> Array:
    """e^t − 1 − t without cancellation.

    >>> float(curl(np.array(1e-8)).round(24))
    5e-17
    """
    near = 0.5 * t * t * (1.0 + t / 3.0 * (1.0 + t / 4.0 * (1.0 + t / 5.0 * (1.0 + t / 6.0))))
    return np.where(np.abs(t) < 0.02, near, np.expm1(t) - t)

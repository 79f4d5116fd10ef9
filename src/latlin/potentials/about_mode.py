"""Tilted moments about the mode of N(x|m, v) φ(x)^p: by some equidistant nodes where that is nearly Gaussian, else by
panels, for a ψ so steep that its values there lose their digits.

With d = x − x₀ and R(d) = ψ(x₀ + d) − ψ(x₀) − ψ′(x₀)d, which such a family knows without cancellation,

    log N(x|m, v) + pψ(x) = const − d²/(2v) + pR(d) + residue·d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials.checks import SiteBlock, TiltedMoments

#: distance of the nodes from the mode and of one from the next, in standard deviations about the mode
REACH, STEP = 9.0, 0.35
#: largest difference between all nodes and every second one: the error of all is about its square
HALVED = 1e-8
#: log density at the ends of the nodes, against the top; and largest |pψ|, which costs digits
ENDS, LARGEST = -32.0, 1e3
#: steps of Newton's method, and the last one at most, in standard deviations
NEWTON, SETTLED = 8, 1e-3


def tilted_moments(block: SiteBlock, m: Array, v: Array, power: Array, start: Array) -> TiltedMoments:
    """Moments of N(x|m, v) φ(x)^power; `start` is a place from which its mode is looked for."""
    out, rest = nearly_gaussian_moments(block, m, v, power)
    if rest.size:
        sites = (m[rest], v[rest], power[rest], start[rest])
        out[:, rest] = block.select(rest)._in_blocks(_tilted_block, *sites)
    return TiltedMoments(*out)


def nearly_gaussian_moments(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, NDArray[np.intp]]:
    """The three moments, (3, sites), by the trapezoid rule, and the sites for which they are not good to 1e-11.

    On nodes h standard deviations apart the rule converges exponentially where the tilted density is analytic in a
    strip, so that the difference to every second node shows its error. Densities that may have a second top are looked
    at over all of N(x|m, v).
    """
    if not m.size:
        return np.empty((3, 0)), np.zeros(0, np.intp)
    found = block._in_blocks(_nearly_gaussian_block, m, v, power)
    return np.stack(found[:3]), np.flatnonzero(~(found[3] > 0.0))


def _nearly_gaussian_block(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array, Array]:
    """The moments, and 1 where they are good."""
    is_point, v = v <= 0.0, np.where(v > 0.0, v, 1.0)
    with np.errstate(all="ignore"):
        shift, sd, step = _near_mode(block, m, v, power)
        settled = (np.abs(step) <= SETTLED * sd) & ~is_point
        if not block.log_concave:
            settled &= _has_one_top(block, m, v, power, shift, sd)
            sd = np.where(settled, sd, np.sqrt(v))
        count = round(REACH / STEP) if block.log_concave else round(3.0 * REACH / STEP)
        t = STEP * np.arange(-count, count + 1, dtype=float)[:, None]
        # away from m, which may be large against sd
        away = shift + sd * t
        log_f = power * block.log_density(m + away) - 0.5 * away**2 / v
        top = log_f[count]
        w = np.exp(log_f - top)
        total, centre, spread = _sums(w, t)
        half, half_centre, half_spread = _sums(w[count % 2 :: 2], t[count % 2 :: 2])
        apart = np.abs(2.0 * half / total - 1.0) + np.abs(half_centre - centre) + np.abs(half_spread / spread - 1.0)
        ends = np.maximum(log_f[0], log_f[-1]) - top
        good = settled & (apart <= HALVED) & (ends <= ENDS) & (np.abs(top + 0.5 * shift**2 / v) <= LARGEST)
        log_z = top + np.log(STEP * total * sd / np.sqrt(2.0 * np.pi * v))
        return log_z, m + (shift + sd * centre), sd * sd * spread, good.astype(float)


def _has_one_top(block: SiteBlock, m: Array, v: Array, power: Array, shift: Array, sd: Array) -> NDArray[np.bool_]:
    """The nodes see all that matters: most of N(x|m, v), no detail finer than themselves, and nothing high far away."""

    def log_f(x: Array) -> Array:
        return power * block.log_density(x) - 0.5 * (x - m) ** 2 / v

    s, top = np.sqrt(v), log_f(m + shift)
    fine = (sd >= 0.5 * s) & (np.abs(shift) <= 1.5 * s)
    for centre, width in block.regions():
        c = np.broadcast_to(np.asarray(centre, dtype=float), m.shape)
        far, low = np.abs(c - m) > 12.0 * s, log_f(c) - top <= ENDS - 8.0
        fine &= np.where(far, low, np.asarray(width) >= 0.7 * s)
    return np.asarray(fine)


def _near_mode(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array]:
    """How far from m a top of N(x|m, v) φ(x)^power is, the sd of its parabola, and the last step of Newton's method."""
    shift, sd, step = np.zeros_like(m), np.sqrt(v), np.zeros_like(m)
    for _ in range(NEWTON):
        first, second, _ = block.derivatives(m + shift)
        precision = np.maximum(1.0 / v - power * second, 0.25 / v)
        step = (power * first - shift / v) / precision
        sd = np.where(np.isfinite(precision), 1.0 / np.sqrt(precision), np.sqrt(v))
        # a site without finite slopes stays where it is
        shift = shift + np.clip(np.where(np.isfinite(step), step, 0.0), -3.0 * np.sqrt(v), 3.0 * np.sqrt(v))
        if np.all(np.abs(step) <= SETTLED * sd):
            break
    return shift, sd, step


def _sums(w: Array, t: NDArray[np.floating[Any]]) -> tuple[Array, Array, Array]:
    """The sum of some weights, and the mean and variance of their places."""
    total = w.sum(axis=0)
    centre = (w * t).sum(axis=0) / total
    return total, centre, (w * (t - centre) ** 2).sum(axis=0) / total


def _tilted_block(block: SiteBlock, m: Array, v: Array, power: Array, start: Array) -> tuple[Array, Array, Array]:
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


def find_mode(block: SiteBlock, m: Array, v: Array, power: Array, start: Array) -> Array:
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


def exp_minus_linear(t: Array) -> Array:
    """e^t − 1 − t without cancellation.

    >>> float(exp_minus_linear(np.array(1e-8)).round(24))
    5e-17
    """
    found = np.asarray(np.expm1(t) - t)
    near = np.abs(t) < 0.02
    if np.any(near):
        s = np.asarray(t)[near]
        found[near] = 0.5 * s * s * (1.0 + s / 3.0 * (1.0 + s / 4.0 * (1.0 + s / 5.0 * (1.0 + s / 6.0))))
    return found

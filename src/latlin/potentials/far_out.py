"""Tilted moments where the Gaussian is so far out that m + sz loses the place where a log-concave φ bends.

With x₀ the mode of N(x|m, v) φ(x)^p, d = x − x₀ and R(d) = ψ(x₀ + d) − ψ(x₀) − ψ′(x₀)d,

    log N(x|m, v) + pψ(x) = const + pR(d) + residue·d − d²/(2v),   residue = pψ′(x₀) + (m − x₀)/v.

Where that is so wide that its forces, which cancel, lose their digits too, φ is two lines that meet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials.checks import SiteBlock
from latlin.potentials.kernels.truncated import join_halves

#: centres of that size, and so many standard deviations from where φ bends, are far out
FAR, MANY = 1e9, 1e3
#: forces over the width of the tilted density from which on φ is two lines, met at so many widths of its bends
STRAIGHT, TAILS = 1e8, 64.0
#: |log φ| at the mode that leaves eight digits of differences
LARGE = 1e7
#: largest place that is looked at; widths in which panels are laid, as an exponential falls slowly
LARGEST, WIDE = 1e305, 5.0


def far_tilted(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, NDArray[np.bool_]]:
    """log Z, mean and variance at centres that are far out, and where they are right."""
    out, good = np.full((3, m.size), np.nan), np.zeros(m.size, dtype=bool)
    some = np.flatnonzero((np.abs(m) > FAR) & (np.abs(m) > MANY * np.sqrt(v)) & (v > 0) & (power > 0))
    if not (block.log_concave and some.size):
        return out, good
    out[:, some] = block.select(some)._in_blocks(_far_block, m[some], v[some], power[some])
    good[some] = np.isfinite(out[1:, some]).all(axis=0) & (out[2, some] > 0.0) & ~np.isnan(out[0, some])
    return out, good


def _far_block(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array]:
    lines = np.array(_two_lines(block, m, v, power))
    with np.errstate(all="ignore"):
        straight = np.abs(m) / v * np.sqrt(lines[2]) > STRAIGHT  # not where they are not known
    panels = np.array(_about_mode(block, m, v, power))
    log_z, mean, variance = np.where(straight, lines, panels)
    return log_z, mean, variance


def _two_lines(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array]:
    """Each line makes half of the Gaussian another one, cut where the two lines meet."""
    centres, widths = (np.broadcast_arrays(*part, m)[:-1] for part in zip(*block.regions(), strict=True))
    low = np.min(centres, axis=0) - TAILS * np.max(widths, axis=0)
    high = np.max(centres, axis=0) + TAILS * np.max(widths, axis=0)
    with np.errstate(all="ignore"):
        (left, rise, _), (right, fall, _) = (block._expansion(x) for x in (low, high))
        left, rise, right, fall = (power * part for part in (left, rise, right, fall))
        kink = (left - rise * low - right + fall * high) / (fall - rise)
        # a wall stands where φ bends
        kink = np.where((kink > low) & (kink < high), kink, 0.5 * (low + high))
        top = np.where(np.isfinite(left), left + rise * (kink - low), right + fall * (kink - high))
        s = np.sqrt(v)
        # the centres of the two Gaussians, in standard deviations from where they are cut
        up, down = (np.clip((slope * v + (m - kink)) / s, -1e150, 1e150) for slope in (fall, rise))
        halves = join_halves(_log_half(up), up, _log_half(-down), -down)
        away = (kink - m) / s
        # else φ goes on bending where the mode is
        meet = (up <= MANY) & (down >= -MANY)
        mean, variance = kink + s * halves.mean, np.where(meet, v * halves.variance, np.nan)
        return top - 0.5 * away * away + halves.log_z, mean, variance


def _log_half(k: Array) -> Array:
    """log ∫_0^∞ exp(kz − ½z²) dz/√(2π)."""
    below = np.log(0.5 * erfcx(-np.minimum(k, 0.0) / np.sqrt(2.0)))
    return np.where(k > 0.0, 0.5 * k * k + log_ndtr(k), below)


def _about_mode(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array]:
    """By panels about the mode, in units of the width there."""
    with np.errstate(all="ignore"):
        mode = _find_mode(block, m, v, power)
        residue = power * block.derivatives(mode).first + (m - mode) / v

        def log_f(d: Array) -> Array:
            found = power * block._remainder(mode, d) + residue * d - 0.5 * d * (d / v)
            return np.where(np.isnan(found), -np.inf, found)

        unit = WIDE * _width(log_f, np.sqrt(v))
        regions = [(np.asarray(centre) - mode, width) for centre, width in block.regions()]
        nodes = quadrature.tilted_nodes(
            lambda d: log_f(d) + 0.5 * (d / unit) ** 2, np.zeros_like(m), unit, regions, log_concave=True
        )
        log_sum, shift, spread = quadrature.moments(*nodes)
        away = (mode - m) / np.sqrt(v)
        top = power * block.log_density(mode)
        log_z = top - 0.5 * away * away + log_sum + np.log(unit / np.sqrt(v))
        # where φ is so small that ψ has lost its digits there, others know better
        known = np.abs(top) < LARGE
        return (
            np.where(np.isnan(log_z), -np.inf, log_z),
            mode + unit * shift,
            np.where(known, unit * unit * spread, np.nan),
        )


def _find_mode(block: SiteBlock, m: Array, v: Array, power: Array) -> Array:
    """Where pψ′(x) = (x − m)/v: by bisection, first in the order of magnitude."""
    low, high = np.full_like(m, -LARGEST), np.full_like(m, LARGEST)
    for trial in range(400):
        coarse = 0.5 * (np.arcsinh(low) + np.arcsinh(high))
        x = np.sinh(coarse) if trial < 60 else 0.5 * (low + high)
        first = power * block.derivatives(x).first
        force = first + (m - x) / v
        force = np.where(np.isnan(force), first, force)
        low, high = np.where(force > 0, x, low), np.where(force > 0, high, x)
        if trial > 60 and np.all(high - low <= 4.0 * np.spacing(np.abs(x))):
            break
    return np.asarray(0.5 * (low + high))


def _width(log_f: Callable[[Array], Array], s: Array) -> Array:
    """The larger of the distances to either side at which a log-concave function has fallen by one, at most s."""
    low, high = np.full((2, s.size), -345.0), np.broadcast_to(np.log(s), (2, s.size)).copy()
    side = np.array([[1.0], [-1.0]])
    for _ in range(40):
        middle = 0.5 * (low + high)
        above = np.stack([log_f(sign * np.exp(at)) for sign, at in zip(side, middle, strict=True)]) > -1.0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp(np.max(high, axis=0))

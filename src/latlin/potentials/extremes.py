"""Answers at means up to 1e300 and variances from 1e-300 to 1e300, where a family's own formulas overflow or cancel.

Far from where it bends every ψ is a parabola (nearly always a line) over the whole reach of a Gaussian; its expectation
and its product with the Gaussian are then closed. What is no parabola goes to the panels of `Potential`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.potentials.checks import SiteBlock
from latlin.potentials.far_out import far_tilted

#: means and variances (or inverse variances) beyond that size are looked at first
FAR, LARGE = 1e9, 1e40
REACH = 10.0
#: share of a number that a difference from it may lose
LOST = 4.0 * np.finfo(float).eps


def is_extreme(m: Array, v: Array) -> NDArray[np.bool_]:
    """Sites whose numbers are so large or so small that formulas in squares lose them."""
    return (np.abs(m) > FAR) | (v > LARGE) | ((v > 0) & (v < 1.0 / LARGE))


def _is_usual(m: Array, v: Array) -> bool:
    """Whether a glance shows that no site is extreme: no part is larger than the root of a sum of squares."""
    return bool(m.size and m @ m <= FAR**2 and v @ v <= LARGE**2 and v.min() >= 1.0 / LARGE)


def _has_lost(part: Array) -> bool:
    """Whether something is not a number: then the least of all is none either."""
    return bool(part.size and math.isnan(part.min()))


def answer(block: SiteBlock, closed: Any, panels: Any, *arrays: Array) -> Any:
    """The family's own answer; at extreme sites that of a parabola, and panels for what is not a number."""
    own = getattr(type(block), panels.__name__)
    usual = _is_usual(*arrays[:2])
    if usual or not np.any(is_extreme(*arrays[:2])):
        found = own(block, *arrays)
        if not any(map(_has_lost, found)):
            return found
    far = np.zeros(arrays[0].size, dtype=bool) if usual else is_extreme(*arrays[:2])
    out = np.full((3, arrays[0].size), np.nan)
    some = np.flatnonzero(far)
    if some.size:
        values, good = closed(block.select(some), *(array[some] for array in arrays))
        out[:, some[good]] = values[:, good]
    for ask in (own, panels):
        left = np.flatnonzero(np.isnan(out).any(axis=0))
        if left.size:
            out[:, left] = ask(block.select(left), *(array[left] for array in arrays))
    return out


def mend_moments(block: SiteBlock, found: Any, m: Array, v: Array, power: Array) -> Any:
    """Tilted moments with those that are still no numbers taken from the mode."""
    lost = np.flatnonzero(~np.isfinite(found[1]) | ~np.isfinite(found[2]) | np.isnan(found[0]))
    if not lost.size:
        return found
    mended = np.array(found)
    mended[:, lost] = mode_tilted(block.select(lost), m[lost], v[lost], power[lost])
    return mended


def parabola_expected(block: SiteBlock, m: Array, v: Array) -> tuple[Array, NDArray[np.bool_]]:
    """⟨ψ⟩ and its derivatives where ψ is a parabola, and where it is one."""
    value, first, second = block._expansion(m)
    found = np.array(np.broadcast_arrays(value + 0.5 * second * v, first, 0.5 * second))
    good = _is_parabola(block, m, m, np.sqrt(v), first, second) & ~np.isnan(found).any(axis=0)
    # where ψ is −∞ at the mean, so is its expectation
    gone = np.isneginf(value)
    found[0, gone] = -np.inf
    return found, good | (gone & ~np.isnan(found).any(axis=0))


def parabola_tilted(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, NDArray[np.bool_]]:
    """log Z, mean and variance where ψ is a parabola, and where it is one.

    With slope g = pψ′ and u = v/(1 − pvψ″): log Z = pψ + ½ log(u/v) + ½g²u, mean = m + gu, variance = u.
    """
    value, first, second = block._expansion(m)
    slope, shrink = power * first, 1.0 / (1.0 - power * v * second)
    u = v * shrink
    move = slope * u
    log_z = power * value + 0.5 * np.log(shrink) + 0.5 * slope * move
    # a parabola that is −∞ at m in floating point is so all the more in truth
    log_z = np.where(np.isneginf(value) & (power > 0), -np.inf, log_z)
    found = np.array(np.broadcast_arrays(log_z, m + move, u))
    good = (shrink > 0) & _is_parabola(block, m, m + move, np.sqrt(u), first, second)
    return found, good & np.isfinite(found[1:]).all(axis=0) & ~np.isnan(log_z)


def closed_tilted(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, NDArray[np.bool_]]:
    """log Z, mean and variance where ψ is a parabola or the Gaussian far out, and where they are right."""
    found, good = parabola_tilted(block, m, v, power)
    left = np.flatnonzero(~good)
    if left.size:
        found[:, left], good[left] = far_tilted(block.select(left), m[left], v[left], power[left])
    return found, good


def _is_parabola(block: SiteBlock, m: Array, centre: Array, s: Array, first: Array, second: Array) -> NDArray[np.bool_]:
    """The slope is what a parabola at m would have, at the centre and ten standard deviations to either side."""
    good = np.isfinite(first) & np.isfinite(second)
    # a centre far from m is known to the last digit of m only
    reach = REACH * s + np.where(centre == m, 0.0, LOST * np.abs(m))
    for x in (centre - reach, centre, centre + reach):
        slope, bend, _ = block.derivatives(x)
        want = first + second * (x - m)
        good &= np.abs(slope - want) <= 1e-11 * np.abs(want) + 1e-300
        good &= np.abs(bend - second) * s <= 1e-11 * (np.abs(first) + np.abs(want)) + 1e-300
    return np.asarray(good)


def mode_tilted(block: SiteBlock, m: Array, v: Array, power: Array) -> Array:
    """log Z, mean and variance from height and curvature at the mode, all that is left of a φ that is so far out.

    log Z is right to a few nat in more than 1e15 of them, the mean to the width of φ.
    """
    x, push = np.array(np.broadcast_to(block.regions()[0][0], m.shape), dtype=float), power * v
    x = np.where(np.abs(x - m) < np.sqrt(v) * 1e-8, m, x)
    low, high = np.minimum(x, m), np.maximum(x, m)
    for _ in range(200):
        # the mode lies between the Gaussian's centre and where φ alone would have it
        slope = push * block.derivatives(x).first - (x - m)
        low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
        x = np.sinh(0.5 * (np.arcsinh(low) + np.arcsinh(high)))
    value, _, second = block._expansion(x)
    shrink = 1.0 / np.maximum(1.0 - push * second, 1.0)
    away = (x - m) / np.sqrt(v)
    log_z = power * value - 0.5 * away * away + 0.5 * np.log(shrink)
    found = np.array([np.where(np.isnan(log_z), -np.inf, log_z), x, v * shrink])
    return np.where(np.isnan(found), np.array([[-np.inf], [0.0], [0.0]]), found)

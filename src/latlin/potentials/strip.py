"""Fewer nodes for log-concave families whose ψ is analytic in a strip |Im x| < strip.

On equidistant nodes the integrals converge exponentially once their step is small against the strip and against the
width of the integrand. Two tiers of nodes serve standard deviations up to about the strip; beyond, and where the top of
a tilted density is not found at once, the panels of `Potential` take over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials.base import ExpectedLog, Potential, TiltedMoments

REACH = 7.5
#: length of an interval below which the mass of a normal in it is not a difference of two masses
SHORT = 0.05
#: (nodes, largest sd in units of the strip)
EXPECTED = ((28, 0.33), (72, 0.98))
#: (nodes, largest sd in units of the strip, largest power·var·|ψ″|)
TILTED = ((36, 0.28, 1.0), (108, 0.85, 10.0))


def expected_log(block: Potential, m: Array, v: Array, strip: Array | float) -> ExpectedLog:
    """⟨ψ⟩ and its derivatives; `strip` is a scalar or one number per site."""
    ratio = np.sqrt(v) / strip
    tier = np.sum([ratio > limit for _, limit in EXPECTED], axis=0)
    out = np.empty((3, m.size))
    for k, (n, _) in enumerate(EXPECTED):
        some = np.flatnonzero(tier == k)
        if not some.size:
            continue
        out[:, some] = block.select(some)._in_blocks(partial(_expected_block, n=n), m[some], v[some])
    rest = np.flatnonzero(tier == len(EXPECTED))
    out[:, rest] = Potential._expected_log(block.select(rest), m[rest], v[rest])
    return ExpectedLog(*out)


def expectation(
    block: Potential, g: Callable[[Potential, Array], Array], m: Array, v: Array, strip: Array | float
) -> Array:
    """⟨g(block, x)⟩ of a function that is analytic where ψ is; NaN where sd is too large for these nodes."""
    ratio = np.sqrt(v) / strip
    tier = np.sum([ratio > limit for _, limit in EXPECTED], axis=0)
    out = np.full(m.size, np.nan)
    for k, (n, _) in enumerate(EXPECTED):
        some = np.flatnonzero(tier == k)
        if some.size:
            z, w = quadrature.trapezoid(n, REACH)

            def averaged(part: Potential, m: Array, v: Array, z: Array = z, w: Array = w) -> tuple[Array]:
                return (w @ g(part, m + np.sqrt(v) * z[:, None]),)

            (out[some],) = block.select(some)._in_blocks(averaged, m[some], v[some])
    return out


def expected_log_mass(block: Potential, m: Array, v: Array, lower: Array, upper: Array, strip: float) -> ExpectedLog:
    """⟨ψ⟩ of ψ = log(Φ(upper − x) − Φ(lower − x)), compiled; by the nodes above where the sd is large."""
    from latlin.potentials.kernels import normal_sites  # loads the compiler: when first needed

    out = normal_sites.expected_log_mass(m, v, lower, upper)[:3]
    # differences of Φ over a short interval have few digits
    wide = np.flatnonzero(np.isnan(out[0]) | np.broadcast_to(upper - lower < SHORT, m.shape))
    if wide.size:
        out[:, wide] = expected_log(block.select(wide), m[wide], v[wide], strip)
    return ExpectedLog(*out)


def tilted_moments(
    block: Potential, m: Array, v: Array, power: Array, strip: Array | float, curvature: Array | float
) -> TiltedMoments:
    """Tilted moments, for −ψ″ nowhere above `curvature`."""
    ratio, bend = np.sqrt(v) / strip, power * v * curvature
    tier = np.sum([(ratio > limit) | (bend > most) for _, limit, most in TILTED], axis=0)
    out = np.empty((3, m.size))
    for k, (n, _, _) in enumerate(TILTED):
        some = np.flatnonzero(tier == k)
        if not some.size:
            continue
        part = (m[some], v[some], power[some])
        *values, away = block.select(some)._in_blocks(partial(_tilted_block, n=n), *part)
        out[:, some] = values
        tier[some[away > 0.1]] = len(TILTED)
    rest = np.flatnonzero(tier == len(TILTED))
    out[:, rest] = Potential._tilted_moments(block.select(rest), m[rest], v[rest], power[rest])
    return TiltedMoments(*out)


def _expected_block(block: Potential, m: Array, v: Array, n: int) -> tuple[Array, Array, Array]:
    z, w = quadrature.trapezoid(n, REACH)
    x = m + np.sqrt(v) * z[:, None]
    value, first, second = block._expansion(x)
    return w @ value, w @ first, 0.5 * (w @ second)


def _tilted_block(block: Potential, m: Array, v: Array, power: Array, n: int) -> tuple[Array, Array, Array, Array]:
    """The three moments, and how far from the top of the integrand the nodes are centred."""
    s = np.sqrt(v)
    top, step = np.zeros_like(m), np.zeros_like(m)
    for _ in range(6):
        # Newton for the top of −½z² + power ψ(m + sz)
        first, second, _ = block.derivatives(m + s * top)
        step = (power * s * first - top) / (1 - power * v * second)
        top = top + step
    t, _ = quadrature.trapezoid(n, REACH)
    z = top + t[:, None]
    log_w = power * block.log_density(m + s * z) - 0.5 * z * z + np.log((t[1] - t[0]) / np.sqrt(2 * np.pi))
    log_z, centre, spread = quadrature.moments(z, log_w)
    return log_z, m + s * centre, v * spread, np.abs(step)

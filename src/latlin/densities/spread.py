"""Expectations of smooth functions of projections that spread over many independent variables.

Where no weight of z = Σ_d a_d v_d is large, every x = a_d t lies where log φ_d is a short polynomial,

    log φ_d(x) = −½x² + Σ_k ε_dk x^{4+2k} + i Σ_k ω_dk x^{3+2k},

so that the logarithm of the characteristic function of z has the coefficients Σ_d ε_dk a_d^{4+2k} and
Σ_d ω_dk a_d^{3+2k}: the variables cost a few powers each, whatever the number of frequencies. All projections share
one window and one set of frequencies, and a smooth integrand needs no panels: on evenly spaced points the density that
multiplies it vanishes at both ends, so that the trapezoidal rule converges faster than any power, and the transform
of all integrands is one matrix product. Half of the points give a second value, which says whether they were enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from latlin.densities.bases.base import Base
from latlin.numerics.arrays import Array
from latlin.numerics.threads import njit, share_out

#: terms of the even and of the odd part of log φ
TERMS = 12
#: arguments up to which a polynomial is tried, the longest first
SPANS = (8.5, 7.2, 6.0, 5.0, 4.0, 3.0, 2.0)
#: largest error of Φ
ACCURACY = 1e-11
#: frequencies go this much further than a Gaussian's would
BEYOND = 1.05
#: half-width of the window, in those of a Gaussian projection
ROOM = 1.1
#: points beyond two per frequency
SPARE = 20
#: the rule with half of the points may be wrong by this, relative to the integrand; with all it is then by its square
HALF_ACCURACY = 1e-6
#: sites that are treated together, so that their powers stay in the cache
PIECE = 256
#: nanoseconds per power of a weight, by measurement
PER_POWER = 1.0
FAST = {"reassoc", "contract", "nsz", "arcp"}


class SpreadGrid(NamedTuple):
    """Points and frequencies that all spread projections share."""

    z: Array  # (points + 1,): evenly spaced from −R to R
    t: Array  # (frequencies,): πj/R
    waves: Array  # (2·frequencies, points + 1): cos and −sin of t_j z_k, times 2/points
    even: Array  # (frequencies, TERMS): (t_j/t_last)^{4+2k}
    odd: Array  # (frequencies, TERMS): (t_j/t_last)^{3+2k}
    half_width: float
    floor: float  # what |Φ| must have fallen below at the last frequency


@lru_cache(maxsize=16)
def spread_grid(half_width: float, floor: float) -> SpreadGrid:
    """Frequencies up to where a Gaussian's characteristic function is e^floor, and somewhat beyond."""
    width = ROOM * half_width
    count = int(np.ceil(BEYOND * np.sqrt(-2.0 * floor) * width / np.pi))
    points = 4 * ((2 * count + SPARE + 3) // 4)
    z = width * (2.0 * np.arange(points + 1) / points - 1.0)
    t: Array = np.pi / width * np.arange(1.0, count + 1.0)
    phase = t[:, None] * z
    share = (t / t[-1])[:, None]
    waves = 2.0 / points * np.concatenate([np.cos(phase), -np.sin(phase)])
    powers = 2.0 * np.arange(TERMS)
    return SpreadGrid(z, t, waves, share ** (4.0 + powers), share ** (3.0 + powers), width, float(np.exp(floor)))


# --- The polynomials of log φ.


class Fit(NamedTuple):
    """Arguments below one span, and the least-squares maps from log φ + ½x² there to the coefficients."""

    x: Array
    even: Array  # (TERMS, arguments)
    odd: Array


@lru_cache(maxsize=len(SPANS))
def _fit(span: float) -> Fit:
    angle = (np.arange(3 * TERMS) + 0.5) * (np.pi / (3 * TERMS))
    y = 0.5 * span**2 * (1.0 - np.cos(angle))
    # errors of log φ count as much as Φ, which falls faster than φ
    x, weight = np.sqrt(y), np.exp(-0.75 * y)
    powers = (y[:, None] / span**2) ** np.arange(TERMS)
    units = span ** (-2.0 * np.arange(TERMS))[:, None]
    even = np.linalg.pinv((weight * y * y)[:, None] * powers) * weight
    odd = np.linalg.pinv((weight * y * x)[:, None] * powers) * weight
    return Fit(x, units * even, units * odd)


def _lengths(need: float) -> list[float]:
    """The spans to try: the shortest that is enough, then shorter ones."""
    return [length for length, next_one in zip(SPANS, (*SPANS[1:], 0.0), strict=True) if next_one < need]


class LogCharacteristic(NamedTuple):
    """Coefficients of log φ of each row of a base, and up to where they hold (0: nowhere)."""

    even: Array  # (rows, TERMS)
    odd: Array  # (rows, TERMS)
    span: Array  # (rows,)

    @classmethod
    def of(cls, base: Base, heaviest: Array, last: float) -> LogCharacteristic:
        """Polynomials that hold up to x = a_d·last for the heaviest weight a_d of each row, or as far as they can."""
        even, odd, span = np.zeros((base.rows, TERMS)), np.zeros((base.rows, TERMS)), np.zeros(base.rows)
        # |Φ(t)| = |φ(x)| e^{−½(t² − x²)} or so, and x = at
        fall = 0.5 * (1.0 / np.maximum(heaviest, 1e-3) ** 2 - 1.0)
        for length in _lengths(last * float(heaviest.max())):
            open_rows = span == 0.0
            if not open_rows.any():
                break
            x, to_even, to_odd = _fit(length)
            phi = base.characteristic(x)[0]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                logs = np.log(np.abs(phi)) + 0.5 * x * x, np.unwrap(np.angle(phi), axis=1)
                e, o = logs[0] @ to_even.T, logs[1] @ to_odd.T
                powers = (x * x) ** np.arange(TERMS)[:, None]
                found = np.exp((e @ powers) * x**4 - 0.5 * x * x + 1j * (o @ powers) * x**3)
                error = np.abs(found - phi) * np.exp(-fall[:, None] * x * x)
                good = open_rows & (error.max(axis=1) < ACCURACY)
            even[good], odd[good], span[good] = e[good], o[good], length
        return cls(even, odd, span)

    def shape_gradient(self, base: Base, d_even: Array, d_odd: Array) -> Array:
        """Derivatives in the free shapes from those in the coefficients; δ log φ = δφ/φ."""
        found = np.zeros(base.free.shape)
        for length in np.unique(self.span[self.span > 0.0]):
            x, to_even, to_odd = _fit(float(length))
            ratio = base.characteristic_gradient(x) / base.characteristic(x)[0][:, None, :]
            slope = np.einsum("rk,rpk->rp", d_even @ to_even, ratio.real)
            slope += np.einsum("rk,rpk->rp", d_odd @ to_odd, ratio.imag)
            here = self.span == length
            found[here] = slope[here]
        return found


# --- Sums over the variables.


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_powers(
    first: int, last: int, a: Array, row: NDArray[np.int64], even: Array, odd: Array, s_even: Array, s_odd: Array
) -> None:
    """Σ_d ε_dk a_d^{4+2k} and Σ_d ω_dk a_d^{3+2k} of the sites of the blocks first … last − 1; arrays (…, sites)."""
    dim, sites = a.shape
    square, p, q = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
    for block in range(first, last):
        begin = block * PIECE
        end = min(begin + PIECE, sites)
        for d in range(dim):
            x = a[d, begin:end]
            for i in range(len(x)):
                square[i] = x[i] * x[i]
                p[i] = x[i] * square[i]
                q[i] = square[i] * square[i]
            for k in range(even.shape[1]):
                e, o = even[row[d], k], odd[row[d], k]
                to_even, to_odd = s_even[k, begin:end], s_odd[k, begin:end]
                for i in range(len(x)):
                    to_even[i] += e * q[i]
                    to_odd[i] += o * p[i]
                    q[i] *= square[i]
                    p[i] *= square[i]


@njit(cache=True, nogil=True, fastmath=FAST)
def _pull_back(
    first: int,
    last: int,
    a: Array,
    row: NDArray[np.int64],
    even: Array,
    odd: Array,
    g_even: Array,
    g_odd: Array,
    d_a: Array,
    d_even: Array,
    d_odd: Array,
) -> None:
    """The transpose of `_add_powers` for the variables first … last − 1: slopes in their weights and coefficients."""
    sites = a.shape[1]
    square, p, q = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
    for d in range(first, last):
        for begin in range(0, sites, PIECE):
            end = min(begin + PIECE, sites)
            x, slope = a[d, begin:end], d_a[d, begin:end]
            for i in range(len(x)):
                square[i] = x[i] * x[i]
                p[i] = square[i]
                q[i] = x[i] * square[i]
            for k in range(even.shape[1]):
                e, o = (4 + 2 * k) * even[row[d], k], (3 + 2 * k) * odd[row[d], k]
                from_even, from_odd = g_even[k, begin:end], g_odd[k, begin:end]
                by_even, by_odd = 0.0, 0.0
                for i in range(len(x)):
                    u, v = q[i] * from_even[i], p[i] * from_odd[i]
                    slope[i] += e * u + o * v
                    by_even += x[i] * u
                    by_odd += x[i] * v
                    q[i] *= square[i]
                    p[i] *= square[i]
                d_even[d, k] += by_even
                d_odd[d, k] += by_odd


class SpreadProjected(NamedTuple):
    """⟨f_n⟩ and its derivatives; `sites` says which projections these are."""

    sites: NDArray[np.intp]
    value: Array  # (sites,)
    d_shift: Array  # (sites,): when z moves
    d_a: Array  # (sites, dim)
    d_even: Array  # (dim, TERMS)
    d_odd: Array
    top: Array  # (sites,): the largest value of f
    swing: Array  # (sites,): how far f is from its chord
    series: LogCharacteristic


class Integrals(NamedTuple):
    """Sums over the shared points and frequencies; the last axis is that of the sites."""

    value: Array
    slope: Array  # of the chord through the ends
    top: Array  # the largest value
    swing: Array  # how far f is from its chord
    re: Array  # (frequencies, sites): Re C_jΦ_j/R
    im: Array
    good: NDArray[np.bool_]  # half of the points tell the same, and Φ has fallen far enough

    def of(self, kept: NDArray[np.bool_]) -> Integrals:
        """Those of some sites."""
        value, slope, top, swing, re, im, good = self
        return Integrals(value[kept], slope[kept], top[kept], swing[kept], re[:, kept], im[:, kept], good[kept])


def _integrate(values: Array, size: Array, phase: Array, grid: SpreadGrid) -> Integrals:
    """∫ f q for values of f at the points and Φ = size·e^{i·phase} at the frequencies."""
    top = values.max(axis=0)
    # chord p₀ + p₁z through the ends; ⟨z⟩ = 0
    p0, p1 = 0.5 * (values[-1] + values[0]), 0.5 * (values[-1] - values[0]) / grid.half_width
    rest = values - (p0 + np.multiply.outer(grid.z, p1))
    phi_re, phi_im = size * np.cos(phase), size * np.sin(phase)
    count, points = len(grid.t), len(grid.z) - 1
    c = _times(grid.waves, rest)
    re, im = c[:count] * phi_re - c[count:] * phi_im, c[:count] * phi_im + c[count:] * phi_re
    value = rest.sum(axis=0) / points + re.sum(axis=0)
    # the same with every second point
    c = _times(2.0 * grid.waves[:, ::2], rest[::2])
    half = 2.0 * rest[::2].sum(axis=0) / points + np.sum(c[:count] * phi_re - c[count:] * phi_im, axis=0)
    far = HALF_ACCURACY * (1.0 + top - np.minimum(values[0], values[-1]))
    good = (np.abs(value - half) <= far) & (size[-1] <= grid.floor)
    return Integrals(p0 + value, p1, top, np.abs(rest).max(axis=0), re, im, good)


def expect_spread(
    f: Callable[[Array], Array],
    beta: Array,
    sigma: Array,
    unit: Array,
    base: Base,
    row: NDArray[np.int64],
    grid: SpreadGrid,
    near: NDArray[np.intp],
) -> SpreadProjected | None:
    """⟨f_n(β_n + σ_n z_n)⟩ of the projections among `near` whose polynomials, frequencies and points are enough.

    None unless these are most of all.
    """
    dim, last = unit.shape[1], grid.t[-1]
    if 2 * len(near) < len(beta):
        return None
    weight = np.abs(unit[near])
    heaviest = weight.max(axis=0) if base.rows > 1 else weight.max(keepdims=True)[0]
    series = LogCharacteristic.of(base, heaviest, last)
    sites = near[np.all(weight * last <= series.span[row], axis=1)]
    if 2 * len(sites) < len(beta):
        return None
    a = np.ascontiguousarray(last * unit[sites].T)
    s_even, s_odd = np.zeros((TERMS, len(sites))), np.zeros((TERMS, len(sites)))
    blocks = -(-len(sites) // PIECE)
    share_out(_add_powers, blocks, PIECE * dim * TERMS * PER_POWER, a, row, series.even, series.odd, s_even, s_odd)
    square = np.einsum("dn,dn->n", a, a)
    size = np.exp(_times(grid.even, s_even) - 0.5 * np.square(grid.t / last)[:, None] * square)
    phase = _times(grid.odd, s_odd)
    values = f(beta + np.multiply.outer(grid.z, sigma))
    sums = _integrate(values if len(sites) == len(beta) else values[:, sites], size, phase, grid)
    if not sums.good.all():
        if 2 * int(sums.good.sum()) < len(beta):
            return None
        sites, a = sites[sums.good], np.ascontiguousarray(a[:, sums.good])
        sums = sums.of(sums.good)
    re, im = sums.re, sums.im
    # δ Re(CΦ) = Re(CΦ δ log Φ)
    g_even, g_odd = _times(grid.even, re, transpose=True), -_times(grid.odd, im, transpose=True)
    d_a = -np.square(grid.t / last) @ re * a
    d_even, d_odd = np.zeros((dim, TERMS)), np.zeros((dim, TERMS))
    share_out(
        _pull_back,
        dim,
        len(sites) * TERMS * PER_POWER,
        a,
        row,
        series.even,
        series.odd,
        g_even,
        g_odd,
        d_a,
        d_even,
        d_odd,
    )
    d_shift = sums.slope - grid.t @ im
    return SpreadProjected(sites, sums.value, d_shift, last * d_a.T, d_even, d_odd, sums.top, sums.swing, series)


def _times(left: Array, right: Array, transpose: bool = False) -> Array:
    """left @ right, or leftᵀ @ right, by SciPy's BLAS on arrays in rows: (rightᵀ leftᵀ)ᵀ."""
    return blas.dgemm(1.0, right.T, left.T, trans_b=transpose).T

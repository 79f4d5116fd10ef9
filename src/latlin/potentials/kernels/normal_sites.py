"""The compiled loop for ⟨log(Φ(b − x) − Φ(a − x))⟩ under N(x|m, s²): probit sites and ordered classes.

A site takes the Gauss–Hermite or trapezoid rule of logistic sites that its s asks for, and where s is larger a
trapezoid rule with as many nodes as keep their distance in x; the nearest zero of Φ and of differences of Φ is a little
nearer to the real line than that of σ, hence the factors below.
"""

from __future__ import annotations

import math

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit
from latlin.potentials.kernels.sites import HERMITE, TRAPEZOID, NodeRules, rule_table

#: how much smaller s has to be for a rule than at logistic sites, for one end and for two
ONE_END, TWO_ENDS = 0.75, 0.55
#: ends of the rule for a large s in standard deviations, the distance of its nodes in x, and the largest s
REACH, SPACING, LARGEST = 8.5, 2.4 * 14.0 / 47.0, 30.0
_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_RATIO = math.sqrt(2.0 / math.pi)
#: |x| from which the second derivative of log Φ is its asymptotic series
_FAR = 1e3


@njit(**INNER, error_model="numpy")
def _erfcx(y: float) -> float:
    """e^{y²} erfc(y) for y ≥ 0."""
    if y < 8.0:
        return math.exp(y * y) * math.erfc(y)
    # 1/(y√π) Σ_k (−1)^k (2k − 1)!!/(2y²)^k
    q, total = 0.5 / (y * y), 1.0
    for k in range(12, 0, -1):
        total = 1.0 - (2.0 * k - 1.0) * q * total
    return total / (y * math.sqrt(math.pi))


@njit(**INNER, error_model="numpy")
def _log_mass(a: float, b: float) -> tuple[float, float, float, float]:
    """log(Φ(b) − Φ(a)), its first two derivatives when a and b move together, and the first when b moves alone."""
    sign = 1.0
    if a + b > 0.0:
        a, b, sign = -b, -a, -1.0
    open_end = math.isinf(a)
    if b > 0.0:
        mass = 0.5 * (math.erfc(-b * _SQRT_HALF) - (0.0 if open_end else math.erfc(-a * _SQRT_HALF)))
        scale = 0.5 * _RATIO / mass
        upper = scale * math.exp(-0.5 * b * b)
        lower = 0.0 if open_end else scale * math.exp(-0.5 * a * a)
        value = math.log(mass)
    else:
        # both ends on the left: everything in units of e^{−b²/2}
        shrink = 0.0 if open_end else math.exp(0.5 * (a - b) * (-a - b))
        rest = _erfcx(-b * _SQRT_HALF) - (0.0 if open_end else shrink * _erfcx(-a * _SQRT_HALF))
        upper, lower = _RATIO / rest, _RATIO * shrink / rest
        value = math.log(0.5 * rest) - 0.5 * b * b
    first = upper - lower
    second = -first * first - b * upper + (0.0 if open_end else a * lower)
    if b < -_FAR and lower == 0.0:
        q = 1.0 / (b * b)
        second = -1.0 + q * (1.0 - q * (6.0 - 50.0 * q))
    return value, sign * first, second, upper if sign > 0.0 else lower


#: s from which a site with one end is integrated by panels, the depth inside at which log Φ is zero to 1e-20, the width
#: of panels about the end, and the largest width and the reach of panels in standard deviations; nodes of each panel
WIDE, INSIDE, NARROW, BROAD, DEEP = 10.0, 9.5, 3.2, 1.5, 12.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@njit(**INNER, error_model="numpy")
def _by_panels(m: float, s: float, lower: float, upper: float) -> tuple[float, float, float, float]:
    """The four sums of a wide Gaussian, over depths u from INSIDE outwards; log Φ(u) is nearly quadratic far out."""
    opened_above = math.isinf(upper)
    mu = m - lower if opened_above else upper - m
    high, end = min(INSIDE, mu + REACH * s), mu - DEEP * s
    value, slope, bend, opened = 0.0, 0.0, 0.0, 0.0
    while high > end:
        low = max(high - (NARROW if high > -INSIDE else min(-high, BROAD * s)), end)
        half = 0.5 * (high - low)
        for k in range(_NODES.size):
            u = 0.5 * (high + low) + half * _NODES[k]
            z = (u - mu) / s
            w = half * _WEIGHTS[k] * math.exp(-0.5 * z * z) / (s * _SQRT_TWO_PI)
            f, g, h, e = _log_mass(-u, np.inf) if opened_above else _log_mass(-np.inf, u)
            value += w * f
            slope -= w * g
            bend += 0.5 * w * h
            opened += w * e
        high = low
    return value, slope, bend, opened


@njit(cache=True, error_model="numpy", nogil=True)
def _expected(m: Array, s: Array, lower: Array, upper: Array, shrink: Array, rules: NodeRules, count: int) -> Array:
    out = np.full((4, m.size), np.nan)
    for i in range(m.size):
        r = 0
        while r < count and s[i] > shrink[i] * rules.limit[r]:
            r += 1
        if s[i] > WIDE and math.isinf(lower[i]) != math.isinf(upper[i]):
            depth = m[i] - lower[i] if math.isinf(upper[i]) else upper[i] - m[i]
            if depth - DEEP * s[i] < INSIDE:
                out[0, i], out[1, i], out[2, i], out[3, i] = _by_panels(m[i], s[i], lower[i], upper[i])
                continue
        if r == count and s[i] > LARGEST:
            continue
        if r < count:
            first, last = rules.start[r], rules.start[r + 1]
            nodes, weights = rules.nodes[first:last], rules.weights[first:last]
        else:
            nodes = np.linspace(-REACH, REACH, 1 + math.ceil(2.0 * REACH * s[i] / (SPACING * shrink[i])))
            weights = np.exp(-0.5 * nodes * nodes)
            weights /= weights.sum()
        value, slope, bend, opened = 0.0, 0.0, 0.0, 0.0
        for k in range(nodes.size):
            x, w = m[i] + s[i] * nodes[k], weights[k]
            f, g, h, e = _log_mass(lower[i] - x, upper[i] - x)
            value += w * f
            slope -= w * g
            bend += 0.5 * w * h
            opened += w * e
        out[0, i], out[1, i], out[2, i], out[3, i] = value, slope, bend, opened
    return out


def expected_log_mass(m: Array, v: Array, lower: Array, upper: Array) -> Array:
    """⟨log(Φ(upper − x) − Φ(lower − x))⟩ with its derivatives in m, v and upper, (4, sites); NaN where s is large.

    >>> expected_log_mass(np.zeros(1), np.zeros(1), np.zeros(1), np.full(1, np.inf))[0].round(4).tolist()
    [-0.6931]
    """
    lower, upper = (np.ascontiguousarray(np.broadcast_to(end, m.shape)) for end in (lower, upper))
    shrink = np.where(np.isinf(lower) | np.isinf(upper), ONE_END, TWO_ENDS)
    return _expected(m, np.sqrt(v), lower, upper, shrink, rule_table(), len(HERMITE) + len(TRAPEZOID))


@njit(cache=True, error_model="numpy", nogil=True)
def _log_masses(a: Array, b: Array, width: Array) -> Array:
    out = np.empty(a.size)
    for i in range(a.size):
        low, high = a[i], b[i]
        if low + high > 0.0:
            low, high = -high, -low
        if math.isinf(low):
            rest, lost = 0.0, 0.0
        elif high > 0.0:
            rest, lost = math.erfc(-low * _SQRT_HALF), 0.0
        else:
            rest, lost = _erfcx(-low * _SQRT_HALF), 0.5 * width[i] * (low + high)
        if high > 0.0:
            out[i] = math.log(0.5 * (math.erfc(-high * _SQRT_HALF) - rest))
        else:
            # in units of e^{−high²/2}
            out[i] = math.log(0.5 * (_erfcx(-high * _SQRT_HALF) - math.exp(lost) * rest)) - 0.5 * high * high
    return out


def log_mass(a: Array, b: Array, width: Array) -> Array:
    """log(Φ(b) − Φ(a)) for finite or open intervals that are not short, `width` = b − a.

    >>> log_mass(np.array([40.0]), np.array([41.0]), np.ones(1)).round(6).tolist()
    [-804.608442]
    """
    flat = [np.ascontiguousarray(np.broadcast_to(part, a.shape)).ravel() for part in (a, b, width)]
    return _log_masses(*flat).reshape(a.shape)

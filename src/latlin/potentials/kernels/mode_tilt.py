"""The compiled loop for moments of N(x|m, v) φ(x)^p about the mode, for a ψ made of exponentials or of log σ.

With d = x − x₀ the distance from the mode,

    log N + pψ = const + residue·d − d²/(2v) − rest(d),

where rest(d) ≥ 0 is what remains of −pψ once its value and its slope at x₀ are taken out; it is computed without
cancellation, so that counts of 1e14 lose no digits:

* exponentials: rest = Σ_j load_j (e^{κ_j d} − 1 − κ_j d);
* log σ: rest = load (log(1 + p₀(e^{κd} − 1)) − p₀κd), with p₀ = σ at the mode.

Both are analytic in a strip about the real line, so that the trapezoid rule converges exponentially. It runs over all
that is within e^{−42} of the top.
"""

from __future__ import annotations

import math

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit

EXPONENTIALS, SIGMOID = 0, 1
#: nat below the top where the integrand is cut off
DROP = 42.0
#: largest distance of two nodes, in units of the strip's 1/κ and in widths of the top
STEP_IN_STRIPS = (0.28, 0.45)
STEP_IN_WIDTHS = 0.5
#: a site that would need more nodes is left to others
MOST_NODES = 600


@njit(**INNER, error_model="numpy")
def _curl(t: float) -> float:
    """e^t − 1 − t without cancellation."""
    if math.fabs(t) > 0.02:
        return math.expm1(t) - t
    return 0.5 * t * t * (1.0 + t / 3.0 * (1.0 + t / 4.0 * (1.0 + t / 5.0 * (1.0 + t / 6.0))))


@njit(**INNER, error_model="numpy")
def _rest(kind: int, d: float, a: float, b: float, c: float, e: float) -> float:
    """Exponentials: loads a and c with rates b and e. Log σ: load a, rate b, σ and 1 − σ at the mode c and e."""
    if kind == EXPONENTIALS:
        rest = a * _curl(b * d) if a > 0.0 else 0.0
        return rest + c * _curl(e * d) if c > 0.0 else rest
    if a == 0.0:
        return 0.0
    t = b * d
    if math.fabs(t) < 0.02:
        # log(1 + c(e^t − 1)) − ct by its series in t: cumulants of a coin
        k = c * e
        third, fourth = k * (e - c), k * (1.0 - 6.0 * k)
        fifth, sixth = third * (1.0 - 12.0 * k), k * (1.0 - 30.0 * k * (1.0 - 4.0 * k))
        return a * t * t * (k / 2.0 + t * (third / 6.0 + t * (fourth / 24.0 + t * (fifth / 120.0 + t * sixth / 720.0))))
    if t > 0.0:
        return a * (math.log1p(e * math.expm1(-t)) + e * t)
    return a * (math.log1p(c * math.expm1(t)) - c * t)


@njit(**INNER, error_model="numpy")
def _edge(kind: int, side: float, width: float, v: float, residue: float, site: Array) -> float:
    """A distance from the mode at which the integrand has dropped out."""
    step = 6.0 * width
    for _ in range(200):
        d = side * step
        fall = 0.5 * d * d / v + _rest(kind, d, site[0], site[1], site[2], site[3]) - residue * d
        if not fall < DROP:
            break
        step *= 1.5
    return step


@njit(cache=True, error_model="numpy", nogil=True)
def tilt_about_mode(kind: int, v: Array, width: Array, residue: Array, sites: Array) -> Array:
    """log of the integral, and mean and variance of d, of shape (3, sites); NaN where that takes too many nodes.

    Parameters
    ----------
    v, width, residue : ndarray of shape (sites,)
        Variance of the Gaussian (positive), width of the top and what is left of the slope there.
    sites : ndarray of shape (sites, 4)
        Arguments of `_rest`.
    """
    out = np.full((3, v.size), np.nan)
    for i in range(v.size):
        site = sites[i]
        low = _edge(kind, -1.0, width[i], v[i], residue[i], site)
        high = _edge(kind, 1.0, width[i], v[i], residue[i], site)
        fastest = math.fabs(site[1]) if site[0] > 0.0 else 0.0
        if kind == EXPONENTIALS and site[2] > 0.0:
            fastest = max(fastest, math.fabs(site[3]))
        h = STEP_IN_WIDTHS * width[i]
        if fastest > 0.0:
            h = min(h, STEP_IN_STRIPS[kind] / fastest)
        steps = (low + high) / h
        if not steps < MOST_NODES:
            continue
        s0, s1, s2 = 0.0, 0.0, 0.0
        # in units of h: squares of a narrow width would underflow
        for k in range(-int(low / h) - 1, int(high / h) + 2):
            d = k * h
            f = residue[i] * d - 0.5 * d * (d / v[i]) - _rest(kind, d, site[0], site[1], site[2], site[3])
            w = math.exp(f)
            s0 += w
            s1 += w * k
            s2 += w * k * k
        centre = s1 / s0
        out[0, i] = math.log(s0) + math.log(h)
        out[1, i] = centre * h
        out[2, i] = (s2 / s0 - centre * centre) * h * h
    return out


@njit(cache=True, error_model="numpy", nogil=True)
def sigmoid_modes(m: Array, v: Array, up: Array, down: Array, shift: Array, rate: Array) -> Array:
    """Where N(x|m, v) σ(t)^up σ(−t)^down is largest, t = rate·x + shift.

    Newton steps kept between what is known to be on either side; bisection takes the middle in asinh t.
    """
    out = np.empty_like(m)
    for i in range(m.size):
        r, n = rate[i], up[i] + down[i]
        # in t: the Gaussian's centre, and where its pull and that of the sites are in balance at most
        t, u = r * m[i] + shift[i], r * r * v[i]
        both = up[i] > 0.0 and down[i] > 0.0
        end = math.log(up[i]) - math.log(down[i]) if both else t + u * (up[i] - down[i])
        low, high = min(t, end), max(t, end)
        tol = 1e-9 / math.sqrt(1.0 / max(u, 1e-300) + 0.25 * n)
        last = math.inf
        for _ in range(200):
            e = math.exp(-math.fabs(t))
            small, large = e / (1.0 + e), 1.0 / (1.0 + e)
            p, q = (large, small) if t > 0.0 else (small, large)
            slope = (r * m[i] + shift[i] - t) + u * (up[i] * q - down[i] * p)
            if slope > 0.0:
                low = max(low, t)
            else:
                high = min(high, t)
            step = slope / (1.0 + u * n * p * q)
            # a step that is not half the last one does not converge fast: bisection
            inside = low <= t + step <= high and math.fabs(step) < 0.5 * last
            last = math.fabs(step) if inside else math.inf
            new = t + step if inside else math.sinh(0.5 * (math.asinh(low) + math.asinh(high)))
            moved = math.fabs(new - t)
            t = new
            if moved <= tol + 1e-15 * math.fabs(t):
                break
        out[i] = (t - shift[i]) / r
    return out

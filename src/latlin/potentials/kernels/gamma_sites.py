"""The compiled loop for expectations of ratios of gamma functions: beta, beta-binomial and negative binomial sites.

ψ(x) = Σ over two arguments a of [log Γ(count + a) − log Γ(1 + a) + log a] + slope·a₁, where a₁ = size·σ(x) and a₂ =
size·σ(−x) (means between zero and one) or a₁ = size·e^x alone (means of counts). All are analytic in |Im x| < π, as
log σ is, and take its rules.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from latlin.numerics.arrays import Array
from latlin.potentials.kernels.sites import HERMITE, TRAPEZOID, Rules, rule_table

SHARES, RATES = 0, 1
#: how much smaller s has to be for a rule than at logistic sites
SHRINK = 0.7
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@njit(cache=True, error_model="numpy")
def log_gamma_three(z: float) -> tuple[float, float, float]:
    """log Γ(z), its first and its second derivative, z > 0: Stirling's series beyond 10, after as many steps up."""
    # P = z(z + 1)(z + 2) … with two derivatives: (log P)′ = P′/P, (log P)″ = P″/P − (P′/P)²
    product, product_first, product_second = 1.0, 0.0, 0.0
    while z < 10.0:
        product_second = product_second * z + 2.0 * product_first
        product_first = product_first * z + product
        product *= z
        z += 1.0
    log_z, r, part = math.log(z), 1.0 / z, 1.0 / product
    first = -product_first * part
    second = first * first - product_second * part
    q = r * r
    series = r * (1 / 12.0 - q * (1 / 360.0 - q * (1 / 1260.0 - q * (1 / 1680.0 - q / 1188.0))))
    value = (z - 0.5) * log_z - z + _HALF_LOG_2PI + series - math.log(product)
    first += log_z - 0.5 * r - q * (1 / 12.0 - q * (1 / 120.0 - q * (1 / 252.0 - q * (1 / 240.0 - q / 132.0))))
    second += r + 0.5 * q + r * q * (1 / 6.0 - q * (1 / 30.0 - q * (1 / 42.0 - q * (1 / 30.0 - q * 5 / 66.0))))
    return value, first, second


@njit(cache=True, error_model="numpy")
def _gamma_slopes(z: Array, out: Array) -> None:
    """The first three derivatives of log Γ at every z > 0: as `log_gamma_three`, in rows."""
    for i in range(z.size):
        x, first, second, third = z[i], 0.0, 0.0, 0.0
        while x < 10.0:
            r = 1.0 / x
            first -= r
            second += r * r
            third -= 2.0 * r * r * r
            x += 1.0
        r = 1.0 / x
        q = r * r
        bends = 1 / 6.0 - q * (1 / 30.0 - q * (1 / 42.0 - q * (1 / 30.0 - q * (5 / 66.0 - q * 691 / 2730.0))))
        falls = 0.5 - q * (1 / 6.0 - q * (1 / 6.0 - q * (3 / 10.0 - q * (5 / 6.0 - q * 691 / 210.0))))
        lines = 1 / 12.0 - q * (1 / 120.0 - q * (1 / 252.0 - q * (1 / 240.0 - q * (1 / 132.0 - q * 691 / 32760.0))))
        out[0, i] = first + math.log(x) - 0.5 * r - q * lines
        out[1, i] = second + r + 0.5 * q + r * q * bends
        out[2, i] = third - q - r * q - q * q * falls


def gamma_slopes(z: Array) -> Array:
    """log Γ at z > 0 of any shape, differentiated once, twice and three times: an array with a first axis more."""
    out = np.empty((3, z.size))
    _gamma_slopes(np.ascontiguousarray(z, dtype=float).ravel(), out)
    return out.reshape((3, *z.shape))


@njit(cache=True, error_model="numpy")
def _ratio(count: float, a: float) -> tuple[float, float, float]:
    """log Γ(count + a)/Γ(1 + a) with two derivatives in a; without the numerator where the count is negative."""
    low, low_first, low_second = log_gamma_three(1.0 + a)
    if count < 0.0:
        return -low, -low_first, -low_second
    high, high_first, high_second = log_gamma_three(count + a)
    return high - low, high_first - low_first, high_second - low_second


@njit(cache=True, error_model="numpy")
def _share_site(x: float, size: float, up: float, down: float, slope: float) -> tuple[float, float, float, float]:
    """ψ, ψ′, ψ″ and ∂ψ/∂size for a mean σ(x); counts of zero have no part."""
    e = math.exp(-math.fabs(x))
    small, large, line = e / (1.0 + e), 1.0 / (1.0 + e), math.log1p(e)
    p, q = (large, small) if x > 0.0 else (small, large)
    value, first, second, by_size = slope * size * p, slope * size, 0.0, slope * p
    log_ends, log_slope, log_bend = 0.0, 0.0, 0.0
    w = p * q
    if up != 0.0:
        f, g, h = _ratio(up, size * p)
        value, first, second, by_size = value + f, first + size * g, second + size * size * h, by_size + p * g
        log_ends, log_slope, log_bend = log_ends + min(x, 0.0) - line, log_slope + q, log_bend - w
    if down != 0.0:
        f, g, h = _ratio(down, size * q)
        value, first, second, by_size = value + f, first - size * g, second + size * size * h, by_size + q * g
        log_ends, log_slope, log_bend = log_ends + min(-x, 0.0) - line, log_slope - p, log_bend - w
    # μ′ = w, μ″ = w(1 − 2μ)
    return value + log_ends, first * w + log_slope, second * w * w + first * w * (q - p) + log_bend, by_size


@njit(cache=True, error_model="numpy", nogil=True)
def _share_points(x: Array, sites: Array, out: Array) -> None:
    for i in range(x.size):
        found = _share_site(x[i], sites[i, 0], sites[i, 1], sites[i, 2], sites[i, 3])
        out[0, i], out[1, i], out[2, i] = found[0], found[1], found[2]


def share_points(x: Array, *parameters: Array) -> Array:
    """ψ, ψ′ and ψ″ at points x of shape (sites,), for the parameters of SHARES."""
    out, sites = np.empty((3, x.size)), _one_row_per_site(x, parameters)
    _share_points(np.ascontiguousarray(x), sites, out)
    return out


def _one_row_per_site(x: Array, parameters: tuple[Array, ...]) -> Array:
    return np.stack([np.broadcast_to(part, x.shape) for part in parameters], axis=-1).astype(float)


@njit(cache=True, error_model="numpy")
def _rate_site(x: float, size: float, count: float) -> tuple[float, float, float, float]:
    """ψ, ψ′, ψ″ and ∂ψ/∂size of log r(r + 1) … (r + count − 1), r = size·e^x, without the log size in it."""
    r = size * math.exp(min(x, 600.0))
    if r > 1e8 * (1.0 + count):
        # beyond all bends: count·log r
        return count * (x + math.log(size)), count, 0.0, (count - 1.0) / size
    f, g, h = _ratio(count, r)
    return f + x, 1.0 + r * g, r * g + r * r * h, r * g / size


@njit(cache=True, error_model="numpy", nogil=True)
def _expected(kind: int, m: Array, s: Array, sites: Array, rules: Rules, n_rules: int) -> Array:
    out = np.full((4, m.size), np.nan)
    for i in range(m.size):
        r = 0
        while r < n_rules and s[i] > SHRINK * rules.limit[r]:
            r += 1
        if r == n_rules:
            continue
        value, slope, bend, size = 0.0, 0.0, 0.0, 0.0
        for k in range(rules.start[r], rules.start[r + 1]):
            x, w = m[i] + s[i] * rules.nodes[k], rules.weights[k]
            if kind == SHARES:
                f, g, h, d = _share_site(x, sites[i, 0], sites[i, 1], sites[i, 2], sites[i, 3])
            else:
                f, g, h, d = _rate_site(x, sites[i, 0], sites[i, 1])
            value += w * f
            slope += w * g
            bend += 0.5 * w * h
            size += w * d
        out[0, i], out[1, i], out[2, i], out[3, i] = value, slope, bend, size
    return out


def expected_gamma_ratios(kind: int, m: Array, v: Array, *parameters: Array) -> Array:
    """⟨ψ⟩ with its derivatives in m, v and the size, of shape (4, sites); NaN where s is large.

    Parameters
    ----------
    kind : int
        SHARES with the parameters size, up, down and slope (counts of −1: no numerator), or RATES with size and count.
    """
    return _expected(kind, m, np.sqrt(v), _one_row_per_site(m, parameters), rule_table(), len(HERMITE) + len(TRAPEZOID))

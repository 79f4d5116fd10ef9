"""The compiled loop for expectations of ratios of gamma functions: beta, beta-binomial and negative binomial sites.

Beta-binomial and negative binomial: ψ(x) = Σ over two arguments a of [log Γ(count + a) − log Γ(1 + a) + log a] +
slope·a₁, where a₁ = size·σ(x) and a₂ = size·σ(−x) (means between zero and one) or a₁ = size·e^x alone (means of
counts). All are analytic in |Im x| < π, as log σ is, and take its rules.

Beta with a = sμ, b = s(1 − μ), μ = σ(x) and d = x − log odds of y, without differences of large numbers:

    ψ(x) = ½ log μ(1 − μ) − s·KL(μ‖y) − R(a) − R(b) + const,   KL = μd − log(1 + y(e^d − 1)),

R(z) = log Γ(z) − (z − ½) log z + z − ½ log 2π being what Stirling's formula leaves.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import digamma, gammaln, zeta

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit
from latlin.potentials.kernels.sites import HERMITE, TRAPEZOID, NodeRules, rule_table

SHARES, RATES, BETA = 0, 1, 2
#: how much smaller s has to be for a rule than at logistic sites
SHRINK = 0.7
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


#: log Γ between 1 and 10 is a polynomial about the middle of so many pieces per unit, of this degree
PIECES, DEGREE, LOW, HIGH = 32.0, 10, 1.0, 10.0


def _taylor_table() -> Array:
    """Coefficients of log Γ about the middles: (log Γ)⁽ⁿ⁾(c)/n! = (−1)ⁿ ζ(n, c)/n from n = 2 on, ζ that of Hurwitz."""
    centre = LOW + (np.arange(int((HIGH - LOW) * PIECES)) + 0.5) / PIECES
    higher = [(-1.0) ** n * zeta(n, centre) / n for n in range(2, DEGREE + 1)]
    return np.ascontiguousarray(np.stack([gammaln(centre), digamma(centre), *higher], axis=1))


_TAYLOR = _taylor_table()


@njit(**INNER, error_model="numpy")
def log_gamma_four(z: float) -> tuple[float, float, float, float]:
    """log Γ(z) and its first three derivatives, z > 0: polynomials up to 10, Stirling's series beyond."""
    value, first, second, third = 0.0, 0.0, 0.0, 0.0
    while z < LOW:
        # log Γ(z) = log Γ(z + 1) − log z
        r = 1.0 / z
        value, first, second, third = value - math.log(z), first - r, second + r * r, third - 2.0 * r * r * r
        z += 1.0
    if z < HIGH:
        place = int((z - LOW) * PIECES)
        x = z - (LOW + (place + 0.5) / PIECES)
        f, g, h, k = _TAYLOR[place, DEGREE], 0.0, 0.0, 0.0
        for n in range(DEGREE - 1, -1, -1):
            # Horner's rule for f, f′, f″/2 and f‴/6
            k = k * x + h
            h = h * x + g
            g = g * x + f
            f = f * x + _TAYLOR[place, n]
        return value + f, first + g, second + 2.0 * h, third + 6.0 * k
    log_z, r = math.log(z), 1.0 / z
    q = r * r
    lines = 1 / 12.0 - q * (1 / 120.0 - q * (1 / 252.0 - q * (1 / 240.0 - q * (1 / 132.0 - q * 691 / 32760.0))))
    bends = 1 / 6.0 - q * (1 / 30.0 - q * (1 / 42.0 - q * (1 / 30.0 - q * (5 / 66.0 - q * 691 / 2730.0))))
    falls = 0.5 - q * (1 / 6.0 - q * (1 / 6.0 - q * (3 / 10.0 - q * (5 / 6.0 - q * 691 / 210.0))))
    value += (z - 0.5) * log_z - z + _HALF_LOG_2PI
    value += r * (1 / 12.0 - q * (1 / 360.0 - q * (1 / 1260.0 - q * (1 / 1680.0 - q / 1188.0))))
    first += log_z - 0.5 * r - q * lines
    second += r + 0.5 * q + r * q * bends
    return value, first, second, third - q - r * q - q * q * falls


@njit(cache=True, error_model="numpy")
def _gamma_slopes(z: Array, out: Array) -> None:
    """The first three derivatives of log Γ at every z > 0, in rows."""
    for i in range(z.size):
        _, out[0, i], out[1, i], out[2, i] = log_gamma_four(z[i])


def gamma_slopes(z: Array) -> Array:
    """log Γ at z > 0 of any shape, differentiated once, twice and three times: an array with a first axis more."""
    out = np.empty((3, z.size))
    _gamma_slopes(np.ascontiguousarray(z, dtype=float).ravel(), out)
    return out.reshape((3, *z.shape))


@njit(**INNER, error_model="numpy")
def _ratio(count: float, a: float) -> tuple[float, float, float]:
    """log Γ(count + a)/Γ(1 + a) with two derivatives in a; without the numerator where the count is negative."""
    low, low_first, low_second, _ = log_gamma_four(1.0 + a)
    if count < 0.0:
        return -low, -low_first, -low_second
    high, high_first, high_second, _ = log_gamma_four(count + a)
    return high - low, high_first - low_first, high_second - low_second


@njit(**INNER, error_model="numpy")
def _rise(z: float, d: float) -> float:
    """log Γ(z + d)/Γ(z) for z ≥ HIGH and d ≥ 0, without cancellation, by the difference of Stirling's series."""
    q, p = 1.0 / (z * z), 1.0 / ((z + d) * (z + d))
    here = (1 / 12.0 - q * (1 / 360.0 - q * (1 / 1260.0 - q * (1 / 1680.0 - q / 1188.0)))) / z
    there = (1 / 12.0 - p * (1 / 360.0 - p * (1 / 1260.0 - p * (1 / 1680.0 - p / 1188.0)))) / (z + d)
    return (z + d - 0.5) * math.log1p(d / z) - d + d * math.log(z) + there - here


@njit(**INNER, error_model="numpy")
def _inverse_beta(count: float, a: float) -> tuple[float, float, float]:
    """log Γ(count + a)/(Γ(count) Γ(1 + a)) with two derivatives in a: moderate where one of both is large."""
    low, low_first, low_second, _ = log_gamma_four(1.0 + a)
    high, high_first, high_second, _ = log_gamma_four(count + a)
    if count >= max(1.0 + a, HIGH):
        value = _rise(count, a) - low
    elif 1.0 + a >= HIGH:
        value = _rise(1.0 + a, count - 1.0) - log_gamma_four(count)[0]
    else:
        value = high - low - log_gamma_four(count)[0]
    return value, high_first - low_first, high_second - low_second


@njit(**INNER, error_model="numpy")
def _share_site(x: float, size: float, up: float, down: float, slope: float) -> tuple[float, float, float, float]:
    """ψ, ψ′, ψ″ and ∂ψ/∂size for a mean σ(x); counts of zero have no part."""
    e = math.exp(-math.fabs(x))
    small, large, line = e / (1.0 + e), 1.0 / (1.0 + e), math.log1p(e)
    p, q = (large, small) if x > 0.0 else (small, large)
    value, first, second, by_size = slope * size * p, slope * size, 0.0, slope * p
    log_ends, log_slope, log_bend = 0.0, 0.0, 0.0
    w = p * q
    if up != 0.0:
        f, g, h = _inverse_beta(up, size * p)
        value, first, second, by_size = value + f, first + size * g, second + size * size * h, by_size + p * g
        log_ends, log_slope, log_bend = log_ends + min(x, 0.0) - line, log_slope + q, log_bend - w
    if down != 0.0:
        f, g, h = _inverse_beta(down, size * q)
        value, first, second, by_size = value + f, first - size * g, second + size * size * h, by_size + q * g
        log_ends, log_slope, log_bend = log_ends + min(-x, 0.0) - line, log_slope - p, log_bend - w
    # μ′ = w, μ″ = w(1 − 2μ)
    return value + log_ends, first * w + log_slope, second * w * w + first * w * (q - p) + log_bend, by_size


@njit(**INNER, error_model="numpy")
def _stirling_rest(z: float, log_z: float) -> tuple[float, float, float]:
    """R(z), zR′(z) and z²R″(z)."""
    if z >= HIGH:
        r = 1.0 / z
        q = r * r
        value = 1 / 12.0 - q * (1 / 360.0 - q * (1 / 1260.0 - q * (1 / 1680.0 - q / 1188.0)))
        lines = 1 / 12.0 - q * (1 / 120.0 - q * (1 / 252.0 - q * (1 / 240.0 - q * (1 / 132.0 - q * 691 / 32760.0))))
        bends = 1 / 6.0 - q * (1 / 30.0 - q * (1 / 42.0 - q * (1 / 30.0 - q * (5 / 66.0 - q * 691 / 2730.0))))
        return r * value, -r * lines, r * bends
    # log Γ(z) = log Γ(1 + z) − log z
    above = z if z >= LOW else z + 1.0
    place = int((above - LOW) * PIECES)
    x = above - (LOW + (place + 0.5) / PIECES)
    f, g, h = _TAYLOR[place, DEGREE], 0.0, 0.0
    for n in range(DEGREE - 1, -1, -1):
        h = h * x + g
        g = g * x + f
        f = f * x + _TAYLOR[place, n]
    shift = 0.0 if z >= LOW else 1.0
    value = f - shift * log_z - (z - 0.5) * log_z + z - _HALF_LOG_2PI
    return value, z * (g - log_z) + 0.5 - shift, 2.0 * z * z * h - z - 0.5 + shift


@njit(**INNER, error_model="numpy")
def _divergence(p: float, y: float, d: float, odds: float) -> float:
    """KL(p‖y) for y up to one half; log y = odds + log(1 − y)."""
    return p * d - (math.log1p(y * math.expm1(d)) if d < 500.0 else d + odds + math.log1p(-y))


@njit(**INNER, error_model="numpy")
def _beta_site(x: float, size: float, log_size: float, y: float, odds: float) -> tuple[float, float, float, float]:
    """ψ, ψ′, ψ″ and ∂ψ/∂size but for their constants, for a mean σ(x) and a share y."""
    e = math.exp(-math.fabs(x))
    small, large, line = e / (1.0 + e), 1.0 / (1.0 + e), math.log1p(e)
    p, q = (large, small) if x > 0.0 else (small, large)
    log_p, log_q = min(x, 0.0) - line, min(-x, 0.0) - line
    d, w = x - odds, p * q
    divergence = _divergence(p, y, d, odds) if y < 0.5 else _divergence(q, 1.0 - y, -d, -odds)
    f, f1, f2 = _stirling_rest(size * p, log_size + log_p)
    g, g1, g2 = _stirling_rest(size * q, log_size + log_q)
    value = 0.5 * (log_p + log_q) - size * divergence - f - g
    # a′ = aq, b′ = −bp
    first = 0.5 * (q - p) - size * w * d - q * f1 + p * g1
    second = -w - size * w * (1.0 + (q - p) * d) - (q - p) * (q * f1 - p * g1) - q * q * f2 - p * p * g2
    return value, first, second, -divergence - (f1 + g1) / size


@njit(cache=True, error_model="numpy", nogil=True)
def _beta_points(x: Array, sites: Array, out: Array) -> None:
    for i in range(x.size):
        found = _beta_site(x[i], sites[i, 0], sites[i, 1], sites[i, 2], sites[i, 3])
        out[0, i], out[1, i], out[2, i] = found[0], found[1], found[2]


def beta_points(x: Array, *parameters: Array) -> Array:
    """ψ, ψ′ and ψ″ at points x of shape (sites,), for the parameters of BETA."""
    out, sites = np.empty((3, x.size)), _one_row_per_site(x, parameters)
    _beta_points(np.ascontiguousarray(x), sites, out)
    return out


def _one_row_per_site(x: Array, parameters: tuple[Array, ...]) -> Array:
    return np.stack([np.broadcast_to(part, x.shape) for part in parameters], axis=-1).astype(float)


@njit(**INNER, error_model="numpy")
def _rate_site(x: float, size: float, count: float) -> tuple[float, float, float, float]:
    """ψ, ψ′, ψ″ and ∂ψ/∂size of log r(r + 1) … (r + count − 1), r = size·e^x, without the log size in it."""
    r = size * math.exp(min(x, 600.0))
    if r > 1e8 * (1.0 + count):
        # beyond all bends: count·log r
        return count * (x + math.log(size)), count, 0.0, (count - 1.0) / size
    f, g, h = _ratio(count, r)
    return f + x, 1.0 + r * g, r * g + r * r * h, r * g / size


@njit(cache=True, error_model="numpy", nogil=True)
def _expected(kind: int, m: Array, s: Array, sites: Array, rules: NodeRules, n_rules: int) -> Array:
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
            elif kind == BETA:
                f, g, h, d = _beta_site(x, sites[i, 0], sites[i, 1], sites[i, 2], sites[i, 3])
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
        SHARES with the parameters size, up, down and slope, RATES with size and count, or BETA with size, log size, y
        and the log odds of y.
    """
    return _expected(kind, m, np.sqrt(v), _one_row_per_site(m, parameters), rule_table(), len(HERMITE) + len(TRAPEZOID))

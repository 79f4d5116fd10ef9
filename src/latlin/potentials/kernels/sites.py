"""The compiled loop for ⟨log σ(x)⟩ under N(x|m, s²), the hot path of logistic models.

A site is given the cheapest rule whose error stays below 2e-11 at its s, whatever its m:

* small s: Gauss–Hermite, from 4 nodes at s = 0.09 to 16 at s = 0.69 (the nearest singularity is at ±iπ);
* middle s: the trapezoid rule on ±7 standard deviations, 20 to 48 nodes up to s = 2.4;
* large s: log σ(x) = min(x, 0) − log(1 + e^{−|x|}). The first part is known, the second one is the weight
  function of a Gauss rule on [0, ∞), so that ⟨log(1 + e^{−|x|})⟩ = Σ w_k [N(x_k|m, s²) + N(−x_k|m, s²)].

Sites with the same rule are gathered, and the loop over them, innermost, is vectorised by the compiler: it has
no branch and its own polynomials for exp and log1p (`exp_kernels`). Value and derivatives come from the same nodes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.quadrature import gauss_hermite, gauss_softplus, trapezoid
from latlin.numerics.special import FUSED, LOG1P, exp_minus, log_one_plus
from latlin.numerics.threads import INNER, njit, share_out

CHUNK = 512
#: nanoseconds per site of an expectation, by measurement
PER_SITE = 60.0
#: the same per place of derivatives
PER_PLACE = 8.0
#: |x| from which e^{−|x|} is nothing beside one; `exp_minus` stops there
LARGEST = 700.0
#: (nodes, largest s) of the Gauss–Hermite and of the trapezoid rules
HERMITE = ((4, 0.09), (6, 0.22), (8, 0.34), (10, 0.44), (12, 0.53), (16, 0.69))
TRAPEZOID = ((20, 0.82), (24, 1.08), (28, 1.3), (32, 1.53), (36, 1.74), (40, 1.96), (44, 2.18), (48, 2.4))
#: (nodes, largest s) of the rules with weight log(1 + e^{−x}), which serve large s and need ever fewer nodes
SOFTPLUS = ((20, 2.9), (16, 3.7), (12, 5.5), (8, 9.0), (6, 18.0), (4, math.inf))


class NodeRules(NamedTuple):
    """All rules in one table: rule r serves s ≤ limit[r] with the nodes from start[r] to start[r + 1]."""

    limit: Array
    start: NDArray[np.int64]
    nodes: Array
    weights: Array


@cache
def rule_table() -> NodeRules:
    parts = [gauss_hermite(n) for n, _ in HERMITE]
    parts += [trapezoid(n, 6.8 if n < 28 else 7.0) for n, _ in TRAPEZOID]
    parts += [gauss_softplus(n) for n, _ in SOFTPLUS]
    limit = np.array([limit for _, limit in HERMITE + TRAPEZOID + SOFTPLUS])
    start = np.concatenate([[0], np.cumsum([nodes.size for nodes, _ in parts])])
    nodes, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    return NodeRules(limit, start.astype(np.int64), nodes, weights)


def log_sigmoid_expectations(m: Array, v: Array) -> tuple[Array, Array, Array]:
    """⟨log σ(x)⟩ under N(x|m, v), its derivative in m and its derivative in v.

    Parameters
    ----------
    m, v : contiguous ndarray of shape (sites,)

    >>> value, d_mean, d_var = log_sigmoid_expectations(np.zeros(1), np.zeros(1))
    >>> bool(np.isclose(value[0], -np.log(2))), float(d_mean[0].round(12)), float(d_var[0].round(12))
    (True, 0.5, -0.125)
    """
    out = np.empty((3, m.size))
    fixed = (m, np.sqrt(v), *rule_table(), len(HERMITE) + len(TRAPEZOID))
    share_out(lambda low, high: _log_sigmoid_loop(*fixed, low, high, out), m.size, PER_SITE)
    return out[0], out[1], out[2]


@njit(**INNER, error_model="numpy", fastmath=FUSED)
def _add_log_sigmoid(count: int, work: Array, first: int, last: int, nodes: Array, weights: Array) -> None:
    """Add Σ_k w_k (ψ, ψ′, ½ψ″)(m + s z_k) to the sums, ψ = log σ; m, s and the three sums are rows of `work`."""
    c = LOG1P
    m, s, value, d_mean, d_var = work[0], work[1], work[2], work[3], work[4]
    for k in range(first, last):
        z, w = nodes[k], weights[k]
        for i in range(count):
            x = m[i] + s[i] * z
            e = exp_minus(math.fabs(x))
            # one division for 1/(1+e) and e/(2+e)
            d = 1.0 / ((1.0 + e) * (2.0 + e))
            inverse = d * (2.0 + e)
            t = e * d * (1.0 + e)
            q = t * t
            p = c[5] + q * (c[6] + q * (c[7] + q * (c[8] + q * c[9])))
            p = c[0] + q * (c[1] + q * (c[2] + q * (c[3] + q * (c[4] + q * p))))
            # ψ = min(x, 0) − log(1 + e), ψ′ = σ(−x), ψ″ = −σ(x)σ(−x)
            value[i] += w * ((x if x < 0.0 else 0.0) - t * p)
            d_mean[i] += w * (e * inverse if x > 0.0 else inverse)
            d_var[i] -= 0.5 * w * (e * inverse * inverse)


def log_sigmoid_derivatives(x: Array) -> tuple[Array, Array, Array, Array]:
    """ψ = log σ and its three derivatives at the entries of an array, from one exponential each.

    >>> [float(part[0].round(12)) for part in log_sigmoid_derivatives(np.array([np.log(3.0)]))][1:]
    [0.25, -0.1875, 0.09375]
    """
    out = np.empty((4, x.size))
    share_out(_log_sigmoid_derivatives, x.size, PER_PLACE, np.ascontiguousarray(x).ravel(), out)
    value, first, second, third = out.reshape(4, *x.shape)
    return value, first, second, third


@njit(cache=True, error_model="numpy", fastmath=FUSED, nogil=True)
def _log_sigmoid_derivatives(low: int, high: int, x: Array, out: Array) -> None:
    for i in range(low, high):
        t = x[i]
        e = exp_minus(math.fabs(t)) if math.fabs(t) < LARGEST else 0.0
        large = 1.0 / (1.0 + e)
        small = e * large
        product = small * large
        # ψ′ = σ(−x), ψ″ = −σ(x)σ(−x), ψ‴ = σ(x)σ(−x)(σ(x) − σ(−x)); what is not a number stays so
        out[0, i] = t if t != t else (t if t < 0.0 else 0.0) - log_one_plus(e)
        out[1, i] = t if t != t else (small if t > 0.0 else large)
        out[2, i] = t if t != t else -product
        out[3, i] = t if t != t else product * (large - small if t > 0.0 else small - large)


@njit(cache=True, error_model="numpy", fastmath=FUSED, nogil=True)
def _sigmoid_powers(t: Array, constant: Array, up: Array, down: Array, out: Array) -> None:
    for i in range(t.size):
        away, right, n = math.fabs(t[i]), t[i] > 0.0, up[i] + down[i]
        e = exp_minus(away)
        large = 1.0 / (1.0 + e)
        small = e * large
        near, far, sign = (up[i], down[i], 1.0) if right else (down[i], up[i], -1.0)
        bend = n * small * large
        # log σ(−|t|) = log σ(|t|) − |t|
        out[0, i] = constant[i] - n * log_one_plus(e) - far * away
        out[1, i] = sign * (near * small - far * large)
        out[2, i] = -bend
        out[3, i] = sign * (large - small) * bend


def sigmoid_powers(t: Array, constant: Array, up: Array, down: Array) -> Array:
    """ψ = constant + up log σ(t) + down log σ(−t) and its three derivatives in t, of shape (4, sites).

    >>> (sigmoid_powers(*(np.array([x]) for x in (0.0, 1.0, 2.0, 1.0)))[1:].ravel().round(12) + 0.0).tolist()
    [0.5, -0.75, 0.0]
    """
    out = np.empty((4, t.size))
    _sigmoid_powers(t, constant, up, down, out)
    return out


@njit(**INNER, error_model="numpy", fastmath=FUSED)
def _add_softplus(count: int, work: Array, first: int, last: int, nodes: Array, weights: Array) -> None:
    """Add ⟨min(x, 0)⟩ − Σ_k w_k [N(x_k|m, s²) + N(−x_k|m, s²)] and its derivatives to the sums."""
    m, s, value, d_mean, d_var = work[0], work[1], work[2], work[3], work[4]
    for k in range(first, last):
        for side in (-1.0, 1.0):
            x, w = side * nodes[k], weights[k] / math.sqrt(2.0 * math.pi)
            for i in range(count):
                inverse = 1.0 / s[i]
                u = (x - m[i]) * inverse
                density = w * inverse * exp_minus(0.5 * u * u)
                value[i] -= density
                d_mean[i] -= density * u * inverse
                d_var[i] -= 0.5 * density * (u * u - 1.0) * inverse * inverse
    for i in range(count):
        # ⟨min(x, 0)⟩ = mΦ(−a) − sN(a), a = m/s
        a = m[i] / s[i]
        below = 0.5 * math.erfc(a / math.sqrt(2.0))
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        value[i] += m[i] * below - s[i] * density
        d_mean[i] += below
        d_var[i] -= 0.5 * density / s[i]


@njit(**INNER, error_model="numpy")
def sort_by_rule(s: Array, limit: Array, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fill `order` with the sites sorted by rule; rule r has those from first[r] to first[r + 1]."""
    rule, first = np.zeros(s.size, np.int64), np.zeros(limit.size + 2, np.int64)
    for i in range(s.size):
        for r in range(limit.size - 1):
            rule[i] += s[i] > limit[r]
        first[rule[i] + 2] += 1
    for r in range(limit.size):
        first[r + 2] += first[r + 1]
    for i in range(s.size):
        order[first[rule[i] + 1]] = i
        first[rule[i] + 1] += 1
    return first


@njit(cache=True, error_model="numpy", nogil=True)
def _log_sigmoid_loop(
    m: Array,
    s: Array,
    limit: Array,
    start: NDArray[np.int64],
    nodes: Array,
    weights: Array,
    n_direct: int,
    low: int,
    high: int,
    out: Array,
) -> None:
    """Sites low … high−1, a chunk at a time: sort by rule, run each rule on its sites, put the results back."""
    order, work = np.empty(CHUNK, np.int64), np.empty((5, CHUNK))
    for a in range(low, high, CHUNK):
        n = min(CHUNK, high - a)
        first = sort_by_rule(s[a : a + n], limit, order)
        for r in range(limit.size):
            count = first[r + 1] - first[r]
            for i in range(count):
                j = a + order[first[r] + i]
                work[0, i], work[1, i], work[2, i], work[3, i], work[4, i] = m[j], s[j], 0.0, 0.0, 0.0
            if r < n_direct:
                _add_log_sigmoid(count, work, start[r], start[r + 1], nodes, weights)
            else:
                _add_softplus(count, work, start[r], start[r + 1], nodes, weights)
            for i in range(count):
                j = a + order[first[r] + i]
                out[0, j], out[1, j], out[2, j] = work[2, i], work[3, i], work[4, i]

"""Compiled steps of mixed-data factor analysis: small Gaussian posteriors of all rows, and their sites' expectations.

A row has K latents and one site a column, ψ(b + fᵀw): Gaussian, logistic, Poisson or ordered logistic. Expectations
under N(η|m, v) and their derivatives are in closed form or by the rules of `site_kernels` (error below 2e-11 for
logistic parts, whatever m and v); Student-t latents use the trapezoid rule with 48 nodes (1e-9 for v ≤ 1).

`spread` is 1 for Gaussian KL, and 0 to let q shrink to its mean in every expectation, which gives Newton's method for
the mode and with it the Laplace approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from latlin.numerics.linalg import Array
from latlin.numerics.quadrature import trapezoid
from latlin.numerics.stored import storable
from latlin.numerics.threads import thread_count
from latlin.potentials.kernels.sites import HERMITE, TRAPEZOID, rule_table

REAL, BINARY, COUNT, ORDINAL = 0, 1, 2, 3
GAUSSIAN, LAPLACE, STUDENT = 0, 1, 2
_LOG_2PI = math.log(2.0 * math.pi)
_compiled = njit(cache=True, error_model="numpy", nogil=True)


class Tables(NamedTuple):
    """Quadrature rules: those of log σ by the size of the standard deviation, and one for everything smooth."""

    limit: Array
    start: NDArray[np.int64]
    nodes: Array
    weights: Array
    n_direct: int
    plain_nodes: Array
    plain_weights: Array


@cache
def tables() -> Tables:
    """The rules, computed once."""
    return Tables(*rule_table(), len(HERMITE) + len(TRAPEZOID), *trapezoid(48, 7.0))


@storable
class Sites(NamedTuple):
    """The columns' parameters.

    `kind` is one of REAL, BINARY, COUNT, ORDINAL; `noise` the variance of real columns; `cuts` holds −∞, the cuts and ∞
    of ordinal columns, padded by ∞.
    """

    kind: NDArray[np.int64]
    loading: Array  # columns × K
    intercept: Array
    noise: Array
    cuts: Array


class Prior(NamedTuple):
    """The latents' density: GAUSSIAN, LAPLACE or STUDENT with unit variance."""

    kind: int
    df: float


@_compiled
def log_sigmoid_site(m: float, s: float, rules: Tables) -> tuple[float, float, float]:
    """⟨log σ(x)⟩ under N(x|m, s²) and its derivatives in m and s²."""
    if s == 0.0:
        e = math.exp(-math.fabs(m))
        inverse = 1.0 / (1.0 + e)
        slope = e * inverse if m > 0.0 else inverse
        return (m if m < 0.0 else 0.0) - math.log1p(e), slope, -0.5 * e * inverse * inverse
    r = 0
    while r < rules.limit.size - 1 and s > rules.limit[r]:
        r += 1
    value, d_mean, d_var = 0.0, 0.0, 0.0
    for k in range(rules.start[r], rules.start[r + 1]):
        z, w = rules.nodes[k], rules.weights[k]
        if r < rules.n_direct:
            x = m + s * z
            e = math.exp(-math.fabs(x))
            inverse = 1.0 / (1.0 + e)
            value += w * ((x if x < 0.0 else 0.0) - math.log1p(e))
            d_mean += w * (e * inverse if x > 0.0 else inverse)
            d_var -= 0.5 * w * e * inverse * inverse
        else:
            for side in (-1.0, 1.0):
                u = (side * z - m) / s
                density = w * math.exp(-0.5 * u * u) / (s * math.sqrt(2.0 * math.pi))
                value -= density
                d_mean -= density * u / s
                d_var -= 0.5 * density * (u * u - 1.0) / (s * s)
    if r >= rules.n_direct:
        # ⟨min(x, 0)⟩ = mΦ(−a) − sN(a), a = m/s
        a = m / s
        below = 0.5 * math.erfc(a / math.sqrt(2.0))
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        value += m * below - s * density
        d_mean += below
        d_var -= 0.5 * density / s
    return value, d_mean, d_var


@_compiled
def ordinal_site(y: int, cuts: Array, m: float, s: float, rules: Tables) -> tuple[float, float, float]:
    """⟨log(σ(c_{y+1} − x) − σ(c_y − x))⟩ = ⟨log σ(c_{y+1} − x)⟩ + ⟨log σ(x − c_y)⟩ + log(1 − e^{c_y − c_{y+1}})."""
    low, high = cuts[y], cuts[y + 1]
    value, d_mean, d_var = 0.0, 0.0, 0.0
    if high < np.inf:
        part, slope, curvature = log_sigmoid_site(high - m, s, rules)
        value, d_mean, d_var = value + part, d_mean - slope, d_var + curvature
    if low > -np.inf:
        part, slope, curvature = log_sigmoid_site(m - low, s, rules)
        value, d_mean, d_var = value + part, d_mean + slope, d_var + curvature
    if high < np.inf and low > -np.inf:
        value += math.log(-math.expm1(low - high))
    return value, d_mean, d_var


@_compiled
def site(
    kind: int, y: float, noise: float, cuts: Array, m: float, v: float, rules: Tables
) -> tuple[float, float, float]:
    """⟨ψ(η)⟩ under N(η|m, v), its derivative in m and in v, constants included."""
    if kind == REAL:
        error = y - m
        value = -0.5 * (_LOG_2PI + math.log(noise) + (error * error + v) / noise)
        return value, error / noise, -0.5 / noise
    if kind == BINARY:
        sign = 1.0 if y > 0.5 else -1.0
        value, d_mean, d_var = log_sigmoid_site(sign * m, math.sqrt(v), rules)
        return value, sign * d_mean, d_var
    if kind == COUNT:
        rate = math.exp(min(m + 0.5 * v, 700.0))
        return y * m - rate - math.lgamma(y + 1.0), y - rate, -0.5 * rate
    return ordinal_site(int(y), cuts, m, math.sqrt(v), rules)


@_compiled
def prior_site(prior: Prior, m: float, v: float, rules: Tables) -> tuple[float, float, float]:
    """⟨log p(w)⟩ under N(w|m, v) with its derivatives, for a latent of unit variance."""
    if prior.kind == GAUSSIAN:
        return -0.5 * (_LOG_2PI + m * m + v), -m, -0.5
    if prior.kind == LAPLACE:
        # log p = −½ log 2 − √2|w|, ⟨|w|⟩ = m(1 − 2Φ(−m/s)) + 2sN(m/s)
        s = math.sqrt(max(v, 1e-300))
        a = m / s
        sign, density = math.erf(a / math.sqrt(2.0)), math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        root = math.sqrt(2.0)
        return -0.5 * math.log(2.0) - root * (m * sign + 2.0 * s * density), -root * sign, -root * density / s
    df, value, d_mean, d_var = prior.df, 0.0, 0.0, 0.0
    width = df - 2.0
    s = math.sqrt(v)
    for k in range(rules.plain_nodes.size):
        x, w = m + s * rules.plain_nodes[k], rules.plain_weights[k]
        u = width + x * x
        value -= w * 0.5 * (df + 1.0) * math.log(u / width)
        d_mean -= w * (df + 1.0) * x / u
        d_var -= 0.5 * w * (df + 1.0) * (width - x * x) / (u * u)
    constant = math.lgamma(0.5 * (df + 1.0)) - math.lgamma(0.5 * df) - 0.5 * math.log(math.pi * width)
    return value + constant, d_mean, d_var


@_compiled
def copy_vector(source: Array, out: Array) -> None:
    """out ← source. A plain loop: the compiler takes long over assignments of slices."""
    for i in range(out.size):
        out[i] = source[i]


@_compiled
def copy_matrix(source: Array, out: Array) -> None:
    """out ← source."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = source[i, j]


@_compiled
def clear(vector: Array, matrix: Array) -> None:
    """Zeros in both."""
    for i in range(vector.size):
        vector[i] = 0.0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = 0.0


@_compiled
def cholesky_in_place(a: Array) -> bool:
    """Lower factor of a symmetric matrix, written over it; False when it is not positive definite."""
    n = a.shape[0]
    for j in range(n):
        total = a[j, j]
        for k in range(j):
            total -= a[j, k] * a[j, k]
        if not total > 0.0:
            return False
        a[j, j] = math.sqrt(total)
        for i in range(j + 1, n):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = total / a[j, j]
    return True


@_compiled
def solve_in_place(factor: Array, b: Array) -> None:
    """b ← (LLᵀ)⁻¹b."""
    n = b.size
    for i in range(n):
        for k in range(i):
            b[i] -= factor[i, k] * b[k]
        b[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= factor[k, i] * b[k]
        b[i] /= factor[i, i]


@_compiled
def inverse_from(factor: Array, out: Array, column: Array) -> float:
    """out ← (LLᵀ)⁻¹; returns log det of it."""
    n, log_det = factor.shape[0], 0.0
    for j in range(n):
        for i in range(n):
            column[i] = 1.0 if i == j else 0.0
        solve_in_place(factor, column)
        for i in range(n):
            out[i, j] = column[i]
        log_det -= 2.0 * math.log(factor[j, j])
    return log_det


@_compiled
def weigh(
    row: Array,
    sites: Sites,
    prior: Prior,
    rules: Tables,
    spread: float,
    mean: Array,
    cov: Array,
    slope: Array,
    precision: Array,
) -> float:
    """⟨log p(v, w)⟩ under q; writes its gradient in the mean, and Γ = −2∂/∂S as the precision that q should have."""
    k = mean.size
    value = 0.0
    clear(slope, precision)
    for d in range(k):
        part, d_mean, d_var = prior_site(prior, mean[d], spread * cov[d, d], rules)
        value += part
        slope[d] += d_mean
        precision[d, d] -= 2.0 * d_var
    for n in range(row.size):
        if math.isnan(row[n]):
            continue
        f = sites.loading[n]
        m, v = sites.intercept[n], 0.0
        for i in range(k):
            m += f[i] * mean[i]
            product = 0.0
            for j in range(k):
                product += cov[i, j] * f[j]
            v += f[i] * product
        part, d_mean, d_var = site(sites.kind[n], row[n], sites.noise[n], sites.cuts[n], m, max(spread * v, 0.0), rules)
        value += part
        for i in range(k):
            slope[i] += d_mean * f[i]
            for j in range(k):
                precision[i, j] -= 2.0 * d_var * f[i] * f[j]
    return value


@_compiled
def _step(rho: float, mean: Array, work: Array) -> tuple[bool, float, float]:
    """P ← (1 − ρ)P + ρΓ, its factor, inverse, and m + ρP⁻¹g; whether P is definite, log det P⁻¹, the largest move."""
    k = mean.size
    target, old, factor, new_cov = work[0], work[2], work[3], work[4]
    slope, new_mean, column = work[5, 0], work[7, 0], work[8, 0]
    for i in range(k):
        new_mean[i] = rho * slope[i]
        for j in range(k):
            factor[i, j] = (1.0 - rho) * old[i, j] + rho * target[i, j]
    if not cholesky_in_place(factor):
        return False, 0.0, 0.0
    log_det = inverse_from(factor, new_cov, column)
    solve_in_place(factor, new_mean)
    moved = 0.0
    for i in range(k):
        moved = max(moved, math.fabs(new_mean[i]))
        new_mean[i] += mean[i]
    return True, log_det, moved


@_compiled
def fit_row(
    row: Array,
    sites: Sites,
    prior: Prior,
    rules: Tables,
    spread: float,
    max_iter: int,
    tol: float,
    mean: Array,
    cov: Array,
    work: Array,
) -> float:
    """Climb the bound of one row from (mean, cov), in place; returns it, or the Laplace evidence when spread is 0.

    P ← (1 − ρ)P + ρΓ and m ← m + P⁻¹g, ρ = 1 halved until the bound rises; Challis (2013), eqs. 2.2.4, 4.3.1.
    """
    k = mean.size
    target, next_target, old, factor, new_cov = work[0], work[1], work[2], work[3], work[4]
    slope, next_slope, new_mean, column = work[5, 0], work[6, 0], work[7, 0], work[8, 0]
    copy_matrix(cov, factor)
    cholesky_in_place(factor)
    log_det = -inverse_from(factor, old, column)
    value = weigh(row, sites, prior, rules, spread, mean, cov, slope, target) + spread * 0.5 * log_det
    for _ in range(max_iter):
        rho, accepted = 1.0, False
        for _ in range(30):
            definite, new_log_det, moved = _step(rho, mean, work)
            if definite:
                new_value = weigh(row, sites, prior, rules, spread, new_mean, new_cov, next_slope, next_target)
                new_value += spread * 0.5 * new_log_det
                if new_value >= value - 1e-12 * math.fabs(value):
                    accepted = True
                    break
            rho *= 0.5
        if not accepted:
            break
        gain = new_value - value
        value, log_det = new_value, new_log_det
        copy_vector(new_mean, mean)
        copy_matrix(new_cov, cov)
        copy_vector(next_slope, slope)
        copy_matrix(next_target, target)
        multiply_back(factor, old)
        if moved < tol and gain < tol * (1.0 + math.fabs(value)):
            break
    # ½K(1 + log 2π) + ½ log det S of the entropy; Laplace: ½K log 2π + ½ log det S
    return value + 0.5 * k * (spread + _LOG_2PI) + (1.0 - spread) * 0.5 * log_det


@_compiled
def multiply_back(factor: Array, out: Array) -> None:
    """out ← LLᵀ."""
    n = factor.shape[0]
    for i in range(n):
        for j in range(n):
            total = 0.0
            for k in range(min(i, j) + 1):
                total += factor[i, k] * factor[j, k]
            out[i, j] = total


@_compiled
def fit_rows(
    rows: Array,
    sites: Sites,
    prior: Prior,
    rules: Tables,
    spread: float,
    max_iter: int,
    tol: float,
    means: Array,
    covs: Array,
    values: Array,
    low: int,
    high: int,
) -> None:
    """`fit_row` for the rows low … high − 1."""
    k = means.shape[1]
    work = np.empty((9, k, k))
    for i in range(low, high):
        values[i] = fit_row(rows[i], sites, prior, rules, spread, max_iter, tol, means[i], covs[i], work)


def in_threads(action: Callable[[int, int], Any], n: int, chunk: int) -> None:
    """action(low, high) on consecutive chunks of range(n), as many at a time as there are threads."""
    threads = thread_count()
    cuts = [*range(0, n, chunk), n]
    if threads == 1 or len(cuts) < 3:
        action(0, n)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(action, cuts[:-1], cuts[1:]))

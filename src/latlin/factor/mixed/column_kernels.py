"""Compiled M-step of mixed-data factor analysis: the loadings, intercepts and cuts of every column, by Newton's method.

Column n maximises Σ_i ⟨ψ(b + fᵀw_i)⟩ − ½λ‖f‖² over its own (f, b) with the posteriors N(m_i, S_i) of the rows held. The
curvature is Σ_i γ_i⟨w̃w̃ᵀ⟩ with γ = −⟨ψ″⟩ and w̃ = (w, 1): the exact one but for the covariance of ψ″ and w̃w̃ᵀ; steps are
halved until the sum rises.
"""

from __future__ import annotations

import math

import numpy as np

from latlin.factor.mixed.kernels import (
    ORDINAL,
    REAL,
    Sites,
    Tables,
    _compiled,
    cholesky_in_place,
    clear,
    copy_matrix,
    copy_vector,
    log_sigmoid_site,
    site,
    solve_in_place,
)
from latlin.numerics.linalg import Array


@_compiled
def column_value(
    y: Array,
    kind: int,
    noise: float,
    cuts: Array,
    theta: Array,
    means: Array,
    covs: Array,
    penalty: float,
    rules: Tables,
    slope: Array,
    curvature: Array,
) -> float:
    """Σ_i ⟨ψ(b + fᵀw_i)⟩ − ½λ‖f‖² at theta = (f, b); writes its gradient and minus its approximate Hessian."""
    k = means.shape[1]
    pushed = np.empty(k)
    clear(slope, curvature)
    value = 0.0
    for i in range(y.size):
        if math.isnan(y[i]):
            continue
        m, v = float(theta[k]), 0.0
        for a in range(k):
            total = 0.0
            for b in range(k):
                total += covs[i, a, b] * theta[b]
            pushed[a] = total
            m += theta[a] * means[i, a]
            v += theta[a] * total
        part, d_mean, d_var = site(kind, y[i], noise, cuts, m, max(v, 0.0), rules)
        value += part
        weight = -2.0 * d_var
        for a in range(k):
            slope[a] += d_mean * means[i, a] + 2.0 * d_var * pushed[a]
            for b in range(a + 1):
                curvature[a, b] += weight * (means[i, a] * means[i, b] + covs[i, a, b])
            curvature[k, a] += weight * means[i, a]
        slope[k] += d_mean
        curvature[k, k] += weight
    for a in range(k):
        value -= 0.5 * penalty * theta[a] * theta[a]
        slope[a] -= penalty * theta[a]
        curvature[a, a] += penalty
    if kind == ORDINAL:
        # the cuts are the intercepts
        slope[k], curvature[k, k] = 0.0, 1.0
        for a in range(k):
            curvature[k, a] = 0.0
    return value


@_compiled
def fit_column(
    y: Array,
    kind: int,
    noise: float,
    cuts: Array,
    theta: Array,
    means: Array,
    covs: Array,
    penalty: float,
    rules: Tables,
    max_iter: int,
) -> float:
    """Newton's method on (f, b), in place; returns Σ⟨ψ⟩ − ½λ‖f‖²."""
    size = theta.size
    slope, next_slope, step, trial = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    curvature, next_curvature = np.empty((size, size)), np.empty((size, size))
    value = column_value(y, kind, noise, cuts, theta, means, covs, penalty, rules, slope, curvature)
    for _ in range(max_iter):
        for a in range(size):
            curvature[a, a] += 1e-10 * (1.0 + curvature[a, a])
        if not cholesky_in_place(curvature):
            break
        copy_vector(slope, step)
        solve_in_place(curvature, step)
        decrement = 0.0
        for a in range(size):
            decrement += step[a] * slope[a]
        scale, accepted, new = 1.0, False, value
        for _ in range(25):
            for a in range(size):
                trial[a] = theta[a] + scale * step[a]
            new = column_value(y, kind, noise, cuts, trial, means, covs, penalty, rules, next_slope, next_curvature)
            if new >= value:
                accepted = True
                break
            scale *= 0.5
        if not accepted:
            break
        value = new
        copy_vector(trial, theta)
        copy_vector(next_slope, slope)
        copy_matrix(next_curvature, curvature)
        if decrement < 1e-8 * (1.0 + math.fabs(value)):
            break
    return value


@_compiled
def mean_square_error(y: Array, theta: Array, means: Array, covs: Array) -> float:
    """⟨(y − b − fᵀw)²⟩, the mean over the observed rows."""
    k = means.shape[1]
    total, count = 0.0, 0
    for i in range(y.size):
        if math.isnan(y[i]):
            continue
        error = y[i] - theta[k]
        for a in range(k):
            error -= theta[a] * means[i, a]
            for b in range(k):
                total += theta[a] * covs[i, a, b] * theta[b]
        total += error * error
        count += 1
    return total / count


@_compiled
def cuts_value(
    y: Array, cuts: Array, levels: int, m: Array, s: Array, rules: Tables, slope: Array, curvature: Array
) -> float:
    """Σ_i ⟨log(σ(c_{y+1} − η) − σ(c_y − η))⟩; writes its gradient in c_1 … c_{levels−1} and minus its Hessian."""
    clear(slope, curvature)
    value = 0.0
    for i in range(y.size):
        if math.isnan(y[i]):
            continue
        c = int(y[i])
        low, high = cuts[c], cuts[c + 1]
        if c + 1 < levels:
            part, d_mean, d_var = log_sigmoid_site(high - m[i], s[i], rules)
            value += part
            slope[c] += d_mean
            curvature[c, c] -= 2.0 * d_var
        if c > 0:
            part, d_mean, d_var = log_sigmoid_site(m[i] - low, s[i], rules)
            value += part
            slope[c - 1] -= d_mean
            curvature[c - 1, c - 1] -= 2.0 * d_var
        if c > 0 and c + 1 < levels:
            gap = high - low
            value += math.log(-math.expm1(-gap))
            # ∂ log(1 − e^{−g})/∂g = 1/(e^g − 1), ∂² = −e^g/(e^g − 1)²
            first = 1.0 / math.expm1(gap)
            second = first * (1.0 + first)
            slope[c] += first
            slope[c - 1] -= first
            curvature[c, c] += second
            curvature[c - 1, c - 1] += second
            curvature[c, c - 1] -= second
    return value


@_compiled
def fit_cuts(y: Array, cuts: Array, levels: int, m: Array, s: Array, rules: Tables, max_iter: int) -> None:
    """Newton's method on the cuts of an ordinal column, in place; they stay in order."""
    free = levels - 1
    slope, next_slope, step = np.empty(free), np.empty(free), np.empty(free)
    curvature, next_curvature = np.empty((free, free)), np.empty((free, free))
    trial = cuts.copy()
    value = cuts_value(y, cuts, levels, m, s, rules, slope, curvature)
    for _ in range(max_iter):
        for a in range(free):
            curvature[a, a] += 1e-10 * (1.0 + curvature[a, a])
        if not cholesky_in_place(curvature):
            return
        copy_vector(slope, step)
        solve_in_place(curvature, step)
        scale, accepted = 1.0, False
        for _ in range(25):
            ordered = True
            for a in range(free):
                trial[a + 1] = cuts[a + 1] + scale * step[a]
                ordered = ordered and (a == 0 or trial[a + 1] - trial[a] > 1e-6)
            if ordered:
                new = cuts_value(y, trial, levels, m, s, rules, next_slope, next_curvature)
                if new >= value:
                    accepted = True
                    break
            scale *= 0.5
        if not accepted:
            return
        gain = new - value
        value = new
        copy_vector(trial, cuts)
        copy_vector(next_slope, slope)
        copy_matrix(next_curvature, curvature)
        if gain < 1e-8 * (1.0 + math.fabs(value)):
            return


@_compiled
def fit_columns(
    columns: Array,
    sites: Sites,
    levels: Array,
    means: Array,
    covs: Array,
    penalty: float,
    floor: float,
    rules: Tables,
    max_iter: int,
    low: int,
    high: int,
) -> None:
    """The M-step of columns low … high − 1 (one a row of `columns`), written into `sites`."""
    n, k = means.shape
    theta = np.empty(k + 1)
    m, s = np.empty(n), np.empty(n)
    for c in range(low, high):
        y = columns[c]
        copy_vector(sites.loading[c], theta[:k])
        theta[k] = sites.intercept[c]
        fit_column(y, sites.kind[c], sites.noise[c], sites.cuts[c], theta, means, covs, penalty, rules, max_iter)
        copy_vector(theta[:k], sites.loading[c])
        sites.intercept[c] = theta[k]
        if sites.kind[c] == REAL:
            sites.noise[c] = max(mean_square_error(y, theta, means, covs), floor)
        if sites.kind[c] == ORDINAL:
            project(theta, means, covs, m, s)
            fit_cuts(y, sites.cuts[c], levels[c], m, s, rules, max_iter)


@_compiled
def project(theta: Array, means: Array, covs: Array, m: Array, s: Array) -> None:
    """Mean and standard deviation of b + fᵀw for every row."""
    n, k = means.shape
    for i in range(n):
        m[i], v = theta[k], 0.0
        for a in range(k):
            m[i] += theta[a] * means[i, a]
            for b in range(k):
                v += theta[a] * covs[i, a, b] * theta[b]
        s[i] = math.sqrt(max(v, 0.0))

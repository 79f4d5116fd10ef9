"""Compiled expectation propagation for the rows of mixed-data factor analysis, Gaussian latents.

Every site ψ(b + x), x = fᵀw, is replaced by exp(−½tx² + hx) times a constant; Gaussian sites are exact. Tilted moments
are by the trapezoid rule about the tilted mode, 48 nodes on ±7 widths: log Z to 1e-8 for cavity variances up to 1, to
1e-5 up to 10.
"""

from __future__ import annotations

import math

import numpy as np

from latlin.factor.mixed.kernels import (
    COUNT,
    REAL,
    Sites,
    Tables,
    _compiled,
    cholesky_in_place,
    clear,
    inverse_from,
    site,
)
from latlin.numerics.linalg import Array


@_compiled
def tilted_mode(
    kind: int, y: float, cuts: Array, offset: float, m: float, v: float, rules: Tables
) -> tuple[float, float]:
    """Where log N(x|m, v) + ψ(offset + x) is largest, and minus its curvature there, by damped Newton steps."""
    x = m
    value, slope, half = site(kind, y, 1.0, cuts, offset + x, 0.0, rules)
    for _ in range(100):
        bend = 1.0 / v - 2.0 * half
        pull = slope - (x - m) / v
        step = pull / bend
        if math.fabs(step) < 1e-7 * math.sqrt(v):
            break
        old = value - 0.5 * (x - m) ** 2 / v
        for _ in range(60):
            value, slope, half = site(kind, y, 1.0, cuts, offset + x + step, 0.0, rules)
            if value - 0.5 * (x + step - m) ** 2 / v >= old - 1e-14 * math.fabs(old):
                break
            step *= 0.5
        x += step
    return x, 1.0 / v - 2.0 * half


@_compiled
def tilted(
    kind: int, y: float, cuts: Array, offset: float, m: float, v: float, rules: Tables
) -> tuple[float, float, float]:
    """log Z, mean and variance of N(x|m, v) e^{ψ(offset + x)}/Z."""
    mode, bend = tilted_mode(kind, y, cuts, offset, m, v, rules)
    # logistic sites have lines for tails, and there the Gaussian factor alone decides
    width = 1.3 / math.sqrt(bend) if kind == COUNT else max(1.0 / math.sqrt(bend), 0.75 * math.sqrt(v))
    top = site(kind, y, 1.0, cuts, offset + mode, 0.0, rules)[0] - 0.5 * (mode - m) ** 2 / v
    mass, first, second = 0.0, 0.0, 0.0
    for k in range(rules.plain_nodes.size):
        z = rules.plain_nodes[k]
        x = mode + width * z
        log_f = site(kind, y, 1.0, cuts, offset + x, 0.0, rules)[0] - 0.5 * (x - m) ** 2 / v
        w = rules.plain_weights[k] * math.exp(log_f - top + 0.5 * z * z)
        mass += w
        first += w * z
        second += w * z * z
    first /= mass
    variance = width * width * (second / mass - first * first)
    # ∫ N(x|m, v)e^ψ dx = (width/√v) Σ w e^{…}
    return top + math.log(mass * width) - 0.5 * math.log(v), mode + width * first, variance


@_compiled
def site_constant(log_z: float, t: float, h: float, m: float, v: float) -> float:
    """log of the constant that gives exp(−½tx² + hx) the mass Z under the cavity N(x|m, v)."""
    natural = m / v + h
    return log_z + 0.5 * math.log1p(t * v) - 0.5 * natural * natural / (1.0 / v + t) + 0.5 * m * m / v


@_compiled
def refresh(row: Array, sites: Sites, t: Array, h: Array, mean: Array, cov: Array, work: Array) -> float:
    """q ∝ N(0, I) ∏ exp(−½t x² + h x): writes mean and covariance; returns ½ log det S + ½ rᵀSr."""
    k = mean.size
    factor, column, pull = work[0], work[1, 0], work[2, 0]
    clear(pull, factor)
    for a in range(k):
        factor[a, a] = 1.0
    for n in range(row.size):
        if math.isnan(row[n]):
            continue
        f = sites.loading[n]
        for a in range(k):
            pull[a] += h[n] * f[a]
            for b in range(k):
                factor[a, b] += t[n] * f[a] * f[b]
    cholesky_in_place(factor)
    log_det = inverse_from(factor, cov, column)
    quad = 0.0
    for a in range(k):
        total = 0.0
        for b in range(k):
            total += cov[a, b] * pull[b]
        mean[a] = total
        quad += total * pull[a]
    return 0.5 * (log_det + quad)


@_compiled
def ep_sweep(
    row: Array, sites: Sites, rules: Tables, mean: Array, cov: Array, t: Array, h: Array, constant: Array, pushed: Array
) -> float:
    """Visit every site once, with rank-one updates of q; returns the largest change of a site's effect on q."""
    k = mean.size
    moved = 0.0
    for n in range(row.size):
        if math.isnan(row[n]) or sites.kind[n] == REAL:
            continue
        f = sites.loading[n]
        centre, v = 0.0, 0.0
        for a in range(k):
            total = 0.0
            for b in range(k):
                total += cov[a, b] * f[b]
            pushed[a] = total
            centre += f[a] * mean[a]
            v += f[a] * total
        if v < 1e-12:
            # the latents do not reach this site
            constant[n] = site(sites.kind[n], row[n], 1.0, sites.cuts[n], sites.intercept[n] + centre, 0.0, rules)[0]
            t[n], h[n] = 0.0, 0.0
            continue
        cavity_v = 1.0 / (1.0 / v - t[n])
        cavity_m = cavity_v * (centre / v - h[n])
        log_z, m, spread = tilted(sites.kind[n], row[n], sites.cuts[n], sites.intercept[n], cavity_m, cavity_v, rules)
        new_t = max(1.0 / spread - 1.0 / cavity_v, 0.0)
        new_h = m / spread - cavity_m / cavity_v
        constant[n] = site_constant(log_z, new_t, new_h, cavity_m, cavity_v)
        d_t, d_h = new_t - t[n], new_h - h[n]
        moved = max(moved, math.fabs(d_t) * v, math.fabs(d_h) * math.sqrt(v))
        t[n], h[n] = new_t, new_h
        # S ← S − S f fᵀS Δt/(1 + Δt v), m ← m + S_new f (Δh − Δt fᵀm)
        share = d_t / (1.0 + d_t * v)
        gain = (d_h - d_t * centre) / (1.0 + d_t * v)
        for a in range(k):
            mean[a] += gain * pushed[a]
            for b in range(k):
                cov[a, b] -= share * pushed[a] * pushed[b]
    return moved


@_compiled
def ep_rows(
    rows: Array,
    sites: Sites,
    rules: Tables,
    max_iter: int,
    tol: float,
    means: Array,
    covs: Array,
    values: Array,
    low: int,
    high: int,
) -> None:
    """EP for rows low … high − 1 from flat sites; writes means, covariances and the EP evidence of each row."""
    n_columns, k = rows.shape[1], means.shape[1]
    t, h, constant, pushed = np.empty(n_columns), np.empty(n_columns), np.empty(n_columns), np.empty(k)
    work = np.empty((3, k, k))
    for i in range(low, high):
        for n in range(n_columns):
            t[n], h[n], constant[n] = 0.0, 0.0, 0.0
            if sites.kind[n] == REAL and not math.isnan(rows[i, n]):
                error = rows[i, n] - sites.intercept[n]
                t[n], h[n] = 1.0 / sites.noise[n], error / sites.noise[n]
                constant[n] = -0.5 * (math.log(2.0 * math.pi * sites.noise[n]) + error * error / sites.noise[n])
        refresh(rows[i], sites, t, h, means[i], covs[i], work)
        for _ in range(max_iter):
            if ep_sweep(rows[i], sites, rules, means[i], covs[i], t, h, constant, pushed) < tol:
                break
        values[i] = refresh(rows[i], sites, t, h, means[i], covs[i], work) + constant.sum()

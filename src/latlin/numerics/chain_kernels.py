"""Compiled passes along a Gauss–Markov chain x_t = Φ_t x_{t−1} + ε_t, ε_t ~ N(0, W_t), x_0 ~ N(0, W_0).

With one precision γ_t and one pull ν_t on f_t = hᵀx_t the filter and the smoother give every moment of the posterior in
one pass forward and one backward. They stay in covariances, so that steps far shorter than the chain's own time, whose
W_t are next to nothing, cost no digits. The smoother is that of de Jong (1989): with filtered m, P and k = Ph,

    r⁻ = h(ν − γhᵀm) + r⁺ − γh(kᵀr⁺),   N⁻ = hhᵀγ(1 − γhᵀk) + (I − γkhᵀ)ᵀN⁺(I − γkhᵀ),
    E x = m + Pr⁺,   Var x = P − PN⁺P,   r⁺_t = Φ_{t+1}ᵀr⁻_{t+1},   N⁺_t = Φ_{t+1}ᵀN⁻_{t+1}Φ_{t+1}.
"""

from __future__ import annotations

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit


@njit(**INNER)
def small_root(W: Array, root: Array) -> None:
    """The lower Cholesky factor of a small covariance; of what is left as nothing, zero."""
    d = len(W)
    for i in range(d):
        for j in range(i + 1):
            total = W[i, j]
            for k in range(j):
                total -= root[i, k] * root[j, k]
            if i == j:
                root[i, i] = np.sqrt(max(total, 0.0))
            else:
                root[i, j] = total / root[j, j] if root[j, j] > 0.0 else 0.0


@njit(cache=True, nogil=True)
def colour(phi: Array, W: Array, u: Array) -> Array:
    """x = Lu: states of standardised innovations."""
    steps, d = u.shape
    x, root = np.zeros((steps, d)), np.zeros((d, d))
    for t in range(steps):
        small_root(W[t], root)
        for i in range(d):
            total = 0.0
            for j in range(i + 1):
                total += root[i, j] * u[t, j]
            if t > 0:
                for j in range(d):
                    total += phi[t, i, j] * x[t - 1, j]
            x[t, i] = total
    return x


@njit(cache=True, nogil=True)
def whiten(phi: Array, W: Array, x: Array) -> Array:
    """u = L⁻¹x."""
    steps, d = x.shape
    u, root = np.zeros((steps, d)), np.zeros((d, d))
    for t in range(steps):
        small_root(W[t], root)
        for i in range(d):
            total = x[t, i]
            if t > 0:
                for j in range(d):
                    total -= phi[t, i, j] * x[t - 1, j]
            for j in range(i):
                total -= root[i, j] * u[t, j]
            u[t, i] = total / root[i, i] if root[i, i] > 0.0 else 0.0
    return u


@njit(cache=True, nogil=True)
def colour_transposed(phi: Array, W: Array, v: Array) -> Array:
    """u = Lᵀv."""
    steps, d = v.shape
    u, root, ahead, carried = np.zeros((steps, d)), np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for t in range(steps - 1, -1, -1):
        # ahead ← v_t + Φ_{t+1}ᵀ ahead
        for j in range(d):
            carried[j] = v[t, j]
            if t + 1 < steps:
                for i in range(d):
                    carried[j] += phi[t + 1, i, j] * ahead[i]
        for j in range(d):
            ahead[j] = carried[j]
        small_root(W[t], root)
        for j in range(d):
            for i in range(j, d):
                u[t, j] += root[i, j] * ahead[i]
    return u


@njit(cache=True, nogil=True)
def whiten_transposed(phi: Array, W: Array, u: Array) -> Array:
    """v = L⁻ᵀu."""
    steps, d = u.shape
    v, root, ahead, own = np.zeros((steps, d)), np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for t in range(steps - 1, -1, -1):
        small_root(W[t], root)
        for i in range(d - 1, -1, -1):
            total = u[t, i]
            for j in range(i + 1, d):
                total -= root[j, i] * own[j]
            own[i] = total / root[i, i] if root[i, i] > 0.0 else 0.0
            v[t, i] = own[i]
        if t + 1 < steps:
            for i in range(d):
                for j in range(d):
                    v[t, j] -= phi[t + 1, i, j] * ahead[i]
        for i in range(d):
            ahead[i] = own[i]
    return v


@njit(cache=True, nogil=True)
def filter_chain(phi: Array, W: Array, h: Array, gamma: Array, nu: Array, m: Array, P: Array) -> float:
    """Filtered means m and covariances P; returns Σ log(1 + γ_t s_t), or not a number where the result is improper."""
    steps, d = m.shape
    before, spread, half = np.zeros(d), np.zeros((d, d)), np.zeros((d, d))
    k, total = np.zeros(d), 0.0
    for t in range(steps):
        if t == 0:
            for i in range(d):
                before[i] = 0.0
                for j in range(d):
                    spread[i, j] = W[0, i, j]
        else:
            for i in range(d):
                before[i] = 0.0
                for j in range(d):
                    before[i] += phi[t, i, j] * m[t - 1, j]
                    half[i, j] = 0.0
                    for l in range(d):
                        half[i, j] += phi[t, i, l] * P[t - 1, l, j]
            for i in range(d):
                for j in range(i + 1):
                    z = W[t, i, j]
                    for l in range(d):
                        z += half[i, l] * phi[t, j, l]
                    spread[i, j] = z
                    spread[j, i] = z
        s, mean = 0.0, 0.0
        for i in range(d):
            k[i] = 0.0
            for j in range(d):
                k[i] += spread[i, j] * h[j]
            s += h[i] * k[i]
            mean += h[i] * before[i]
        grown = 1.0 + gamma[t] * s
        if not grown > 0.0:
            return np.nan
        total += np.log(grown)
        shift, share = (nu[t] - gamma[t] * mean) / grown, gamma[t] / grown
        for i in range(d):
            m[t, i] = before[i] + k[i] * shift
            for j in range(d):
                P[t, i, j] = spread[i, j] - share * k[i] * k[j]
    return total


@njit(**INNER)
def _carry_back(phi: Array, r: Array, N: Array, back: Array, spread: Array, half: Array) -> None:
    """r⁺ = Φᵀr and N⁺ = ΦᵀNΦ."""
    d = len(r)
    for i in range(d):
        back[i] = 0.0
        for j in range(d):
            back[i] += phi[j, i] * r[j]
            half[i, j] = 0.0
            for l in range(d):
                half[i, j] += phi[l, i] * N[l, j]
    for i in range(d):
        for j in range(i + 1):
            z = 0.0
            for l in range(d):
                z += half[i, l] * phi[l, j]
            spread[i, j] = z
            spread[j, i] = z


@njit(cache=True, nogil=True)
def smooth_chain(
    phi: Array, h: Array, gamma: Array, nu: Array, m: Array, P: Array, r: Array, N: Array, x: Array, variance: Array
) -> None:
    """r⁻ and N⁻ of every step, means of the states and variances of f."""
    steps, d = m.shape
    back, spread, half, k, kN = np.zeros(d), np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for t in range(steps - 1, -1, -1):
        if t + 1 < steps:
            _carry_back(phi[t + 1], r[t + 1], N[t + 1], back, spread, half)
        own, mean, pulled, bent = 0.0, 0.0, 0.0, 0.0
        for i in range(d):
            x[t, i] = m[t, i]
            k[i] = 0.0
            for j in range(d):
                x[t, i] += P[t, i, j] * back[j]
                k[i] += P[t, i, j] * h[j]
            own += h[i] * k[i]
            mean += h[i] * m[t, i]
        for i in range(d):
            pulled += k[i] * back[i]
            kN[i] = 0.0
            for j in range(d):
                kN[i] += spread[i, j] * k[j]
        for i in range(d):
            bent += k[i] * kN[i]
        variance[t] = max(own - bent, 0.0)
        g = gamma[t]
        shift, share = nu[t] - g * mean - g * pulled, g * (1.0 - g * own) + g * g * bent
        for i in range(d):
            r[t, i] = back[i] + h[i] * shift
            for j in range(d):
                N[t, i, j] = spread[i, j] - g * (h[i] * kN[j] + kN[i] * h[j]) + share * h[i] * h[j]


@njit(cache=True, nogil=True)
def state_covariances(phi: Array, P: Array, N: Array) -> Array:
    """Var x_t = P − PN⁺P."""
    steps, d = P.shape[:2]
    found = P.copy()
    back, spread, half, zero = np.zeros(d), np.zeros((d, d)), np.zeros((d, d)), np.zeros(d)
    for t in range(steps - 1):
        _carry_back(phi[t + 1], zero, N[t + 1], back, spread, half)
        found[t] -= P[t] @ spread @ P[t]
    return found


@njit(cache=True, nogil=True)
def times_rows(start: int, stop: int, phi: Array, h: Array, gamma: Array, P: Array, v: Array, x: Array) -> None:
    """x = Sv for the vectors start … stop − 1 of shape (steps, d)."""
    steps, d = v.shape[1:]
    m, before, back, ahead = np.zeros((steps, d)), np.zeros(d), np.zeros(d), np.zeros(d)
    for n in range(start, stop):
        for t in range(steps):
            before[:] = 0.0
            if t > 0:
                for i in range(d):
                    for j in range(d):
                        before[i] += phi[t, i, j] * m[t - 1, j]
            mean = 0.0
            for i in range(d):
                mean += h[i] * before[i]
            # P⁻h = k(1 + γs)
            for i in range(d):
                k, own_pull = 0.0, 0.0
                for j in range(d):
                    k += P[t, i, j] * h[j]
                    own_pull += P[t, i, j] * v[n, t, j]
                m[t, i] = before[i] - gamma[t] * mean * k + own_pull
        back[:] = 0.0
        for t in range(steps - 1, -1, -1):
            if t + 1 < steps:
                for i in range(d):
                    back[i] = 0.0
                    for j in range(d):
                        back[i] += phi[t + 1, j, i] * ahead[j]
            mean, pulled = 0.0, 0.0
            for i in range(d):
                x[n, t, i] = m[t, i]
                own_pull, k = 0.0, 0.0
                for j in range(d):
                    x[n, t, i] += P[t, i, j] * back[j]
                    own_pull += P[t, i, j] * v[n, t, j]
                    k += P[t, i, j] * h[j]
                mean += h[i] * (m[t, i] - own_pull)
                pulled += k * (back[i] + v[n, t, i])
            for i in range(d):
                ahead[i] = back[i] + v[n, t, i] - h[i] * gamma[t] * (mean + pulled)


@njit(cache=True, nogil=True)
def chain_slopes(phi: Array, m: Array, P: Array, r: Array, N: Array, mu: Array, rho: Array) -> tuple[Array, Array]:
    """∂ log Z/∂W_t and ∂ log Z/∂Φ_t, with the movement (μ, ρ) of a mode, which is zero where nothing moves.

    ∂/∂W = ½(rrᵀ + rρᵀ + ρrᵀ − N),   ∂/∂Φ = rmᵀ + rμᵀ + ρmᵀ + 2 ∂/∂W ΦP   with m, μ, P of the step before.
    """
    steps, d = r.shape
    by_w, by_phi = np.zeros((steps, d, d)), np.zeros((steps, d, d))
    for t in range(steps):
        for i in range(d):
            for j in range(d):
                by_w[t, i, j] = 0.5 * (r[t, i] * r[t, j] + r[t, i] * rho[t, j] + rho[t, i] * r[t, j] - N[t, i, j])
        if t > 0:
            carried = phi[t] @ P[t - 1]
            for i in range(d):
                for j in range(d):
                    z = r[t, i] * (m[t - 1, j] + mu[t - 1, j]) + rho[t, i] * m[t - 1, j]
                    for l in range(d):
                        z += 2.0 * by_w[t, i, l] * carried[l, j]
                    by_phi[t, i, j] = z
    return by_w, by_phi

"""Compiled loops that visit sites one after the other: expectation propagation and free-form mean field.

A site's moments under a Gaussian are taken on nodes laid beforehand (`latlin.inference.forms.free`), so that any
potential, also one written in Python, can be visited from compiled code. A kernel stops at the first site whose
Gaussian has moved out of the range its nodes serve and says how far it came; the caller lays new nodes there.

The precision P = CᵀC of the approximation is kept by rank-one up- and downdates of its upper triangular factor
(Challis (2013), §3.6 and A.6.1), stored by rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.threads import INNER, njit

#: range of the Gaussian's and of the tilted variance, relative to the planned ones, that the nodes serve
GAUSSIAN_RANGE = (0.3, 1.5)
TILTED_RANGE = (0.25, 3.0)
#: largest move of the two means, in planned standard deviations
GAUSSIAN_MOVE = 2.0
TILTED_MOVE = 3.0
#: nodes this many nat below the top do not count
NEGLIGIBLE = 46.0
#: a cavity keeps at least this share of the marginal's precision, and is taken to keep so much
PROPER, LEAST = 1e-14, 1e-10
#: an update keeps at least this share of the approximation's precision
DEFINITE = 1e-7
#: a projection of no larger variance is fixed: its site says nothing about w
FIXED = 1e-200


@njit(cache=True, error_model="numpy")
def tilt(nodes: Array, log_weights: Array, mean: float, var: float, work: Array) -> tuple[float, float, float]:
    """log Z, mean and variance of the measure Σ_k exp(log_weights_k) N(node_k | mean, var) on the nodes."""
    top, centre = -np.inf, mean
    for k in range(nodes.size):
        d = nodes[k] - mean
        work[k] = log_weights[k] - 0.5 * d * d / var
        if work[k] > top:
            top, centre = work[k], nodes[k]
    s0, s1, s2 = 0.0, 0.0, 0.0
    for k in range(nodes.size):
        if work[k] > top - NEGLIGIBLE:
            w, d = math.exp(work[k] - top), nodes[k] - centre
            s0 += w
            s1 += w * d
            s2 += w * d * d
    s1 /= s0
    return top + math.log(s0) - 0.5 * math.log(2.0 * math.pi * var), centre + s1, s2 / s0 - s1 * s1


@njit(**INNER, error_model="numpy")
def _served(mean: float, var: float, at: float, over: float, move: float, low: float, high: float) -> bool:
    """N(mean, var) is within reach of nodes laid for N(at, over); false for NaN."""
    return (mean - at) ** 2 <= move * move * over and low * over <= var <= high * over


@njit(cache=True, error_model="numpy")
def rank_one(factor: Array, x: Array, sign: float) -> bool:
    """CᵀC ← CᵀC + sign·xxᵀ in place; x is destroyed. False when the result is not positive definite."""
    d = x.size
    for k in range(d):
        if x[k] == 0.0:
            continue
        c = factor[k, k]
        square = c * c + sign * x[k] * x[k]
        if not square > 0.0:
            return False
        r = math.sqrt(square)
        cosine, sine = r / c, x[k] / c
        factor[k, k] = r
        row = factor[k]
        for j in range(k + 1, d):
            row[j] = (row[j] + sign * sine * x[j]) / cosine
            x[j] = cosine * x[j] - sine * row[j]
    return True


@njit(**INNER, error_model="numpy", fastmath={"reassoc", "contract"})
def _solve(factor: Array, h: Array, half: Array, full: Array) -> float:
    """half = C⁻ᵀh and full = P⁻¹h; returns hᵀP⁻¹h."""
    d = h.size
    for k in range(d):
        full[k] = h[k]
    for k in range(d):
        half[k] = full[k] / factor[k, k]
        if half[k] != 0.0:
            for j in range(k + 1, d):
                full[j] -= factor[k, j] * half[k]
    variance = 0.0
    for k in range(d - 1, -1, -1):
        total = half[k]
        for j in range(k + 1, d):
            total -= factor[k, j] * full[j]
        full[k] = total / factor[k, k]
        variance += half[k] * half[k]
    return variance


@njit(**INNER, error_model="numpy")
def _along(h: Array, u: Array) -> float:
    """hᵀu."""
    total = 0.0
    for j in range(u.size):
        total += h[j] * u[j]
    return total


@njit(**INNER, error_model="numpy")
def _step(
    gamma: float, nu: float, m_out: float, v_out: float, m_in: float, v_in: float, power: float, length: float
) -> tuple[float, float]:
    """Δγ and Δν of a site towards the moments of the tilted distribution, given those of the cavity."""
    target = (1.0 / v_in - 1.0 / v_out) / power
    return length * (target - gamma), length * ((m_in - m_out) / (v_in * power) + m_out * target - nu)


@njit(**INNER, error_model="numpy")
def _absorb(factor: Array, u: Array, h: Array, half: Array, full: Array, d_gamma: float, pull: float) -> bool:
    """P ← P + Δγhhᵀ and u ← u + P⁻¹h·pull, pull = (Δν − Δγm)/(1 + Δγv), from full = P⁻¹h; false if P breaks."""
    scale = math.sqrt(abs(d_gamma))
    for j in range(u.size):
        u[j] += full[j] * pull
        half[j] = h[j] * scale
    return rank_one(factor, half, 1.0 if d_gamma > 0.0 else -1.0)


@njit(cache=True, error_model="numpy")
def visit_sites(
    factor: Array,
    u: Array,
    rows: Array,
    gamma: Array,
    nu: Array,
    power: float,
    length: float,
    nodes: Array,
    log_weights: Array,
    planned: Array,
    fresh: bool,
) -> tuple[int, bool]:
    """Update the sites of a block in turn, with the factor and the mean of the approximation.

    Parameters
    ----------
    factor, u : ndarray of shape (d, d) and (d,)
        C by rows and the mean; changed in place.
    rows : ndarray of shape (sites, d)
    gamma, nu : ndarray of shape (sites,)
        Site parameters; changed in place.
    power, length : float
        Power of EP and length of a step (one less the damping).
    nodes, log_weights : ndarray of shape (sites, nodes)
    planned : ndarray of shape (sites, 4)
        Cavity mean and variance, tilted mean and variance for which the nodes were laid.
    fresh : bool
        They were laid for the first site as it is now: it is visited whatever its moments.

    Returns
    -------
    (sites visited, whether the factor is intact)
    """
    work, half, full = np.empty(nodes.shape[1]), np.empty(u.size), np.empty(u.size)
    for n in range(rows.shape[0]):
        v, m = _solve(factor, rows[n], half, full), _along(rows[n], u)
        # cavity: the marginal without the site to the power η
        share = 1.0 - power * gamma[n] * v
        if not (share > PROPER and v > FIXED):
            continue
        share = max(share, LEAST)
        v_out, m_out = v / share, m - power * (nu[n] - gamma[n] * m) * v / share
        at, sure = planned[n], fresh and n == 0
        if not sure and not _served(m_out, v_out, at[0], at[1], GAUSSIAN_MOVE, *GAUSSIAN_RANGE):
            return n, True
        _, m_in, v_in = tilt(nodes[n], log_weights[n], m_out, v_out, work)
        if not sure and not _served(m_in, v_in, at[2], at[3], TILTED_MOVE, *TILTED_RANGE):
            return n, True
        if not v_in > FIXED:
            continue
        d_gamma, d_nu = _step(gamma[n], nu[n], m_out, v_out, m_in, v_in, power, length)
        kept = 1.0 + d_gamma * v
        if not kept > DEFINITE:
            continue
        gamma[n] += d_gamma
        nu[n] += d_nu
        if not _absorb(factor, u, rows[n], half, full, d_gamma, (d_nu - d_gamma * m) / kept):
            return n + 1, False
    return rows.shape[0], True


@njit(cache=True, error_model="numpy")
def visit_coordinates(
    precision: Array,
    linear: Array,
    mean: Array,
    centre: Array,
    coordinates: NDArray[np.int64],
    scale: Array,
    nodes: Array,
    log_weights: Array,
    planned: Array,
    fresh: bool,
) -> int:
    """Free-form mean field: give each coordinate in turn its best factor, and return how many were visited.

    Parameters
    ----------
    precision, linear : ndarray of shape (d, d) and (d,)
        Λ and b of the Gaussian part exp(−½wᵀΛw + bᵀw).
    mean, centre : ndarray of shape (d,)
        Means of the factors and of their Gaussian parts N(w_k | centre_k, 1/Λ_kk); changed in place.
    coordinates, scale : ndarray of shape (sites,)
        The coordinate k of each site, and α of x = αw_k.
    nodes, log_weights : ndarray of shape (sites, nodes)
        Without nodes the coordinates have no site.
    planned, fresh : as for `visit_sites`
    """
    work = np.empty(nodes.shape[1])
    for n in range(coordinates.size):
        k = coordinates[n]
        total = linear[k]
        for j in range(linear.size):
            if j != k:
                total -= precision[k, j] * mean[j]
        at, a, sure = total / precision[k, k], scale[n], fresh and n == 0
        new = at
        if nodes.shape[1] > 0:
            m_out, v_out, plan = a * at, a * a / precision[k, k], planned[n]
            if not sure and not _served(m_out, v_out, plan[0], plan[1], GAUSSIAN_MOVE, *GAUSSIAN_RANGE):
                return n
            _, m_in, v_in = tilt(nodes[n], log_weights[n], m_out, v_out, work)
            if not sure and not _served(m_in, v_in, plan[2], plan[3], TILTED_MOVE, *TILTED_RANGE):
                return n
            new = m_in / a
        centre[k] = at
        mean[k] = new
    return coordinates.size

"""Expectations of the multinomial probit: P(y = k | f) = P(f_k + ε_k > f_j + ε_j for all j ≠ k), ε ~ N(0, I).

Given the noise u of the observed class the others are independent,

    P(y | f) = ∫ N(u|0, 1) ∏_{j≠y} Φ(u + f_y − f_j) du,

so that u is one more Gaussian unknown per row with K − 1 probit sites (Girolami and Rogers, 2006, have auxiliary
variables for all classes instead). With f ~ N(m, V) and q(u|f) = N(c + bᵀ(f − m), τ²)

    ⟨log P(y | f)⟩ ≥ Σ_j ⟨log Φ(x_j)⟩ − ½(τ² + c² + bᵀVb − 1 − log τ²),   x_j ~ N(c + m_y − m_j, τ² + d_jᵀVd_j),

d_j = b + e_y − e_j, every ⟨log Φ⟩ an integral in one dimension. At the best q, with γ_j = −2 ∂⟨log Φ⟩/∂variance,
1/τ² = 1 + Σγ_j and b = −τ² Σ γ_j(e_y − e_j).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.potentials.base import ExpectedLog
from latlin.potentials.probit import Probit
from latlin.potentials.softmax import ClassExpectation, log_sum

#: steps to the best q(u|f) at most, and the change at which it is found
STEPS, FOUND = 100, 1e-9
#: most of the last step that is gone beyond it, and what stands for nothing
FARTHEST, TINY = 20.0, 1e-300
#: step of the rule over the height t in the smallest sd, its ends in sd, and numbers that are made at a time
STEP, REACH, NUMBERS = 0.3, 8.5, 2 * 10**6
#: nodes of a row for one rule; a wider row is integrated by pieces of so many nodes
MANY, PIECE = 1000, 10


def expected_log_multinomial_probit(m: Array, V: Array, label: Array) -> ClassExpectation:
    """The bound of the module for rows of means (n, K) and covariances (n, K, K), with its derivatives.

    `label` is one where a row has a class, else zero.

    >>> found = expected_log_multinomial_probit(np.zeros((1, 2)), np.zeros((1, 2, 2)), np.array([[1.0, 0.0]]))
    >>> bool(np.log(0.5) - 0.03 < found.value[0] < np.log(0.5))
    True
    """
    rows = np.arange(len(m))
    observed = np.argmax(label, axis=1)
    others = np.argsort(label, axis=1, kind="stable")[:, :-1]
    away = m[rows, observed][:, None] - m[rows[:, None], others]
    # what the bound asks of q(u|f) is c and log γ_j of every row: a fixed point, each row until it is there
    place = np.column_stack([np.full(len(m), 0.5), np.full(others.shape, np.log(0.5))])
    value, slope, bend = (np.empty(others.shape) for _ in range(3))
    left, before = rows, None
    for _ in range(STEPS):
        here = place[left]
        value[left], slope[left], bend[left] = found = _sites(here, away[left], V[left], label[left], others[left])
        move = (found[1].sum(axis=1) - here[:, 0]) / (1.0 - 2.0 * found[2].sum(axis=1))
        there = np.column_stack([here[:, 0] + move, np.log(np.maximum(-2.0 * found[2], TINY))])
        change = np.maximum(np.abs(move), np.abs(np.exp(here[:, 1:]) + 2.0 * found[2]).max(axis=1))
        far = change > FOUND
        left, there, here = left[far], there[far], here[far]
        if not left.size:
            break
        place[left] = there if before is None else _extrapolated(here, there, *(part[far] for part in before))
        before = (here, there)
    c, (tau, b) = place[:, 0], _given(place, label, others)
    around = np.einsum("nk,nk->n", b, np.einsum("nkl,nl->nk", V, b))
    total = value.sum(axis=1) - 0.5 * (tau + c * c + around - 1.0 - np.log(tau))
    return ClassExpectation(total, _differences(slope, label, others), _curvature(-2.0 * bend, b, label, others))


def _differences(values: Array, label: Array, others: NDArray[np.intp]) -> Array:
    """Σ_j v_j (e_y − e_j) over the other classes j of every row."""
    total = label * values.sum(axis=1, keepdims=True)
    total[np.arange(len(label))[:, None], others] = -values
    return total


def _curvature(gamma: Array, b: Array, label: Array, others: NDArray[np.intp]) -> Array:
    """Σ_j γ_j d_j d_jᵀ + bbᵀ: with a = b + e_y and g the vector of the γ_j, (Σγ)aaᵀ − agᵀ − gaᵀ + diag g + bbᵀ."""
    a, g = b + label, np.zeros_like(label)
    g[np.arange(len(label))[:, None], others] = gamma
    half = (0.5 * gamma.sum(axis=1, keepdims=True)) * a - g
    total = a[:, :, None] * half[:, None, :]
    total = total + np.swapaxes(total, 1, 2) + b[:, :, None] * b[:, None, :]
    np.einsum("nkk->nk", total)[...] += g
    return total


def _given(place: Array, label: Array, others: NDArray[np.intp]) -> tuple[Array, Array]:
    """τ² and b of q(u|f) from c and log γ_j."""
    gamma = np.exp(place[:, 1:])
    tau = 1.0 / (1.0 + gamma.sum(axis=1))
    return tau, -tau[:, None] * _differences(gamma, label, others)


def _sites(place: Array, away: Array, V: Array, label: Array, others: NDArray[np.intp]) -> ExpectedLog:
    """⟨log Φ(x_j)⟩ with its derivatives, of every row and other class."""
    tau, b = _given(place, label, others)
    a = b + label
    # d_jᵀVd_j = aᵀVa − 2(Va)_j + V_jj with a = b + e_y
    pulled = np.einsum("nkl,nl->nk", V, a)
    spread = np.einsum("nk,nk->n", a, pulled)[:, None] - 2.0 * pulled + np.einsum("nkk->nk", V)
    variance = tau[:, None] + np.maximum(np.take_along_axis(spread, others, axis=1), 0.0)
    return Probit(1.0).expected_log(place[:, :1] + away, variance)


def _extrapolated(here: Array, there: Array, here_before: Array, there_before: Array) -> Array:
    """Where two steps of every row point, their remainder made least (Anderson, 1965)."""
    rest, change = there - here, (there - here) - (there_before - here_before)
    share = np.sum(rest * change, axis=1) / np.maximum(np.sum(change * change, axis=1), TINY)
    return there - np.clip(share, -FARTHEST, 0.5)[:, None] * (there - there_before)


def log_expected_multinomial_probit(mean: Array, sd: Array) -> Array:
    """log P(y = k) for independent f_k ~ N(mean, sd²), rows (n, K), by the trapezoid rule over the largest f + ε:

        ∫ N(t|m_k, 1 + s_k²) ∏_{j≠k} Φ((t − m_j)/√(1 + s_j²)) dt

    >>> np.exp(log_expected_multinomial_probit(np.zeros((1, 4)), np.ones((1, 4)))).round(6).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    wide = np.hypot(1.0, sd)
    low, high = np.min(mean - REACH * wide, axis=1), np.max(mean + REACH * wide, axis=1)
    step = STEP * wide.min(axis=1, initial=np.inf)
    far = high - low > MANY * step
    out = np.empty_like(mean)
    _fill_far(out, np.flatnonzero(far), mean, wide)
    near = np.flatnonzero(~far)
    count = int(np.ceil(np.max((high - low)[near] / step[near], initial=0.0))) + 1
    rows = max(1, NUMBERS // (mean.shape[1] * count))
    for first in range(0, len(near), rows):
        part = near[first : first + rows]
        heights = low[part, None] + step[part, None] * np.arange(count)
        out[part] = _log_shares(heights, np.log(step[part, None]), mean[part], wide[part])
    return out - np.logaddexp.reduce(out, axis=1, keepdims=True)


def _log_shares(t: Array, log_weight: Array, mean: Array, wide: Array) -> Array:
    """Logarithms of the integrals over heights t, (..., heights), for means and standard deviations (..., K)."""
    z = (t[..., None, :] - mean[..., None]) / wide[..., None]
    with np.errstate(over="ignore", invalid="ignore"):
        below = log_ndtr(z)
        density = log_weight[..., None, :] - 0.5 * z * z - 0.5 * LOG_2PI - np.log(wide)[..., None]
        terms = density - below + below.sum(axis=-2, keepdims=True)
    # so far below a Gaussian there is nothing of it
    return log_sum(np.where(np.isnan(terms), -np.inf, terms), axis=-1)


def _fill_far(out: Array, far: NDArray[np.intp], mean: Array, wide: Array) -> None:
    """Rows of Gaussians that differ much."""
    spots = mean.shape[1] * (2 * int(np.ceil(REACH)) + 1)
    rows = max(1, NUMBERS // (mean.shape[1] * PIECE * spots))
    for first in range(0, len(far), rows):
        part = far[first : first + rows]
        out[part] = _log_shares(*_pieces(mean[part], wide[part]), mean[part], wide[part])


def _pieces(mean: Array, wide: Array) -> tuple[Array, Array]:
    """Heights and logarithms of their weights, (rows, heights), between places of each Gaussian of a row."""
    places = np.arange(-np.ceil(REACH), np.ceil(REACH) + 1.0)
    spots = np.sort((mean[..., None] + wide[..., None] * places).reshape(len(mean), -1), axis=1)
    x, w = np.polynomial.legendre.leggauss(PIECE)
    half = 0.5 * np.diff(spots, axis=1)
    t = (spots[:, :-1, None] + half[..., None] * (1.0 + x)).reshape(len(mean), -1)
    with np.errstate(divide="ignore"):
        return t, np.log((half[..., None] * w).reshape(len(mean), -1))

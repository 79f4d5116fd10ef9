"""Expectations of the softmax, P(y = k | f) = e^{f_k} / Σ_j e^{f_j}, under Gaussians f ~ N(m, V).

The expectation of log Σ e^f has no closed form. The tilted bound of Knowles and Minka (2011) lies above it, with one
number a_k per row and class:

    ⟨log Σ_k e^{f_k}⟩ ≤ T = log Σ_k exp(m_k + ½(e_k − a)ᵀV(e_k − a)),

convex in a and best at a = p, the shares of the sum,
with ∂T/∂m = p and ∂T/∂V = ½ Σ_k p_k (e_k − a)(e_k − a)ᵀ. A shift of all f_k changes nothing. The expected shares
themselves are one integral where the f_k are independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from latlin.numerics.arrays import LOG_2PI, Array

#: steps to the best a at most, the difference a − p at which it is found, and halvings of a step
STEPS, FOUND, HALVINGS = 500, 1e-10, 30
#: step of the rule over the height t of the largest term, where the rule ends, and numbers that are made at a time
STEP, BELOW, ABOVE, NUMBERS = 0.35, 5.0, 32.0, 2 * 10**6
#: standard deviations of a Gaussian on either side
REACH = 8.0
#: heights between which a row's largest term may lie for one rule; a wider row is integrated by pieces of so many nodes
WIDE, PIECE = 200.0, 10


class ClassExpectation(NamedTuple):
    """A lower bound on ⟨log P(y | f)⟩ of every row (n,), its slope in m (n, K), and −2 × that in V, (n, K, K)."""

    value: Array
    slope: Array
    curvature: Array


def expected_log_softmax(m: Array, V: Array, label: Array) -> ClassExpectation:
    """m_y − T of rows of means (n, K) and covariances (n, K, K); `label` is one where a row has a class, else zero.

    >>> found = expected_log_softmax(np.zeros((1, 2)), np.zeros((1, 2, 2)), np.array([[1.0, 0.0]]))
    >>> float(found.value[0].round(4)), found.slope.tolist(), found.curvature[0].tolist()
    (-0.6931, [[0.5, -0.5]], [[0.25, -0.25], [-0.25, 0.25]])
    """
    a = shares(m)
    terms, left = _tilted(m, V, a), np.arange(len(m))
    for _ in range(STEPS):
        p = shares(terms[left])
        far = np.abs(p - a[left]).max(axis=1, initial=0.0) > FOUND
        left, p = left[far], p[far]
        if not left.size:
            break
        # Newton's step: ∇T = V(a − p) and ∇∇T = V + VWV, W = diag p − ppᵀ, so that (I + WV)d = p − a
        product = p[:, :, None] * (V[left] - np.einsum("nj,njk->nk", p, V[left])[:, None, :])
        step = np.linalg.solve(np.eye(m.shape[1]) + product, (p - a[left])[..., None])[..., 0]
        a[left], terms[left] = _lower(m[left], V[left], a[left], terms[left], step)
    p = shares(terms)
    e = np.eye(m.shape[1]) - a[:, None, :]
    curvature = np.einsum("nk,nki,nkj->nij", p, e, e)
    return ClassExpectation(np.sum(label * m, axis=1) - log_sum(terms, axis=1), label - p, curvature)


def _tilted(m: Array, V: Array, a: Array) -> Array:
    """m_k + ½(e_k − a)ᵀV(e_k − a)."""
    pulled = np.einsum("nij,nj->ni", V, a)
    around = 0.5 * np.sum(a * pulled, axis=1, keepdims=True)
    return np.asarray(m + 0.5 * np.einsum("nkk->nk", V) - pulled + around)


def _lower(m: Array, V: Array, a: Array, terms: Array, step: Array) -> tuple[Array, Array]:
    """The step, halved in the rows where T would rise."""
    before, length = log_sum(terms, axis=1), np.ones((len(m), 1))
    for _ in range(HALVINGS):
        moved = a + length * step
        found = _tilted(m, V, moved)
        rises = log_sum(found, axis=1) > before + 1e-12 * (1.0 + np.abs(before))
        if not rises.any():
            break
        length[rises] *= 0.5
    return moved, found


def shares(x: Array) -> Array:
    """e^{x_k} / Σ_j e^{x_j} of every row."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def log_expected_softmax(mean: Array, sd: Array) -> Array:
    """log ⟨e^{f_k} / Σ_j e^{f_j}⟩ for independent f_k ~ N(mean, sd²), rows (n, K).

    Class k has the largest f_k + g_k, g standard Gumbel noise, with the probability of its share. So it is

        ∫ F_k′(t) ∏_{j≠k} F_j(t) dt,   F_j(t) = ⟨exp(−e^{f_j − t})⟩,

    one integral over t by the trapezoid rule, which converges exponentially, as does that over f_j.

    >>> np.exp(log_expected_softmax(np.array([[0.0, np.log(3.0)]]), np.zeros((1, 2)))).round(6).tolist()
    [[0.25, 0.75]]
    """
    if not np.any(sd):
        return np.asarray(mean - log_sum(mean, axis=1)[:, None])
    low, high = _ends(mean, sd)
    wide = high - low > WIDE
    if wide.any():
        out = np.empty_like(mean)
        out[~wide] = log_expected_softmax(mean[~wide], sd[~wide])
        out[wide] = [_log_shares_of_wide_row(*row) for row in zip(mean[wide], sd[wide], strict=True)]
        return out
    heights = STEP * np.arange(int(np.ceil(np.max(high - low, initial=0.0) / STEP)) + 1)
    z = np.arange(-REACH, REACH + 1e-9, min(0.5, STEP / max(float(np.max(sd, initial=0.0)), 1e-3)))
    rows = max(1, NUMBERS // (mean.shape[1] * len(z) * len(heights)))
    parts = [slice(first, first + rows) for first in range(0, len(mean), rows)]
    tables = [_log_shares(mean[part], sd[part], low[part, None] + heights, z) for part in parts]
    out = np.concatenate(tables) if tables else np.empty_like(mean)
    return out - np.logaddexp.reduce(out, axis=1, keepdims=True)


def _ends(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Between which heights the largest of all f + g lies, but for 1e-13."""
    top = np.argmax(mean, axis=1)[:, None]
    least = np.take_along_axis(mean - REACH * sd, top, axis=1)[:, 0]
    return least - BELOW, np.max(mean + REACH * sd, axis=1) + ABOVE


def _log_shares(mean: Array, sd: Array, t: Array, z: Array) -> Array:
    """Logarithms of the integrals over heights t, (rows, heights), by nodes z of every Gaussian."""
    log_w = -0.5 * z * z
    log_w -= np.logaddexp.reduce(log_w)
    # f − t by row, class, node and height
    drop = (mean[:, :, None] + sd[:, :, None] * z)[..., None] - t[:, None, None, :]
    log_f = log_w[:, None] - np.exp(np.minimum(drop, 700.0))
    below = log_sum(log_f, axis=2)
    slope = log_sum(log_f + drop, axis=2)
    return log_sum(slope - below + below.sum(axis=1, keepdims=True), axis=2)


def _log_shares_of_wide_row(mean: Array, sd: Array) -> Array:
    """The same integral for one row whose Gaussians reach far, by pieces between places of every class.

    With the noise on nodes, F_j(t) = ∫ p(g) Φ((t − m_j − g)/sd_j) dg for sd_j ≥ 1 takes as few of them as the sum over
    f_j takes for a narrow Gaussian.
    """
    # a class that is narrow beyond the digits of the others is a point
    sd = np.maximum(sd, 1e-12 * (np.ptp(mean) + sd.max()))
    spots = np.concatenate([(mean + np.hypot(sd, 1.3) * z) for z in np.arange(-REACH, REACH + 1.0)])
    spots = np.sort(np.concatenate([spots, mean - BELOW, mean + 2.0, mean + 6.0, mean + 15.0, mean + ABOVE]))
    x, w = np.polynomial.legendre.leggauss(PIECE)
    half = 0.5 * np.diff(spots)
    t = (spots[:-1, None] + half[:, None] * (1.0 + x)).ravel()
    weight = (half[:, None] * w).ravel()
    below, slope = (
        np.array(part)
        for part in zip(*(_log_distribution(t, m, s) for m, s in zip(mean, sd, strict=True)), strict=True)
    )
    with np.errstate(divide="ignore"):
        terms = np.log(weight) + slope - below + below.sum(axis=0)
    out = logsumexp(terms, axis=1)
    return np.asarray(out - logsumexp(out))


def _log_distribution(t: Array, mean: float, sd: float) -> tuple[Array, Array]:
    """log F(t) and log F′(t) of f + g, f ~ N(mean, sd²)."""
    if sd < 1.0:
        z = np.arange(-REACH, REACH + 1e-9, STEP)
        drop = mean + sd * z[:, None] - t
        log_f = -0.5 * (z * z)[:, None] - np.exp(np.minimum(drop, 700.0))
        total = np.log(np.exp(-0.5 * z * z).sum())
        return logsumexp(log_f, axis=0) - total, logsumexp(log_f + drop, axis=0) - total
    g = np.arange(-BELOW, ABOVE, STEP)
    log_p = -g - np.exp(-g)
    log_p = (log_p - logsumexp(log_p))[:, None]
    u = (t - mean - g[:, None]) / sd
    return logsumexp(log_p + log_ndtr(u), axis=0), logsumexp(log_p - 0.5 * u * u, axis=0) - 0.5 * LOG_2PI - np.log(sd)


def log_sum(x: Array, axis: int) -> Array:
    """log Σ e^x along an axis."""
    top = x.max(axis=axis, keepdims=True)
    return np.asarray(np.log(np.sum(np.exp(x - top), axis=axis)) + np.squeeze(top, axis=axis))

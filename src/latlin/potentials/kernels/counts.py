"""Compiled expectations and sums of families of counts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array, empty_array
from latlin.numerics.threads import njit, share_out

# --- The compiled loop for ψ(x) = yx − e^x − log y! under N(x|m, v), for many counts at once: one exponential per site.
#
# ⟨ψ⟩ is counted from the top of ψ, at log y, where what is large (up to 1e14 nat) has cancelled by hand: with
# d = m − log y and r = v/2 it is ψ(log y) − y(e^{d + r} − 1 − d), and ⟨e^x⟩ = y e^{d + r}.


#: nanoseconds per site
PER_SITE = 12.0
#: e^t − 1 − t = t² Σ_k t^k/(k + 2)! is used up to that |t|
NEAR = 0.5
SERIES = tuple(1.0 / math.factorial(k + 2) for k in range(14))


def expected_counts(y: Array, log_y: Array, constant: Array, peak: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """⟨ψ⟩, y − ⟨e^x⟩ and ⟨e^x⟩ of every site.

    Parameters
    ----------
    y, log_y, constant, peak : contiguous ndarray of shape (sites,)
        Counts, their logarithms, −log y! and ψ(log y).
    m, v : contiguous ndarray of shape (sites,)
        A v of length one is that of all sites.

    >>> value, slope, rate = expected_counts(*(np.array([t]) for t in (1.0, 0.0, 0.0, -1.0, 0.0, 0.0)))
    >>> float(value[0]), float(slope[0]) + 0.0, float(rate[0])
    (-1.0, 0.0, 1.0)
    """
    value, slope, rate = empty_array(m.size), empty_array(m.size), empty_array(m.size)
    share_out(_loop, m.size, PER_SITE, y, log_y, constant, peak, m, v, value, slope, rate)
    return value, slope, rate


@njit(cache=True, nogil=True, error_model="numpy")
def _loop(
    start: int, stop: int, y: Array, log_y: Array, constant: Array, peak: Array, m: Array, v: Array,
    value: Array, slope: Array, rate: Array,
) -> None:  # fmt: skip
    one = len(v) == 1
    for n in range(start, stop):
        r = 0.5 * v[0 if one else n]
        if not y[n] > 0.0:
            grown = math.exp(m[n] + r)
            value[n], slope[n], rate[n] = constant[n] - grown, -grown, grown
            continue
        t = m[n] - log_y[n] + r
        grown = math.exp(t)
        if abs(t) < NEAR:
            total = 0.0
            for k in range(len(SERIES) - 1, -1, -1):
                total = SERIES[k] + t * total
            curl = t * t * total
        else:
            curl = grown - 1.0 - t
        fall = y[n] * (curl + r)
        value[n] = peak[n] - fall if fall < np.inf else -np.inf
        # y − ye^t without cancellation
        slope[n] = -y[n] * (curl + t)
        rate[n] = y[n] * grown


# --- The compiled series for the normaliser of compound Poisson–gamma densities, Dunn and Smyth (2005).
#
# a(y) = (1/y) Σ_{j≥1} W_j,  log W_j = j log z − log j! − log Γ(−jα),  α = (2 − p)/(1 − p) < 0,
# log z = −α log y + α log(p − 1) − (1 − α) log φ − log(2 − p).
#
# The terms rise to j ≈ y^{2−p}/((2 − p)φ) and fall on either side; the sum runs from there until they are e^{−37} of
# it.


DROP = 37.0


@njit(cache=True, error_model="numpy", nogil=True)
def log_series(y: Array, power: Array, dispersion: Array) -> Array:
    """log a(y) of shape (sites,), for y ≥ 0; zero at y = 0, where the mass is e^{−rate} alone."""
    out = np.zeros_like(y)
    for i in range(y.size):
        if y[i] == 0.0:
            continue
        p, phi = power[i], dispersion[i]
        alpha = (2.0 - p) / (1.0 - p)
        log_z = -alpha * math.log(y[i]) + alpha * math.log(p - 1.0) - (1.0 - alpha) * math.log(phi) - math.log(2.0 - p)
        top = max(1.0, math.floor(y[i] ** (2.0 - p) / ((2.0 - p) * phi)))
        peak = top * log_z - math.lgamma(top + 1.0) - math.lgamma(-top * alpha)
        total = 1.0
        for side in (-1.0, 1.0):
            j = top + side
            while j >= 1.0:
                drop = j * log_z - math.lgamma(j + 1.0) - math.lgamma(-j * alpha) - peak
                total += math.exp(drop)
                if drop < -DROP:
                    break
                j += side
        out[i] = peak + math.log(total) - math.log(y[i])
    return out


# --- Distribution functions of counts that have no closed form, summed count by count in compiled loops.


#: a term that is smaller than this share of the sum ends a falling series
NOTHING = 1e-18


@njit(cache=True, error_model="numpy", nogil=True)
def _beta_binomial(k: Array, n: Array, a: Array, b: Array, out: Array) -> None:
    for i in range(k.size):
        falling = a[i] >= 1.0 and b[i] >= 1.0
        below, above = 1.0, 0.0
        # p(j + 1)/p(j) = (n − j)(a + j)/((j + 1)(b + n − j − 1)), in units of p(k)
        term, j = 1.0, k[i]
        while j > 0.0 and not (falling and term < NOTHING * below):
            term *= j * (b[i] + n[i] - j) / ((n[i] - j + 1.0) * (a[i] + j - 1.0))
            below += term
            j -= 1.0
        term, j = 1.0, k[i]
        while j < n[i] and not (falling and term < NOTHING * (below + above)):
            term *= (n[i] - j) * (a[i] + j) / ((j + 1.0) * (b[i] + n[i] - j - 1.0))
            above += term
            j += 1.0
        if above < below:
            out[i] = 1.0 / (1.0 + above / below)
        else:
            out[i] = (below / above) / (1.0 + below / above)


def beta_binomial_cdf(k: ArrayLike, n: ArrayLike, a: Array, b: Array) -> Array:
    """P(count ≤ k) of n trials whose chance of a success is Beta(a, b).

    >>> float(beta_binomial_cdf(1.0, 3.0, np.array(1.0), np.array(1.0)).round(12))
    0.5
    """
    return _spread_over(_beta_binomial, k, n, np.maximum(a, 1e-300), np.maximum(b, 1e-300))


@njit(cache=True, error_model="numpy", nogil=True)
def _generalised_poisson(y: Array, log_theta: Array, load: Array, out: Array) -> None:
    for i in range(y.size):
        theta = math.exp(log_theta[i])
        total, log_factorial, k = math.exp(-theta), 0.0, 1.0
        while k <= y[i] and theta < math.inf:
            # θ(θ + λk)^{k−1} e^{−θ−λk}/k!
            log_factorial += math.log(k)
            reach = theta + load[i] * k
            total += math.exp(log_theta[i] + (k - 1.0) * math.log(reach) - reach - log_factorial)
            k += 1.0
        out[i] = min(total, 1.0)


def generalised_poisson_cdf(y: ArrayLike, log_theta: Array, load: ArrayLike) -> Array:
    """P(count ≤ y) with p(k) = θ(θ + λk)^{k−1} e^{−θ−λk}/k!, λ being the load.

    >>> float(generalised_poisson_cdf(0.0, np.array(0.0), 0.5).round(6))
    0.367879
    """
    return _spread_over(_generalised_poisson, y, log_theta, load)


def _spread_over(loop: object, *parts: ArrayLike) -> Array:
    arrays = [np.asarray(part, dtype=float) for part in parts]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    out = np.empty(int(np.prod(shape)))
    # copies of what is repeated: to compiled loops a view of it would be of a type of its own
    rows = (array.ravel() if array.shape == shape else np.broadcast_to(array, shape).flatten() for array in arrays)
    loop(*rows, out)  # type: ignore[operator]
    return out.reshape(shape)

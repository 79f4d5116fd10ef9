"""Distribution functions of counts that have no closed form, summed count by count in compiled loops."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array

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

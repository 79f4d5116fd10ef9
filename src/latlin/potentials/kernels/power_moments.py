"""Absolute moments ⟨|x|^q⟩ of a Gaussian for any real q > 0, with their derivatives.

⟨|x|^q⟩ = σ^q 2^{q/2} Γ((q+1)/2)/√π · ₁F₁(−q/2; ½; −μ²/2σ²), and differentiating shifts the parameters of ₁F₁ by one.
Far from zero, |μ| ≫ σ, the Taylor series of |x|^q about μ is shorter and keeps its accuracy as σ → 0.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, hyp1f1

from latlin.numerics.arrays import Array

_FAR = 10.0
_TERMS = 18


def absolute_moment(mu: Array, sd: Array, q: Array) -> tuple[Array, Array, Array]:
    """⟨|x|^q⟩ for x ~ N(mu, sd²) and its derivatives with respect to mu and sd², all arrays of one shape.

    At mu = sd = 0 a derivative that does not exist is given as zero. What overflows is not finite.

    Examples
    --------
    >>> [float(f[0]) for f in absolute_moment(np.ones(1), np.ones(1), np.full(1, 2.0))]
    [2.0, 2.0, 1.0]
    """
    out = np.empty((3, mu.size))
    far = np.abs(mu) >= (_FAR + q) * sd
    with np.errstate(over="ignore", invalid="ignore"):
        out[:, far] = _taylor(mu[far], sd[far], q[far])
        out[:, ~far] = _kummer(mu[~far], sd[~far], q[~far])
    return out[0], out[1], out[2]


def _kummer(mu: Array, sd: Array, q: Array) -> tuple[Array, Array, Array]:
    a = mu / sd
    z = -0.5 * a * a
    c = np.exp(0.5 * q * np.log(2.0) + gammaln(0.5 * (q + 1)) + q * np.log(sd)) / np.sqrt(np.pi)
    d_mean = c * q * a / sd * hyp1f1(1 - 0.5 * q, 1.5, z)
    return c * hyp1f1(-0.5 * q, 0.5, z), d_mean, 0.5 * c * q / sd / sd * hyp1f1(1 - 0.5 * q, 0.5, z)


def _taylor(mu: Array, sd: Array, q: Array) -> tuple[Array, Array, Array]:
    zero = mu == 0
    size = np.where(zero, 1.0, np.abs(mu))
    square = (sd / size) ** 2
    first = np.where(zero, 0.0, q * np.sign(mu) * size ** (q - 1)) * _even_terms(q - 1, square)
    second = np.where(zero & (q != 2), 0.0, 0.5 * q * (q - 1) * size ** (q - 2)) * _even_terms(q - 2, square)
    return np.where(zero, 0.0, size**q) * _even_terms(q, square), first, second


def _even_terms(p: Array, square: Array) -> Array:
    """⟨(1 + tz)^p⟩ = Σ_k p(p−1)…(p−2k+1)/(2^k k!) t^{2k}, t² ≪ 1."""
    total = term = np.ones_like(square)
    for k in range(1, _TERMS + int(np.max(p, initial=0.0)) // 2):
        term = term * (p - 2 * k + 2) * (p - 2 * k + 1) / (2 * k) * square
        total = total + term
    return total

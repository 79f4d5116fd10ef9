"""What proportions and overdispersed successes share: a mean μ = σ(x) that sits inside gamma functions.

ψ(x) = G(σ(x)) + up·log σ(x) + down·log σ(−x): gamma functions of small arguments are taken out as log σ, so that G and
its derivatives in μ stay moderate however near μ is to an end.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials import strip
from latlin.potentials.base import Derivatives, ExpectedLog, Potential

#: kinds of arguments of gamma functions: size·σ(±x), size·e^x, or those of a beta density
SHARES, RATES, BETA = 0, 1, 2


def through_mean(x: Array, slopes: tuple[Array, Array, Array], up: Array, down: Array) -> Derivatives:
    """Derivatives of ψ in x from those of G in μ.

    With w = μ(1 − μ): μ′ = w, μ″ = w(1 − 2μ), μ‴ = w(1 − 6w).
    """
    p, q = expit(x), expit(-x)
    one, two, three = slopes
    w, n = p * q, up + down
    first, second, third = w, w * (q - p), w * (1 - 6 * w)
    return Derivatives(
        one * first + up * q - down * p,
        two * first**2 + one * second - n * w,
        three * first**3 + 3 * two * first * second + one * third - n * second,
    )


def gamma_slopes(offset: Array, argument: Array) -> Array:
    """log Γ(offset + argument), differentiated one to three times in the argument."""
    from latlin.potentials.kernels import gamma_sites  # loads the compiler: when first needed

    return gamma_sites.gamma_slopes(np.asarray(offset + argument))


def expected_log(block: Potential, m: Array, v: Array, constant: Array, kind: int, *parameters: Array) -> ExpectedLog:
    """constant + the expected log of gamma functions, compiled; by the nodes of `strip` where the sd is large."""
    from latlin.potentials.kernels.gamma_sites import expected_gamma_ratios  # loads the compiler: when first needed

    out = expected_gamma_ratios(kind, m, v, *parameters)[:3]
    out[0] += constant
    wide = np.flatnonzero(np.isnan(out[0]))
    if wide.size:
        out[:, wide] = strip.expected_log(block.select(wide), m[wide], v[wide], np.pi)
    return ExpectedLog(*out)


def expected_size_slope(m: Array, v: Array, kind: int, *parameters: Array) -> Array | None:
    """⟨∂ψ/∂size⟩ of the gamma functions in `expected_log`; None where the sd of a site is large."""
    from latlin.potentials.kernels.gamma_sites import expected_gamma_ratios  # loads the compiler: when first needed

    found = expected_gamma_ratios(kind, m, v, *parameters)[3]
    return None if np.any(np.isnan(found)) else found


def mean_moments(block: Potential, m: Array, v: Array) -> tuple[Array, Array]:
    """⟨μ⟩ and ⟨μ²⟩ under N(x|m, v)."""
    x, _, w = quadrature.gaussian_nodes(m, np.sqrt(v), ((np.zeros(()), np.ones(())),))
    mean = expit(x)
    return np.einsum("ks,ks->s", w, mean), np.einsum("ks,ks->s", w, mean * mean)

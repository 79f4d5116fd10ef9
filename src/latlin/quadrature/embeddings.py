"""Kernel means: z(x) = ∫ k(x, x′) p(x′) dx′ and ∬ k(x, x′) p(x) p(x′) dx dx′, in closed form.

They are all that the posterior of an integral needs (Gutteridge (2021), eqs. 7.12, 7.17). Kernels have unit
variance here; measures are standard.
"""

from __future__ import annotations

import numpy as np

from latlin.numerics.arrays import Array
from latlin.quadrature.kernels import RBF, Kernel
from latlin.quadrature.standard import HALF, Box, Components, Standard, normal_logpdf


def kernel_mean(kernel: Kernel, lengths: Array, measure: Standard, z: Array) -> Array:
    """∫ k(z_n, x) p(x) dx for every row z_n."""
    if isinstance(measure, Box):
        return np.prod(kernel.uniform_mean(z, HALF, lengths), axis=1)
    parts = zip(measure.weights, measure.means, measure.covs, strict=True)
    return sum(w * _normal_mean(kernel, lengths, z - m, s) for w, m, s in parts)


def kernel_double_mean(kernel: Kernel, lengths: Array, measure: Standard) -> float:
    """∬ k(x, x′) p(x) p(x′) dx dx′."""
    if isinstance(measure, Box):
        return float(np.prod(kernel.uniform_double_mean(HALF, lengths)))
    pairs = _pairs(measure)
    return float(sum(w * _normal_mean(kernel, lengths, m[None], s)[0] for w, m, s in pairs))


def has_closed_form(kernel: Kernel, measure: Standard) -> bool:
    """Whether the kernel's means under this measure are known."""
    return isinstance(kernel, RBF) or not isinstance(measure, Components) or measure.axis_aligned


def check_closed_form(kernel: Kernel, measure: Standard) -> None:
    """Say so when this pair has no closed form."""
    if not has_closed_form(kernel, measure):
        raise ValueError(
            f"kernel {kernel.name!r} has closed-form means for mixtures with diagonal covariances only; "
            "use kernel='rbf' or give variances instead of full covariances"
        )


def _pairs(measure: Components) -> list[tuple[float, Array, Array]]:
    # x − x′ under components a and b is N(m_a − m_b, S_a + S_b)
    index = range(len(measure.weights))
    w, m, s = measure
    return [(w[a] * w[b], m[a] - m[b], s[a] + s[b]) for a in index for b in index]


def _normal_mean(kernel: Kernel, lengths: Array, delta: Array, cov: Array) -> Array:
    if isinstance(kernel, RBF):
        # ∫ k N = (2π)^{d/2} |Λ|^{½} N(δ | 0, Λ + S), Λ = diag(ℓ²)
        constant = 0.5 * len(lengths) * np.log(2.0 * np.pi) + np.log(lengths).sum()
        return np.exp(constant + normal_logpdf(delta, np.diag(lengths**2) + cov))
    return np.prod(kernel.normal_mean(delta, np.sqrt(np.diagonal(cov)), lengths), axis=1)

"""Kernel means: z(x) = ∫ k(x, x′) p(x′) dx′ and ∬ k(x, x′) p(x) p(x′) dx dx′, in closed form.

They are all that the posterior of an integral needs (Gutteridge (2021), eqs. 7.12, 7.17). Kernels have unit
variance here; measures are standard.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erf

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.quadrature.kernels import HALF, KERNELS, RBF, Box, Components, Kernel, Standard, normal_logpdf


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
    """Raise an error that names the pair, which has no closed form."""
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


# --- Integrals of products of squared-exponential kernels, which a squared Gaussian process needs.
#
# For a standard measure p and unit variance:
# Q(a, b) = ∫ k(a, x) k(x, b) p(x) dx, T_ij = ∬ k(z_i, x) k(x, x′) k(x′, z_j) p(x) p(x′) dx dx′ and ∬ k(x, x′)² p p′.
# All are Gaussian integrals; over a box Q is a difference of error functions and T is a one-dimensional
# integral per coordinate, taken by a Gauss–Legendre rule to rounding.


def product_mean(lengths: Array, measure: Standard, a: Array, b: Array) -> Array:
    """Q between the rows of a and of b."""
    if isinstance(measure, Box):
        columns = zip(a.T, b.T, lengths, strict=True)
        return np.prod([_box_product(*column) for column in columns], axis=0)
    # k(a,x)k(x,b) = k_{√2ℓ}(a,b) k_{ℓ/√2}(x, (a+b)/2)
    outer = KERNELS["rbf"].gram(a, b, np.sqrt(2.0) * lengths)
    middle = (0.5 * (a[:, None] + b[None])).reshape(-1, a.shape[1])
    constant = _log_constant(lengths / np.sqrt(2.0))
    total = np.zeros(len(middle))
    for w, m, s in zip(*measure, strict=True):
        total += w * np.exp(constant + normal_logpdf(middle - m, s + np.diag(0.5 * lengths**2)))
    return outer * total.reshape(outer.shape)


def product_double_mean(lengths: Array, measure: Standard, z: Array) -> Array:
    """T between the rows of z."""
    if isinstance(measure, Box):
        return np.prod([_box_chain(column, length) for column, length in zip(z.T, lengths, strict=True)], axis=0)
    # k(z_i,x) N(x|m_a,S_a) = (2π)^{d/2}|Λ|^{½} N(z_i|m_a, Λ+S_a) N(x|μ_ia, P_a): two of these, linked by k(x,x′)
    tilted = [_tilt(lengths, w, m, s, z) for w, m, s in zip(*measure, strict=True)]
    total = np.zeros((len(z), len(z)))
    for mass_a, mean_a, cov_a in tilted:
        for mass_b, mean_b, cov_b in tilted:
            total += np.outer(mass_a, mass_b) * _link(lengths, mean_a, mean_b, cov_a + cov_b)
    return total


def square_double_mean(lengths: Array, measure: Standard) -> float:
    """∬ k(x, x′)² p(x) p(x′) dx dx′: the square of a Gaussian kernel is one of length ℓ/√2."""
    return kernel_double_mean(KERNELS["rbf"], lengths / np.sqrt(2.0), measure)


def _tilt(lengths: Array, w: float, m: Array, s: Array, z: Array) -> tuple[Array, Array, Array]:
    wide = np.diag(lengths**2) + s
    gain = np.linalg.solve(wide, s)  # (Λ+S)⁻¹S
    mass = w * np.exp(_log_constant(lengths) + normal_logpdf(z - m, wide))
    return mass, m + (z - m) @ gain, (lengths**2)[:, None] * gain


def _link(lengths: Array, mean_a: Array, mean_b: Array, cov: Array) -> Array:
    # ∬ k(x,x′) N(x|μ,P) N(x′|μ′,P′) = (2π)^{d/2}|Λ|^{½} N(μ − μ′ | 0, Λ + P + P′)
    wide = np.diag(lengths**2) + 0.5 * (cov + cov.T)
    white = np.linalg.inv(np.linalg.cholesky(wide)).T
    a, b = mean_a @ white, mean_b @ white
    scale = np.exp(_log_constant(lengths) - 0.5 * len(lengths) * LOG_2PI - 0.5 * np.linalg.slogdet(wide)[1])
    return scale * KERNELS["rbf"].gram(a, b, np.ones(len(lengths)))


def _log_constant(lengths: Array) -> float:
    return float(0.5 * len(lengths) * LOG_2PI + np.log(lengths).sum())


def _box_product(a: Array, b: Array, length: float) -> Array:
    # mean over [−h, h] of e^{−((x−a)²+(x−b)²)/2ℓ²} = e^{−(a−b)²/4ℓ²} · mean of e^{−(x−c)²/ℓ²}, c = (a+b)/2
    middle = 0.5 * (a[:, None] + b[None])
    area = erf((HALF - middle) / length) + erf((HALF + middle) / length)
    return np.exp(-(((a[:, None] - b[None]) / (2.0 * length)) ** 2)) * np.sqrt(np.pi) * length / (4.0 * HALF) * area


def _box_chain(z: Array, length: float) -> Array:
    nodes, weights = np.polynomial.legendre.leggauss(32 + int(24.0 * HALF / length))
    x = HALF * nodes
    left = np.exp(-0.5 * ((z[:, None] - x) / length) ** 2) * (0.5 * weights)
    return left @ _box_product(x, z, length)

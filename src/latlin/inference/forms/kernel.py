"""Gaussians in site form when the prior is a full covariance K on w and the sites are on its coordinates.

For γ ≥ 0 everything follows from B = I + Γ^½KΓ^½, whose eigenvalues are at least 1 (Rasmussen & Williams 2006, §3.4.3;
S⁻¹ = K⁻¹ + Γ is Challis (2013), eq. 4.3.1), in the same whitened coordinates w = μ + Lu, K = LLᵀ:

    α = ν − Γ^½B⁻¹Γ^½Kν = Γ^½B⁻¹Γ^−½ν,  u = Lᵀα,  log det(I + LᵀΓL) = log det B,  γ_n s_n² = 1 − [B⁻¹]_nn.

One factorisation of N³/3 and, for the variances, one triangular inverse of N³/3, where P = I + LᵀΓL takes N³ to form,
N³/3 to factorise and N³ for the variances. Where some γ is negative, P it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import KernelPrecision, MarginalCovariance, kernel_weights
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky, dot, gram, symmetrise

#: γK_nn below which 1 − [B⁻¹]_nn would lose too many digits
SMALL = 1e-3


@dataclass(frozen=True)
class KernelForm(SiteForm):
    """The family of a Gaussian process; see the module.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The prior covariance.
    kernel_factor : ndarray of shape (n, n)
        C = Lᵀ with K = CᵀC.
    """

    K: Array
    kernel_factor: Array

    def solve(self, parameters: SiteParameters) -> Solution | None:
        gamma, nu = parameters
        if not np.all(gamma >= 0.0):
            return super().solve(parameters)
        root = np.sqrt(gamma)
        inner = self._factorised(root)
        if inner is None:
            return None
        u = blas.dtrmv(self.kernel_factor, kernel_weights(self.K, root, inner, nu))
        precision: Any = KernelPrecision(self.kernel_factor, root, inner)
        return Solution(parameters, precision, u, blas.dtrmv(self.kernel_factor, u, trans=1))

    def _factorised(self, root: Array) -> Cholesky | None:
        b = np.multiply(self.K, root[:, None])
        b *= root
        b[np.diag_indices(len(root))] += 1.0
        try:
            return cholesky(b.T, overwrite=True)
        except ValueError:
            return None

    def variances(self, solution: Solution) -> Array:
        precision: Any = solution.precision
        if not isinstance(precision, KernelPrecision):
            return super().variances(solution)
        gamma, prior = solution.parameters.gamma, np.diagonal(self.K)
        # B = FᵀF, B⁻¹ = TTᵀ with T = F⁻¹
        inverse = lapack.dtrtri(precision.inner.factor, lower=0)[0]
        shrunk = 1.0 - np.einsum("mn,mn->n", inverse.T, inverse.T)
        weak = gamma * prior < SMALL
        variance = shrunk / np.where(weak, 1.0, gamma)
        if weak.any():
            half = precision.inner.whiten(precision.root[:, None] * self.K[:, weak])
            variance[weak] = prior[weak] - np.einsum("nm,nm->m", half, half)
        return np.maximum(variance, 0.0)

    def density(self, solution: Solution) -> Gaussian:
        if self.basis is not None:
            plain: Any = Cholesky(solution.precision.factor, 0.0)
            return super().density(solution._replace(precision=plain))
        structure = MarginalCovariance(self.whitening, solution.precision, self.variances(solution))
        return Gaussian(self.weights(solution.u), structure)

    def kept(self, solution: Solution) -> Array:
        precision: Any = solution.precision
        return precision.inner.factor if isinstance(precision, KernelPrecision) else precision.factor

    def restored(self, parameters: SiteParameters, kept: Array) -> Any:
        if not np.all(parameters.gamma >= 0.0):
            return super().restored(parameters, kept)
        return KernelPrecision(self.kernel_factor, np.sqrt(parameters.gamma), Cholesky(kept, 0.0))

    def site_covariance(self, solution: Solution) -> Array | None:
        """S = Γ^−½(I − B⁻¹)Γ^−½, unless some γ is too small for it or negative."""
        precision: Any = solution.precision
        if not isinstance(precision, KernelPrecision) or self._is_weak(solution):
            return None
        covariance = self._shrunk(precision)
        covariance /= precision.root
        covariance /= precision.root[:, None]
        return covariance

    def _is_weak(self, solution: Solution) -> bool:
        return bool(np.any(solution.parameters.gamma * np.diagonal(self.K) < SMALL))

    def _shrunk(self, precision: KernelPrecision) -> Array:
        """I − B⁻¹, of which only the upper triangle is meant."""
        shrunk = lapack.dpotri(precision.inner.factor, lower=0)[0]
        np.negative(shrunk, out=shrunk)
        shrunk[np.diag_indices(len(shrunk))] += 1.0
        return shrunk

    def covariance_gradient(self, solution: Solution, variance: Array, excess: Array) -> float:
        """The Frobenius norm of ∂B/∂C̃ = C̃LᵀEL, which no entry exceeds, or a bound on it where γ is too small.

        ‖C̃LᵀEL‖² = Σ_nm e_n e_m S_nm K_nm ≤ (Σ_n |e_n| s_n √K_nn)², with S = Γ^−½(I − B⁻¹)Γ^−½.
        """
        precision: Any = solution.precision
        if not isinstance(precision, KernelPrecision):
            return super().covariance_gradient(solution, variance, excess)
        if self._is_weak(solution):
            return float(np.sum(np.abs(excess) * np.sqrt(variance * np.diagonal(self.K))))
        products = self._shrunk(precision)
        products *= self.K.T
        scaled = excess / precision.root
        return float(np.sqrt(max(dot(scaled, blas.dsymv(1.0, products, scaled)), 0.0)))


def by_kernel(form: SiteForm, factor: Array, K: Array | None = None) -> KernelForm:
    """A form with as many sites as coordinates, H̃ = Cᵀ for an upper triangular C, by the matrix K = CᵀC = H̃H̃ᵀ."""
    C = np.asfortranarray(factor)
    K = symmetrise(gram(C)) if K is None else K
    return KernelForm(**{field.name: getattr(form, field.name) for field in fields(form)}, K=K, kernel_factor=C)

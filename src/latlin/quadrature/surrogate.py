"""The Gaussian process that stands in for the integrand.

f(z) = b(z)ᵀc + g(z), g ~ GP(0, v k), y = f + noise of variance v·η. The coefficients c (flat prior) and the
variance v (Jeffreys' prior) are integrated out in closed form, so that predictions are Student-t with
n − |b| degrees of freedom; the length scales ℓ and the nugget η are all that is left to fit.
(Zero mean and fixed hyperparameters give 004_3d1e57c98b1fd450 (7.7), (7.8).)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.linalg import Cholesky, cholesky, solve_upper
from latlin.quadrature.kernels import Kernel

Array = NDArray[np.float64]
Basis = Callable[[Array], Array]

SMALLEST_NUGGET = 1e-8


class Hyperparameters(NamedTuple):
    """What a surrogate is told or finds: length scales in standard coordinates, nugget, variance.

    `lengths` are in units of the measure's own standard deviations (along its whitened axes for a Gaussian);
    `nugget` is the variance of the noise as a share of `variance`; `variance` None means: integrate it out.
    """

    lengths: Array
    nugget: float = SMALLEST_NUGGET
    variance: float | None = None


class Surrogate(NamedTuple):
    """A Gaussian process given evaluations."""

    kernel: Kernel
    basis: Basis
    points: Array  # (n, d), standard coordinates
    lengths: Array
    nugget: float
    variance: float  # v, or its Student-t scale
    dof: float
    chol: Cholesky  # of R = k(Z, Z) + ηI
    coefficients: Array  # ĉ
    residual: Array  # R⁻¹(y − Bĉ)
    solved_basis: Array  # R⁻¹B
    basis_chol: Cholesky | None  # of BᵀR⁻¹B

    def mean(self, z: Array) -> Array:
        """Posterior mean of f at the rows of z."""
        return self.basis(z) @ self.coefficients + self.cross(z).T @ self.residual

    def cross(self, z: Array) -> Array:
        """k(Z, z), of shape (n, len(z))."""
        return self.kernel.gram(self.points, z, self.lengths)

    def variances(self, z: Array) -> Array:
        """Posterior variance of f at the rows of z."""
        return self.variance * np.maximum(self.project(np.ones(len(z)), self.cross(z), self.basis(z)), 0.0)

    def covariance(self, a: Array, b: Array) -> Array:
        """Posterior covariance of f between the rows of a and of b."""
        ka, kb = self.cross(a), self.cross(b)
        out = self.kernel.gram(a, b, self.lengths) - self.chol.whiten(ka).T @ self.chol.whiten(kb)
        if self.basis_chol is not None:
            ra, rb = self._leftover(ka, self.basis(a)), self._leftover(kb, self.basis(b))
            out += self.basis_chol.whiten(ra.T).T @ self.basis_chol.whiten(rb.T)
        return self.variance * out

    def project(self, prior: Array | float, cross: Array, basis: Array) -> Array:
        """Posterior variance over v of a linear functional, from its prior variance, its covariance with g(Z)
        (the columns of `cross`) and its value on the basis (the rows of `basis`)."""
        # p − kᵀR⁻¹k + rᵀ(BᵀR⁻¹B)⁻¹r,  r = b − BᵀR⁻¹k
        white = self.chol.whiten(cross)
        out = prior - np.einsum("nm,nm->m", white, white)
        if self.basis_chol is not None:
            extra = self.basis_chol.whiten(self._leftover(cross, basis).T)
            out = out + np.einsum("bm,bm->m", extra, extra)
        return out

    def _leftover(self, cross: Array, basis: Array) -> Array:
        return basis - cross.T @ self.solved_basis


def constant(z: Array) -> Array:
    """The basis {1}."""
    return np.ones((len(z), 1))


def nothing(z: Array) -> Array:
    """The empty basis: a process of mean zero."""
    return np.empty((len(z), 0))


def condition(
    kernel: Kernel, basis: Basis, points: Array, values: Array, hyperparameters: Hyperparameters
) -> Surrogate:
    """The process given values at points, for known length scales and nugget."""
    n = len(points)
    lengths, nugget, variance = hyperparameters
    r = kernel.gram(points, points, lengths)
    r[np.diag_indices(n)] += nugget
    chol = cholesky(r, name="the kernel matrix", max_jitter=1e-6)
    b = basis(points)
    fit = _regress(chol, b, values)
    free = n - b.shape[1]
    scale = fit.square / free if variance is None else variance
    return Surrogate(
        kernel,
        basis,
        points,
        lengths,
        nugget,
        float(scale),
        float(free) if variance is None else np.inf,
        chol,
        *fit[1:],
    )


class _Regression(NamedTuple):
    square: float  # (y − Bĉ)ᵀR⁻¹(y − Bĉ)
    coefficients: Array
    residual: Array
    solved_basis: Array
    basis_chol: Cholesky | None


def _regress(chol: Cholesky, b: Array, y: Array) -> _Regression:
    """Generalised least squares of y on the columns of b."""
    if b.shape[1] == 0:
        residual = chol.solve(y)
        return _Regression(float(y @ residual), np.empty(0), residual, b, None)
    solved = chol.solve(b)
    inner = cholesky(b.T @ solved, name="the basis at the points")
    c = inner.solve(solved.T @ y)
    residual = chol.solve(y - b @ c)
    return _Regression(max(float((y - b @ c) @ residual), 0.0), c, residual, solved, inner)


def log_likelihood(
    kernel: Kernel, b: Array, points: Array, values: Array, lengths: Array, nugget: float
) -> tuple[float, Array]:
    """log p(y | ℓ, η), c and v integrated out, without its constant; and its slopes in (log ℓ, log η)."""
    # −½ log|R| − ½ log|BᵀR⁻¹B| − ½(n−b) log S²
    n, free = len(points), len(points) - b.shape[1]
    k = kernel.gram(points, points, lengths)
    chol = cholesky(k + nugget * np.eye(n), name="the kernel matrix", max_jitter=1e-6)
    fit = _regress(chol, b, values)
    square = max(fit.square, np.finfo(float).tiny)
    value = -0.5 * chol.log_det - 0.5 * free * np.log(square)
    # ∂/∂θ = tr(W ∂R/∂θ),  W = −½R⁻¹ + ½ A(BᵀA)⁻¹Aᵀ + ½(n−b) αα ᵀ/S²,  A = R⁻¹B
    w = -0.5 * chol.inverse() + (0.5 * free / square) * np.outer(fit.residual, fit.residual)
    if fit.basis_chol is not None:
        value -= 0.5 * fit.basis_chol.log_det
        half = solve_upper(fit.basis_chol.factor, fit.solved_basis.T, transposed=True)
        w += 0.5 * half.T @ half
    slopes = kernel.log_length_slopes(w * k, points, lengths)
    return value, np.append(slopes, nugget * np.trace(w))

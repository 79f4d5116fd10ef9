"""The Gaussian process that stands in for the integrand.

f(z) = b(z)ᵀc + g(z), g ~ GP(0, v k), y = f + noise of variance v·η. The coefficients c (flat prior) and the
variance v (Jeffreys' prior) are integrated out in closed form, so that predictions are Student-t with
n − |b| degrees of freedom; the length scales ℓ and the nugget η are all that is left to fit.
(Zero mean and fixed hyperparameters give Gutteridge (2021), eqs. 7.7, 7.8.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky
from latlin.quadrature.kernels import Kernel

Basis = Callable[[Array], Array]

SMALLEST_NUGGET = 1e-8


class Hyperparameters(NamedTuple):
    """What a surrogate is given or finds: length scales in standard coordinates, nugget, variance.

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
        (ga, ba), (gb, bb) = self.explained(a), self.explained(b)
        return self.variance * (self.kernel.gram(a, b, self.lengths) - ga.T @ gb + ba.T @ bb)

    def explained(self, z: Array) -> tuple[Array, Array]:
        """G and B of the posterior covariance v(k(z, z′) − GᵀG′ + BᵀB′), a column for each row of z: what the
        evaluations explain, and what not knowing the mean adds."""
        # G = C⁻ᵀk(Z,z),  B = D⁻ᵀr, CᵀC = R, DᵀD = BᵀR⁻¹B
        cross = self.cross(z)
        return self.chol.whiten(cross), self._unknown_mean(cross, self.basis(z))

    def project(self, prior: Array | float, cross: Array, basis: Array) -> Array:
        """Posterior variance over v of a linear functional, from its prior variance, its covariance with g(Z)
        (the columns of `cross`) and its value on the basis (the rows of `basis`)."""
        # p − kᵀR⁻¹k + rᵀ(BᵀR⁻¹B)⁻¹r,  r = b − BᵀR⁻¹k
        white, extra = self.chol.whiten(cross), self._unknown_mean(cross, basis)
        return prior - np.einsum("nm,nm->m", white, white) + np.einsum("bm,bm->m", extra, extra)

    def _unknown_mean(self, cross: Array, basis: Array) -> Array:
        if self.basis_chol is None:
            return np.empty((0, cross.shape[1]))
        return self.basis_chol.whiten((basis - cross.T @ self.solved_basis).T)


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


class SurrogateLikelihood(NamedTuple):
    """log p(y | ℓ, η) of values at points, c and v integrated out, without its constant."""

    kernel: Kernel
    basis: Array  # (n, b), at the points
    points: Array
    values: Array

    def value(self, lengths: Array, nugget: float) -> float:
        """At these length scales and this nugget."""
        return self._factorise(lengths, nugget)[0]

    def with_slopes(self, lengths: Array, nugget: float) -> tuple[float, Array]:
        """The value and its slopes in (log ℓ, log η)."""
        value, square, k, chol, fit = self._factorise(lengths, nugget)
        free = len(self.points) - self.basis.shape[1]
        # ∂/∂θ = tr(W ∂R/∂θ),  W = −½R⁻¹ + ½ A(BᵀA)⁻¹Aᵀ + ½(n−b) ααᵀ/S²,  A = R⁻¹B
        w = -0.5 * chol.inverse()
        w += np.outer((0.5 * free / square) * fit.residual, fit.residual)
        if fit.basis_chol is not None:
            half = fit.basis_chol.whiten(fit.solved_basis.T)
            w += 0.5 * half.T @ half
        trace = float(np.trace(w))
        w *= k
        slopes = self.kernel.log_length_slopes(np.ascontiguousarray(w.T), self.points, lengths)  # Wᵀ = W, row by row
        return value, np.append(slopes, nugget * trace)

    def _factorise(self, lengths: Array, nugget: float) -> tuple[float, float, Array, Cholesky, _Regression]:
        # −½ log|R| − ½ log|BᵀR⁻¹B| − ½(n−b) log S²
        n, free = len(self.points), len(self.points) - self.basis.shape[1]
        k = self.kernel.gram(self.points, self.points, lengths)
        r = k.copy()
        r[np.diag_indices(n)] += nugget
        chol = cholesky(r, name="the kernel matrix", max_jitter=1e-6)
        fit = _regress(chol, self.basis, self.values)
        square = max(fit.square, np.finfo(float).tiny)
        inner = 0.0 if fit.basis_chol is None else fit.basis_chol.log_det
        return -0.5 * (chol.log_det + inner + free * np.log(square)), square, k, chol, fit

"""The Gaussian process that stands in for the integrand.

f(z) = b(z)ᵀc + g(z), g ~ GP(0, v k), y = f + noise of variance v·η. The coefficients c (flat prior) and the
variance v (Jeffreys' prior) are integrated out in closed form, so that predictions are Student-t with
n − |b| degrees of freedom; the length scales ℓ and the nugget η are all that is left to fit.
(Zero mean and fixed hyperparameters give Gutteridge (2021), eqs. 7.7, 7.8.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky
from latlin.numerics.options import resolve_choice
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
        return self.moments(z)[1]

    def moments(self, z: Array) -> tuple[Array, Array]:
        """Posterior means and variances of f at the rows of z."""
        cross, basis = self.cross(z), self.basis(z)
        share = np.maximum(self.project(np.ones(len(z)), cross, basis), 0.0)
        return basis @ self.coefficients + cross.T @ self.residual, self.variance * share

    def covariance(self, a: Array, b: Array) -> Array:
        """Posterior covariance of f between the rows of a and of b."""
        ga, ba = self.explained(a)
        gb, bb = (ga, ba) if a is b else self.explained(b)
        return self.variance * (self.kernel.gram(a, b, self.lengths) - ga.T @ gb + ba.T @ bb)

    def left_out(self, values: Array) -> tuple[Array, Array]:
        """Means and variances at the points, each given the values at all the others."""
        # P = R⁻¹ − A(BᵀA)⁻¹Aᵀ,  A = R⁻¹B: yᵢ − (Py)ᵢ/Pᵢᵢ and v/Pᵢᵢ
        unknown = 0.0 if self.basis_chol is None else np.sum(self.basis_chol.whiten(self.solved_basis.T) ** 2, axis=0)
        share = np.diagonal(self.chol.inverse()) - unknown
        return values - self.residual / share, self.variance / share

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


def constant_basis(z: Array) -> Array:
    """The basis {1}."""
    return np.ones((len(z), 1))


def empty_basis(z: Array) -> Array:
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


# --- Length scales and nugget from the evaluations: a point, an ensemble around it, or as given.
#
# "ml" takes the most probable length scales under a weak log-normal prior (which keeps those of a few points
# finite; with many it does not matter). "marginal" adds importance-weighted draws from a Laplace approximation
# there, so that what is not known about the length scales widens the integral's error bar. A fit costs O(n³) for each
# of its steps; once there are many evaluations it is kept until their number has doubled.


SHORTEST, LONGEST = 0.02, 30.0  # length scales, in standard coordinates
PRIOR_SPREAD = 1.5  # of log ℓ, around ½ log d
MANY = 100  # evaluations from which on a fit is kept until they have doubled, and begins at one place only
DRAWS, DRAWS_OF_MANY = 16, 4  # of length scales; of many evaluations they are known well


class WeightedHyperparameters(NamedTuple):
    """Hyperparameters and the share of belief in them."""

    weight: float
    hyperparameters: Hyperparameters


class Ensemble(NamedTuple):
    """What a fit found."""

    members: tuple[WeightedHyperparameters, ...]  # the first is the mode
    log_posterior: float  # of the mode, by which kernels can be compared; up to a constant that they share
    size: int  # evaluations that were seen

    @property
    def mode(self) -> Hyperparameters:
        """The most probable hyperparameters."""
        return self.members[0].hyperparameters

    @property
    def weights(self) -> Array:
        """Shares of belief in the members."""
        return np.array([w for w, _ in self.members])

    def serves(self, n: int) -> bool:
        """Whether it will do for n evaluations."""
        return self.size >= MANY and n < 2 * self.size


class HyperparameterFit(Protocol):
    """A way to hyperparameters."""

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble: ...


class Given(NamedTuple):
    """Hyperparameters that were given."""

    hyperparameters: Hyperparameters

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble:
        h = self.hyperparameters
        value = SurrogateLikelihood(kernel, basis(points), points, values).value(h.lengths, h.nugget)
        return Ensemble((WeightedHyperparameters(1.0, h),), value, len(points))


class HyperparameterMode(NamedTuple):
    """The mode alone."""

    noisy: bool

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble:
        if np.ptp(values) == 0.0:
            return _default(points)
        posterior = HyperparameterPosterior(SurrogateLikelihood(kernel, basis(points), points, values), self.noisy)
        theta, height = _mode(posterior, previous)
        return Ensemble((WeightedHyperparameters(1.0, posterior.unpack(theta)),), height, len(points))


class DrawnHyperparameters(NamedTuple):
    """The mode and draws around it."""

    noisy: bool

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble:
        if np.ptp(values) == 0.0:
            return _default(points)
        posterior = HyperparameterPosterior(SurrogateLikelihood(kernel, basis(points), points, values), self.noisy)
        theta, height = _mode(posterior, previous)
        draws, weights = _draws(posterior, theta)
        members = (WeightedHyperparameters(float(w), posterior.unpack(t)) for w, t in zip(weights, draws, strict=True))
        return Ensemble(tuple(members), height, len(points))


def resolve_fit(hyperparameters: str | Hyperparameters, noisy: bool, dim: int) -> HyperparameterFit:
    """The way of this name, or the given numbers."""
    kinds: dict[str, HyperparameterFit] = {"marginal": DrawnHyperparameters(noisy), "ml": HyperparameterMode(noisy)}
    found: Hyperparameters | HyperparameterFit = resolve_choice(
        "hyperparameters", hyperparameters, kinds, "a Hyperparameters", lambda own: isinstance(own, Hyperparameters)
    )
    return Given(_check(found, dim)) if isinstance(found, Hyperparameters) else found


def _default(points: Array) -> Ensemble:
    """A constant says nothing about length scales: a fit that saw nothing."""
    d = points.shape[1]
    return Ensemble((WeightedHyperparameters(1.0, Hyperparameters(np.full(d, np.sqrt(d)))),), 0.0, 0)


def _check(h: Hyperparameters, dim: int) -> Hyperparameters:
    lengths = np.broadcast_to(np.asarray(h.lengths, dtype=float), (dim,)).copy()
    variance_is_good = h.variance is None or h.variance > 0.0
    if not (np.all(lengths > 0.0) and h.nugget >= 0.0 and variance_is_good):
        raise ValueError(f"hyperparameters must have positive lengths and variance and nugget ≥ 0, got {h}")
    return Hyperparameters(lengths, max(h.nugget, SMALLEST_NUGGET), h.variance)


class HyperparameterPosterior(NamedTuple):
    """Of θ = (log ℓ, and log η where there is noise), given evaluations; without its constant."""

    likelihood: SurrogateLikelihood
    noisy: bool

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.likelihood.points.shape[1]

    @property
    def bounds(self) -> Array:
        """Lowest and highest of every θ, of shape (|θ|, 2)."""
        noise = [(SMALLEST_NUGGET, 10.0)] if self.noisy else []
        return np.log([(SHORTEST, LONGEST)] * self.dim + noise)

    def unpack(self, theta: Array) -> Hyperparameters:
        """θ as hyperparameters."""
        nugget = float(np.exp(theta[self.dim])) if self.noisy else SMALLEST_NUGGET
        return Hyperparameters(np.exp(theta[: self.dim]), nugget)

    def value(self, theta: Array) -> float:
        """log p(θ | y)."""
        h, away = self.unpack(theta), self._away(theta)
        return self.likelihood.value(h.lengths, h.nugget) - 0.5 * float(away @ away)

    def with_slopes(self, theta: Array) -> tuple[float, Array]:
        """log p(θ | y) and its gradient."""
        h, away = self.unpack(theta), self._away(theta)
        value, slopes = self.likelihood.with_slopes(h.lengths, h.nugget)
        gradient = slopes[: len(theta)]
        gradient[: self.dim] -= away / PRIOR_SPREAD
        return value - 0.5 * float(away @ away), gradient

    def _away(self, theta: Array) -> Array:
        return (theta[: self.dim] - 0.5 * np.log(self.dim)) / PRIOR_SPREAD


def _mode(posterior: HyperparameterPosterior, previous: Ensemble | None) -> tuple[Array, float]:
    """The most probable θ, and log p(θ | y) there."""

    def downhill(theta: Array) -> tuple[float, Array]:
        value, gradient = posterior.with_slopes(theta)
        return -value, -gradient

    starts = _starts(posterior, previous)
    if len(posterior.likelihood.values) >= MANY:
        starts = [max(starts, key=posterior.value)]
    options = {"maxiter": 60}
    fits = [
        minimize(downhill, start, jac=True, method="L-BFGS-B", bounds=posterior.bounds, options=options)
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.fun)
    return best.x, -float(best.fun)


def _starts(posterior: HyperparameterPosterior, previous: Ensemble | None) -> list[Array]:
    d, nugget = posterior.dim, 1e-4
    scales = [np.full(d, np.log(s * np.sqrt(d))) for s in (0.3, 1.0, 3.0)]
    if previous is not None:
        scales = [np.log(previous.mode.lengths), scales[1]]
        nugget = previous.mode.nugget
    return [np.append(s, np.log(nugget)) for s in scales] if posterior.noisy else scales


def _draws(posterior: HyperparameterPosterior, theta: Array) -> tuple[Array, Array]:
    """Draws from the Laplace approximation at `theta` (itself the first) and their importance weights."""
    precision, axes = np.linalg.eigh(-_hessian(posterior, theta))
    precision = np.maximum(precision, 0.25)
    count = DRAWS if len(posterior.likelihood.values) < MANY else DRAWS_OF_MANY
    sobol = qmc.Sobol(len(theta), seed=np.random.default_rng(0)).random(count)
    white = ndtri(np.clip(sobol, 1e-6, 1.0 - 1e-6))
    white[0] = 0.0
    draws = np.clip(theta + (white / np.sqrt(precision)) @ axes.T, *posterior.bounds.T)
    log_weights = np.array([posterior.value(draw) for draw in draws]) + 0.5 * np.sum(white**2, axis=1)
    return draws, np.exp(log_weights - logsumexp(log_weights))


def _hessian(posterior: HyperparameterPosterior, theta: Array, step: float = 0.02) -> Array:
    steps = step * np.eye(len(theta))
    rows = [(posterior.with_slopes(theta + e)[1] - posterior.with_slopes(theta - e)[1]) / (2.0 * step) for e in steps]
    hessian = np.array(rows)
    return 0.5 * (hessian + hessian.T)

"""What evaluations say about an integrand and its integral.

`Plain` puts a Gaussian process on f; `Warped` puts one on √(2(f − α)) and takes f as its square, linearised
(WSABI-L) or moment-matched (WSABI-M), for integrands that are nowhere negative (Gunter et al. 2014, cited in
Gutteridge (2021), §7.2.2). Both know the integral's mean *and* variance in closed form, and both answer the
same questions about a set of candidate points.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from latlin.numerics.arrays import Array
from latlin.quadrature.kernels import (
    Kernel,
    Standard,
    kernel_double_mean,
    kernel_mean,
    product_double_mean,
    product_mean,
    square_double_mean,
)
from latlin.quadrature.result import ResultMoments, pool_results
from latlin.quadrature.surrogate import (
    MANY,
    Basis,
    Ensemble,
    HyperparameterFit,
    Hyperparameters,
    Surrogate,
    condition,
    empty_basis,
)

CLEARLY = 0.8  # share of another model's errors that makes a model the better one
NEGLIGIBLE = 1e-3  # share of belief that does not pay for an integral of its own
ROUNDING = 1e-15  # smallest share of the prior variance of an integral that float64 can resolve


class Belief(Protocol):
    """What is known after some evaluations."""

    @property
    def ensemble(self) -> Ensemble: ...
    @property
    def process(self) -> Surrogate: ...
    @property
    def integral(self) -> ResultMoments: ...

    def mean(self, z: Array) -> Array:
        """Posterior mean of f."""
        ...

    def variances(self, z: Array) -> Array:
        """Posterior variance of f."""
        ...

    def amplitude(self, z: Array) -> Array:
        """∂f/∂(process) at the posterior mean: what turns the process's deviations into those of f."""
        ...

    def link(self, z: Array) -> Array:
        """Posterior covariance of the process at z with the (linearised) integral."""
        ...

    def left_out(self, values: Array) -> Array:
        """f at the points, as the values at all the others foresee it."""
        ...


class BeliefModel(Protocol):
    """A way from evaluations to a belief."""

    def __call__(self, points: Array, values: Array, previous: Belief | None) -> Belief: ...


class Plain(NamedTuple):
    """A Gaussian process on f."""

    kernel: Kernel
    basis: Basis
    measure: Standard
    fit: HyperparameterFit

    def __call__(self, points: Array, values: Array, previous: Belief | None) -> PlainBelief:
        return self.believe(points, values, self.weigh(points, values, previous))

    def weigh(self, points: Array, values: Array, previous: Belief | None) -> Ensemble:
        """Length scales that fit the evaluations, and how probable these make them."""
        scale = float(np.abs(values).max()) or 1.0
        return fit_or_keep(self.fit, self.kernel, self.basis, points, values / scale, previous)

    def believe(self, points: Array, values: Array, ensemble: Ensemble) -> PlainBelief:
        """What the evaluations say with these length scales."""
        scale = float(np.abs(values).max()) or 1.0
        y = values / scale

        def process(h: Hyperparameters) -> Surrogate:
            return condition(self.kernel, self.basis, points, y, h._replace(variance=_rescaled(h.variance, scale)))

        moments = [_plain_moments(process(h), self.measure) for _, h in ensemble.members]
        integral = pool_results(ensemble.weights, moments).times(scale)
        return PlainBelief(ensemble, process(ensemble.mode), self.measure, scale, integral)

    def suits(self, values: Array) -> bool:
        """Whether these may be values of the integrand."""
        return True

    def made(self, belief: Belief) -> bool:
        """Whether the belief is one of this model."""
        return isinstance(belief, PlainBelief) and belief.process.kernel is self.kernel


class ManyModels(NamedTuple):
    """Several models, weighed by how probable they make the evaluations; with many evaluations the one that
    the last fit preferred, or the square root where that foresees them clearly better."""

    models: tuple[Any, ...]
    root: Warped | None = None

    def __call__(self, points: Array, values: Array, previous: Belief | None) -> Belief:
        models = tuple(model for model in self.models if model.suits(values)) or self.models
        root = self.root if len(points) >= MANY and self.root is not None and self.root.suits(values) else None
        serving = previous is not None and previous.ensemble.serves(len(points))
        if serving and root is not None and isinstance(previous, WarpedBelief):
            return root(points, values, previous)
        if serving and previous is not None:
            own = tuple(model for model in models if model.made(previous))
            # length scales of a model that no longer suits the values are not those of the others
            models, previous = (own, previous) if own else (models, None)
        ensembles = [model.weigh(points, values, previous) for model in models]
        heights = np.array([ensemble.log_posterior for ensemble in ensembles])
        shares = np.exp(heights - logsumexp(heights))
        kept = np.flatnonzero(shares > NEGLIGIBLE)
        beliefs = [models[i].believe(points, values, ensembles[i]) for i in kept]
        integral = pool_results(shares[kept] / shares[kept].sum(), [belief.integral for belief in beliefs])
        best: Any = beliefs[int(np.argmax(shares[kept]))]
        if root is not None and not serving:
            other = root(points, values, previous)
            if _missed(other, root.measure, values) < CLEARLY * _missed(best, root.measure, values):
                return other
        return best._replace(integral=integral)


def _missed(belief: Belief, measure: Standard, values: Array) -> float:
    """How far a belief misses each evaluation, given the others, as what it adds to the integral: density × value.

    Evidences weigh relative errors in the tails as much as those at the peak, where the integral is.
    """
    errors = np.exp(measure.logpdf(belief.process.points)) * (values - belief.left_out(values))
    return float(np.linalg.norm(errors))


class PlainBelief(NamedTuple):
    """Of `Plain`."""

    ensemble: Ensemble
    process: Surrogate  # of f / scale, with the most probable hyperparameters
    measure: Standard
    scale: float
    integral: ResultMoments

    def mean(self, z: Array) -> Array:
        return self.scale * self.process.mean(z)

    def variances(self, z: Array) -> Array:
        return self.scale**2 * self.process.variances(z)

    def amplitude(self, z: Array) -> Array:
        return np.full(len(z), self.scale)

    def left_out(self, values: Array) -> Array:
        return self.scale * self.process.left_out(values / self.scale)[0]

    def link(self, z: Array) -> Array:
        # z(x) − k(x,Z)R⁻¹z + r(x)ᵀ(BᵀR⁻¹B)⁻¹r_Z
        p = self.process
        mean = kernel_mean(p.kernel, p.lengths, self.measure, p.points)
        cross = p.cross(z)
        out = kernel_mean(p.kernel, p.lengths, self.measure, z) - cross.T @ p.chol.solve(mean)
        if p.basis_chol is not None:
            here = p.basis(z) - cross.T @ p.solved_basis
            whole = _basis_mean(p) - mean @ p.solved_basis
            out += here @ p.basis_chol.solve(whole)
        return self.scale * p.variance * out


class Warped(NamedTuple):
    """A Gaussian process of mean zero on √(2(f − α)), α = 0.8 min f."""

    kernel: Kernel
    measure: Standard
    fit: HyperparameterFit
    matched: bool

    def __call__(self, points: Array, values: Array, previous: Belief | None) -> WarpedBelief:
        g, scale, offset = self._roots(values)
        ensemble = fit_or_keep(self.fit, self.kernel, empty_basis, points, g, previous)

        def process(h: Hyperparameters) -> Surrogate:
            variance = _rescaled(h.variance, np.sqrt(scale))
            return condition(self.kernel, empty_basis, points, g, h._replace(variance=variance))

        moments = [_warped_moments(process(h), self.measure, offset, self.matched) for _, h in ensemble.members]
        integral = pool_results(ensemble.weights, moments).times(scale)
        return WarpedBelief(ensemble, process(ensemble.mode), self.measure, scale, offset, self.matched, integral)

    def _roots(self, values: Array) -> tuple[Array, float, float]:
        """√(2(f/scale − offset)), the scale and the offset."""
        lowest = float(values.min())
        if lowest < 0.0:
            raise ValueError(f"a warped integrand must be nowhere negative, got the value {lowest:.6g}")
        scale = float(values.max()) or 1.0
        offset = 0.8 * lowest / scale
        return np.sqrt(2.0 * (values / scale - offset)), scale, offset

    def suits(self, values: Array) -> bool:
        """Whether these may be values of the integrand, and vary."""
        return 0.0 <= float(values.min()) < float(values.max())


class WarpedBelief(NamedTuple):
    """Of `Warped`."""

    ensemble: Ensemble
    process: Surrogate  # of √(2(f/scale − offset))
    measure: Standard
    scale: float
    offset: float
    matched: bool
    integral: ResultMoments

    def mean(self, z: Array) -> Array:
        square = self.process.mean(z) ** 2
        if self.matched:
            square = square + self.process.variances(z)
        return self.scale * (self.offset + 0.5 * square)

    def variances(self, z: Array) -> Array:
        c = self.process.variances(z)
        out = self.process.mean(z) ** 2 * c
        return self.scale**2 * (out + 0.5 * c**2 if self.matched else out)

    def amplitude(self, z: Array) -> Array:
        return self.scale * self.process.mean(z)

    def left_out(self, values: Array) -> Array:
        g, variance = self.process.left_out(np.sqrt(2.0 * np.maximum(values / self.scale - self.offset, 0.0)))
        return self.scale * (self.offset + 0.5 * (g**2 + variance if self.matched else g**2))

    def link(self, z: Array) -> Array:
        # ∫ C(x,x′) m̃(x′) p(x′) dx′ = q(x)ᵀβ − k(x,Z)R⁻¹Qβ
        p = self.process
        here = product_mean(p.lengths, self.measure, z, p.points) @ p.residual
        known = product_mean(p.lengths, self.measure, p.points, p.points) @ p.residual
        return self.scale * p.variance * (here - p.cross(z).T @ p.chol.solve(known))


def fit_or_keep(
    fit: HyperparameterFit, kernel: Kernel, basis: Basis, points: Array, y: Array, previous: Belief | None
) -> Ensemble:
    """The hyperparameters of the previous belief as long as they serve, else new ones."""
    before = None if previous is None else previous.ensemble
    if before is not None and before.serves(len(points)):
        return before
    return fit(kernel, basis, points, y, before)


def _plain_moments(process: Surrogate, measure: Standard) -> ResultMoments:
    mean = kernel_mean(process.kernel, process.lengths, measure, process.points)
    prior = kernel_double_mean(process.kernel, process.lengths, measure)
    basis = _basis_mean(process)
    centre = float(basis @ process.coefficients + mean @ process.residual)
    share = max(float(process.project(prior, mean[:, None], basis[None])[0]), ROUNDING * prior)
    return ResultMoments.single(centre, process.variance * share, process.dof)


def _basis_mean(process: Surrogate) -> Array:
    return np.ones(len(process.coefficients))


def _warped_moments(process: Surrogate, measure: Standard, offset: float, matched: bool) -> ResultMoments:
    """Mean by L or M; either way the variance of M, and the square of the gap between the two means.

    L leaves ½∫C out, M counts all of it, at one variance v for places where f is large and where it is next to
    nothing; integrals are found between the two. So the gap is what either may be wrong by, and is counted as a
    standard deviation.
    """
    z, beta, v, lengths = process.points, process.residual, process.variance, process.lengths
    q = product_mean(lengths, measure, z, z)
    t = product_double_mean(lengths, measure, z)
    qb = q @ beta
    solved = process.chol.solve(q)
    # L: α + ½βᵀQβ, and v(βᵀTβ − βᵀQR⁻¹Qβ) about it
    prior = float(beta @ t @ beta)
    mean = offset + 0.5 * float(beta @ qb)
    linear = v * max(prior - float(np.sum(process.chol.whiten(qb) ** 2)), ROUNDING * prior)
    # M: + ½v(1 − tr R⁻¹Q), and + ½v²(∬k² − 2 tr R⁻¹T + tr R⁻¹QR⁻¹Q)
    gap = 0.5 * v * max(1.0 - float(np.trace(solved)), 0.0)
    square = square_double_mean(lengths, measure)
    left = square - 2.0 * float(np.trace(process.chol.solve(t))) + float(np.sum(solved * solved.T))
    curved = 0.5 * v**2 * max(left, ROUNDING * square)
    variance = linear + curved + gap**2
    mean += gap if matched else 0.0
    return ResultMoments.single(mean, variance, process.dof)


def _rescaled(variance: float | None, scale: float) -> float | None:
    return None if variance is None else variance / scale**2

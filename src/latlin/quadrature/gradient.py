"""Gradients of a variational bound by Bayesian quadrature (experimental; Gutteridge (2021), §7.3.2).

For q = N(m, S) the bound is ∫ q(θ) log p(D, θ) dθ + H[q]. A Gaussian process on the log joint, with a quadratic
mean, makes the integral and its derivatives in m and S linear functionals with closed-form mean *and* variance.
The log joint does not change when q does, so evaluations of earlier steps serve again: pass them on as `known`.
The score-function estimate beside it takes as many evaluations and forgets them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.options import check_callable, check_whole
from latlin.numerics.rng import RandomState, generator
from latlin.quadrature.kernels import KERNELS, Components
from latlin.quadrature.measures import Gaussian
from latlin.quadrature.result import Evaluations
from latlin.quadrature.sequential import Scale, check_start, evaluate, spread
from latlin.quadrature.surrogate import HyperparameterMode, Surrogate, condition

REACH = 5.0  # evaluations further than this many standard deviations from q's mean are left out


class GradientEstimate(NamedTuple):
    """The bound at q = N(m, S), its gradients and their standard deviations.

    `cov` is the symmetric matrix G with d(bound) = tr(G dS).
    """

    elbo: float
    elbo_sd: float
    mean: Array  # (d,)
    mean_sd: Array
    cov: Array  # (d, d)
    cov_sd: Array
    evaluations: Evaluations


@dataclass(frozen=True)
class GaussianQuadratureGradient:
    """BQ estimates of the gradient of an evidence lower bound, for few dimensions.

    Parameters
    ----------
    log_joint : callable
        θ of shape (n, d) → log p(D, θ) of shape (n,).
    samples : int
        New evaluations per call.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.quadrature import GaussianQuadratureGradient
    >>> bound = GaussianQuadratureGradient(lambda t: -0.5 * np.sum((t - 1.0) ** 2, axis=1), samples=16)
    >>> estimate = bound.estimate(np.zeros(2), np.eye(2), random_state=0)
    >>> np.round(estimate.mean, 4).tolist()
    [1.0, 1.0]
    """

    log_joint: Callable[[Array], ArrayLike]
    samples: int = 16

    def estimate(
        self, mean: ArrayLike, cov: ArrayLike, known: Evaluations | None = None, random_state: RandomState = None
    ) -> GradientEstimate:
        """Bound and gradients at N(mean, cov); the evaluations of all calls so far come back with them."""
        q = Gaussian(mean, cov)
        standard = Components(np.ones(1), np.zeros((1, q.dim)), np.eye(q.dim)[None])
        before = Evaluations(np.empty((0, q.dim)), np.empty(0)) if known is None else check_start(known, q.dim)
        new = q.frame.outward(spread(standard.broaden(1.5), self.samples, generator(random_state)))
        seen = evaluate(self.log_joint, new, before, Scale(logarithmic=False))
        z = q.frame.inward(seen.points)
        near = np.einsum("nd,nd->n", z, z) <= REACH**2 * q.dim
        need = (q.dim + 1) * (q.dim + 2) // 2 + 2
        if near.sum() < need:
            raise ValueError(f"samples must give at least {need} evaluations near q, got {int(near.sum())}")
        return _in_frame(q, *_standard_gradient(z[near], seen.values[near]), seen)


def score_gradient(
    log_joint: Callable[[Array], ArrayLike],
    mean: ArrayLike,
    cov: ArrayLike,
    samples: int,
    random_state: RandomState = None,
) -> GradientEstimate:
    """The score-function Monte Carlo estimate with a leave-one-out baseline, for comparison."""
    check_callable("log_joint", log_joint)
    q, samples = Gaussian(mean, cov), check_whole("samples", samples, 2)
    points = q.sample(samples, generator(random_state))
    seen = evaluate(log_joint, points, Evaluations(np.empty((0, q.dim)), np.empty(0)), Scale(logarithmic=False))
    z = q.frame.inward(points)
    centred = (seen.values - seen.values.mean()) * samples / (samples - 1.0)
    # ∇_m log q = z,  ∇_S log q = ½(zzᵀ − I), in standard coordinates
    terms = [seen.values[:, None], centred[:, None] * z]
    terms.append((0.5 * centred[:, None, None] * (z[:, :, None] * z[:, None] - np.eye(q.dim))).reshape(samples, -1))
    columns = np.hstack(terms)
    return _in_frame(q, columns.mean(axis=0), columns.var(axis=0, ddof=1) / samples, seen)


def _standard_gradient(z: Array, values: Array) -> tuple[Array, Array]:
    """Means and variances of (value, ∂m, ∂S) at m = 0, S = I."""
    scale = float(np.ptp(values)) or 1.0
    y = (values - values.mean()) / scale
    h = HyperparameterMode(noisy=False)(KERNELS["rbf"], _quadratic, z, y, None).mode
    process = condition(KERNELS["rbf"], _quadratic, z, y, h)
    prior, cross, basis = _functionals(process)
    means = basis @ process.coefficients + cross.T @ process.residual
    variances = process.variance * np.maximum(process.project(prior, cross, basis), 0.0)
    means *= scale
    means[0] += values.mean()
    return means, variances * scale**2


def _quadratic(z: Array) -> Array:
    """The basis {1, z_i, z_i z_j}."""
    i, j = np.triu_indices(z.shape[1])
    return np.hstack([np.ones((len(z), 1)), z, z[:, i] * z[:, j]])


def _functionals(process: Surrogate) -> tuple[Array, Array, Array]:
    """Prior variances, covariances with g(Z) and values on the basis of value, ∂m and ∂S at N(0, I)."""
    z, lengths = process.points, process.lengths
    d = z.shape[1]
    # ∫kN = |Λ|^{½}|Λ+I|^{−½} e^{−½zᵀPz}, P = (Λ+I)⁻¹;  ∂m: Pz·,  ∂S: ½(Pz zᵀP − P)·
    p = 1.0 / (lengths**2 + 1.0)
    value = np.exp(-0.5 * z**2 @ p) * np.prod(lengths * np.sqrt(p))
    pz = z * p
    curve = 0.5 * (pz[:, :, None] * pz[:, None] - np.diag(p))
    cross = np.hstack([value[:, None], value[:, None] * pz, value[:, None] * curve.reshape(len(z), -1)])
    # the double mean depends on m − m′ as e^{−½δᵀP₂δ}, P₂ = (Λ+2I)⁻¹; its derivatives at 0 are the prior variances
    p2 = 1.0 / (lengths**2 + 2.0)
    double = float(np.prod(lengths * np.sqrt(p2)))
    fourth = 0.25 * (np.outer(p2, p2) + 2.0 * np.diag(p2**2))
    prior = double * np.concatenate([[1.0], p2, fourth.ravel()])
    return prior, cross, _basis_functionals(d)


def _basis_functionals(d: int) -> Array:
    i, j = np.triu_indices(d)
    rows = np.zeros((1 + d + d * d, 1 + d + len(i)))
    rows[0, 0] = 1.0
    rows[0, 1 + d :] = i == j  # E[z_i z_j] = δ_ij
    rows[1 : 1 + d, 1 : 1 + d] = np.eye(d)
    for column, (a, b) in enumerate(zip(i, j, strict=True)):
        rows[1 + d + a * d + b, 1 + d + column] += 0.5
        rows[1 + d + b * d + a, 1 + d + column] += 0.5
    return rows


def _in_frame(q: Gaussian, means: Array, variances: Array, seen: Evaluations) -> GradientEstimate:
    """From standard coordinates to those of θ, with the entropy and its gradient ½S⁻¹."""
    d = q.dim
    inverse = np.linalg.inv(q.frame.factor)  # A⁻¹
    entropy = 0.5 * d * (1.0 + np.log(2.0 * np.pi)) + q.frame.log_volume
    # ∂m = A⁻ᵀ∂z,  ∂S = A⁻ᵀ G A⁻¹; standard deviations as if the standard entries were independent
    g, g_variance = means[1 + d :].reshape(d, d), variances[1 + d :].reshape(d, d)
    return GradientEstimate(
        float(means[0] + entropy),
        float(np.sqrt(variances[0])),
        inverse.T @ means[1 : 1 + d],
        np.sqrt((inverse.T**2) @ variances[1 : 1 + d]),
        inverse.T @ g @ inverse + 0.5 * inverse.T @ inverse,
        np.sqrt((inverse.T**2) @ g_variance @ inverse**2),
        seen,
    )

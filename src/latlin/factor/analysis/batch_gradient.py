"""Batch gradient ascent on the likelihood of a factor model, or on its product with priors of loadings and noise.

By the identity of Challis (2013), eq. A.3.3, the gradient of the log likelihood is the expected gradient of the
complete one. With M = I + FᵀΨ⁻¹F, A = SΨ⁻¹FM⁻¹ = E[d mᵀ] and H = M⁻¹ + M⁻¹FᵀΨ⁻¹A = E[hhᵀ],

    ∇_F = NΨ⁻¹(A − FH),   ∇_log ψ = ½N(diag(S − 2FAᵀ + FHFᵀ)/ψ − 1).

Priors are on the features in units of their standard deviations sd, which makes them independent of units:

    F_dk/sd_d ~ N(0, τ²),   ψ_d/sd_d² ~ inverse gamma(a, b), of density ∝ ψ^{−a−1} e^{−b/ψ}.

Both leave rotations of F free. L-BFGS climbs in (F, log ψ); the maximum is that of the density in ψ, not in log ψ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.optimize import minimize
from scipy.special import gammaln

from latlin.factor.analysis.batch import EMState, log_likelihood, precision_of, principal_start
from latlin.factor.analysis.moments import SampleMoments
from latlin.factor.fit import FactorFit
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Checkpoint
from latlin.numerics.linalg import Array
from latlin.numerics.progress import progress

Prior = tuple[float, Array, Array]


def batch_gradient_fit(options: Any, s: SampleMoments, mean: Array, checkpoint: Checkpoint | None = None) -> FactorFit:
    """Climb from the principal axes of the correlations; `trace` holds log likelihood plus log prior."""
    if checkpoint is not None:
        raise ValueError("method='batch-gradient' keeps no checkpoint; 'ml' and 'em' do")
    rank, isotropic = int(options.n_components), options.noise == "isotropic"
    sd = np.sqrt(s.variance)
    start, noise = principal_start(s, rank, isotropic)
    width = 1 if isotropic else len(sd)
    trace: list[float] = []

    def unpacked(x: Array) -> tuple[Array, Array]:
        loadings, log_noise = x[: rank * len(sd)].reshape(rank, len(sd)), x[rank * len(sd) :]
        # isotropic noise is one number in the units of the rows
        return loadings * sd, np.exp(log_noise) * (np.full(len(sd), np.mean(s.variance)) if isotropic else s.variance)

    def loss(x: Array) -> tuple[float, Array]:
        loadings, psi = unpacked(x)
        value, by_loadings, by_log_noise = objective(s, loadings.T, psi, options.loading_prior, options.noise_prior)
        trace.append(max(value, trace[-1]) if trace else value)
        bar.advance(f"log likelihood {value:.6g}")
        slope = by_log_noise.sum(keepdims=True) if isotropic else by_log_noise
        gradient = np.concatenate([(by_loadings.T * sd).ravel(), slope])
        return -value / s.n, -gradient / s.n

    share = noise.mean(keepdims=True) / np.mean(s.variance) if isotropic else noise / s.variance
    first = np.concatenate([(start / sd).ravel(), np.log(share)])
    limits = [(None, None)] * (rank * len(sd)) + [(np.log(max(options.noise_floor, 1e-12)), None)] * width
    steps = {"maxiter": options.max_iter, "gtol": options.tol, "ftol": 1e-15, "maxfun": 20 * options.max_iter}
    with progress("factor analysis (batch gradient)", None, options.verbose) as bar:
        found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=limits, options=steps)
    loadings, psi = unpacked(found.x)
    gradient = float(np.abs(found.jac[~_held(found, limits)]).max(initial=0.0))
    converged = bool(found.success)
    word = "converged" if converged else "did not converge"
    message = f"batch gradient ascent {word} in {found.nit} steps: gradient {gradient:.2g} (tolerance {options.tol:g})"
    return FactorFit(mean, loadings, psi, np.array(trace), converged, int(found.nit), message)


def _held(found: Any, limits: list[tuple[Any, Any]]) -> NDArray[np.bool_]:
    """Noise variances that rest on their floor."""
    lowest = np.array([-np.inf if low is None else low for low, _ in limits])
    return np.asarray((found.x <= lowest + 1e-9) & (found.jac > 0.0))


def objective(
    s: SampleMoments, f: Array, psi: Array, loading_prior: float | None, noise_prior: tuple[float, float] | None
) -> tuple[float, Array, Array]:
    """Log likelihood plus log prior at F (d×K) and ψ, and its gradients in F and log ψ."""
    m, scaled = precision_of(f, psi)
    product = s.times(scaled)
    a = m.solve(product.T).T
    h = m.inverse() + m.solve(blas.dgemm(1.0, scaled, a, trans_a=1))
    fh = f @ (0.5 * (h + h.T))
    left = s.variance - 2.0 * np.einsum("dk,dk->d", f, a) + np.einsum("dk,dk->d", f, fh)
    by_loadings = s.n * (a - fh) / psi[:, None]
    by_log_noise = 0.5 * s.n * (left / psi - 1.0)
    value, prior_loadings, prior_noise = log_prior(f, psi, s.variance, loading_prior, noise_prior)
    value += log_likelihood(EMState(f, psi, product), s)
    return value, by_loadings + prior_loadings, by_log_noise + prior_noise


def log_prior(
    f: Array, psi: Array, variance: Array, loading_prior: float | None, noise_prior: tuple[float, float] | None
) -> Prior:
    """log p(F) + log p(ψ), every constant included, and its gradients in F and log ψ; zero without priors."""
    value, by_loadings, by_log_noise = 0.0, np.zeros_like(f), np.zeros_like(psi)
    if loading_prior is not None:
        spread = loading_prior**2 * variance[:, None]
        value -= 0.5 * float(np.sum(f * f / spread + np.log(spread) + LOG_2PI))
        by_loadings -= f / spread
    if noise_prior is not None:
        shape, scale = noise_prior
        share = psi / variance
        value += float(np.sum(shape * np.log(scale) - gammaln(shape) - np.log(variance)))
        value -= float(np.sum((shape + 1.0) * np.log(share) + scale / share))
        by_log_noise += scale / share - (shape + 1.0)
    return value, by_loadings, by_log_noise

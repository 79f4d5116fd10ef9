"""Fits of complete data from their covariance: what the estimator's options mean for Newton steps and for EM."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.optimize import minimize
from scipy.special import gammaln

from latlin.factor.analysis.moments import DenseMoments, SampleMoments
from latlin.factor.fit import FactorFit, total_log_likelihood
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Checkpoint, Measure, Rules, ascend, backtrack
from latlin.numerics.linalg import Array, Cholesky, cholesky
from latlin.numerics.progress import progress

# --- Maximum likelihood by Newton steps on log ψ, the loadings profiled out by an eigenvalue problem.
#
# For given ψ the best loadings come from the K largest eigenpairs (λ, u) of Ψ^{−½}SΨ^{−½}:
# F = Ψ^{½}U(Λ − I)₊^{½}. What remains is a function of x = log ψ alone,
#
# f(x) = ½[Σx + Σ_{k≤K} log λ_k + tr Ψ^{−½}SΨ^{−½} − Σ_{k≤K} λ_k + K],
# ∂f/∂x_i = ½ Σ_{m>K} (1 − λ_m) u_im²,
# ∂²f/∂x_i∂x_j = ½ R_ij P_ij + ½ Σ_{m>K, n≤K} (1 − λ_m) (λ_n + λ_m)/(λ_n − λ_m) u_im u_in u_jm u_jn,
#
# with R = Σ_{m>K} λ_m u_m u_mᵀ and P = Σ_{m>K} u_m u_mᵀ, both known from the K kept pairs. In the last sum λ_m is
# replaced by 1 inside the fraction, so that it too needs no more than those: (P − R) ∘ Σ_n c_n u_n u_nᵀ with
# c_n = (λ_n + 1)/(λ_n − 1). When that matrix is not positive definite R ∘ P, which is (Schur), takes its place.
# The scale of a feature drops out: S is made a correlation matrix first. With isotropic noise the maximum is
# known (probabilistic PCA). Challis (2013), §2.1.2 names the eigen-based route without giving it.

MAX_LOG_STEP = 3.0


class NoiseProfile(NamedTuple):
    """x = log ψ (relative), f there, its gradient, and the kept eigenpairs."""

    x: Array
    value: float
    gradient: Array
    values: Array
    vectors: Array


def profile(s: SampleMoments, sd: Array, x: Array, rank: int, start: Array | None = None) -> NoiseProfile:
    """Evaluate f and its gradient at ψ = sd² eˣ."""
    scale = np.exp(-0.5 * x) / sd
    kept, u = s.top(scale, rank, start)
    values = np.maximum(kept, 1.0)
    diagonal = s.variance * scale**2
    value = 0.5 * (x.sum() + np.log(values).sum() + diagonal.sum() - values.sum() + rank)
    squares = u * u
    gradient = 0.5 * (1.0 - squares.sum(axis=1) - diagonal + squares @ values)
    return NoiseProfile(x, float(value), gradient, values, u)


def direct_fit(
    s: SampleMoments,
    mean: Array,
    rank: int,
    floor: float,
    rules: Rules,
    verbose: bool,
    checkpoint: Checkpoint | None = None,
) -> FactorFit:
    """The maximum of the likelihood over loadings and ψ ≥ floor·variance."""
    sd = np.sqrt(s.variance)
    start = profile(s, sd, _start(s, sd, rank, floor), rank)
    if not isinstance(s, DenseMoments):
        return _large_fit(s, sd, mean, start, floor, rules, verbose)
    correlation = s.matrix / sd[:, None] / sd
    shift = 2.0 * float(np.log(sd).sum())

    def step(state: NoiseProfile) -> tuple[NoiseProfile, Measure]:
        new = _newton(s, sd, correlation, state, np.log(floor))
        free = ~_held(new, np.log(floor))
        gradient = float(np.abs(new.gradient[free]).max(initial=0.0))
        if new is state and gradient < 1e-5:  # no step of any length helps: f is flat to rounding
            gradient = 0.0
        return new, Measure(_total(s.n, new, shift), gradient)

    climb = ascend(step, start, rules, label="factor analysis (ml)", verbose=verbose, checkpoint=checkpoint)
    noise, loadings = _loadings(climb.state, sd)
    return FactorFit(mean, loadings, noise, climb.trace, climb.converged, climb.n_iter, climb.message)


def _start(s: SampleMoments, sd: Array, rank: int, floor: float) -> Array:
    """Jöreskog's start ψ_i = (1 − K/2d)/(S⁻¹)_ii, or half the variance when S cannot be inverted."""
    dim = len(sd)
    if isinstance(s, DenseMoments) and s.n > dim:
        factor, info = lapack.dpotrf(s.matrix / sd[:, None] / sd, lower=0)
        if info == 0:
            diagonal = np.diagonal(lapack.dpotri(factor, lower=0)[0])
            return np.log(np.clip((1.0 - 0.5 * rank / dim) / diagonal, max(floor, 1e-3), 1.0))
    return np.full(dim, np.log(0.5))


def _held(state: NoiseProfile, lowest: float) -> np.ndarray:
    """Coordinates that rest on the floor and would go below it."""
    return (state.x <= lowest + 1e-12) & (state.gradient > 0.0)


def _hessian(state: NoiseProfile, scaled: Array) -> tuple[Array, Array]:
    """The Hessian of the docstring and its positive part R ∘ P (each without the factor ½)."""
    u, values = state.vectors, state.values
    p = np.eye(len(u)) - blas.dgemm(1.0, u, u, trans_b=1)
    r = scaled - blas.dgemm(1.0, u * values, u, trans_b=1)
    c = np.minimum((values + 1.0) / np.maximum(values - 1.0, 0.05), 40.0)
    safe = r * p
    return safe + (p - r) * blas.dgemm(1.0, u * c, u, trans_b=1), safe


def _direction(state: NoiseProfile, correlation: Array, free: np.ndarray) -> Array:
    e = np.exp(-0.5 * state.x)
    full, safe = _hessian(state, correlation * e[:, None] * e)
    g = -2.0 * state.gradient[free]
    step = np.zeros_like(state.x)
    if not free.any():
        return step
    where = np.ix_(free, free)
    factor, info = lapack.dpotrf(full[where], lower=0)
    if info != 0:
        diagonal = np.abs(np.diagonal(safe)[free])
        ridged = safe[where] + 1e-3 * diagonal.mean() * np.eye(len(g))
        factor, info = lapack.dpotrf(ridged, lower=0)
        if info != 0:  # features that are one line up to rounding leave nothing else of it
            factor = np.diag(np.sqrt(diagonal + diagonal.max() * 1e-3 + 1e-300))
    step[free] = lapack.dpotrs(factor, g, lower=0)[0]
    return np.clip(step, -MAX_LOG_STEP, MAX_LOG_STEP)


def _newton(s: SampleMoments, sd: Array, correlation: Array, state: NoiseProfile, lowest: float) -> NoiseProfile:
    """One safeguarded step; the state itself when none of any length lowers f."""
    guess = state.vectors.sum(axis=1)
    free = ~_held(state, lowest)

    def search(direction: Array) -> NoiseProfile | None:
        def evaluate(length: float) -> tuple[float, NoiseProfile]:
            x = np.clip(state.x + length * direction, lowest, 0.7)
            point = profile(s, sd, x, len(state.values), guess)
            return -point.value, point

        slope = -float(state.gradient @ direction)
        found = backtrack(evaluate, -state.value, slope, slack=1e-13 * abs(state.value), max_halvings=15)
        return None if found is None else found[2]

    new = search(_direction(state, correlation, free))
    if new is None:
        new = search(-np.where(free, state.gradient, 0.0))
    return state if new is None else new


def _total(n: int, state: NoiseProfile, shift: float) -> float:
    return -0.5 * n * (len(state.x) * LOG_2PI + shift + 2.0 * state.value)


def _loadings(state: NoiseProfile, sd: Array) -> tuple[Array, Array]:
    """ψ and Fᵀ = (Λ − I)^{½} Uᵀ Ψ^{½}."""
    noise = sd**2 * np.exp(state.x)
    loadings = (state.vectors * np.sqrt(state.values - 1.0)).T * np.sqrt(noise)
    return noise, loadings


def _large_fit(
    s: SampleMoments, sd: Array, mean: Array, start: NoiseProfile, floor: float, rules: Rules, verbose: bool
) -> FactorFit:
    """Many features: the same f by L-BFGS-B, no d×d matrix."""
    shift = 2.0 * float(np.log(sd).sum())
    trace: list[float] = []
    rank = len(start.values)

    def objective(x: Array) -> tuple[float, Array]:
        point = profile(s, sd, x, rank)
        trace.append(_total(s.n, point, shift))
        bar.advance(f"log likelihood {trace[-1]:.6g}")
        return point.value, point.gradient

    bounds = [(np.log(floor), 0.7)] * len(sd)
    options = {"maxiter": rules.max_iter, "gtol": rules.gradient_tol, "ftol": 1e-13}
    with progress("factor analysis (ml)", None, verbose) as bar:
        found = minimize(objective, start.x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    noise, loadings = _loadings(profile(s, sd, found.x, rank), sd)
    message = str(found.message)
    return FactorFit(mean, loadings, noise, np.maximum.accumulate(trace), bool(found.success), int(found.nit), message)


def principal_fit(s: SampleMoments, mean: Array, rank: int) -> FactorFit:
    """Isotropic noise: ψ is the mean of the eigenvalues left out, F = U(Λ − ψI)^{½} (probabilistic PCA)."""
    dim = len(mean)
    values, u = s.top(np.ones(dim), rank, None)
    total = float(s.variance.sum())
    psi = max((total - float(values.sum())) / (dim - rank), 1e-12 * total / dim)
    loadings = (u * np.sqrt(np.maximum(values - psi, 0.0))).T
    log_det = float(np.log(np.maximum(values, psi)).sum()) + (dim - rank) * np.log(psi)
    fit = (total - float(values.sum())) / psi + rank
    trace = np.array([total_log_likelihood(s.n, dim, log_det, fit)])
    return FactorFit(mean, loadings, np.full(dim, psi), trace, True, 1, "closed form")


# --- Batch EM for factor analysis with parameter expansion.
#
# One step on the covariance S (Challis (2013), §2.1.2; Brownlie (2021), eqs. 3.32–3.34), M = I + FᵀΨ⁻¹F:
#
# A = SΨ⁻¹F M⁻¹,  H = M⁻¹ + M⁻¹FᵀΨ⁻¹A,  F ← AH⁻¹,  ψ ← diag(S − FAᵀ),  then F ← FR with H = RRᵀ.
#
# The last move fits the latents' covariance as well (H in place of I) and folds it into F; it can only raise the
# likelihood, and it frees the scale of the latents, which plain EM moves at the rate of M⁻¹.


class EMState(NamedTuple):
    """F (d×K), ψ, and SΨ⁻¹F, which the likelihood and the next step share."""

    loadings: Array
    noise: Array
    product: Array


def em_fit(
    s: SampleMoments,
    mean: Array,
    start: Array,
    noise: Array,
    isotropic: bool,
    floor: Array,
    rules: Rules,
    verbose: bool,
    checkpoint: Checkpoint | None = None,
) -> FactorFit:
    """Climb from loadings `start` (K×d) and `noise`; ψ stays at or above `floor`."""

    def step(state: EMState) -> tuple[EMState, Measure]:
        f, psi = _maximise(state, s.variance, isotropic, floor)
        new = EMState(f, psi, s.times(f / psi[:, None]))
        change = float(np.max(np.abs(psi - state.noise) / s.variance))
        return new, Measure(log_likelihood(new, s), change)

    first = EMState(start.T, noise, s.times(start.T / noise[:, None]))
    climb = ascend(step, first, rules, label="factor analysis (em)", verbose=verbose, checkpoint=checkpoint)
    f, psi, _ = climb.state
    return FactorFit(mean, f.T, psi, climb.trace, climb.converged, climb.n_iter, climb.message)


def precision_of(f: Array, psi: Array) -> tuple[Cholesky, Array]:
    """M = I + FᵀΨ⁻¹F factorised, and Ψ⁻¹F."""
    scaled = f / psi[:, None]
    return cholesky(np.eye(f.shape[1]) + blas.dgemm(1.0, scaled, f, trans_a=1), name="I + FᵀΨ⁻¹F"), scaled


def _maximise(state: EMState, variance: Array, isotropic: bool, floor: Array) -> tuple[Array, Array]:
    f, psi, product = state
    m, scaled = precision_of(f, psi)
    a = m.solve(product.T).T
    h = m.inverse() + m.solve(blas.dgemm(1.0, scaled, a, trans_a=1))
    root = cholesky(0.5 * (h + h.T), name="E[hhᵀ]")
    # ψ = diag(S − A H⁻¹ Aᵀ);  F R = A R⁻ᵀ
    expanded = root.whiten(a.T).T
    psi = variance - np.einsum("dk,dk->d", expanded, expanded)
    if isotropic:
        psi = np.full_like(psi, psi.mean())
    return expanded, np.maximum(psi, floor)


def log_likelihood(state: EMState, s: SampleMoments) -> float:
    """log p(data | F, Ψ), every constant included."""
    f, psi, product = state
    m, scaled = precision_of(f, psi)
    inner = blas.dgemm(1.0, scaled, product, trans_a=1)
    # tr SΣ⁻¹ = tr Ψ⁻¹S − tr M⁻¹FᵀΨ⁻¹SΨ⁻¹F
    fit = float((s.variance / psi).sum() - np.trace(m.solve(inner)))
    return total_log_likelihood(s.n, len(psi), m.log_det + float(np.log(psi).sum()), fit)


def rules_of(options: Any) -> Rules:
    """When a climb stops."""
    remedy = "raise max_iter or tol, or use fewer components"
    return Rules(options.tol, 1e-3 * options.tol, options.max_iter, True, remedy)


def ml_fit(options: Any, s: SampleMoments, mean: Array, checkpoint: Checkpoint | None = None) -> FactorFit:
    """The maximum by Newton steps, or in closed form when the noise is isotropic."""
    rank = int(options.n_components)
    if options.noise == "isotropic":
        return principal_fit(s, mean, rank)
    return direct_fit(s, mean, rank, options.noise_floor, rules_of(options), options.verbose, checkpoint)


def principal_start(s: SampleMoments, rank: int, isotropic: bool) -> tuple[Array, Array]:
    """Loadings (K×d) and noise from the principal axes of the correlations."""
    sd = np.sqrt(s.variance)
    values, vectors = s.top(1.0 / sd, rank, None)
    rest = max((len(sd) - values.sum()) / (len(sd) - rank), 0.0)
    start = (vectors * np.sqrt(np.maximum(values - rest, 0.05 * values))).T
    noise = np.maximum(1.0 - (start**2).sum(axis=0), 0.1) * s.variance
    return start * sd, np.full_like(noise, noise.mean()) if isotropic else noise


def complete_em_fit(options: Any, s: SampleMoments, mean: Array, checkpoint: Checkpoint | None = None) -> FactorFit:
    """EM from the principal axes of the correlations."""
    isotropic = options.noise == "isotropic"
    start, noise = principal_start(s, int(options.n_components), isotropic)
    floor = options.noise_floor * s.variance
    return em_fit(s, mean, start, noise, isotropic, floor, rules_of(options), options.verbose, checkpoint)


# --- Batch gradient ascent on the likelihood of a factor model, or on its product with priors of loadings and noise.
#
# By the identity of Challis (2013), eq. A.3.3, the gradient of the log likelihood is the expected gradient of the
# complete one. With M = I + FᵀΨ⁻¹F, A = SΨ⁻¹FM⁻¹ = E[d mᵀ] and H = M⁻¹ + M⁻¹FᵀΨ⁻¹A = E[hhᵀ],
#
#     ∇_F = NΨ⁻¹(A − FH),   ∇_log ψ = ½N(diag(S − 2FAᵀ + FHFᵀ)/ψ − 1).
#
# Priors are on the features in units of their standard deviations sd, which makes them independent of units:
#
#     F_dk/sd_d ~ N(0, τ²),   ψ_d/sd_d² ~ inverse gamma(a, b), of density ∝ ψ^{−a−1} e^{−b/ψ}.
#
# Both leave rotations of F free. L-BFGS climbs in (F, log ψ); the maximum is that of the density in ψ, not in log ψ.


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
    gradient = float(np.abs(found.jac[~_at_limit(found, limits)]).max(initial=0.0))
    converged = bool(found.success)
    word = "converged" if converged else "did not converge"
    message = f"batch gradient ascent {word} in {found.nit} steps: gradient {gradient:.2g} (tolerance {options.tol:g})"
    return FactorFit(mean, loadings, psi, np.array(trace), converged, int(found.nit), message)


def _at_limit(found: Any, limits: list[tuple[Any, Any]]) -> NDArray[np.bool_]:
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

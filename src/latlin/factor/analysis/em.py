"""Batch EM for factor analysis with parameter expansion.

One step on the covariance S (Challis (2013), §2.1.2; Brownlie (2021), eqs. 3.32–3.34), M = I + FᵀΨ⁻¹F:

    A = SΨ⁻¹F M⁻¹,  H = M⁻¹ + M⁻¹FᵀΨ⁻¹A,  F ← AH⁻¹,  ψ ← diag(S − FAᵀ),  then F ← FR with H = RRᵀ.

The last move fits the latents' covariance as well (H in place of I) and folds it into F; it can only raise the
likelihood, and it frees the scale of the latents, which plain EM moves at the rate of M⁻¹.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from latlin.factor.analysis.moments import Moments
from latlin.factor.fit import Fit, total_log_likelihood
from latlin.numerics.ascent import Checkpoint, Measure, Rules, ascend
from latlin.numerics.linalg import Array, Cholesky, cholesky


class EMState(NamedTuple):
    """F (d×K), ψ, and SΨ⁻¹F, which the likelihood and the next step share."""

    loadings: Array
    noise: Array
    product: Array


def em_fit(
    s: Moments,
    mean: Array,
    start: Array,
    noise: Array,
    isotropic: bool,
    floor: Array,
    rules: Rules,
    verbose: bool,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Climb from loadings `start` (K×d) and `noise`; ψ stays at or above `floor`."""

    def step(state: EMState) -> tuple[EMState, Measure]:
        f, psi = _maximise(state, s.variance, isotropic, floor)
        new = EMState(f, psi, s.times(f / psi[:, None]))
        change = float(np.max(np.abs(psi - state.noise) / s.variance))
        return new, Measure(log_likelihood(new, s), change)

    first = EMState(start.T, noise, s.times(start.T / noise[:, None]))
    climb = ascend(step, first, rules, label="factor analysis (em)", verbose=verbose, checkpoint=checkpoint)
    f, psi, _ = climb.state
    return Fit(mean, f.T, psi, climb.trace, climb.converged, climb.n_iter, climb.message)


def _precision(f: Array, psi: Array) -> tuple[Cholesky, Array]:
    """M = I + FᵀΨ⁻¹F factorised, and Ψ⁻¹F."""
    scaled = f / psi[:, None]
    return cholesky(np.eye(f.shape[1]) + blas.dgemm(1.0, scaled, f, trans_a=1), name="I + FᵀΨ⁻¹F"), scaled


def _maximise(state: EMState, variance: Array, isotropic: bool, floor: Array) -> tuple[Array, Array]:
    f, psi, product = state
    m, scaled = _precision(f, psi)
    a = m.solve(product.T).T
    h = m.inverse() + m.solve(blas.dgemm(1.0, scaled, a, trans_a=1))
    root = cholesky(0.5 * (h + h.T), name="E[hhᵀ]")
    # ψ = diag(S − A H⁻¹ Aᵀ);  F R = A R⁻ᵀ
    expanded = root.whiten(a.T).T
    psi = variance - np.einsum("dk,dk->d", expanded, expanded)
    if isotropic:
        psi = np.full_like(psi, psi.mean())
    return expanded, np.maximum(psi, floor)


def log_likelihood(state: EMState, s: Moments) -> float:
    """log p(data | F, Ψ), every constant included."""
    f, psi, product = state
    m, scaled = _precision(f, psi)
    inner = blas.dgemm(1.0, scaled, product, trans_a=1)
    # tr SΣ⁻¹ = tr Ψ⁻¹S − tr M⁻¹FᵀΨ⁻¹SΨ⁻¹F
    fit = float((s.variance / psi).sum() - np.trace(m.solve(inner)))
    return total_log_likelihood(s.n, len(psi), m.log_det + float(np.log(psi).sum()), fit)

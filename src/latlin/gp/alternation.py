"""A full Gaussian KL fit from a good start: the best mean for each covariance, then the covariance of its sites.

    m ← m + P⁻¹(Hᵀ∂⟨ψ⟩/∂m − m)   at fixed variances s_n² + v_n, until it stays where it is,
    P ← I + HᵀΓ̂H,   Γ̂ = −2 ∂⟨ψ⟩/∂s²

Steps of the mean read the rows twice, N·M multiplications each; one covariance costs two products of N·M² (variances
and a Gram matrix). With many rows per point the covariance hardly depends on itself, so that two or three of them do,
where steps in both together need six or more. The bound is followed and must not fall.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.inference.evidence.engine_terms import ExpectedEvidence
from latlin.inference.forms.projections import Projections
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sums import sum_form
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import rounding
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.potentials.base import ExpectedLog

#: covariances at most, and steps of the mean for each
COVARIANCES, STEPS = 12, 12
#: share of the tolerance to which a mean is found
SHARE = 0.3


class _MeanAtVariances(NamedTuple):
    """The best mean at fixed variances: its projections, the expectations there, and the slope that is left."""

    m: Array
    x: Array
    expected: ExpectedLog
    slope: Array


def alternate(model: LatentLinearModel, mean: Array, precision: Cholesky, tol: float) -> Posterior | None:
    """The optimum, from the mean and the precision of a start; None where the bound falls or the steps do not suffice.

    Parameters
    ----------
    model : LatentLinearModel
        Standard normal w, and log-concave sites on rows in memory.
    mean : ndarray of shape (M,)
    precision : Cholesky
    tol : float
        Largest gradient entry of the bound at the end.
    """
    began, form = time.perf_counter(), sum_form(model)
    if form is None or len(form.here) != 1:
        return None
    projections, sites = form.here[0]
    trace: list[float] = []
    gamma: Array | None = None
    while len(trace) < COVARIANCES:
        found = _best_mean(projections, sites, mean, precision, SHARE * tol)
        if found is None:
            return None
        mean, bound = found.m, float(found.expected.value.sum()) + _gaussian_terms(found.m, precision)
        if not np.isfinite(bound) or (trace and bound < trace[-1] - rounding(trace[-1])):
            return None
        trace.append(bound)
        before, gamma = gamma, -2.0 * found.expected.d_var
        left = float(np.abs(found.slope).max(initial=0.0))
        target = None if left <= tol and _is_settled(before, gamma, precision, tol) else _precision(projections, gamma)
        if target is None or max(left, _gradient(precision, target)) <= tol:
            return Posterior(
                model=model,
                density=Gaussian(mean, PrecisionCovariance(DiagonalWhitening(np.ones(len(mean))), precision)),
                log_evidence=bound,
                evidence_kind="lower bound",
                engine="gkl",
                converged=True,
                n_iter=len(trace),
                trace=np.array(trace),
                elapsed=time.perf_counter() - began,
                message=f"converged: gradient below {tol:.1e} after {len(trace)} covariances",
                sites=SiteParameters(gamma, found.expected.d_mean + gamma * found.x),
                evidence_term=ExpectedEvidence(),
            )
        try:
            # P of the next round is that of these γ
            precision = cholesky(target)
        except ValueError:
            return None
    return None


def _is_settled(before: Array | None, gamma: Array, precision: Cholesky, tol: float) -> bool:
    """Whether the gradient is surely small: with |γ̂_n − γ_n| ≤ εγ_n no entry of C⁻ᵀ(P − P̂) exceeds ε max √P_ii."""
    if before is None or not np.all(before > 0.0):
        return False
    longest = np.sqrt(np.einsum("de,de->e", precision.factor, precision.factor).max())
    return bool(np.abs(gamma / before - 1.0).max(initial=0.0) * longest <= tol)


def _gradient(precision: Cholesky, target: Array) -> float:
    """Largest entry of ∂bound/∂C, C⁻ᵀ(P − P̂)."""
    apart = precision.whiten(symmetrise(precision.factor.T @ precision.factor - target))
    return float(np.abs(apart).max(initial=0.0))


def _precision(projections: Projections, gamma: Array) -> Array:
    total = np.asfortranarray(projections.gram(gamma))
    total[np.diag_indices(len(total))] += 1.0
    return total


def _best_mean(
    projections: Projections, sites: Sites, m: Array, precision: Cholesky, tol: float
) -> _MeanAtVariances | None:
    """Newton's steps with P for the curvature, which lies above that of the bound where sites are concave or nearly."""
    variance, before = projections.variances(precision.factor), np.inf
    for left in reversed(range(STEPS)):
        x = projections.times(m)
        expected = sites.finite_expected_log(x, variance)
        if expected is None:
            return None
        slope = projections.transposed_times(expected.d_mean) - m
        step = precision.solve(slope)
        size = float(slope @ step)
        if size > 4.0 * before:
            return None
        if left == 0 or np.abs(slope).max(initial=0.0) <= tol:
            return _MeanAtVariances(m, x, expected, slope)
        m, before = m + step, min(size, before)
    return None


def _gaussian_terms(m: Array, precision: Cholesky) -> float:
    """−KL(N(m, P⁻¹) ‖ N(0, I))."""
    root = lapack.dtrtri(precision.factor, lower=0)[0]
    trace = float(np.einsum("de,de->", root, root))
    return -0.5 * (float(m @ m) + trace - len(m) + precision.log_det)

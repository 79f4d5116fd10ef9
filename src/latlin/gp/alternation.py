"""A full Gaussian KL fit from a good start: the best mean for each covariance, then the covariance of its sites.

    m ← m + P⁻¹(Hᵀ∂⟨ψ⟩/∂m − m)   at fixed variances s_n² + v_n, until it stays where it is,
    P ← I + HᵀΓ̂H,   Γ̂ = −2 ∂⟨ψ⟩/∂s²

Steps of the mean read the rows twice, N·M multiplications each; one covariance costs two products of N·M² (variances
and a Gram matrix). With many rows per point the covariance hardly depends on itself, so that one or two of them do,
where steps in both together need six or more. The bound is followed and must not fall.

How far it is below its optimum is known without a further product. With P = I + HᵀΓH and g the slope in the mean, to
second order the bound gains ½gᵀP⁻¹g + ¼ tr Δ², Δ = C⁻ᵀ(P̂ − P)C⁻¹. With ρ_n = |γ̂_n − γ_n|/γ_n and s_nm = h_nᵀP⁻¹h_m,

    tr Δ² ≤ Σ_nm ρ_nρ_m γ_nγ_m s_nm² ≤ Σ_n ρ_n²γ_n Σ_m γ_m s_nm² ≤ Σ_n ρ_n²γ_n s_nn,

as 2ρ_nρ_m ≤ ρ_n² + ρ_m² and Σ_m γ_m h_m h_mᵀ = P − I.

A start that few of the rows have made is first brought near the best mean, at variances of that start, so that already
the first covariance of all rows is made of the right γ. This takes products of N·M only: Newton's equations
(I + HᵀΓH)d = g by conjugate gradients, with the start's P⁻¹ for an inverse that is nearly right, and variances by
random probes, h_nᵀP⁻¹h_n ≈ |h_nᵀC⁻¹R|² for P = CᵀC and a narrow R, since γ hardly depends on them (exact ones where the
tolerance is that of a gradient).
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.gp.rough_rows import RoughRows
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.forms.dense import sum_form
from latlin.inference.forms.projections import Projections
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sums import HeldSites
from latlin.inference.model import LatentLinearModel, Model
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import rounding
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.numerics.optimise import solve_near
from latlin.potentials.base import ExpectedLog

#: covariances at most, and steps of the mean for each
COVARIANCES, STEPS = 12, 12
#: share of the tolerance to which a mean is found
SHARE = 0.3
#: probes of the variances of a start, and rows that are probed together
PROBES, PIECE = 32, 1024
#: numbers in the rows from which on a copy in single precision pays
MANY = 2**20
#: Newton's steps to the neighbourhood of the best mean, what the bound gains by another one there, in nats, and the
#: relative residual and the products of each
APPROACHES, NEARBY, RESIDUAL, PRODUCTS = 4, 2.0, 0.1, 8


class _MeanAtVariances(NamedTuple):
    """The best mean at fixed variances: its projections, the expectations there, and the slope that is left."""

    m: Array
    x: Array
    expected: ExpectedLog
    slope: Array
    #: gᵀP⁻¹g
    size: float
    variance: Array


def sole_sites(model: Model) -> HeldSites | None:
    """The rows of a model with one factor of sites, in memory; None for any other."""
    form = sum_form(model) if isinstance(model, LatentLinearModel) else None
    return form.here[0] if form is not None and len(form.here) == 1 else None


def alternate(
    model: Model,
    held: HeldSites,
    mean: Array,
    precision: Cholesky,
    tol: float,
    gap: float = 0.0,
    gamma: Array | None = None,
) -> Posterior | None:
    """The optimum, from the mean and the precision of a start; None where the bound falls or the steps do not suffice.

    Parameters
    ----------
    model : Model
        Standard normal w, and log-concave sites on rows.
    held : HeldSites
        These sites, with their rows in memory.
    mean : ndarray of shape (M,)
    precision : Cholesky
    tol : float
        Largest gradient entry of the bound at the end.
    gap : float
        What the bound may gain yet, in nats, at the end; it ends by either.
    gamma : ndarray of shape (n,), optional
        The γ of which the precision is made, where it is.
    """
    began, (projections, sites) = time.perf_counter(), held
    if gap > 0.0 and np.prod(projections.shape) >= MANY and not isinstance(projections, RoughRows):
        projections = RoughRows.of(projections)
    trace: list[float] = []
    if gamma is None:
        # the curvature of another fit may be far too small where its rows were few: that of all sites first
        probed = gap > 0.0 and len(mean) > 2 * PROBES
        variance = _probed_variances(projections, precision) if probed else projections.variances(precision.factor)
        near = _approach(projections, sites, mean, precision, variance)
        if near is None:
            return None
        mean, gamma = near
        precision = cholesky(_precision(projections, gamma))
    while len(trace) < COVARIANCES:
        found = _best_mean(projections, sites, mean, precision, SHARE * tol, SHARE * gap)
        if found is None:
            return None
        mean, bound = found.m, float(found.expected.value.sum()) + _gaussian_terms(found.m, precision)
        if not np.isfinite(bound) or (trace and bound < trace[-1] - rounding(trace[-1])):
            return None
        trace.append(bound)
        before, gamma = gamma, -2.0 * found.expected.d_var
        left = float(np.abs(found.slope).max(initial=0.0))
        gain = _gain(before, gamma, found)
        target = None if gain <= gap else _precision(projections, gamma)
        if target is None or max(left, _gradient(precision, target)) <= tol:
            reached = f"within {gap:.1e} of the optimum" if target is None else f"gradient below {tol:.1e}"
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
                message=f"converged: {reached} after {len(trace)} covariances",
                sites=SiteParameters(gamma, found.expected.d_mean + gamma * found.x),
                evidence_term=ExpectedEvidence(),
            )
        try:
            # P of the next round is that of these γ
            precision = cholesky(target)
        except ValueError:
            return None
    return None


def _approach(
    projections: Projections, sites: Sites, mean: Array, precision: Cholesky, variance: Array
) -> tuple[Array, Array] | None:
    """A mean near the best one at these variances, and γ there; None where an expectation is not finite."""
    found: tuple[Array, Array] | None = None
    before = np.inf
    for _ in range(APPROACHES):
        expected = sites.finite_expected_log(projections.times(mean), variance)
        if expected is None:
            break
        gamma, slope = -2.0 * expected.d_var, projections.transposed_times(expected.d_mean) - mean
        size = float(slope @ precision.solve(slope))
        if size >= before:
            break
        found, before = (mean, gamma), size
        step = None if size <= 2.0 * NEARBY else _newton_step(projections, gamma, precision, slope)
        if step is None:
            break
        mean = mean + step
    return found


def _newton_step(projections: Projections, gamma: Array, precision: Cholesky, slope: Array) -> Array | None:
    """(I + HᵀΓH)⁻¹g, roughly; None where the precision is not near enough for that."""

    def product(v: Array) -> Array:
        return v + projections.transposed_times(gamma * projections.times(v))

    return solve_near(product, precision.solve, slope, RESIDUAL, PRODUCTS)


def _probed_variances(projections: Projections, precision: Cholesky) -> Array:
    """h_nᵀP⁻¹h_n with a relative error of √(2/PROBES)."""
    count, width = projections.shape
    probes = precision.unwhiten(np.random.default_rng(0).standard_normal((width, PROBES)) / np.sqrt(PROBES))
    parts = [np.zeros(0)]
    for start in range(0, count, PIECE):
        block = projections.block(slice(start, min(start + PIECE, count)))
        seen = block @ probes.astype(block.dtype)
        parts.append(np.einsum("np,np->n", seen, seen))
    return np.concatenate(parts)


def _gain(before: Array, gamma: Array, found: _MeanAtVariances) -> float:
    """What the bound may gain yet, at most; infinite where some site is absent."""
    if not np.all(before > 0.0):
        return np.inf
    return 0.5 * found.size + 0.25 * float(((gamma - before) ** 2 / before) @ found.variance)


def _gradient(precision: Cholesky, target: Array) -> float:
    """Largest entry of ∂bound/∂C, C⁻ᵀ(P − P̂)."""
    apart = precision.whiten(symmetrise(precision.factor.T @ precision.factor - target))
    return float(np.abs(apart).max(initial=0.0))


def _precision(projections: Projections, gamma: Array) -> Array:
    total = np.asfortranarray(projections.gram(gamma))
    total[np.diag_indices(len(total))] += 1.0
    return total


def _best_mean(
    projections: Projections, sites: Sites, m: Array, precision: Cholesky, tol: float, gap: float
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
        if left == 0 or size <= gap or np.abs(slope).max(initial=0.0) <= tol:
            return _MeanAtVariances(m, x, expected, slope, size, variance)
        m, before = m + step, min(size, before)
    return None


def _gaussian_terms(m: Array, precision: Cholesky) -> float:
    """−KL(N(m, P⁻¹) ‖ N(0, I))."""
    root = lapack.dtrtri(precision.factor, lower=0)[0]
    trace = float(np.einsum("de,de->", root, root))
    return -0.5 * (float(m @ m) + trace - len(m) + precision.log_det)

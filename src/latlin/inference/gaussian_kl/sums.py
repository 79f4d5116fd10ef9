"""Full-covariance Gaussian KL by sums over the sites: accelerated natural-gradient steps on the natural parameters.

At (m, S) one pass over the rows gives the sums of ⟨ψ_n⟩, of its slopes and of γ̂_n h̃_n h̃_nᵀ, and with them the bound
(Challis (2013), eq. 4.2.1, corrected), its gradient, and the end of the natural-gradient step of length one,

    P̂ = Λ̃ + H̃ᵀΓ̂H̃,   m̂ = m + P̂⁻¹(b̃ − Λ̃m + H̃ᵀ ∂⟨ψ⟩/∂m)

((4.3.1)–(4.3.2), corrected). It is the step of `latlin.inference.gaussian_kl.full` with nothing kept a site: Anderson
mixing works on (P, m) in units of the first posterior. A step is taken only if the bound rises. Rows in blocks have no
other way; rows in memory take it where they are many times more than dimensions, and all the steps are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from latlin.inference.forms.sums import SumForm, expected_terms
from latlin.numerics.anderson import mix
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Ascent, Checkpoint, Measure, Rules, ascend, rounding
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.numerics.line_search import backtrack

MEMORY = 8
#: share of a natural-gradient step that is taken where a whole one fails
FIRST = 0.5


class SumState(NamedTuple):
    """N(m, P⁻¹), its bound and slope in m, P̂, the largest gradient entry, the units of the mixing, and the past."""

    m: Array
    precision: Array
    bound: float
    slope: Array
    precision_hat: Array
    gradient: float
    unit: Array
    points: Array
    residuals: Array


def maximise_bound_by_sums(
    form: SumForm, start: SumState, rules: Rules, verbose: bool, checkpoint: Checkpoint | None, warn: bool = True
) -> Ascent[SumState]:
    """Climb the Gaussian KL bound from a state that `state_at` gave."""

    def step(state: SumState) -> tuple[SumState, Measure]:
        moved = _accelerated(form, state) or _plain(form, state)
        reached = state if moved is None else moved
        return reached, Measure(reached.bound, reached.gradient)

    def bound(state: SumState) -> float:
        again = state_at(form, state.m, state.precision, state.unit)
        return -np.inf if again is None else again.bound

    return ascend(
        *(step, start, rules), label="Gaussian KL", verbose=verbose, checkpoint=checkpoint, warn=warn, evaluate=bound
    )


def state_at(form: SumForm, m: Array, precision: Array, unit: Array | None = None) -> SumState | None:
    """The state of a Gaussian, in one pass; None where the precision or the bound is improper."""
    chol = _definite(precision)
    if chol is None:
        return None
    sums = form.sums(expected_terms, m, chol.factor)
    bound = sums.value + _gaussian_terms(form, m, chol)
    if not np.isfinite(bound):
        return None
    slope, precision_hat = form.slope(m, sums), form.precision(sums)
    # ∂B/∂C̃ = C̃(P − P̂), S̃ = C̃ᵀC̃
    root = chol.whiten(symmetrise(precision - precision_hat))
    gradient = max(float(np.abs(part).max(initial=0.0)) for part in (slope, root))
    empty = np.zeros((0, len(m) * (len(m) + 3) // 2))
    unit = chol.factor if unit is None else unit
    return SumState(m, precision, bound, slope, precision_hat, gradient, unit, empty, empty)


def _definite(precision: Array) -> Cholesky | None:
    try:
        return cholesky(precision)
    except ValueError:
        return None


def _gaussian_terms(form: SumForm, m: Array, chol: Cholesky) -> float:
    """⟨log Gaussian factors⟩ + entropy, with every constant."""
    own = form.own
    if own.quadratic is None:
        root = lapack.dtrtri(chol.factor, lower=0)[0]
        trace = float(np.einsum("de,de->", root, root))
    else:
        trace = float(np.einsum("de,de->", own.quadratic, chol.inverse()))
    return own.log_gaussian(m) - 0.5 * trace + 0.5 * (own.rank * (1.0 + LOG_2PI) - chol.log_det)


def _encode(unit: Array, m: Array, precision: Array) -> Array:
    """(P, m) as one vector whose length is that of a matrix and a vector in units of the first posterior."""
    # U⁻ᵀPU⁻¹, packed by columns of the upper triangle
    inner = lapack.dsygst(precision, unit)[0]
    return np.concatenate([_weights(len(m)) * lapack.dtrttp(inner)[0], blas.dtrmv(unit, m)])


def _decode(unit: Array, point: Array) -> tuple[Array, Array]:
    dim = len(unit)
    inner = symmetrise(lapack.dtpttr(dim, point[:-dim] / _weights(dim))[0])
    half = blas.dtrmm(1.0, unit, inner, lower=0, trans_a=1)
    precision = blas.dtrmm(1.0, unit, half, lower=0, side=1, overwrite_b=1)
    return blas.dtrsv(unit, point[-dim:]), np.asfortranarray(np.triu(precision))


def _weights(dim: int) -> Array:
    """1 on the diagonal and √2 off it, where an entry of a symmetric matrix counts twice."""
    weights = np.full(dim * (dim + 1) // 2, np.sqrt(2.0))
    weights[np.cumsum(np.arange(1, dim + 1)) - 1] = 1.0
    return weights


def _accelerated(form: SumForm, state: SumState) -> SumState | None:
    """Anderson's proposal, if the bound rises there."""
    toward = _definite(state.precision_hat)
    if toward is None:
        return None
    here = _encode(state.unit, state.m, state.precision)
    residual = _encode(state.unit, state.m + toward.solve(state.slope), state.precision_hat) - here
    points = np.concatenate([state.points[-MEMORY:], here[None]])
    residuals = np.concatenate([state.residuals[-MEMORY:], residual[None]])
    proposal = state_at(form, *_decode(state.unit, mix(points, residuals)), state.unit)
    if proposal is None or proposal.bound < state.bound - 1e-3 * rounding(state.bound):
        return None
    return proposal._replace(points=points, residuals=residuals)


def _plain(form: SumForm, state: SumState) -> SumState | None:
    """The natural-gradient step in (P, Pm), halved once (a whole one has just failed) and until the bound rises."""

    def at(share: float) -> tuple[float, SumState | None]:
        length = FIRST * share
        precision = state.precision + length * (state.precision_hat - state.precision)
        chol = _definite(precision)
        if chol is None:
            return -np.inf, None
        # P_t = P + t(P̂ − P) and P_t m_t = Pm + t(P̂m + slope − Pm), so m_t = m + tP_t⁻¹ slope
        trial = state_at(form, state.m + length * chol.solve(state.slope), precision, state.unit)
        return (-np.inf, None) if trial is None else (trial.bound, trial)

    found = backtrack(at, state.bound, 0.0, slack=1e-3 * rounding(state.bound), max_halvings=30)
    return None if found is None else found[2]

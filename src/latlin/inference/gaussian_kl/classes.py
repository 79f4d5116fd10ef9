"""Gaussian KL for several classes at once: P(y | f) by a link of `class_links`, f_k = hᵀw_k, w_k ~ N(μ, LLᵀ).

q is one Gaussian of the coefficients of all classes, because these move against each other: a shift of all of them
changes nothing. The link bounds ⟨log P(y | f)⟩ from below, so that the whole is a lower bound on the evidence. With its
slopes g_n and curvatures W_n the natural-gradient step goes to

    P̂ = I + Σ_n W_n ⊗ h̃_n h̃_nᵀ,   m̂ = m + P̂⁻¹(Σ_n g_n ⊗ h̃_n − m).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.ascent import HALF, Reached, begin_at, maximise_bound
from latlin.inference.gaussian_kl.class_rows import (
    BlockClasses,
    Classes,
    ClassesInBlocks,
    ClassRows,
    ClassTerms,
    HeldClasses,
    climb_to_mode,
    hold_classes,
)
from latlin.inference.gaussian_kl.sums import pack, try_cholesky, unpack
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.potentials.class_links import ClassLink

#: most coefficients of all classes together, whose covariance is one matrix
MOST = 4000
#: accelerated steps before L-BFGS is tried, most coefficients for which it is, and steps that it keeps
PATIENT, FEW, MEMORY = 60, 300, 30
#: rounds of both at most
ROUNDS = 8
#: least eigenvalue of the covariance of a class, as a share of the largest one
LEAST = 1e-10


class ClassesPlace(NamedTuple):
    """The Gaussian N(m, P⁻¹) of all coefficients, class by class, the bound's slope in m, and P̂; upper triangles."""

    m: Array
    precision: Array
    slope: Array
    precision_hat: Array


class ClassesFit(NamedTuple):
    """The ascent, and the Gaussians of the classes up to a common shift.

    Parameters
    ----------
    ascent : Ascent
    densities : tuple of Gaussian
        Independent over the classes, and with the differences between classes as nearly those of q as such can have.
    sites : tuple of SiteParameters
        Stand-ins of the sites of every class, of rows in memory.
    mean, scale : ndarray of shape (dim,)
        Of the prior.
    precisions : tuple of Cholesky
        Of the densities, in units of the prior.
    square : ndarray of shape (dim,)
        ⟨w²⟩ under q in units of the prior, added up over the classes.
    """

    ascent: Ascent[Any]
    densities: tuple[Gaussian, ...]
    sites: tuple[SiteParameters, ...]
    mean: Array
    scale: Array
    precisions: tuple[Cholesky, ...]
    square: Array


@dataclass(frozen=True)
class ClassesBound:
    """The bound of one Gaussian in coordinates whitened by the prior, as the ascent asks for it.

    Parameters
    ----------
    rows : ClassRows
    unit : ndarray of shape (K dim, K dim)
        U with UᵀU the first precision.
    """

    rows: ClassRows
    unit: Array | None = None
    first: float = HALF

    def at(self, m: Array, precision: Array) -> Reached[ClassesPlace] | None:
        """The Gaussian of a mean and a precision; None where it is improper."""
        chol = try_cholesky(precision)
        if chol is None:
            return None
        covariance = chol.inverse()
        found = self.rows.terms(m.reshape(self.rows.shape), covariance)
        # −KL(q ‖ N(0, I))
        bound = found.value - 0.5 * float(m @ m + np.trace(covariance) - len(m) + chol.log_det)
        if not np.isfinite(bound):
            return None
        slope, hat = found.pull.ravel() - m, _with_prior(found.bend)
        bend = chol.whiten(chol.whiten(symmetrise(precision - hat)).T)
        gradient = float(max(np.abs(slope).max(initial=0.0), np.abs(bend).max(initial=0.0)))
        return begin_at(ClassesPlace(m, precision, slope, hat), bound, gradient, len(m) * (len(m) + 3) // 2)

    def near_mode(self) -> tuple[Array, Array]:
        """A mean near the mode, by Newton's method, and the precision there."""

        def expand(m: Array) -> tuple[float, ClassTerms]:
            found = self.rows.terms(m, None)
            return found.value, found

        def step(m: Array, found: ClassTerms) -> Array:
            ahead = cholesky(_with_prior(found.bend)).solve((found.pull - m).ravel())
            return ahead.reshape(self.rows.shape)

        m, found = climb_to_mode(expand, step, np.zeros(self.rows.shape))
        return m.ravel(), _with_prior(found.bend)

    def evaluate(self, place: ClassesPlace) -> Reached[ClassesPlace] | None:
        return self.at(place.m, place.precision)

    def encode(self, place: ClassesPlace) -> tuple[Array, Array] | None:
        target = try_cholesky(place.precision_hat)
        if target is None or self.unit is None:
            return None
        there = place.m + target.solve(place.slope)
        return pack(self.unit, place.m, place.precision), pack(self.unit, there, place.precision_hat)

    def decode(self, point: Array) -> Reached[ClassesPlace] | None:
        assert self.unit is not None  # nothing is decoded that was not encoded
        return self.at(*unpack(self.unit, point))

    def move(self, place: ClassesPlace, length: float) -> Reached[ClassesPlace] | None:
        precision = place.precision + length * (place.precision_hat - place.precision)
        chol = try_cholesky(precision)
        return None if chol is None else self.at(place.m + length * chol.solve(place.slope), precision)

    def newton(self, now: Reached[ClassesPlace]) -> None:
        return None

    def deviation(self, place: ClassesPlace) -> float:
        chol = cholesky(place.precision)
        bend = chol.whiten(chol.whiten(symmetrise(place.precision - place.precision_hat)).T)
        return max(float(np.abs(part).max(initial=0.0)) for part in (chol.whiten(place.slope), bend))


def _with_prior(bend: Array) -> Array:
    """P̂ = I + Σ_n W_n ⊗ h̃_n h̃_nᵀ, upper triangle."""
    total = np.asfortranarray(bend.copy())
    total[np.diag_indices(len(total))] += 1.0
    return total


def fit_coefficients(
    link: ClassLink,
    data: Classes | BlockClasses,
    mean: Array,
    scale: Array,
    rules: Rules,
    start: ClassesFit | None = None,
    verbose: bool = False,
    enough: float = 0.0,
) -> ClassesFit:
    """The Gaussian of all coefficients under the prior N(mean, diag(scale²)) for those of each class.

    Parameters
    ----------
    link : ClassLink
    data : Classes or BlockClasses
    mean, scale : ndarray of shape (dim,)
    rules : Rules
    start : ClassesFit, optional
        Under another scale; what its sites say is kept.
    enough : float
        Standard deviations from the optimum at which an ascent counts as converged where rounding keeps it from the
        tolerance of `rules`.
    """
    rows: ClassesInBlocks | HeldClasses
    if isinstance(data, BlockClasses):
        rows = ClassesInBlocks(link, data, mean, scale)
    else:
        rows = hold_classes(link, data, mean, scale)
    count, dim = rows.shape
    if count * dim > MOST:
        raise ValueError(
            f"{count} classes with {dim} coefficients each are {count * dim}, and classes are fitted together up to "
            f"{MOST}: use one class against the rest, BayesianLogisticRegression or BayesianProbitRegression"
        )
    bound = ClassesBound(rows)
    if start is None:
        first = bound.at(*bound.near_mode())
    else:
        old, ratio, one = start.ascent.state.place, np.tile(scale / start.scale, count), np.eye(count * dim)
        kept = one + np.triu(old.precision - one) * np.outer(ratio, ratio)
        first = bound.at(old.m / ratio, np.asfortranarray(kept))
    if first is None:
        raise ValueError("the coefficients of the classes have no finite bound; rescale the columns of X")
    bound = replace(bound, unit=cholesky(first.place.precision).factor)
    ascent = _climb(bound, first, rules, enough, verbose)
    place = ascent.state.place
    covariance, means = cholesky(place.precision).inverse(), place.m.reshape(count, dim)
    own, whitening = independent_precisions(covariance, count), DiagonalWhitening(scale)
    densities = tuple(
        Gaussian(mean + scale * each, PrecisionCovariance(whitening, chol))
        for each, chol in zip(means, own, strict=True)
    )
    square = (place.m**2 + np.diagonal(covariance)).reshape(count, dim).sum(axis=0)
    sites = (
        tuple(rows.stand_ins(means, rows.expected(means, rows.covariances(covariance))))
        if isinstance(rows, HeldClasses)
        else ()
    )
    return ClassesFit(ascent, densities, sites, mean, scale, tuple(own), square)


def _climb(
    bound: ClassesBound, first: Reached[ClassesPlace], rules: Rules, enough: float, verbose: bool
) -> Ascent[Reached[ClassesPlace]]:
    """Accelerated steps; where these crawl, as wide priors on nearly separable classes make them, L-BFGS between."""
    if len(first.place.m) > FEW or rules.max_iter <= PATIENT:
        return _judged(bound, maximise_bound(bound, first, rules, verbose, warn=False), enough)
    short = replace(rules, max_iter=PATIENT)
    ascent = maximise_bound(bound, first, short, verbose, warn=False)
    rounds = 0
    while not ascent.converged and ascent.n_iter < rules.max_iter and rounds < ROUNDS:
        # the Gaussian so far is the unit: a prior that is wide on separable classes changes it by orders of magnitude
        rounds, before = rounds + 1, ascent.gradient
        jumped = _quasi_newton(bound, ascent.state, rules)
        about = replace(bound, unit=cholesky(jumped.place.precision).factor)
        last = maximise_bound(about, jumped, short, verbose, warn=False)
        trace = np.concatenate([ascent.trace, last.trace])
        message = f"{last.message}, after {ascent.n_iter} accelerated steps and L-BFGS"
        ascent = replace(last, trace=trace, n_iter=len(trace), message=message)
        if ascent.gradient > 0.5 * before:
            break
    return _judged(bound, ascent, enough)


def _judged(bound: ClassesBound, ascent: Ascent[Reached[ClassesPlace]], enough: float) -> Ascent[Reached[ClassesPlace]]:
    """The ascent, converged where it is near enough to the optimum although rounding leaves no smaller gradient."""
    if ascent.converged:
        return ascent
    away = bound.deviation(ascent.state.place)
    if away > enough:
        alert(ascent.message, ConvergenceWarning)
        return ascent
    message = (
        f"Gaussian KL converged in {ascent.n_iter} steps: the optimum is {away:.1e} standard deviations away "
        f"(tolerance {enough:.0e}), and rounding leaves no smaller gradient"
    )
    return replace(ascent, converged=True, message=message)


def _quasi_newton(bound: ClassesBound, now: Reached[ClassesPlace], rules: Rules) -> Reached[ClassesPlace]:
    """Where L-BFGS leads in u and T, T lower triangular: mean m + Cu and covariance (CT)(CT)ᵀ about N(m, CCᵀ)."""
    place, dim = now.place, len(now.place.m)
    root = np.linalg.cholesky(cholesky(place.precision).inverse())
    lower = np.tril_indices(dim)
    one, best = np.eye(dim), [now]

    def descend(point: Array) -> tuple[float, Array]:
        triangle = np.zeros((dim, dim))
        triangle[lower] = point[dim:]
        spread = root @ triangle
        if np.any(np.diagonal(triangle) <= 0.0):
            return np.inf, np.zeros_like(point)
        inverse = solve_triangular(spread, one, lower=True)
        precision = inverse.T @ inverse
        there = bound.at(place.m + root @ point[:dim], np.asfortranarray(precision))
        if there is None:
            return np.inf, np.zeros_like(point)
        best[0] = max(best[0], there, key=lambda found: found.bound)
        # ∂/∂S = ½(P − P̂), so that ∂/∂T = Cᵀ(P − P̂)CT
        slope = root.T @ ((precision - symmetrise(np.triu(there.place.precision_hat))) @ spread)
        return -there.bound, -np.concatenate([root.T @ there.place.slope, slope[lower]])

    start = np.concatenate([np.zeros(dim), one[lower]])
    options = {"maxcor": MEMORY, "maxiter": rules.max_iter, "ftol": 0.0, "gtol": 1e-5 * rules.gradient_tol}
    minimize(descend, start, jac=True, method="L-BFGS-B", options=options)
    return best[0]


def independent_precisions(covariance: Array, count: int) -> list[Cholesky]:
    """Precisions of independent classes whose differences vary as those of a Gaussian of all classes.

    S_j + S_k = D_jk, the covariance of w_j − w_k, for all pairs, in least squares: with R_j = Σ_k D_jk and
    S = ΣR_j/(2K − 2) it is S_j = (R_j − S)/(K − 2), exact for up to three classes; S_1 = S_2 = ½D_12 for two.
    """
    dim = len(covariance) // count
    C = covariance.reshape(count, dim, count, dim)
    own = [C[j, :, j] for j in range(count)]
    # Σ_k (C_jj + C_kk − C_jk − C_kj)
    rest = [count * own[j] + sum(own) - C[j].sum(axis=1) - C[:, :, j].sum(axis=0) for j in range(count)]
    total = sum(rest) / (2.0 * count - 2.0)
    parts = [0.5 * total] * 2 if count == 2 else [(each - total) / (count - 2.0) for each in rest]
    return [_inverse(0.5 * (part + part.T)) for part in parts]


def _inverse(covariance: Array) -> Cholesky:
    value, vector = np.linalg.eigh(covariance)
    root = vector / np.sqrt(np.maximum(value, LEAST * value[-1]))
    return cholesky(root @ root.T)

"""Full Gaussians in the coordinates of their sites: two numbers per site, (log γ, ν) or (γ, ν).

The optimum of the bound is in site form, and (γ, ν) ← (γ̂, ν̂) is the natural-gradient step of length one. Where the
sites' joint covariance S is at hand Newton's steps finish. At the optimum γ = γ̂(x, v) and ν = ν̂(x, v) (Challis (2013),
eq. 4.3.1), and the marginals x, v answer to changes of the parameters through S alone:

    dx = Sη,   dv = −(S∘S)dγ,   η = dν − x∘dγ.

With E(x, v) = ⟨ψ⟩ and E_xx = −γ̂ the linearised conditions are

    dγ = (γ̂ − γ) − 2E_xv∘dx − 2E_vv∘dv,   η = (E_x − ν + γ∘x) + E_xv∘dv + (γ − γ̂)∘dx,

solved by a few Krylov steps of N² each, where a new S costs N³.

Where S is not at hand, D < N, a product Sη still costs N·D where a new Gaussian costs N·D². There the natural-gradient
step is bent towards Newton's: S enters dx as it is, and S∘S, whose products cost as much as a new Gaussian, is
replaced by what it is on average for rows in no particular direction, with s the variances and κ from a few probes:

    S∘S ≈ (1 − κ) diag(s²) + κ ssᵀ,   κ = (‖Γ^½SΓ^½‖² − Σγ²s²) / ((Σγs)² − Σγ²s²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas
from scipy.sparse.linalg import LinearOperator, cg, gmres

from latlin.inference.forms.projections import DenseProjections, Projections, RoughProjections, ScaledProjections
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteCurvature, SiteParameters, Sites, site_curvature
from latlin.inference.gaussian_kl.ascent import HALF, Reached, begin_at, extrapolate, rises
from latlin.numerics.arrays import Array, empty_array, max_abs
from latlin.numerics.linalg import dot
from latlin.potentials.base import ExpectedLog

# --- Where an ascent by sites starts in many dimensions: as if the rows lay in no particular direction.
#
# The curvature at the mode is far from the optimum where rows are not many more than coordinates: the mode lies far
# out, and its Gaussian is too narrow. If the rows pointed nowhere in particular, the variance of a projection would
# follow from its length r_n = |h_n|² and one number τ, the mean variance of a coordinate without the site (Opper and
# Winther, 2001, whose cavity fields these are):
#
#     s_n = τr_n/(1 + γ_n τr_n),   1/τ = 1 + (1/D) Σ_n γ_n r_n/(1 + γ_n τr_n),   γ_n = −2 ∂⟨ψ_n⟩/∂s_n².
#
# With these variances the bound is concave in the mean alone. It is climbed by Newton steps whose linear systems are
# solved roughly by conjugate gradients: products with the rows, N·D each, and no N·D² at all. The result is a place to
# start from, no approximation that is relied upon.


#: coordinates from which on this start is cheaper than the steps that it saves
START_BROAD = 64
#: Newton steps at most, their accuracy, and products in each
START_STEPS, START_ACCURACY, START_PRODUCTS = 25, 0.2, 12
#: nat: a Newton step that gains less is the last
ENOUGH = 0.3
#: how well τ is solved for, in how many steps at most
START_CLOSE, ROUNDS = 1e-3, 50
#: most halvings of a Newton step
HALVINGS = 10
#: smallest γ: expectations of flat sites may give less than nothing by rounding
LEAST = 1e-12
PIECE = 1024


class CavityPoint(NamedTuple):
    """A mean u, its projections x, the variances s that are taken for granted, and ⟨ψ⟩ with its slopes there."""

    u: Array
    x: Array
    s: Array
    expected: ExpectedLog

    @property
    def gamma(self) -> Array:
        return np.maximum(-2.0 * self.expected.d_var, LEAST)


def starts_from_cavity(form: SiteForm) -> bool:
    """Dense rows in many whitened coordinates, and sites that are smooth and log-concave."""
    plain = type(form) is SiteForm and form.quadratic is None and form.sites.extra is None
    smooth = form.sites.log_concave and all(p.smooth for p in form.sites.potentials)
    return plain and smooth and form.rank >= START_BROAD


def cavity_start(form: SiteForm) -> SiteParameters | None:
    """Site parameters near the optimum, or None where an expectation is not finite on the way."""
    length, tau, u = _squared_lengths(form.projections), 1.0, form.first_coordinates()
    now = _at(form, u, form.projections.times(u), length)
    for _ in range(START_STEPS):
        if now is None:
            return None
        tau = _mean_variance(tau, now.gamma, length, form.rank)
        now = _at(form, now.u, now.x, tau * length / (1.0 + now.gamma * tau * length))
        if now is None:
            return None
        before = _objective(form, now)
        now = _newton(form, now, before)
        if now is not None and _objective(form, now) - before < ENOUGH:
            break
    return None if now is None else SiteParameters(now.gamma, now.expected.d_mean + now.gamma * now.x)


def _squared_lengths(rows: Projections) -> Array:
    n = rows.shape[0]
    spans = [slice(first, min(first + PIECE, n)) for first in range(0, n, PIECE)]
    return np.concatenate([np.einsum("nd,nd->n", block, block) for block in map(rows.block, spans)])


def _at(form: SiteForm, u: Array, x: Array, s: Array) -> CavityPoint | None:
    expected = form.sites.finite_expected_log(x, s)
    return None if expected is None else CavityPoint(u, x, s, expected)


def _objective(form: SiteForm, at: CavityPoint) -> float:
    """The bound as a function of the mean, up to a constant."""
    return float(at.expected.value.sum()) + dot(form.linear, at.u) - 0.5 * dot(at.u, at.u)


def _mean_variance(tau: float, gamma: Array, length: Array, dim: int) -> float:
    """τ of these curvatures, by repeated substitution."""
    for _ in range(ROUNDS):
        before, tau = tau, 1.0 / (1.0 + float(np.sum(length * gamma / (1.0 + gamma * tau * length))) / dim)
        if abs(tau - before) < START_CLOSE * tau:
            break
    return tau


def _newton(form: SiteForm, now: CavityPoint, objective: float) -> CavityPoint | None:
    """A Newton step in the mean, halved until the objective does not fall."""
    rows, gamma = form.projections, now.gamma
    gradient = form.linear - now.u + rows.transposed_times(now.expected.d_mean)

    def times(p: Array) -> Array:
        return p + rows.transposed_times(gamma * rows.times(p))

    hessian = LinearOperator((form.rank, form.rank), matvec=times, dtype=float)
    step, _ = cg(hessian, gradient, rtol=START_ACCURACY, atol=0.0, maxiter=START_PRODUCTS)
    along = rows.times(step)
    for halving in range(HALVINGS):
        share = 0.5**halving
        moved = _at(form, now.u + share * step, now.x + share * along, now.s)
        if moved is not None and _objective(form, moved) >= objective:
            return moved
    return now


#: largest gradient entry from which on Newton's steps are tried
CLOSE = 0.2
#: how well the linear system of a Newton step is solved, and in how many steps at most
ACCURACY, STEPS = 1e-2, 30
#: rows per coordinate from which on the first step is a whole one, and the largest share γs² of a site in what is known
#: of its projection up to which it is in any case
TALL, SLIGHT = 40, 0.25
#: fewest coordinates for which bent steps pay, their accuracy, most products, and probes for κ
BROAD, BENT, PRODUCTS, PROBES = 64, 5e-2, 12, 8
#: least determinant of a site's own part of the linear system
DEFINITE = 0.05
#: smallest share of γ that a bent step leaves
LEFT = 0.1
#: a site whose γ is below this is as good as absent; its logarithm stays finite
FLOOR = 1e-30
#: smallest unit of a coordinate; a row of zeros has no variance to measure in
TINY = 1e-12


class SitePlace(NamedTuple):
    """A Gaussian in site form, its marginals, and where the next natural-gradient step goes."""

    gamma: Array
    nu: Array
    u: Array
    factor: Array
    x: Array
    variance: Array
    gamma_hat: Array
    nu_hat: Array


def evaluate(form: SiteForm, parameters: SiteParameters, tol: float) -> Reached[SitePlace] | None:
    """The Gaussian of some site parameters, or None where they give no proper one or no finite bound."""
    solution = form.solve(parameters)
    if solution is None:
        return None
    variance = form.variances(solution)
    expected = form.sites.finite_expected_log(solution.x, variance)
    if expected is None:
        return None
    bound = float(expected.value.sum()) + form.gaussian_terms(solution, variance)
    # γ̂ = −2 ∂⟨ψ⟩/∂s², ν̂ = ∂⟨ψ⟩/∂m + γ̂x
    gamma_hat = np.multiply(expected.d_var, -2.0, out=empty_array(len(variance)))
    nu_hat = np.multiply(gamma_hat, solution.x, out=empty_array(len(variance)))
    nu_hat += expected.d_mean
    gradient = _gradient(form, solution, variance, SiteParameters(gamma_hat, nu_hat), tol)
    place = SitePlace(*parameters, solution.u, form.kept(solution), solution.x, variance, gamma_hat, nu_hat)
    return begin_at(place, bound, gradient, 2 * len(variance))


def solution_of(form: SiteForm, place: SitePlace) -> Solution:
    """The place as a member of the site form's family."""
    parameters = SiteParameters(place.gamma, place.nu)
    return Solution(parameters, form.restored(parameters, place.factor), place.u, place.x)


def _gradient(form: SiteForm, solution: Solution, variance: Array, hat: SiteParameters, tol: float) -> float:
    """Largest absolute entry of the bound's gradient in (m̃, C̃), S̃ = C̃ᵀC̃.

    ∂B/∂m̃ = H̃ᵀ[(ν̂ − ν) − (γ̂ − γ)x] and ∂B/∂C̃ = C̃ H̃ᵀ(Γ − Γ̂)H̃. The second costs a Gram matrix, so it is formed only
    when the first is already small; until then the first is what is reported.
    """
    now = solution.parameters
    excess = np.subtract(now.gamma, hat.gamma, out=empty_array(len(variance)))
    pull = np.multiply(excess, solution.x, out=empty_array(len(variance)))
    pull += hat.nu
    pull -= now.nu
    by_mean = max_abs(form.projections.transposed_times(pull))
    return by_mean if by_mean > tol else max(by_mean, form.covariance_gradient(solution, variance, excess))


@dataclass(frozen=True)
class SiteCoordinates:
    """(γ, ν) in the units of the first marginals; log γ for concave sites, so that γ stays positive.

    Parameters
    ----------
    form : SiteForm
    tol : float
        Gradient of the mean up to which that of the covariance is not formed.
    weight, spread : ndarray of shape (n_sites,)
        Units of log γ or γ, and of ν.
    logarithmic : bool
    kappa : float or None
        κ of bent steps; None where steps are the natural-gradient ones.
    first : float
        Share of the first step that is taken: whole natural-gradient steps overshoot.
    """

    form: SiteForm
    tol: float
    weight: Array
    spread: Array
    logarithmic: bool
    kappa: float | None = None
    first: float = HALF

    @classmethod
    def about(cls, form: SiteForm, start: SitePlace, tol: float) -> SiteCoordinates:
        """In the units of the marginals of a place."""
        weight = start.gamma * start.variance if form.sites.log_concave else start.variance
        spread = np.sqrt(np.maximum(start.variance, TINY))
        # where a site says little beside the others the posterior is nearly Gaussian, and a whole step nearly Newton's
        slight = float((start.gamma * start.variance).max(initial=0.0)) <= SLIGHT
        first = 1.0 if slight or len(form.sites) >= TALL * form.rank else HALF
        plain = cls(form, tol, np.maximum(weight, TINY), spread, form.sites.log_concave, first=first)
        if not _may_bend(form):
            return plain
        return replace(plain, kappa=common_share(form, start), first=1.0)

    def evaluate(self, place: SitePlace) -> Reached[SitePlace] | None:
        return evaluate(self.form, SiteParameters(place.gamma, place.nu), self.tol)

    def encode(self, place: SitePlace) -> tuple[Array, Array]:
        target = SiteParameters(place.gamma_hat, place.nu_hat)
        if self.kappa is not None:
            target = bend_step(self.form, place, self.kappa) or target
        return self._vector(place.gamma, place.nu), self._vector(*target)

    def _vector(self, gamma: Array, nu: Array) -> Array:
        vector = empty_array(2 * len(nu))
        first, second = np.split(vector, 2)
        if self.logarithmic:
            np.maximum(gamma, FLOOR, out=first)
            np.log(first, out=first)
            first *= self.weight
        else:
            np.multiply(self.weight, gamma, out=first)
        np.multiply(self.spread, nu, out=second)
        return vector

    def decode(self, point: Array) -> Reached[SitePlace] | None:
        scaled, nu = np.split(point, 2)
        gamma = np.divide(scaled, self.weight, out=empty_array(len(scaled)))
        if self.logarithmic:
            np.minimum(gamma, 300.0, out=gamma)
            np.exp(gamma, out=gamma)
        return evaluate(self.form, SiteParameters(gamma, nu / self.spread), self.tol)

    def move(self, place: SitePlace, length: float) -> Reached[SitePlace] | None:
        gamma = place.gamma + length * (place.gamma_hat - place.gamma)
        nu = place.nu + length * (place.nu_hat - place.nu)
        return evaluate(self.form, SiteParameters(gamma, nu), self.tol)

    def deviation(self, place: SitePlace) -> float:
        excess = place.gamma_hat - place.gamma
        shift = (place.nu_hat - place.nu - excess * place.x) * np.sqrt(place.variance)
        return max(float(np.abs(part).max(initial=0.0)) for part in (shift, excess * place.variance))

    def newton(self, now: Reached[SitePlace]) -> Reached[SitePlace] | None:
        """Newton's step, close to the optimum and if the bound rises there."""
        place = now.place
        covariance = self.form.site_covariance(solution_of(self.form, place)) if now.gradient < CLOSE else None
        if covariance is None:
            return None
        parameters = SiteParameters(place.gamma, place.nu)
        proposed = newton_parameters(
            self.form.sites, covariance, parameters, place.x, place.variance, _expected_at(place)
        )
        proposal = None if proposed is None else evaluate(self.form, proposed, self.tol)
        return proposal if rises(proposal, now) else None


#: largest gradient of the mean where steps in single precision begin, and where they end; the share of it that a step
#: may leave; and how far, relatively, they may state the bound too high
ROUGH_FIRST, ROUGH_LAST, ROUGH_LEFT, ROUGH_BOUND = 1.0, 5e-3, 0.25, 1e-6


def climb_roughly(
    form: SiteForm, tol: float, start: Callable[[], SiteParameters]
) -> tuple[SiteCoordinates, Reached[SitePlace]] | None:
    """Where steps in single precision lead, and coordinates for exact ones; None where they are not quicker or fail.

    Near the optimum a step leaves a tenth of the error or less, so that only the last few steps need all digits. The
    bound that comes back is below the one there: no exact step is refused for what was stated too high.
    """
    if not (_may_bend(form) and isinstance(form.projections, DenseProjections | ScaledProjections)):
        return None
    rough = replace(form, projections=RoughProjections(form.projections))
    now = evaluate(rough, start(), tol=0.0)
    if now is None or now.gradient > ROUGH_FIRST:
        return None
    coordinates = SiteCoordinates.about(rough, now.place, 0.0)
    while now.gradient > ROUGH_LAST:
        moved = extrapolate(coordinates, now._replace(grain=_rough_slack(now)))
        if moved is None or moved.gradient > ROUGH_LEFT * now.gradient:
            return None
        now = moved
    return replace(coordinates, form=form, tol=tol), now._replace(bound=now.bound - _rough_slack(now))


def _rough_slack(now: Reached[SitePlace]) -> float:
    return ROUGH_BOUND * (1.0 + abs(now.bound))


def _may_bend(form: SiteForm) -> bool:
    """Whether steps can be bent: smooth concave sites in many coordinates, without a joint covariance at hand."""
    smooth = form.sites.log_concave and all(p.smooth for p in form.sites.potentials)
    return smooth and type(form) is SiteForm and form.rank >= BROAD


def _expected_at(place: SitePlace) -> ExpectedLog:
    """The slopes of ⟨ψ⟩ in x and v from where the natural-gradient step goes; the value is left out."""
    return ExpectedLog(place.x, place.nu_hat - place.gamma_hat * place.x, -0.5 * place.gamma_hat)


def bend_step(form: SiteForm, place: SitePlace, kappa: float) -> SiteParameters | None:
    """Where the natural-gradient step leads, bent towards Newton's by products with S; None where that fails."""
    x, s, n = place.x, np.maximum(place.variance, TINY), len(place.x)
    spread, expected = np.sqrt(s), _expected_at(place)
    by_v = site_curvature(form.sites, x, s, expected)
    excess, times = place.gamma - place.gamma_hat, _site_products(form, place)
    local = _own_parts(by_v, excess, s)

    def system(change: Array) -> Array:
        d_gamma, eta = change[:n] / s, change[n:] / spread
        dx, dv = times(eta), -s * ((1.0 - kappa) * s * d_gamma + kappa * dot(s, d_gamma))
        by_gamma = d_gamma + 2.0 * (by_v.mv * dx + by_v.vv * dv)
        return local(by_gamma, eta - by_v.mv * dv - excess * dx)

    residual = local(-excess, expected.d_mean - place.nu + place.gamma * x)
    operator = LinearOperator((2 * n, 2 * n), matvec=system, dtype=float)
    change, _ = gmres(operator, residual, rtol=BENT, atol=0.0, restart=PRODUCTS, maxiter=1)
    if not np.all(np.isfinite(change)):
        return None
    gamma = np.maximum(place.gamma + change[:n] / s, LEFT * place.gamma)
    return SiteParameters(gamma, place.nu + change[n:] / spread + x * (gamma - place.gamma))


def _site_products(form: SiteForm, place: SitePlace) -> Callable[[Array], Array]:
    """η ↦ Sη."""
    precision = form.restored(SiteParameters(place.gamma, place.nu), place.factor)
    return lambda eta: form.projections.times(precision.solve(form.projections.transposed_times(eta)))


def common_share(form: SiteForm, place: SitePlace) -> float:
    """κ, with ‖Γ^½SΓ^½‖² by a few probes of random signs."""
    gamma, s, times = np.maximum(place.gamma, 0.0), place.variance, _site_products(form, place)
    root, own = np.sqrt(gamma), float(np.sum((gamma * s) ** 2))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (PROBES, len(s)))
    square = float(np.mean([np.sum((root * times(root * sign)) ** 2) for sign in signs]))
    return float(np.clip((square - own) / max(dot(gamma, s) ** 2 - own, TINY), 0.0, 1.0))


def _own_parts(by_v: SiteCurvature, excess: Array, s: Array) -> Callable[[Array, Array], Array]:
    """The inverse of every site's own 2×2 part of the linear system, with dγ in units of 1/s and η of 1/√s."""
    a, b = 1.0 - 2.0 * by_v.vv * s * s, 2.0 * by_v.mv * s
    c, d = by_v.mv * s * s, 1.0 - excess * s
    determinant = a * d - b * c
    known = determinant > DEFINITE
    a, b, c, d = (np.where(known, part, plain) for part, plain in ((a, 1.0), (b, 0.0), (c, 0.0), (d, 1.0)))
    determinant, spread = np.where(known, determinant, 1.0), np.sqrt(s)

    def solve(one: Array, two: Array) -> Array:
        own = (s * (d * one - b * two) / determinant, spread * (a * two - c * one) / determinant)
        return np.concatenate(own)

    return solve


def newton_parameters(
    sites: Sites, covariance: Array, now: SiteParameters, x: Array, variance: Array, expected: ExpectedLog
) -> SiteParameters | None:
    """Where Newton's step leads, or None where the linear system is not solved.

    Parameters
    ----------
    covariance : ndarray of shape (n_sites, n_sites)
        S, Fortran-ordered; its upper triangle is used.
    now : SiteParameters
        γ and ν.
    x, variance : ndarray of shape (n_sites,)
        The marginals there.
    expected : ExpectedLog
        Of the sites there.
    """
    curvature = site_curvature(sites, x, variance, expected)
    squares, n = covariance**2, len(x)
    # γ − γ̂
    excess = now.gamma + 2.0 * expected.d_var

    def system(change: Array) -> Array:
        d_gamma, eta = change[:n], change[n:]
        dx, dv = blas.dsymv(1.0, covariance, eta), -blas.dsymv(1.0, squares, d_gamma)
        by_gamma = d_gamma + 2.0 * (curvature.mv * dx + curvature.vv * dv)
        return np.concatenate([by_gamma, eta - curvature.mv * dv - excess * dx])

    residual = np.concatenate([-excess, expected.d_mean - now.nu + now.gamma * x])
    operator = LinearOperator((2 * n, 2 * n), matvec=system, dtype=float)
    change, failed = gmres(operator, residual, rtol=ACCURACY, atol=0.0, restart=STEPS, maxiter=1)
    if failed or not np.all(np.isfinite(change)):
        return None
    d_gamma, eta = change[:n], change[n:]
    return SiteParameters(now.gamma + d_gamma, now.nu + eta + x * d_gamma)

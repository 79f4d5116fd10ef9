"""Gaussian KL for several classes with one Gaussian each: in site form, or by sums over the sites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.ascent import HALF, Reached, begin_at, maximise_bound
from latlin.inference.gaussian_kl.class_rows import ClassBound, climb_to_mode
from latlin.inference.gaussian_kl.sums import pack, try_cholesky, unpack
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.potentials.class_links import ClassLink
from latlin.potentials.softmax import ClassExpectation

# --- Gaussian KL for several classes in site form: one latent function per class, all with one prior and one link.
#
# q has one Gaussian per class, in the family of `latlin.inference.forms.site_family`: two numbers per row and class,
# (γ_k, ν_k), whatever the form makes of the prior. With the bound E_n of a link of `latlin.potentials.class_links`, its
# slope g_n and its curvature W_n,
#
#     B = Σ_n E_n + Σ_k (⟨log prior⟩ + entropy)_k,   γ̂ = diag W_n,
#
# and the means of all classes move together: their step d solves (S⁻¹ + W − Γ)d = g by conjugate gradients with the
# covariances S of the classes as preconditioner, so that S⁻¹ is never formed.


#: how well the joint step of the means is solved for, and in how many products at most
SOLVED, MOST = 1e-3, 60
#: a site whose γ is below this is as good as absent; its logarithm stays finite
FLOOR = 1e-30
#: smallest unit of a coordinate
TINY = 1e-12


class ClassSitesPlace(NamedTuple):
    """γ, ν, means and variances of all classes, each (n, K), and the γ̂, ν̂ to which the natural-gradient step leads."""

    gamma: Array
    nu: Array
    x: Array
    variance: Array
    gamma_hat: Array
    nu_hat: Array


@dataclass(frozen=True)
class ClassSites:
    """The bound of all classes as the ascent asks for it.

    Parameters
    ----------
    form : SiteForm
        Of one class: prior and projections; its own sites are not asked.
    link : ClassLink
    label : ndarray of shape (n, K)
        One where a row has a class, else zero.
    tol : float
        Gradient of the means up to which those of the covariances are not formed.
    weight, spread : ndarray of shape (n, K)
        Units of log γ and of ν.
    """

    form: SiteForm
    link: ClassLink
    label: Array
    tol: float
    weight: Array
    spread: Array
    first: float = HALF

    def at(self, gamma: Array, nu: Array) -> Reached[ClassSitesPlace] | None:
        """The Gaussians of some site parameters; None where one is improper."""
        found = [self.form.solve(parameters) for parameters in _by_class(gamma, nu)]
        solutions = [solution for solution in found if solution is not None]
        if len(solutions) < len(found):
            return None
        x = np.stack([solution.x for solution in solutions], axis=1)
        variance = np.stack([self.form.variances(solution) for solution in solutions], axis=1)
        value, pull, curvature = self.link.expected_log(x, variance[:, :, None] * np.eye(x.shape[1]), self.label)
        bound = float(np.sum(value))
        bound += sum(self.form.gaussian_terms(*pair) for pair in zip(solutions, variance.T, strict=True))
        if not np.isfinite(bound):
            return None
        gamma_hat, slope = np.einsum("nkk->nk", curvature).copy(), pull - nu + gamma * x
        gradient = self._gradient(solutions, variance, gamma - gamma_hat, slope)
        nu_hat = self._joint_target(solutions, gamma, nu, x, curvature, gamma_hat, slope)
        return begin_at(ClassSitesPlace(gamma, nu, x, variance, gamma_hat, nu_hat), bound, gradient, 2 * x.size)

    def _gradient(self, solutions: list[Solution], variance: Array, excess: Array, slope: Array) -> float:
        """Largest entry in the whitened means; once these are small, also in the covariances."""
        size = max(float(np.abs(self.form.projections.transposed_times(g)).max(initial=0.0)) for g in slope.T.copy())
        if size > self.tol:
            return size
        parts = zip(solutions, variance.T, excess.T, strict=True)
        return max(size, *(self.form.covariance_gradient(*part) for part in parts))

    def _joint_target(
        self,
        solutions: list[Solution],
        gamma: Array,
        nu: Array,
        x: Array,
        curvature: Array,
        gamma_hat: Array,
        slope: Array,
    ) -> Array:
        """ν with which γ̂ has the means x + d: ν̂ = ν − γx + S⁻¹d − γd + γ̂(x + d)."""
        move, pulled = self._joint_step(solutions, gamma, curvature, slope)
        return nu - gamma * (x + move) + pulled + gamma_hat * (x + move)

    def _joint_step(
        self, solutions: list[Solution], gamma: Array, curvature: Array, slope: Array
    ) -> tuple[Array, Array]:
        """d and S⁻¹d; every direction p is kept with q = S⁻¹p, so that products with S are all it takes."""
        step, pulled, left = np.zeros_like(slope), np.zeros_like(slope), slope
        turned = self._times_covariances(solutions, left)
        size = first = float(np.sum(left * turned))
        p, q = turned, left
        for _ in range(MOST):
            if size <= SOLVED**2 * first:
                break
            # (S⁻¹ + W − Γ)p
            product = q + np.einsum("nkj,nj->nk", curvature, p) - gamma * p
            bend = float(np.sum(p * product))
            if bend <= 0.0:
                break
            length = size / bend
            step, pulled, left = step + length * p, pulled + length * q, left - length * product
            turned = self._times_covariances(solutions, left)
            size, before = float(np.sum(left * turned)), size
            p, q = turned + (size / before) * p, left + (size / before) * q
        return step, pulled

    def _times_covariances(self, solutions: list[Solution], pull: Array) -> Array:
        rows = self.form.projections
        return np.stack(
            [
                rows.times(solution.precision.solve(rows.transposed_times(g)))
                for solution, g in zip(solutions, pull.T.copy(), strict=True)
            ],
            axis=1,
        )

    def evaluate(self, place: ClassSitesPlace) -> Reached[ClassSitesPlace] | None:
        return self.at(place.gamma, place.nu)

    def encode(self, place: ClassSitesPlace) -> tuple[Array, Array]:
        return self._vector(place.gamma, place.nu), self._vector(place.gamma_hat, place.nu_hat)

    def _vector(self, gamma: Array, nu: Array) -> Array:
        logs = self.weight * np.log(np.maximum(gamma, FLOOR))
        return np.concatenate([logs.ravel(), (self.spread * nu).ravel()])

    def decode(self, point: Array) -> Reached[ClassSitesPlace] | None:
        logs, nu = (part.reshape(self.label.shape) for part in np.split(point, 2))
        return self.at(np.exp(np.minimum(logs / self.weight, 300.0)), nu / self.spread)

    def move(self, place: ClassSitesPlace, length: float) -> Reached[ClassSitesPlace] | None:
        gamma = place.gamma + length * (place.gamma_hat - place.gamma)
        return self.at(gamma, place.nu + length * (place.nu_hat - place.nu))

    def newton(self, now: Reached[ClassSitesPlace]) -> None:
        return None

    def deviation(self, place: ClassSitesPlace) -> float:
        excess = place.gamma_hat - place.gamma
        shift = (place.nu_hat - place.nu - excess * place.x) * np.sqrt(place.variance)
        return max(float(np.abs(part).max(initial=0.0)) for part in (shift, excess * place.variance))


class ClassSitesFit(NamedTuple):
    """The ascent, and the site parameters of every class."""

    ascent: Ascent[Reached[ClassSitesPlace]]
    sites: tuple[SiteParameters, ...]


def fit_classes(
    form: SiteForm,
    link: ClassLink,
    label: Array,
    rules: Rules,
    start: tuple[SiteParameters, ...] = (),
    verbose: bool = False,
) -> ClassSitesFit:
    """The Gaussians of all classes, from the sites of a neighbouring fit or from equal shares.

    Parameters
    ----------
    form : SiteForm
        Prior and projections of one class.
    link : ClassLink
    label : ndarray of shape (n, K)
    rules : Rules
    start : tuple of SiteParameters
        One per class.
    """
    if start:
        gamma, nu = (np.stack([getattr(one, name) for one in start], axis=1) for name in ("gamma", "nu"))
    else:
        count = label.shape[1]
        _, nu, curvature = link.expected_log(np.zeros_like(label), np.zeros((len(label), count, count)), label)
        gamma = np.einsum("nkk->nk", curvature).copy()
    one = np.ones_like(label)
    first = ClassSites(form, link, label, rules.gradient_tol, one, one).at(gamma, nu)
    if first is None:
        raise ValueError("the classes have no finite bound under this prior; rescale the inputs or the kernel")
    variance = first.place.variance
    units = np.maximum(gamma * variance, TINY), np.sqrt(np.maximum(variance, TINY))
    bound = ClassSites(form, link, label, rules.gradient_tol, *units)
    ascent = maximise_bound(bound, first, rules, verbose)
    place = ascent.state.place
    return ClassSitesFit(ascent, _by_class(place.gamma, place.nu))


def _by_class(gamma: Array, nu: Array) -> tuple[SiteParameters, ...]:
    return tuple(SiteParameters(g.copy(), n.copy()) for g, n in zip(gamma.T, nu.T, strict=True))


# --- Gaussian KL for several classes with one Gaussian each: P(y | f) by a link of `class_links`, f_k = hᵀw_k.
#
# Coordinates are whitened, w_k ~ N(0, I). `latlin.inference.gaussian_kl.classes` has one Gaussian of all classes; here
# they are independent in q, which costs K matrices instead of one of K times the size. The link bounds ⟨log P(y | f)⟩
# from below, so that the whole is a lower bound. Steps are natural gradients, the means of all classes together, since
# they move against each other.


#: how well the joint step of the means is solved for, and in how many products at most
SUMS_SOLVED, SUMS_MOST = 1e-3, 100


class ClassSumsPlace(NamedTuple):
    """One Gaussian N(m_k, P_k⁻¹) per class, the bound's slopes in the means, P̂_k, and the curvatures W of every row."""

    m: Array
    precision: Array
    slope: Array
    precision_hat: Array
    curvature: Array


@dataclass(frozen=True)
class ClassSums(ClassBound):
    """The bound of one Gaussian per class in coordinates whitened by the prior, as the ascent asks for it.

    Parameters
    ----------
    units : tuple of ndarray of shape (dim, dim)
        U_k with U_kᵀU_k the first precision of a class.
    """

    units: tuple[Array, ...] = ()
    first: float = HALF

    def at(self, m: Array, precision: Array) -> Reached[ClassSumsPlace] | None:
        """The Gaussians of some means and precisions; None where one is improper."""
        chols = [chol for chol in map(try_cholesky, precision) if chol is not None]
        if len(chols) < len(precision):
            return None
        found = self.expected(m, self.covariances([chol.factor for chol in chols]))
        bound = self.energy(found)
        for each, chol in zip(m, chols, strict=True):
            # −KL(q ‖ N(0, I))
            bound -= 0.5 * float(each @ each + np.trace(chol.inverse()) - len(each) + chol.log_det)
        if not np.isfinite(bound):
            return None
        slope, hat = self.pulled(found.slope) - m, self._precisions(found.curvature)
        gradient = float(np.abs(slope).max(initial=0.0))
        for chol, now, then in zip(chols, precision, hat, strict=True):
            gradient = max(gradient, float(np.abs(chol.whiten(symmetrise(now - then))).max(initial=0.0)))
        size = len(m) * m.shape[1] * (m.shape[1] + 3) // 2
        return begin_at(ClassSumsPlace(m, precision, slope, hat, found.curvature), bound, gradient, size)

    def covariances(self, factors: list[Array]) -> Array:
        """Covariances of f, (n, K, K), diagonal, from the factors of the precisions."""
        v = np.stack([self.projections.variances(factor) for factor in factors], axis=1) + self.data.extra
        return v[:, :, None] * np.eye(self.count)

    def _precision(self, gamma: Array) -> Array:
        total = np.triu(self.projections.gram(gamma))
        total[np.diag_indices(len(total))] += 1.0
        return np.asfortranarray(total)

    def near_mode(self) -> tuple[Array, Array]:
        """Means near the mode, by Newton's method, and the precisions there."""

        def step(m: Array, found: ClassExpectation) -> Array:
            hat = self._precisions(found.curvature)
            place = ClassSumsPlace(m, hat, self.pulled(found.slope) - m, hat, found.curvature)
            return self._joint_step(place, [cholesky(p) for p in hat])

        def expand(m: Array) -> tuple[float, ClassExpectation]:
            found = self.expected_at(m)
            return self.energy(found), found

        m, found = climb_to_mode(expand, step, np.zeros((self.count, self.projections.shape[1])))
        return m, self._precisions(found.curvature)

    def _precisions(self, curvature: Array) -> Array:
        """P̂_k = I + Σ_n W_nkk h̃_n h̃_nᵀ of every class."""
        own = self.data.weight * np.einsum("nkk->nk", curvature)
        return np.stack([self._precision(np.ascontiguousarray(g)) for g in own.T])

    def evaluate(self, place: ClassSumsPlace) -> Reached[ClassSumsPlace] | None:
        return self.at(place.m, place.precision)

    def encode(self, place: ClassSumsPlace) -> tuple[Array, Array] | None:
        targets = [try_cholesky(hat) for hat in place.precision_hat]
        known = [target for target in targets if target is not None]
        if len(known) < len(targets):
            return None
        m_hat = place.m + self._joint_step(place, known)
        here = [pack(*each) for each in zip(self.units, place.m, place.precision, strict=True)]
        there = [pack(*each) for each in zip(self.units, m_hat, place.precision_hat, strict=True)]
        return np.concatenate(here), np.concatenate(there)

    def _joint_step(self, place: ClassSumsPlace, targets: list[Cholesky]) -> Array:
        """A⁻¹ slope for all means together, A = I + Σ_n W_n ⊗ h̃_n h̃_nᵀ."""
        shape, projections = place.m.shape, self.projections

        def times(flat: Array) -> Array:
            d = flat.reshape(shape)
            x = np.stack([projections.times(each) for each in d], axis=1)
            return (d + self.pulled(np.einsum("nkj,nj->nk", place.curvature, x))).ravel()

        def solve(flat: Array) -> Array:
            return np.concatenate([t.solve(part) for t, part in zip(targets, flat.reshape(shape), strict=True)])

        size = place.m.size
        operator, preconditioner = (
            LinearOperator((size, size), matvec=product, dtype=float) for product in (times, solve)
        )
        step = cg(operator, place.slope.ravel(), rtol=SUMS_SOLVED, maxiter=SUMS_MOST, M=preconditioner)[0]
        return np.asarray(step.reshape(shape))

    def decode(self, point: Array) -> Reached[ClassSumsPlace] | None:
        parts = [unpack(*pair) for pair in zip(self.units, np.split(point, len(self.units)), strict=True)]
        return self.at(np.stack([m for m, _ in parts]), np.stack([precision for _, precision in parts]))

    def move(self, place: ClassSumsPlace, length: float) -> Reached[ClassSumsPlace] | None:
        precision = place.precision + length * (place.precision_hat - place.precision)
        chols = [chol for chol in (try_cholesky(p) for p in precision) if chol is not None]
        if len(chols) < len(precision):
            return None
        return self.at(place.m + length * self._joint_step(place, chols), precision)

    def newton(self, now: Reached[ClassSumsPlace]) -> None:
        return None

    def deviation(self, place: ClassSumsPlace) -> float:
        shifts = [cholesky(p).whiten(g) for p, g in zip(place.precision, place.slope, strict=True)]
        return max(float(np.abs(shift).max(initial=0.0)) for shift in shifts)


def climb_classes(
    bound: ClassSums, first: Reached[ClassSumsPlace] | None, rules: Rules, verbose: bool = False
) -> tuple[ClassSums, Ascent[Reached[ClassSumsPlace]]]:
    """The ascent from a first place, and the bound in its units."""
    if first is None:
        raise ValueError("the coefficients of the classes have no finite bound; rescale the columns of X")
    bound = replace(bound, units=tuple(cholesky(p).factor for p in first.place.precision))
    return bound, maximise_bound(bound, first, rules, verbose)


def stand_ins_at(bound: ClassSums, place: ClassSumsPlace) -> tuple[SiteParameters, ...]:
    """γ and ν of each class with respect to x = hᵀw."""
    factors = [cholesky(p).factor for p in place.precision]
    return bound.stand_ins(place.m, bound.expected(place.m, bound.covariances(factors)))

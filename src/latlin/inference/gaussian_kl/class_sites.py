"""Gaussian KL for several classes in site form: one latent function per class, all with one prior and one link.

q has one Gaussian per class, in the family of `latlin.inference.forms.site_family`: two numbers per row and class,
(γ_k, ν_k), whatever the form makes of the prior. With the bound E_n of a link of `latlin.potentials.class_links`, its
slope g_n and its curvature W_n,

    B = Σ_n E_n + Σ_k (⟨log prior⟩ + entropy)_k,   γ̂ = diag W_n,

and the means of all classes move together: their step d solves (S⁻¹ + W − Γ)d = g by conjugate gradients with the
covariances S of the classes as preconditioner, so that S⁻¹ is never formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.ascent import HALF, Reached, maximise_bound, reached
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Rules
from latlin.potentials.class_links import ClassLink

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
        return reached(ClassSitesPlace(gamma, nu, x, variance, gamma_hat, nu_hat), bound, gradient, 2 * x.size)

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

"""Gaussians in site form with exact variances, as the double loop asks for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latlin.inference.forms.site_form import SiteForm
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.local_bound.double_loop import Fit
from latlin.numerics.arrays import Array


@dataclass(frozen=True)
class ExactFamily:
    """A `SiteForm`: every matrix is min(N, D) square."""

    form: SiteForm

    @property
    def sites(self) -> Sites:
        return self.form.sites

    def log_gaussian(self, u: Array) -> float:
        return self.form.log_gaussian(u)

    def mean(self, parameters: SiteParameters, guess: Array) -> tuple[Array, Array] | None:
        solution = self.form.solve(parameters)
        return None if solution is None else (solution.u, solution.x)

    def fit(self, parameters: SiteParameters, guess: Array) -> Fit | None:
        solution = self.form.solve(parameters)
        if solution is None:
            return None
        return Fit(solution.u, solution.x, self.form.variances(solution), self.form.log_integral(solution))

    def first(self) -> tuple[Array, Array, Array]:
        """The Gaussian that the sites' typical curvature makes: (u, x, variance)."""
        gamma = self.form.sites.typical_precision()
        solution = self.form.solve(SiteParameters(gamma, np.zeros_like(gamma)))
        if solution is None:
            raise ValueError("the sites' typical curvature gives no proper Gaussian; rescale the columns of H")
        return solution.u, solution.x, self.form.variances(solution)

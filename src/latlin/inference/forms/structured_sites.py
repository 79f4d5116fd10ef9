"""What sites add to the structured Gaussian KL bound: values, gradients, Hessian products and diagonal energies.

Nothing here knows of a prior or of log det S, so that sites in memory and those of a block of rows are treated alike
(Challis (2013), B.1, corrected).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latlin.densities.structured.base import Structure
from latlin.densities.structured.rows import Rows
from latlin.inference.forms.site_curvature import SiteCurvature, site_curvature
from latlin.inference.forms.sites import Sites
from latlin.numerics.arrays import Array
from latlin.potentials.base import ExpectedLog


class SiteView(NamedTuple):
    """The image F(θ)h_n of every row, the projected moments, and the sites' expectations there."""

    image: Any
    x: Array
    variance: Array
    expected: ExpectedLog


@dataclass(frozen=True)
class StructuredSites:
    """Sites under N(m, S(θ)) for one structure.

    Parameters
    ----------
    rows : Rows
    sites : Sites
        As functions of x = Hm.
    structure : Structure
    """

    rows: Rows
    sites: Sites
    structure: Structure

    @cached_property
    def prepared(self) -> Any:
        """The rows as the structure takes them."""
        return self.structure.prepare(self.rows)

    def image(self, theta: Array) -> Any:
        return self.structure.image(theta, self.prepared)

    def view(self, m: Array, theta: Array) -> SiteView | None:
        """The sites' expectations, or None where they are not finite."""
        image = self.image(theta)
        x, variance = self.rows.times(m), self.structure.inner(image, image, self.prepared)
        expected = self.sites.finite_expected_log(x, variance)
        return None if expected is None else SiteView(image, x, variance, expected)

    def slopes(self, view: SiteView) -> tuple[Array, Array]:
        """Gradient of Σ_n ⟨ψ_n⟩ in m and θ."""
        by_theta = self.structure.pull([(2.0 * view.expected.d_var, view.image)], self.prepared)
        return self.rows.transposed(view.expected.d_mean), by_theta

    def curvature(self, view: SiteView) -> SiteCurvature:
        """Second derivatives of every ⟨ψ_n⟩: three numbers a site."""
        return site_curvature(self.sites, view.x, view.variance, view.expected)

    def products(self, image: Any, site: SiteCurvature) -> Callable[[Array, Array], tuple[Array, Array]]:
        """Exact products of minus the Hessian of Σ_n ⟨ψ_n⟩ with a direction (ṁ, θ̇)."""
        # ∂²⟨ψ⟩/∂m² = 2 ∂⟨ψ⟩/∂s²
        d_var = 0.5 * site.mm

        def product(m_dot: Array, theta_dot: Array) -> tuple[Array, Array]:
            x_dot = self.rows.times(m_dot)
            image_dot = self.image(theta_dot)
            # ṡ² = 2 (F h)·(Ḟ h)
            v_dot = 2.0 * self.structure.inner(image, image_dot, self.prepared)
            terms = [(site.mv * x_dot + site.vv * v_dot, image), (d_var, image_dot)]
            by_theta = self.structure.pull(terms, self.prepared)
            by_theta *= -2.0
            return -self.rows.transposed(site.mm * x_dot + site.mv * v_dot), by_theta

        return product

    def energies(self, d_var: Array) -> tuple[Array, Array]:
        """Diagonals in m and θ of minus the Hessian of Σ_n ⟨ψ_n⟩, the sites' curvatures held fixed."""
        gamma = site_precision(d_var)
        return self.rows.energy(gamma), self.structure.energy(gamma, self.prepared)


def site_precision(d_var: Array) -> Array:
    """γ = −2 ∂⟨ψ⟩/∂s², where it is positive."""
    return np.maximum(-2.0 * d_var, 0.0)

"""Sums over all sites that full covariances need: values, slopes H̃ᵀψ′ and curvatures H̃ᵀΓH̃.

In coordinates u whitened by the factors on w itself, w = μ + Lu. A fit that asks for these alone keeps nothing a site,
so that it is the same whether the rows are in memory or in blocks elsewhere (Challis (2013), §4.6.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance
from latlin.inference.forms.projections import Projections
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import Sites
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky


class Sums(NamedTuple):
    """Σ value, Σ h̃_n slope_n and the upper triangle of Σ γ_n h̃_n h̃_nᵀ over all sites."""

    value: float
    slope: Array
    curvature: Array


#: (projections, sites, x, *shared) → Sums over these sites
Terms = Callable[..., Sums]


def point_terms(projections: Projections, sites: Sites, x: Array) -> Sums:
    """ψ, ψ′ and −ψ″ at x."""
    first, second, _ = sites.derivatives(x)
    return _summed(projections, sites.log_density(x), first, -second)


def steady_terms(projections: Projections, sites: Sites, x: Array) -> Sums:
    """As `point_terms`, with |ψ″|, at least a share of a typical curvature, where −ψ″ may be negative."""
    first, second, _ = sites.derivatives(x)
    gamma = np.maximum(np.abs(second), 1e-3 * sites.typical_precision())
    return _summed(projections, sites.log_density(x), first, gamma)


def smoothed_terms(projections: Projections, sites: Sites, x: Array, epsilon: float) -> Sums:
    """Sites smoothed by ε of their width where they have a kink, with the size of their curvature."""
    value, slope, curvature = sites.smoothed(x, epsilon)
    return _summed(projections, value, slope, np.abs(curvature))


def typical_terms(projections: Projections, sites: Sites, x: Array) -> Sums:
    """The sites' typical curvature and nothing else."""
    return _summed(projections, np.zeros(len(x)), np.zeros(len(x)), sites.typical_precision())


def expected_terms(projections: Projections, sites: Sites, x: Array, factor: Array) -> Sums:
    """⟨ψ⟩, ∂⟨ψ⟩/∂m and γ̂ = −2 ∂⟨ψ⟩/∂s² under N(x_n, ‖C⁻ᵀh̃_n‖²); a value of −∞ where there is no finite one."""
    expected = sites.finite_expected_log(x, projections.variances(factor))
    if expected is None:
        dim = projections.shape[1]
        return Sums(-np.inf, np.zeros(dim), np.zeros((dim, dim), order="F"))
    return _summed(projections, expected.value, expected.d_mean, -2.0 * expected.d_var)


def _summed(projections: Projections, value: Array, slope: Array, gamma: Array) -> Sums:
    total = float(value.sum())
    return Sums(total if np.isfinite(total) else -np.inf, projections.transposed_times(slope), projections.gram(gamma))


@dataclass(frozen=True)
class SumForm(ABC):
    """A model whose sites are reached through sums alone.

    Parameters
    ----------
    own : SiteForm
        Of the factors on w itself; its coordinates are those of the sums.
    """

    own: SiteForm

    @abstractmethod
    def sums(self, terms: Terms, u: Array, *shared: Any) -> Sums:
        """Sums over all sites at u: one pass over the rows."""

    def slope(self, u: Array, sums: Sums) -> Array:
        """Gradient of the log joint (or of its expectation): b̃ − Λ̃u + H̃ᵀψ′."""
        return self.own.linear - self.own.times_quadratic(u) + sums.slope

    def precision(self, sums: Sums) -> Array:
        """Upper triangle of Λ̃ + H̃ᵀΓH̃."""
        p = np.asfortranarray(np.triu(sums.curvature))
        if self.own.quadratic is None:
            p[np.diag_indices(self.own.rank)] += 1.0
        else:
            p += np.triu(self.own.quadratic)
        return p

    def gaussian(self, u: Array, precision: Cholesky) -> Gaussian:
        """The Gaussian over w of a mean and a precision in these coordinates."""
        return Gaussian(self.own.weights(u), PrecisionCovariance(self.own.whitening, precision))

"""Sums that full covariances need of blocks of sites: values, slopes H̃ᵀψ′ and curvatures H̃ᵀΓH̃.

In coordinates u whitened by the own factors of the model, w = μ + Lu. The sites among the own factors are one more
block, kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.densities.whitening import Whitening
from latlin.distributed.blocks import Block, Blocks, add
from latlin.inference.block_model import BlockModel, Reading, pieces
from latlin.inference.projections import Projections
from latlin.inference.site_family import SiteForm
from latlin.inference.site_form import site_form, whitened_projections
from latlin.inference.sites import Sites

Array = NDArray[np.float64]


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


def block_sums(
    block: Block, terms: Terms, reading: Reading, whitening: Whitening, w: Array, *shared: Any
) -> tuple[Any, ...]:
    """Terms of a block at w."""
    dim = len(w)
    total: tuple[Any, ...] = Sums(0.0, np.zeros(dim), np.zeros((dim, dim), order="F"))
    for observed in pieces(block, reading):
        projections = whitened_projections(observed.rows, whitening)
        total = add(total, terms(projections, observed.sites, observed.times(w), *shared))
    return total


@dataclass(frozen=True)
class BlockForm:
    """A model of blocks in whitened coordinates.

    Parameters
    ----------
    own : SiteForm
        Of the own factors.
    blocks : Blocks
    reading : Reading
    """

    own: SiteForm
    blocks: Blocks
    reading: Reading

    def sums(self, terms: Terms, u: Array, *shared: Any) -> Sums:
        """Sums over all sites at u: one pass over the rows."""
        whitening, w = self.own.whitening, self.own.weights(u)
        total = self.blocks.total(block_sums, terms, self.reading, whitening, w, *shared)
        if len(self.own.sites):
            total = add(terms(self.own.projections, self.own.sites, self.own.projections.times(u), *shared), total)
        return Sums(float(total[0]), total[1], total[2])

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


def block_form(model: BlockModel) -> BlockForm:
    """The model in coordinates whitened by its own factors."""
    return BlockForm(site_form(model.own), model.blocks, model.reading)

"""What sparse rows decide alone: patterns that models with other priors or potentials share, and sums on their entries.

HᵀΓH has the pattern of HᵀH whatever Γ, so that one analysis serves every value of the hyperparameters. The sums that a
Gaussian KL step needs of the sites, Σ⟨ψ⟩, Hᵀ∂⟨ψ⟩/∂m, HᵀΓ̂H and Hᵀν̂, are those of parts of the rows added up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.numerics import banded
from latlin.numerics.arrays import Array, empty_array
from latlin.numerics.elimination import add_lower, lower_places, times_symmetric
from latlin.numerics.sparse_cholesky import Analysis
from latlin.numerics.weighted_gram import WeightedGram, alike_rows, has_single_entries
from latlin.potentials.base import Potential
from latlin.potentials.gaussian import Gaussian as GaussianSites

Index = NDArray[np.int64]
#: dimension from which on some coordinates are looked at first, how many, and the share of others that they may meet
SAMPLED, SAMPLE, DENSE = 2000, 64, 0.15


class SharedPattern(NamedTuple):
    """What models of the same rows share whose priors have the same pattern: only values change between them."""

    gram: WeightedGram
    indptr: NDArray[Any]
    indices: NDArray[Any]
    lower: NDArray[np.bool_]
    places: Index
    #: the last potential with HᵀΓH of the typical curvatures of its sites, the last origin with its projections
    last: dict[str, tuple[Any, Array]]

    @classmethod
    def of(cls, precision: sparse.csr_array, gram: WeightedGram) -> SharedPattern:
        """Where the entries of the prior's lower triangle stand in the analysed pattern."""
        a = gram.analysis
        own: tuple[Any, Any] = lower_places(precision.indptr, precision.indices, a.label, a.indptr, a.indices)
        return cls(gram, precision.indptr, precision.indices, *own, {})

    def has_pattern(self, precision: sparse.csr_array) -> bool:
        """Whether a prior's precision has the pattern of the one that was analysed."""
        return np.array_equal(self.indptr, precision.indptr) and np.array_equal(self.indices, precision.indices)

    def prior_entries(self, precision: sparse.csr_array) -> Array:
        """Λ on the analysed pattern."""
        entries = np.zeros(len(self.gram.analysis.indices))
        add_lower(self.lower, self.places, precision.data, entries)
        return entries

    def typical_entries(self, sites: Sites) -> Array:
        """HᵀΓH at the sites' typical curvatures; those of the last potential are kept."""
        potential: Any = sites.potentials[0] if len(sites.blocks) == 1 else None
        kept = self.last.get("typical")
        if kept is not None and kept[0] is potential:
            return kept[1]
        if kept is not None and has_one_noise(kept[0]) and has_one_noise(potential):
            # a normal density of scale σ has the curvature σ⁻² everywhere
            return kept[1] * float(np.ravel(kept[0].scale / potential.scale)[0]) ** 2
        found = self.gram.total(sites.typical_precision())
        if potential is not None:
            self.last["typical"] = (potential, found)
        return found

    def seen_from(self, origin: Array) -> Array:
        """H times a point from which w counts."""
        kept = self.last.get("origin")
        if kept is None or not np.array_equal(kept[0], origin):
            kept = self.last["origin"] = (origin, np.asarray(self.gram.rows @ origin))
        return kept[1]


def has_one_noise(potential: Potential | None) -> bool:
    """Whether all sites are normal densities of one scale."""
    return type(potential) is GaussianSites and potential.scale.size == 1


class EntrySums(NamedTuple):
    """Σ⟨ψ⟩, Hᵀ∂⟨ψ⟩/∂m, HᵀΓ̂H on the entries and Hᵀν̂ over some sites."""

    value: float
    slope: Array
    entries: Array
    pull: Array


def expected_sums(
    gram: WeightedGram, sites: Sites, deviation: Array, inverse: Array
) -> tuple[EntrySums, SiteParameters] | None:
    """The sums under the Gaussian with this mean, counted from the sites' zero, and covariance entries; the stand-ins.

    γ̂ = −2 ∂⟨ψ⟩/∂s² and ν̂ = ∂⟨ψ⟩/∂m + γ̂x. None where an expectation is not finite.
    """
    x, variance = gram.rows @ deviation, np.maximum(gram.squares(inverse), 0.0)
    expected = sites.finite_expected_log(x, variance)
    if expected is None:
        return None
    gamma = -2.0 * expected.d_var
    nu = expected.d_mean + gamma * x
    slope, entries = gram.columns @ expected.d_mean, gram.total(gamma)
    # Hᵀν̂ = Hᵀ∂⟨ψ⟩/∂m + HᵀΓ̂Hδ, as x = Hδ: no other pass over the rows
    sums = EntrySums(
        float(expected.value.sum()), slope, entries, slope + times_entries(gram.analysis, entries, deviation)
    )
    return sums, SiteParameters(gamma, nu)


# --- Patterns of precisions, and products with matrices on them.


def pattern_of(prior: sparse.csr_array, rows: sparse.csr_array) -> sparse.csr_array:
    """Where P may be non-zero."""
    if has_single_entries(rows):
        # they add to the diagonal, which is always there
        return prior
    # rows that are alike add to the same entries
    first = alike_rows(rows)
    rows = sparse.csr_array(rows[np.flatnonzero(first == np.arange(len(first)))])
    # ones, since sums leave out entries that are zero, and tiny ones of a prior are zero in single precision
    here, there = (
        sparse.csr_array((np.ones(part.nnz, np.float32), part.indices, part.indptr), shape=part.shape)
        for part in (prior, rows)
    )
    return sparse.csr_array(here + there.T @ there)


def is_hardly_sparse(rows: sparse.csr_array) -> bool:
    """Whether coordinates of a large w meet so many others in the rows that the precision is hardly sparse."""
    if rows.shape[1] < SAMPLED:
        return False
    ones = sparse.csr_array((np.ones(rows.nnz, np.float32), rows.indices, rows.indptr), shape=rows.shape)
    some = sparse.csc_array(ones)[:, :: rows.shape[1] // SAMPLE]
    return bool((some.T @ ones).nnz > DENSE * some.shape[1] * rows.shape[1])


def times_entries(analysis: Analysis, entries: Array, v: Array) -> Array:
    """Mv for the symmetric matrix M with these entries."""
    found = np.zeros(len(v))
    times_symmetric(analysis.indptr, analysis.indices, analysis.order, entries, v, found)
    return found


def times_band(analysis: Analysis, entries: Array, v: Array) -> Array | None:
    """The same quicker, where the matrix is a band as it came; None where it is none."""
    band = analysis.band
    if band is None or band.border or not all(analysis.as_it_came):
        return None
    found = empty_array(analysis.dim)
    banded.times(entries, band.inner, band.width, analysis.place, v, found)
    return found
